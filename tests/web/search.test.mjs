// The search page in a real Chromium: MODULES is where npm put its packages, PAGE the page of a quiet demo that is two queries
// before the billionth, SHOTS a folder for screenshots.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, afterEach, before, test } from "node:test";

const { MODULES, PAGE, SHOTS } = process.env;
const { chromium } = createRequire(`${MODULES}/`)("playwright-core");
const axe = createRequire(`${MODULES}/`).resolve("axe-core/axe.min.js");
const WAIT_MS = 15_000;
let browser;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
});
afterEach(() => Promise.all(browser.contexts().map(context => context.close())));
after(() => browser?.close());

/** A private window: a person of its own. */
async function visitor(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 900 }, locale: "en-US", ...options });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage(), errors = [];
  page.on("pageerror", error => errors.push(error.message));
  await page.goto(PAGE);
  await page.locator("#state[data-state=live]").waitFor();
  return { page, errors };
}

async function search(page, text) {
  await page.fill("#q", text);
  await page.keyboard.press("Enter");
  await page.locator("#answer b", { hasText: text }).waitFor();
  return page.textContent("#answer");
}

const numberOf = async (page, id) => Number((await page.textContent(id)).replaceAll(",", ""));

async function untilNumber(page, id, wanted) {
  await page.waitForFunction(([id, wanted]) => Number(document.querySelector(id).textContent.replaceAll(",", "")) === wanted, [id, wanted]);
}

test("the billionth is told so at once, in its window and no other, and again when it comes back", async () => {
  const winner = await visitor(), other = await visitor();
  await untilNumber(winner.page, "#total", 999_999_998);
  assert.match(await search(winner.page, "one before"), /is number 999,999,999 of all queries\./);
  assert.ok(await winner.page.locator("#award").isHidden());
  const sent = Date.now();
  await winner.page.fill("#q", "the billionth");
  await winner.page.keyboard.press("Enter");
  await winner.page.locator("#award").waitFor();
  console.log(`award: ${Date.now() - sent} ms from typing to the text on the page`);
  assert.equal(await winner.page.textContent("#award-number"), "1,000,000,000");
  assert.match(await winner.page.title(), /You are number 1,000,000,000/);
  await winner.page.screenshot({ path: `${SHOTS}/award.png` });
  await other.page.locator("#awards b", { hasText: "1,000,000,000" }).waitFor();
  assert.ok(await other.page.locator("#award").isHidden(), "it was somebody else");
  assert.match(await search(other.page, "one behind"), /is number 1,000,000,001|is counted/);
  assert.ok(await other.page.locator("#award").isHidden());
  await winner.page.reload();
  await winner.page.locator("#award").waitFor();
  await winner.page.click("#award-claim");
  await winner.page.locator("#award-claimed", { hasText: "Claimed: it is yours." }).waitFor();
  assert.ok(await winner.page.locator("#award-claim").isHidden());
  const proof = await winner.page.getAttribute("#award-proof", "href");
  const certificate = await (await fetch(proof)).json();
  assert.equal(certificate.award?.at, 1_000_000_000, JSON.stringify(certificate));
  // To the page of the award, the winner's token proves whose it is.
  const told = await winner.page.context().newPage();
  await told.goto(await winner.page.getAttribute("#award-page", "href"));
  await told.fill("#session", JSON.parse(await winner.page.evaluate(() => sessionStorage.getItem("session"))).session);
  await told.keyboard.press("Enter");
  await told.locator("#verdict[data-mine=yes]", { hasText: "1,000,000,000" }).waitFor();
  const late = await visitor();
  await late.page.locator("#awards b", { hasText: "1,000,000,000" }).waitFor();
  await winner.page.click("#award-close");
  assert.ok(await winner.page.locator("#award").isHidden());
  assert.deepEqual([winner.errors, other.errors], [[], []]);
});

/** The totals as data centres show them, whatever page is open. */
async function totalsOf(page, counter) {
  return page.evaluate(async counter => (await (await fetch(`/v1/counters/${counter}`)).json()).value, counter);
}

async function untilTotal(page, counter, wanted) {
  for (let n = 0; ; n += 1) {
    const value = await totalsOf(page, counter);
    assert.ok(value <= wanted, `${counter} is ${value}: ${wanted} expected`);
    if (value === wanted) return;
    assert.ok(n < 300, `${counter} stays at ${value}: ${wanted} expected`);
    await page.waitForTimeout(50);
  }
}

test("a query goes to the data centre of its country and counts once, also when reloaded, taken back or opened twice", async () => {
  const { page, errors } = await visitor();
  await search(page, "at home");
  const before = await totalsOf(page, "search/queries"), inJapan = await totalsOf(page, "search/country-JP");
  const from = new URL(page.url()).origin, session = await page.evaluate(() => sessionStorage.getItem("session"));
  await page.selectOption("#country", { label: "Japan" });
  assert.equal(await page.textContent("#home"), "counts in asia-0");
  assert.match(await search(page, "in Japan"), /Counted in asia-0/);
  await page.locator("#state", { hasText: "asia-0" }).waitFor();
  assert.notEqual(new URL(page.url()).origin, from, "it has gone there");
  assert.equal(await page.evaluate(() => sessionStorage.getItem("session")), session, "as the same visitor");
  assert.doesNotMatch(page.url(), /session/);
  for (let n = 0; n < 3; n += 1) {
    await page.reload();
    await page.locator("#answer b", { hasText: "in Japan" }).waitFor();
  }
  const tab = await page.context().newPage();
  await tab.goto(page.url());
  await tab.locator("#answer b", { hasText: "in Japan" }).waitFor();
  await page.goBack();
  await page.locator("#state[data-state=live]").waitFor();
  assert.equal(new URL(page.url()).origin, from);
  await page.goForward();
  await page.locator("#answer b", { hasText: "in Japan" }).waitFor();
  await untilTotal(page, "search/queries", before + 1);
  await untilTotal(page, "search/country-JP", inJapan + 1);
  await search(page, "another one there");
  await untilTotal(tab, "search/queries", before + 2);
  assert.deepEqual(errors, []);
});

test("a query counts where it is when its home does not answer, and when it dies on the way", async () => {
  const { page, errors } = await visitor();
  const sites = await page.evaluate(async () => (await (await fetch("/front/setup")).json()).sites);
  await search(page, "before");
  const own = sites.find(({ url }) => page.url().startsWith(url)), home = sites.find(({ dc }) => dc === "europe-1");
  const before = await totalsOf(page, "search/queries");
  await page.selectOption("#country", { label: "Netherlands" });
  await page.route(`${home.url}/**`, route => route.abort());
  assert.match(await search(page, "nobody there"), new RegExp(`Counted in ${own.dc}`));
  assert.ok(page.url().startsWith(own.url));
  // It dies when the page is there already, and its answer was on its way: it counts at one of the two.
  await page.unroute(`${home.url}/**`);
  let died = 0;
  await page.route(`${home.url}/front/hop`, async route => {
    died += 1;
    if (died === 1) await route.fetch();
    return died < 3 ? route.abort() : route.continue();
  });
  assert.match(await search(page, "dies on the way"), /Counted in europe-1/);
  assert.ok(died >= 3, "the origin did not count it: its home had it");
  await page.unroute(`${home.url}/front/hop`);
  await untilTotal(page, "search/queries", before + 2);
  assert.deepEqual(errors.filter(text => !/fetch/.test(text)), []);
});

test("what a link's author has won is not told to whoever opens it", async () => {
  const { page: author } = await visitor();
  await author.selectOption("#country", { label: "Japan" });
  for (let n = 0, answer = ""; n < 12 && !/a milestone/.test(answer); n += 1) {
    if (n > 0) await author.goto(PAGE);
    await author.locator("#state[data-state=live]").waitFor();
    await author.selectOption("#country", { label: "Japan" });
    answer = await search(author, `query ${n} of the author`);
  }
  await author.locator("#award").waitFor();
  const text = await author.textContent("#answer b");
  const { page } = await visitor();
  await page.goto(author.url());
  await page.locator("#answer b", { hasText: text.slice(1, -1) }).waitFor();
  assert.match(await page.textContent("#answer"), /a milestone/);
  assert.ok(await page.locator("#award").isHidden());
});

test("a link of somebody else's is counted for whom it says, and does not make one that visitor", async () => {
  const { page: author } = await visitor();
  await author.selectOption("#country", { label: "Japan" });
  await search(author, "a trap");
  const theirs = JSON.parse(await author.evaluate(() => sessionStorage.getItem("session")));
  const link = `${author.url()}&${new URLSearchParams({ session: theirs.session, expires: theirs.expires })}`;
  const context = await browser.newContext();
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  await page.goto(link);
  await page.locator("#answer b", { hasText: "a trap" }).waitFor();
  const own = JSON.parse(await page.evaluate(() => sessionStorage.getItem("session")));
  assert.notEqual(own.session, theirs.session);
});

test("a query whose answer is lost is sent again and counts once", async () => {
  const { page } = await visitor();
  await page.waitForFunction(() => document.querySelector("#visitors").textContent.trim() !== "");
  const before = await numberOf(page, "#visitors");
  let lost = 0;
  await page.route("**/front/query", async route => {
    if (lost >= 2) return route.continue();
    lost += 1;
    await route.fetch();
    await route.abort();
  });
  await search(page, "twice lost");
  assert.equal(lost, 2);
  await search(page, "and another");
  await untilNumber(page, "#visitors", before + 2);
});

test("every tenth query of visitors is a milestone of theirs", async () => {
  const { page, errors } = await visitor();
  for (let n = 0; n < 10 && await page.locator("#award").isHidden(); n += 1) await search(page, `query ${n}`);
  assert.equal(Number(await page.textContent("#award-number")) % 10, 0);
  assert.match(await page.textContent("#award-text"), /visitors’ own queries/);
  assert.deepEqual(errors, []);
});

test("without WebSockets the page lives on events", async () => {
  const context = await browser.newContext({ viewport: { width: 1000, height: 900 } });
  context.setDefaultTimeout(WAIT_MS);
  const page = await context.newPage();
  await page.addInitScript(() => {
    globalThis.WebSocket = class { constructor() { setTimeout(() => this.onclose({ reason: "blocked" })); } close() {} };
  });
  await page.goto(PAGE);
  await page.locator("#state[data-state=live]").waitFor();
  const { page: other } = await visitor();
  await search(other, "from elsewhere");
  await untilNumber(page, "#total", await numberOf(other, "#total"));
});

test("what was typed is text, too long is cut, and a forged session is told so", async () => {
  const { page, errors } = await visitor();
  await search(page, "<img src=x onerror=alert(1)>");
  assert.equal(await page.locator("#answer img").count(), 0);
  const refused = await page.evaluate(async () => {
    const ask = async (session, body) => {
      const response = await fetch("/front/query", { method: "POST", headers: { authorization: `Session ${session}` }, body });
      return [response.status, (await response.json()).error.code];
    };
    const own = JSON.parse(sessionStorage.getItem("session")).session, id = "0".repeat(32);
    const forged = own.replace(/\.search$/, ".default");
    return [
      await ask(forged, JSON.stringify({ q: "x", id })), await ask(own, JSON.stringify({ q: "x".repeat(2_000), id })),
      await ask(own, JSON.stringify({ q: "x", id: "7" })), await ask(own, "{"),
    ];
  });
  assert.deepEqual(refused, [[401, "session_forged"], [400, "query"], [400, "id"], [400, "malformed_body"]]);
  assert.deepEqual(errors, []);
});

for (const colorScheme of ["light", "dark"]) {
  test(`on a phone, with the keyboard, ${colorScheme}: it fits, and nothing is hard to reach or to read`, async () => {
    const { page } = await visitor({ viewport: { width: 360, height: 740 }, colorScheme, reducedMotion: "reduce" });
    await search(page, "on a phone");
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${overflow} px too wide`);
    await page.focus("#q");
    const reached = [];
    for (let n = 0; n < 3; n += 1) {
      await page.keyboard.press("Tab");
      reached.push(await page.evaluate(() => document.activeElement.id || document.activeElement.tagName));
    }
    assert.deepEqual(reached, ["go", "country", "A"]);
    // Its own script, apart from what the page's policy lets in.
    await page.evaluate((await import("node:fs")).readFileSync(axe, "utf8"));
    const { violations } = await page.evaluate(() => axe.run());
    assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map(node => node.html)]), []);
    await page.screenshot({ path: `${SHOTS}/phone-${colorScheme}.png`, fullPage: true });
  });
}

test("the page is light", async () => {
  const context = await browser.newContext();
  const page = await context.newPage(), sizes = [];
  page.on("response", async response => sizes.push((await response.body().catch(() => "")).length));
  const begun = Date.now();
  await page.goto(PAGE);
  await page.locator("#state[data-state=live]").waitFor();
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  console.log(`first load: ${bytes} bytes uncompressed, live after ${Date.now() - begun} ms`);
  assert.ok(bytes < 60_000, `${bytes} bytes`);
});
