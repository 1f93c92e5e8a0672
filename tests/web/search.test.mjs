// The search page in a real Chromium, against a quiet demo that is two queries before the billionth. TOKEN is its
// operator's.

import assert from "node:assert/strict";
import { test } from "node:test";
import { PAGE, SHOTS, bytesOf, fits, isAccessible, live, number, numberOf, tabbed, windows } from "./browser.mjs";

const { TOKEN } = process.env;
const BYTES_MAX = 40_000;
const opened = windows();

/** A private window: a person of its own. */
async function visitor(options = {}) {
  const { page, errors, answers } = await opened({ viewport: { width: 1000, height: 900 }, ...options });
  await page.goto(PAGE);
  await live(page);
  return { page, errors, answers };
}

async function search(page, text) {
  await page.fill("#q", text);
  await page.keyboard.press("Enter");
  await page.locator("#answer b", { hasText: text }).waitFor();
  return page.textContent("#answer");
}

const numberIn = async (page, id) => numberOf(await page.textContent(id));

async function untilNumber(page, id, wanted) {
  await page.waitForFunction(([id, wanted]) => Number(document.querySelector(id).textContent.replaceAll(",", "")) === wanted, [id, wanted]);
}

test("the billionth is told so at once, in its window and no other, and again when it comes back", async () => {
  const winner = await visitor(), other = await visitor();
  await untilNumber(winner.page, "#total", 999_999_998);
  await search(winner.page, "one before");
  await winner.page.locator("#answer", { hasText: "is number 999,999,999 of all queries." }).waitFor();
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

test("a place that is not known in time is shown once it is known", async () => {
  const { page, errors } = await visitor();
  let isFirst = true;
  await page.route(/\/front\/(query|hop)$/, async route => {
    const response = await route.fetch(), body = await response.json();
    if (body.counted && isFirst) {
      body.counted = body.counted.map(({ counter }) => ({ counter, place: "pending" }));
      isFirst = false;
    }
    await route.fulfill({ response, json: body });
  });
  const before = await totalsOf(page, "search/queries");
  assert.match(await search(page, "placed later"), /its place will be known in a moment/);
  await page.locator("#answer", { hasText: /is number [\d,]+ of all queries\.|is counted among all queries\./ }).waitFor();
  await untilTotal(page, "search/queries", before + 1);
  assert.ok(!isFirst);
  assert.deepEqual(errors, []);
});

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
  await live(page);
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
    await live(author);
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
  const { page } = await opened();
  await page.goto(link);
  await page.locator("#answer b", { hasText: "a trap" }).waitFor();
  const own = JSON.parse(await page.evaluate(() => sessionStorage.getItem("session")));
  assert.notEqual(own.session, theirs.session);
});

test("a query whose answer is lost is sent again and counts once", async () => {
  const { page } = await visitor();
  await page.waitForFunction(() => document.querySelector("#visitors").textContent.trim() !== "");
  const before = await numberIn(page, "#visitors");
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
  const { page } = await opened();
  await page.addInitScript(() => {
    globalThis.WebSocket = class { constructor() { setTimeout(() => this.onclose({ reason: "blocked" })); } close() {} };
  });
  await page.goto(PAGE);
  await live(page);
  const { page: other } = await visitor();
  await search(other, "from elsewhere");
  await untilNumber(page, "#total", await numberIn(other, "#total"));
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

/** What a page has to be in each of its states: light and dark, on a desk, and on a phone without movement. */
const LOOKS = [
  ["light", 1000, 900, "no-preference"], ["dark", 1000, 900, "no-preference"], ["light", 360, 740, "reduce"], ["dark", 360, 740, "reduce"],
];

async function looksGood(page, state) {
  for (const [colorScheme, width, height, reducedMotion] of LOOKS) {
    await page.emulateMedia({ colorScheme, reducedMotion });
    await page.setViewportSize({ width, height });
    await fits(page);
    await isAccessible(page);
    await page.screenshot({ path: `${SHOTS}/search-${state}-${width}-${colorScheme}.png`, fullPage: true });
  }
}

/** What an operator asks of the data centre that a page is at. */
async function operator(page, method, path, body) {
  const headers = { authorization: `Bearer ${TOKEN}` };
  const response = await fetch(new URL(path, page.url()), { method, headers, body: JSON.stringify(body) });
  const answer = await response.json();
  assert.ok(response.ok, JSON.stringify(answer));
  return answer;
}

/** For so long visitors' awards to come may be claimed. */
const claimedFor = (page, period_s, fallback) => operator(page, "PUT", "/v1/counters/search/visitors/claims", { period_s, fallback });

/** Searches until that is a milestone; its number. */
async function win(page) {
  for (let n = 0; n < 12 && await page.locator("#award").isHidden(); n += 1) await search(page, `query ${n}`);
  return numberIn(page, "#award-number");
}

const claimSays = (page, text) => page.locator("#award-claimed", { hasText: text }).waitFor();

test("what may be claimed is claimed from the card or from the list, and the page says how that stands", async () => {
  const { page, errors } = await visitor();
  await looksGood(page, "before");
  await search(page, "a first one");
  await looksGood(page, "answered");
  await claimedFor(page, 3_600, "nobody");
  const at = await win(page), listed = page.locator("#yours li", { hasText: `${number.format(at)} of all visitors’ own queries` });
  await page.locator("#award-claim").waitFor();
  await page.locator("#award-left", { hasText: /^until .*, (60 min 00|59 min \d\d) s left$/ }).waitFor();
  assert.ok(await listed.isHidden(), "it stands in the card");
  await looksGood(page, "open");
  await page.click("#award-close");
  await listed.waitFor();
  await looksGood(page, "closed");
  await listed.locator("button").click();
  await listed.locator("span", { hasText: "Claimed: it is yours." }).waitFor();
  assert.ok(await listed.locator("button").isHidden());
  await page.locator("#awards li.mine", { hasText: number.format(at) }).waitFor();
  await page.reload();
  await claimSays(page, "Claimed: it is yours.");
  await looksGood(page, "claimed");
  assert.deepEqual(errors, []);
});

test("who does not claim in time is told where it went, and who gets it, that it came", async () => {
  const { page: slow, errors } = await visitor(), { page: next } = await visitor();
  // Long enough for the next one to be looked at before it claims.
  await claimedFor(slow, 10, "next_award");
  const first = await win(slow);
  await claimSays(slow, "You have not claimed it in time: it passes to the winner of the next one.");
  await looksGood(slow, "waiting");
  await claimedFor(slow, 3_600, "nobody");
  const second = await win(next);
  await claimSays(next, `With it goes number ${number.format(first)}: that was not claimed in time, and has passed to you.`);
  await looksGood(next, "passed-to-me");
  await next.click("#award-claim");
  await claimSays(next, `Claimed: it is yours, and so is number ${number.format(first)}, which was not claimed in time.`);
  // What had the focus is gone; the answer to the claim moves it, and the news of it may come before that.
  await next.waitForFunction(() => document.activeElement.id === "award-close");
  await claimSays(slow, `it has passed to the winner of number ${number.format(second)}.`);
  await looksGood(slow, "passed-on");
  await claimedFor(next, 1, "nobody");
  const { page: last } = await visitor();
  await win(last);
  await claimSays(last, "You have not claimed it in time: it has no owner.");
  await looksGood(last, "lapsed");
  await claimedFor(last, 600, "next_award");
  assert.deepEqual(errors, []);
});

test("a trial of an award is told to its visitor, and can be taken for nothing else", async () => {
  const { page, errors } = await visitor();
  await search(page, "before the trial");
  const { session } = JSON.parse(await page.evaluate(() => sessionStorage.getItem("session")));
  const at = (Math.floor(await totalsOf(page, "search/visitors") / 10) + 1) * 10;
  const { connections } = await operator(page, "POST", `/v1/awards/search/visitors/${at}/dry-run`, { session });
  assert.equal(connections, 1);
  await page.locator("#trial", { hasText: `you would be number ${number.format(at)} of all visitors’ own queries` }).waitFor();
  assert.match(await page.textContent("#trial"), /you have won nothing/);
  assert.ok(await page.locator("#award").isHidden());
  assert.match(await page.textContent("#answer"), /before the trial/, "what was said before stays");
  await looksGood(page, "trial");
  await page.click("#trial-close");
  assert.ok(await page.locator("#trial").isHidden());
  assert.deepEqual(errors, []);
});

for (const colorScheme of ["light", "dark"]) {
  test(`on a phone, with the keyboard, ${colorScheme}: it fits, and nothing is hard to reach or to read`, async () => {
    const { page } = await visitor({ viewport: { width: 360, height: 740 }, colorScheme, reducedMotion: "reduce" });
    await search(page, "on a phone");
    await fits(page);
    await page.focus("#q");
    assert.deepEqual(await tabbed(page, 3), ["go", "country", "A"]);
    await isAccessible(page);
    await page.screenshot({ path: `${SHOTS}/phone-${colorScheme}.png`, fullPage: true });
  });
}

test("the page is light", async () => {
  const { page, answers } = await opened();
  const begun = Date.now();
  await page.goto(PAGE);
  await live(page);
  const first = answers.slice(), ms = Date.now() - begun, bytes = await bytesOf(first);
  console.log(`first load: ${bytes} bytes in ${first.length} answers, live after ${ms} ms`);
  assert.ok(bytes < BYTES_MAX, `${bytes} bytes`);
});
