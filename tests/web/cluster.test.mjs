// The page of the cluster in a real Chromium, against a demo that counts and has a milestone every few seconds.

import assert from "node:assert/strict";
import { test } from "node:test";
import { PAGE, SHOTS, bytesOf, fits, isAccessible, live, numberOf, windows } from "./browser.mjs";

const CLUSTER = new URL("/cluster?counter=search/queries", PAGE).href;
const BYTES_MAX = 60_000;
const opened = windows();

async function visit(options = {}, { url = CLUSTER, clock = false } = {}) {
  const { page, errors, answers } = await opened(options);
  if (clock) await page.clock.install();
  const begun = Date.now();
  await page.goto(url);
  await live(page);
  return { page, errors, first: answers.slice(), ms: Date.now() - begun };
}

const numberIn = async locator => numberOf(await locator.textContent());

test("the page is light and soon there, with the total and all data centres", async () => {
  const { page, errors, first, ms } = await visit();
  assert.equal(await page.locator("#map .dc").count(), 15);
  assert.equal(await page.locator("#rows tr").count(), 15);
  assert.equal(await page.locator("#map .link").count(), 14);
  const before = await numberIn(page.locator("#total"));
  await page.waitForFunction(before => Number(document.querySelector("#total").textContent.replaceAll(",", "")) > before, before);
  await page.waitForFunction(() => document.querySelector("#chart .line") && /now [\d,]+ per second/.test(document.querySelector("#chart").ariaLabel));
  // The first answer about the counter is in it too.
  const bytes = await bytesOf(first);
  console.log(`cluster page: ${bytes} bytes in ${first.length} answers, live after ${ms} ms`);
  assert.ok(bytes < BYTES_MAX, `${bytes} bytes`);
  assert.deepEqual(errors, []);
});

test("with the keyboard: one stop on the map, arrows go from west to east, the panel shows who has the focus", async () => {
  const { page, errors } = await visit();
  await page.focus("#to-time");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.dataset.dc), await page.textContent("#panel h2"));
  await page.keyboard.press("Home");
  assert.equal(await page.textContent("#panel h2"), "usa-7");
  await page.keyboard.press("ArrowLeft");
  assert.match(await page.textContent("#panel h2"), /^asia-/);
  assert.match(await page.textContent("#panel"), /Mode(rights|sequenced).*Round trip[\d.]+ ms.*Last change[\d.]+ m?s ago/);
  // It stays where it is when values come.
  for (const _ of [1, 2, 3]) {
    const before = await page.textContent("#total");
    await page.waitForFunction(before => document.querySelector("#total").textContent !== before, before);
  }
  assert.match(await page.evaluate(() => document.activeElement.dataset.dc), /^asia-/);
  await page.keyboard.press("Tab");
  assert.notEqual(await page.evaluate(() => document.activeElement.dataset.dc), "usa-0", "no second stop on the map");
  assert.deepEqual(errors, []);
});

test("an award goes its way on the map and is listed with its certificate", async () => {
  const { page, errors } = await visit();
  await page.locator("#map .dc.awarded").waitFor();
  const winner = await page.getAttribute("#map .dc.awarded", "data-dc");
  await page.locator("#map .way").first().waitFor({ state: "attached" });
  const item = page.locator("#awards li").first();
  assert.ok((await item.locator("span").textContent()).startsWith(winner));
  assert.match(await item.locator("time").getAttribute("datetime"), /^20.*Z$/);
  const certificate = await (await fetch(new URL(await item.locator("a").last().getAttribute("href"), PAGE))).json();
  const at = await numberIn(item.locator("b"));
  assert.equal(certificate.award.at, at);
  assert.equal(await item.locator("a").first().getAttribute("href"), `/award?counter=search%2Fqueries&at=${at}`);
  await page.locator("#chart text.mark").waitFor({ state: "attached" });
  await page.locator("#map .way.out").first().waitFor({ state: "attached" });
  await page.screenshot({ path: `${SHOTS}/cluster.png` });
  assert.deepEqual(errors, []);
});

for (const colorScheme of ["light", "dark"]) {
  test(`on a phone, without movement, ${colorScheme}: it fits, a tap chooses, nothing is hard to reach or to read`, async () => {
    const options = { viewport: { width: 360, height: 740 }, colorScheme, reducedMotion: "reduce", hasTouch: true };
    const { page, errors } = await visit(options);
    await fits(page);
    await page.locator("#map [data-dc=sa-0]").tap();
    assert.equal(await page.textContent("#panel h2"), "sa-0");
    await page.locator("#rows button", { hasText: "europe-2" }).click();
    assert.equal(await page.textContent("#panel h2"), "europe-2");
    await page.locator("#map .dc.awarded").waitFor();
    assert.equal(await page.locator("#map .spark").count(), 0, "nothing moves");
    await isAccessible(page);
    await fits(page);
    await page.screenshot({ path: `${SHOTS}/cluster-phone-${colorScheme}.png`, fullPage: true });
    assert.deepEqual(errors, []);
  });
}

test("on a desk it is accessible too, in dark and in light", async () => {
  for (const colorScheme of ["dark", "light"]) {
    const { page } = await visit({ colorScheme, reducedMotion: "reduce" });
    await isAccessible(page);
    await page.screenshot({ path: `${SHOTS}/cluster-${colorScheme}.png`, fullPage: true });
  }
});

test("who looks away asks nothing", async () => {
  const { page } = await visit({}, { clock: true });
  // Counted where they are made: a browser may tell of a request after what is evaluated later.
  await page.evaluate(() => {
    const { fetch } = window, looks = window.looks = { begun: 0, ended: 0 };
    window.fetch = async (...request) => {
      looks.begun += 1;
      await looks.held;
      return fetch(...request).finally(() => { looks.ended += 1; });
    };
  });
  // One is made after the other, so none from before is on its way then.
  await page.waitForFunction(() => looks.ended > 0);
  const begun = () => page.evaluate(() => looks.begun);
  const hide = hidden => page.evaluate(hidden => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  const asksNothing = async () => {
    await page.waitForFunction(() => looks.ended === looks.begun);
    const before = await begun();
    await page.clock.fastForward(60_000);
    assert.equal(await begun(), before);
  };
  await hide(true);
  await asksNothing();
  // And one who looks away while an answer is on its way.
  await page.evaluate(() => { looks.held = new Promise(resolve => { looks.release = resolve; }); });
  const before = await begun();
  await hide(false);
  assert.equal(await begun(), before + 1);
  await hide(true);
  await page.evaluate(() => looks.release());
  await asksNothing();
  await hide(false);
  await page.waitForFunction(() => looks.ended === looks.begun);
});

test("where reading needs a token, the page asks for it, keeps it behind the address, and shows it for a certificate too", async () => {
  const { page } = await opened(), shown = [];
  await page.route(/\/v1\/(cluster|awards)/, async route => {
    const { authorization } = await route.request().allHeaders();
    shown.push(authorization);
    if (authorization === "Bearer sesame") return route.continue();
    return route.fulfill({ status: 401, json: { error: { code: "unauthorized", message: "a token is needed" } } });
  });
  await page.goto(CLUSTER);
  for (const [token, seen] of [["wrong", "#ask-text:text('not the server')"], ["sesame", "#map .dc >> nth=0"]]) {
    await page.locator("#token").waitFor();
    await page.fill("#token", token);
    await page.keyboard.press("Enter");
    await page.locator(seen).waitFor();
  }
  assert.equal(new URL(page.url()).hash, "#token=sesame");
  const saving = page.waitForEvent("download");
  await page.locator("#awards a:last-child").first().click();
  assert.match((await saving).suggestedFilename(), /^certificate-\d+\.json$/);
  assert.deepEqual([shown[0], shown[1], shown.at(-1)], [undefined, "Bearer wrong", "Bearer sesame"]);
  assert.match(await page.locator("#awards a").first().getAttribute("href"), /^\/award\?.*#token=sesame$/);
});

test("without a counter the page asks for one, and a wrong one is told so", async () => {
  const { page } = await opened();
  await page.goto(new URL("/cluster", PAGE).href);
  await page.fill("#counter", "nonsense");
  await page.keyboard.press("Enter");
  await page.locator("#ask-text", { hasText: "names no counter" }).waitFor();
  await page.fill("#counter", "search/queries");
  await page.keyboard.press("Enter");
  await page.locator("#map .dc").first().waitFor();
  await page.click("#to-counters");
  await page.locator("#rows a", { hasText: "search/queries" }).first().waitFor();
  await page.locator("#rows a[aria-label='search/queries on the map']").click();
  await page.locator("#map .dc").first().waitFor();
});
