// The page of one counter in a real Chromium, against a data centre that keeps series: a topic tree with two months of counts, an author of
// more answers than are drawn, and a namespace without series.

import assert from "node:assert/strict";
import { test } from "node:test";
import { PAGE, SHOTS, WAIT_MS, bytesOf, fits, isAccessible, live, number, numberOf, windows } from "./browser.mjs";

const { TOKEN } = process.env;
const BYTES_MAX = 60_000;
const DAY_S = 86_400, LINES_MAX = 10_000;
const TOPIC = "search/topic/databases";
const KEEP = { keep: { "1m": "2d", "15m": "100d", "1h": "400d", "1d": "730d" }, late: "399d" };
const opened = windows();

async function send(method, path, body) {
  const response = await fetch(new URL(path, PAGE), { method, body, headers: { authorization: `Bearer ${TOKEN}` } });
  return response.json();
}

const get = path => send("GET", path);
const keyPath = counter => `/v1/counters/search/${encodeURIComponent(counter.slice("search/".length))}`;

/** Answers, their questions, and what they count in each hour of two months: more by day than by night, and more and more. */
function events(now_s) {
  const lines = [];
  for (let answer = 0; answer < 6; answer += 1) {
    for (let ago_s = 0; ago_s < 60 * DAY_S; ago_s += 3_600) {
      const hour = (now_s - ago_s) % DAY_S / 3_600, growth = 1.5 - ago_s / (60 * DAY_S);
      const delta = Math.round((12 - answer) * growth * (1.2 + Math.sin((hour - 9) / 24 * 2 * Math.PI)));
      if (delta > 0) lines.push({ counter: `search/answer/${answer}`, delta, at: now_s - ago_s });
    }
    for (let ago_s = 0; ago_s < 7_200; ago_s += 60) lines.push({ counter: `search/answer/${answer}`, delta: 1 + (ago_s / 60 + answer) % 3, at: now_s - ago_s });
  }
  for (let answer = 0; answer < 70; answer += 1) lines.push({ counter: `search/many/${answer}`, delta: answer + 1, at: now_s - 600 });
  return lines;
}

/** Waits on the condition, with a bound. */
async function until(what, look) {
  for (const end = Date.now() + WAIT_MS; !await look();) {
    assert.ok(Date.now() < end, what);
    await new Promise(done => setTimeout(done, 50));
  }
}

async function fill() {
  const now_s = Math.floor(Date.now() / 1_000) - 30;
  await send("PUT", "/v1/namespaces/search/series", JSON.stringify(KEEP));
  // What is too late is refused once groups have heard of it.
  await until("series are kept", async () => (await send("POST", "/v1/add", JSON.stringify({ counter: "search/probe", at: 9 }))).errors?.length);
  const lines = events(now_s);
  for (let at = 0; at < lines.length; at += LINES_MAX) {
    const part = lines.slice(at, at + LINES_MAX), { added } = await send("POST", "/v1/add", part.map(line => JSON.stringify(line)).join("\n"));
    assert.equal(added, part.length);
  }
  await send("POST", "/v1/add", JSON.stringify({ counter: "default/plain", delta: 7 }));
  const insert = [0, 1, 2, 3, 4, 5].map(answer => [`search/answer/${answer}`, `search/question/${answer >> 1}`]);
  insert.push(["search/question/0", TOPIC], ["search/question/1", TOPIC], ["search/question/2", "search/topic/networks"]);
  // A diamond: one answer stands below the topic itself too.
  insert.push(["search/answer/5", TOPIC], [TOPIC, "search/topic/computing"], ["search/topic/networks", "search/topic/computing"]);
  for (let answer = 0; answer < 70; answer += 1) insert.push([`search/many/${answer}`, "search/author"]);
  const { inserted } = await send("POST", "/v1/edges", JSON.stringify({ insert, unknown: "allow" }));
  assert.equal(inserted, insert.length);
  const sum = lines.filter(({ counter }) => /answer\/[01235]$/.test(counter)).reduce((sum, { delta }) => sum + delta, 0);
  await until("all is counted", async () => (await get(`${keyPath(TOPIC)}/graph`)).total === sum);
}

// Before any test: one that fails here ends the file.
await fill();


async function visit(query, options = {}) {
  const { page, errors, answers } = await opened(options), begun = Date.now();
  await page.goto(new URL(`/counter?${query}`, PAGE).href);
  await live(page);
  return { page, errors, first: answers.slice(), ms: Date.now() - begun };
}

const bars = page => page.locator("#chart .bar-of");
const counted = async page => numberOf(await page.textContent("#counted"));

test("the page is light and soon there: the last day, with its table, what is stated of it, and news as they come", async () => {
  const { page, errors, first, ms } = await visit("counter=search/answer/0");
  const bytes = await bytesOf(first);
  console.log(`counter page: ${bytes} bytes in ${first.length} answers, live after ${ms} ms`);
  assert.ok(bytes < BYTES_MAX, `${bytes} bytes`);
  const window = await get(`${keyPath("search/answer/0")}/window?last=1d`);
  assert.ok(Math.abs(await counted(page) - window.counted.value) < 20);
  assert.equal(await page.getAttribute("#spans [data-last='1d']", "aria-pressed"), "true");
  assert.match(await page.textContent("#error"), /^(The interval is covered exactly|Buckets differ from the interval by \d+ s at its beginning.*)\. Steps of 15m/);
  assert.equal(await bars(page).count(), await page.locator("#values tr").count());
  assert.ok(await bars(page).evaluateAll(bars => Math.max(...bars.map(bar => bar.getBoundingClientRect().height))) > 100, "bars can be seen");
  const cells = await page.locator("#values td:nth-child(2)").allTextContents();
  assert.ok(Math.abs(cells.reduce((sum, text) => sum + numberOf(text), 0) - window.counted.value) < 20, "the table adds up");
  assert.match(await page.getAttribute("#chart", "aria-label"), /^search\/answer\/0, in the last day: [\d,]+ in \d+ steps of 15m$/);
  await send("POST", "/v1/add", JSON.stringify({ counter: "search/answer/0", delta: 100_000 }));
  await page.waitForFunction(() => Number(document.querySelector("#counted").textContent.replaceAll(",", "")) > 100_000);
  await page.waitForFunction(() => Number(document.querySelector("#total").textContent.replaceAll(",", "")) > 100_000);
  assert.deepEqual(errors, []);
});

test("who draws over a part looks at that with finer steps; buttons zoom and move; the address says it", async () => {
  const { page, errors } = await visit("counter=search/answer/1&last=30d");
  await page.locator("#error", { hasText: "Steps of 1d" }).waitFor();
  const box = await page.locator("#chart").boundingBox(), at = share => [box.x + 52 + (box.width - 54) * share, box.y + 100];
  await page.mouse.move(...at(.505));
  await page.locator("#read", { hasText: /^\d{4}-\d\d-\d\d 00:00: \d/ }).waitFor();
  await page.mouse.down();
  await page.mouse.move(...at(.65), { steps: 5 });
  assert.equal(await page.locator("#chart .chosen").count(), 1);
  await page.mouse.up();
  await page.locator("#error", { hasText: /Steps of 2h[.,;]/ }).waitFor();
  const { searchParams } = new URL(page.url()), length = Number(searchParams.get("to")) - Number(searchParams.get("from"));
  assert.ok(length >= 4 * DAY_S && length <= 6 * DAY_S, `${length} s`);
  assert.equal(await bars(page).count(), Math.ceil(length / 7_200));
  const shown = await counted(page);
  await page.reload();
  await page.waitForFunction(shown => document.querySelector("#counted").textContent === shown, number.format(shown));
  await page.focus("#in");
  await page.keyboard.press("Enter");
  await page.locator("#error", { hasText: /Steps of 1h[.,;]/ }).waitFor();
  await page.click("#earlier");
  await page.waitForFunction(from => Number(new URL(location.href).searchParams.get("from")) < from, Number(searchParams.get("from")) + length / 4);
  await page.click("#out");
  await page.locator("#error", { hasText: /Steps of 2h[.,;]/ }).waitFor();
  await page.click("#spans [data-last='1h']");
  await page.locator("#error", { hasText: /Steps of 1m[.,;]/ }).waitFor();
  assert.equal(await page.getAttribute("#later", "aria-disabled"), "true", "nothing is later than now");
  for (const [last, every] of [["7d", "2h"], ["1y", "1w"]]) {
    await page.click(`#spans [data-last='${last}']`);
    await page.locator("#error", { hasText: `Steps of ${every}` }).waitFor();
  }
  assert.deepEqual(errors, []);
});

test("days begin by the clock of the zone that is chosen, at first the browser's", async () => {
  const { page, errors } = await visit("counter=search/answer/2&last=30d", { timezoneId: "Asia/Tokyo" });
  assert.equal(await page.inputValue("#zone"), "Asia/Tokyo");
  const first = async zone => {
    const { steps } = await get(`${keyPath("search/answer/2")}/series?last=30d&every=1d&zone=${zone}`);
    return [steps[1].from.slice(0, 16).replace("T", " "), number.format(steps[1].value)];
  };
  const shown = async ([from, value]) => page.locator("#values tr:nth-child(2)", { hasText: `${from}${value}` }).waitFor({ state: "attached" });
  await shown(await first("Asia/Tokyo"));
  await page.selectOption("#zone", "America/St_Johns");
  await shown(await first("America/St_Johns"));
  assert.match(page.url(), /zone=America%2FSt_Johns/);
  assert.match(await page.locator("#values tr:nth-child(3) th").textContent(), / 00:00$/);
  assert.deepEqual(errors, []);
});

test("beside the period before, and with what flows in", async () => {
  const { page, errors } = await visit(`counter=${TOPIC}&last=7d&of=total`);
  const asked = `${keyPath(TOPIC)}/window?last=7d&of=total&compare=previous`;
  const { counted: { value }, previous } = await get(asked);
  assert.ok(value > 1_000 && Math.abs(await counted(page) - value) < 60, `${value}`);
  const text = await page.textContent("#before");
  assert.ok(Math.abs(numberOf(text.split(" in ")[0]) - previous.counted.value) < 60 && /\(\+[\d,]+ %\)/.test(text), `${text}, ${previous.counted.value}`);
  assert.equal(await page.locator("#chart .earlier").count(), 0);
  await page.check("#compare");
  await page.locator("#chart .earlier").waitFor({ state: "attached" });
  const before = await page.locator("#values td:last-child").allTextContents();
  assert.ok(Math.abs(before.reduce((sum, text) => sum + numberOf(text), 0) - previous.counted.value) < 60, "the column adds up");
  await page.selectOption("#of", "direct");
  await page.waitForFunction(() => document.querySelector("#counted").textContent === "0");
  assert.match(page.url(), /last=7d.*of=direct&compare=previous/);
  assert.deepEqual(errors, []);
});

test("what flows in and on is listed by what it counted, drawn where it is small, and each leads to its own page", async () => {
  const { page, errors } = await visit(`counter=${TOPIC}&last=7d`);
  const { ranked } = await get(`/v1/top?children=${TOPIC}&last=7d&of=total`);
  await page.locator("#parents li").nth(2).waitFor();
  assert.deepEqual(await page.locator("#parents a").allTextContents(), ranked.counters.map(({ counter: { namespace, key } }) => `${namespace}/${key}`));
  assert.deepEqual(await page.locator("#children a").allTextContents(), ["search/topic/computing"]);
  await page.locator("#graph a").nth(8).waitFor();
  // Answers 0 to 3 and 5, three questions less the one that only flows elsewhere, the topic, and the one above it.
  assert.equal(await page.locator("#graph a").count(), 9);
  assert.equal(await page.locator("#graph .edge").count(), 8);
  assert.equal(await page.locator("#graph .self title").textContent(), TOPIC);
  assert.equal(await page.inputValue("#of"), "total", "of what others flow to, that is what is asked for");
  // Whoever stands on a link stays there when values come.
  await page.locator("#graph a", { hasText: "topic/computing" }).focus();
  const total = await page.textContent("#sum");
  await send("POST", "/v1/add", JSON.stringify({ counter: TOPIC }));
  await page.waitForFunction(total => document.querySelector("#sum").textContent !== total, total);
  await page.waitForFunction(sum => document.querySelector("#graph .self .value").textContent === sum, await page.textContent("#sum"));
  assert.equal(await page.evaluate(() => document.activeElement.querySelector("title")?.textContent), "search/topic/computing");
  await page.keyboard.press("Enter");
  await page.locator("#name", { hasText: "search/topic/computing" }).waitFor();
  assert.match(page.url(), /last=7d/);
  await page.goto(new URL("/counter?counter=search/author", PAGE).href);
  await page.locator("#large", { hasText: "more than 60 counters" }).waitFor();
  assert.match(await page.textContent("#in-text"), /^70 counters; the first 10/);
  assert.deepEqual((await page.locator("#parents a").allTextContents()).slice(0, 2), ["search/many/69", "search/many/68"]);
  assert.ok(await page.locator("#drawn").isHidden());
  assert.deepEqual(errors, []);
});

test("what is wrong is told: no name, a namespace that is none, nothing counted, no series, an interval of which nothing is kept", async () => {
  const { page } = await opened();
  await page.goto(new URL("/counter", PAGE).href);
  await page.fill("#counter", "nowhere/views");
  await page.keyboard.press("Enter");
  await page.locator("#ask-text", { hasText: "unknown namespace \"nowhere\"" }).waitFor();
  await page.fill("#counter", "search/anwser");
  await page.keyboard.press("Enter");
  await page.locator("#note", { hasText: "Nothing has been counted of this counter yet" }).waitFor();
  await page.goto(new URL("/counter?counter=default/plain", PAGE).href);
  await page.locator("#note", { hasText: "keeps no series" }).waitFor();
  assert.equal(await page.textContent("#total"), "7");
  assert.ok(await page.locator("#time").isHidden());
  await page.goto(new URL("/counter?counter=search/answer/3&from=100&to=4000", PAGE).href);
  await page.locator("#error", { hasText: /kept/ }).waitFor();
  await page.click("#spans [data-last='7d']");
  await page.locator("#error", { hasText: /Steps of 2h[.,;]/ }).waitFor();
});

test("where reading needs a token the page asks for it and keeps it behind the address; a server that is away is tried again", async () => {
  const { page } = await opened(), shown = new Set();
  let isAway = false;
  await page.route(/\/v1\//, async route => {
    const { authorization } = await route.request().allHeaders();
    shown.add(authorization);
    if (isAway) return route.abort();
    if (authorization === "Bearer sesame") return route.continue();
    return route.fulfill({ status: 401, json: { error: { code: "unauthorized", message: "a token is needed" } } });
  });
  await page.goto(new URL("/counter?counter=search/answer/4", PAGE).href);
  for (const [token, seen] of [["wrong", "#ask-text:text('not the server')"], ["sesame", "#chart .bar-of >> nth=0"]]) {
    await page.locator("#token").waitFor();
    await page.fill("#token", token);
    await page.keyboard.press("Enter");
    await page.locator(seen).waitFor({ state: "attached" });
  }
  assert.equal(new URL(page.url()).hash, "#token=sesame");
  assert.deepEqual([...shown], [undefined, "Bearer wrong", "Bearer sesame"]);
  assert.match(await page.locator("#children a").first().getAttribute("href"), /#token=sesame$/);
  assert.match(await page.getAttribute("#to-map", "href"), /#token=sesame$/);
  isAway = true;
  await page.selectOption("#of", "total");
  await page.locator("#state", { hasText: "not connected" }).waitFor();
  isAway = false;
  await live(page);
});

for (const [place, colorScheme, options] of [["desk", "dark", {}], ["phone", "light", { viewport: { width: 360, height: 740 }, hasTouch: true }]]) {
  test(`on a ${place}, ${colorScheme}: it fits, and nothing is hard to reach or to read`, async () => {
    const { page, errors } = await visit(`counter=${TOPIC}&last=7d&of=total&compare=previous`, { colorScheme, reducedMotion: "reduce", ...options });
    await page.locator("#graph a").first().waitFor();
    await page.screenshot({ path: `${SHOTS}/counter-${place}.png`, fullPage: true });
    await page.click("summary");
    await page.locator("#values tr").first().waitFor();
    await isAccessible(page);
    await fits(page);
    assert.deepEqual(errors, []);
  });
}

test("the pages of all counters and of the cluster lead here", async () => {
  const { page } = await opened();
  await page.goto(new URL("/console?prefix=search/answer/0", PAGE).href);
  await page.locator("#rows a").first().click();
  await page.locator("#name", { hasText: "search/answer/0" }).waitFor();
  await page.click("#to-map");
  await page.locator("#to-time").click();
  await page.locator("#name", { hasText: "search/answer/0" }).waitFor();
});
