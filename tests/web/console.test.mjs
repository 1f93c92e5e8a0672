// The first page in a real Chromium, against `tidemark serve`: every counter by its name, awards with their time, health, and the header that
// all pages share.

import assert from "node:assert/strict";
import { test } from "node:test";
import { PAGE, SHOTS, WAIT_MS, armed, bytesOf, fits, isAccessible, live, tabbed, windows } from "./browser.mjs";

const { TOKEN } = process.env;
const BYTES_MAX = 24_000;
const opened = windows();

async function send(method, path, body) {
  const response = await fetch(new URL(path, PAGE), { method, body, headers: { authorization: `Bearer ${TOKEN}` } });
  return response.json();
}

const add = (name, delta = 1) => send("POST", `/v1/counters/${name}/add`, JSON.stringify({ delta }));

async function visit(options = {}, path = "/") {
  const window = await opened(options);
  await window.page.goto(new URL(path, PAGE).href);
  await live(window.page);
  return window;
}

const cell = (page, name, column) => page.locator("#rows tr", { hasText: name }).locator("td").nth(column);

test("without a counter it says how to count, and shows health", async () => {
  const { page, errors } = await visit({ locale: "en-US" });
  await page.locator("#empty", { hasText: "No counters yet" }).waitFor();
  assert.match(await page.textContent("#command"), /^tidemark add search\/queries/);
  await page.locator("#no-awards").waitFor();
  assert.deepEqual([await page.textContent("#ready"), await page.textContent("#dc"), await page.textContent("#leader")], ["ready", "local-0", "local-0"]);
  assert.deepEqual(await page.locator("#namespaces button").allTextContents(), ["default", "search"]);
  assert.equal(await page.locator("#ask").isVisible(), false, "reads are open: no token is asked for");
  await page.screenshot({ path: `${SHOTS}/console-empty.png`, fullPage: true });
  await isAccessible(page);
  assert.deepEqual(errors, []);
});

test("a counter that is counted appears, moves, and its award comes with its time", async () => {
  const { page, errors, answers } = await visit({ timezoneId: "Asia/Kathmandu" });
  const first = [...answers];
  await add("search/queries", 1_234);
  await cell(page, "search/queries", 0).filter({ hasText: "1,234" }).waitFor();
  await add("search/queries");
  await cell(page, "search/queries", 0).filter({ hasText: "1,235" }).waitFor();
  await send("PUT", "/v1/counters/search/queries/milestones", JSON.stringify({ at: [1_240] }));
  await armed(send, "search/queries");
  const before = Date.now();
  await add("search/queries", 10);
  const award = page.locator("#awards li").first();
  await award.waitFor();
  assert.match(await award.textContent(), /1,240.*search\/queries/);
  const time = await award.locator("time").getAttribute("datetime");
  assert.ok(Math.abs(Date.parse(time) - before) < WAIT_MS, time);
  assert.match(await award.locator("time").textContent(), /GMT\+5:45$/, "in the reader's zone");
  await award.locator("a").click();
  await page.locator("#facts time", { hasText: "GMT+5:45" }).waitFor();
  const bytes = await bytesOf(first);
  assert.ok(bytes < BYTES_MAX, `${bytes} bytes`);
  console.log(`console: ${bytes} bytes in ${first.length} answers`);
  assert.deepEqual(errors, []);
});

test("many counters come in pages, and a prefix finds some of them", async () => {
  const lines = Array.from({ length: 120 }, (_, n) => JSON.stringify({ counter: `search/page/${String(n).padStart(3, "0")}`, delta: n + 1 }));
  assert.equal((await send("POST", "/v1/add", lines.join("\n"))).added, 120);
  await add("default/plain", 7);
  const { page } = await visit({}, "/?prefix=search/page/");
  await page.locator("#rows tr").nth(49).waitFor();
  assert.equal(await page.locator("#rows tr").count(), 50);
  await page.click("#on");
  await cell(page, "search/page/050", 0).filter({ hasText: "51" }).waitFor();
  await page.click("#on");
  await cell(page, "search/page/119", 0).filter({ hasText: "120" }).waitFor();
  assert.equal(await page.locator("#rows tr").count(), 20);
  assert.ok(await page.locator("#on").isDisabled());
  await page.click("#back");
  await cell(page, "search/page/050", 0).waitFor();
  await page.fill("#prefix", "search/page/11");
  await page.locator("#rows tr", { hasText: "search/page/110" }).waitFor();
  assert.equal(await page.locator("#rows tr").count(), 10);
  await page.locator("#namespaces button", { hasText: "default" }).click();
  await cell(page, "default/plain", 0).filter({ hasText: "7" }).waitFor();
  assert.equal(await page.locator("#rows tr").count(), 1);
  await page.fill("#prefix", "");
  await page.locator("#rows tr", { hasText: "search/page/000" }).waitFor();
  assert.equal(await page.locator("#rows tr", { hasText: "default/plain" }).count(), 1, "all namespaces, one after the other");
  await page.fill("#prefix", "search/nobody");
  await page.locator("#empty", { hasText: "No counter begins with search/nobody" }).waitFor();
});

test("all pages have one header, whose links keep the counter", async () => {
  const { page } = await visit({}, "/?prefix=search/queries");
  await page.locator("#rows th a", { hasText: "search/queries" }).click();
  await page.locator("#name", { hasText: "search/queries" }).waitFor();
  const header = () => page.locator("header a").allTextContents();
  const names = ["Tidemark", "Counters", "Map", "Over time"];
  assert.deepEqual(await header(), names);
  await page.click("#to-map");
  await page.locator("#name", { hasText: "search/queries" }).waitFor();
  assert.deepEqual(await header(), names);
  assert.equal(await page.locator("nav [aria-current]").textContent(), "Map");
  await page.click("#to-counters");
  await page.locator("#rows a").first().waitFor();
  assert.deepEqual(await header(), names);
});

test("where reads are not open it asks for the token", async () => {
  const { page } = await opened();
  await page.route("**/v1/**", (route, request) => request.headers().authorization === "Bearer sesame" ? route.continue() : route.fulfill({ status: 401, json: { error: { code: "unauthorized", message: "a token is needed" } } }));
  await page.goto(new URL("/?prefix=search/queries", PAGE).href);
  await page.fill("#token", "sesame");
  await page.keyboard.press("Enter");
  await page.locator("#rows a", { hasText: "search/queries" }).first().waitFor();
  assert.equal(new URL(page.url()).hash, "#token=sesame");
  assert.match(await page.getAttribute("#to-map", "href"), /#token=sesame$/);
});

for (const [place, options] of [["desk", {}], ["phone", { viewport: { width: 390, height: 844 }, hasTouch: true }]]) {
  for (const colorScheme of ["light", "dark"]) {
    test(`on a ${place}, ${colorScheme}: it fits, and nothing is hard to reach or to read`, async () => {
      const { page, errors } = await visit({ colorScheme, ...options });
      await page.locator("#awards li").first().waitFor();
      await page.locator("#rows tr").nth(9).waitFor();
      await page.screenshot({ path: `${SHOTS}/console-${place}-${colorScheme}.png`, fullPage: place === "phone" });
      await fits(page);
      await isAccessible(page);
      await page.focus("header a");
      assert.deepEqual(await tabbed(page, 4), ["to-counters", "to-map", "to-time", "prefix"]);
      assert.deepEqual(errors, []);
    });
  }
}

test("when the server is gone it says so, and comes back by itself", async () => {
  const { page } = await visit();
  await page.route("**/v1/**", route => route.abort());
  await page.locator("#state", { hasText: "not connected; trying again" }).waitFor();
  await page.unroute("**/v1/**");
  await live(page);
});
