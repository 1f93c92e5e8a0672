// The page of a shop in a real Chromium, against `tidemark-streams serve` with a secret: two months of impressions and clicks of twelve
// listings, a shop without any, and tokens that are wrong.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { PAGE, SHOTS, WAIT_MS, bytesOf, fits, isAccessible, live, number, numberOf, tabbed, windows } from "./browser.mjs";

const { PRODUCER, TOKEN, PLAIN_TOKEN, EMPTY_TOKEN } = process.env;
const BYTES_MAX = 60_000, POLL_MS_MAX = 50, BATCH = 5_000, DAY_S = 86_400;
const NAMES = ["desk lamp", "floor lamp", "armchair", "oak table", "bookshelf", "rug", "mirror", "sofa", "stool", "vase", "clock", "curtain"];
/** A zone where the day has begun an hour ago at least. */
const ZONE = new Date().getUTCHours() === 0 ? "Asia/Tokyo" : "UTC";
const opened = windows();

async function post(path, token, body) {
  const response = await fetch(new URL(path, PAGE), { method: "POST", body, headers: { authorization: `Bearer ${token}` } });
  return response.json();
}

const query = (body, token = PRODUCER) => post("/v1/impressions/query", token, JSON.stringify({ tenant: "shop-1", ...body }));

/** More by day than by night, and more and more; fewer of the later names. */
function events(now_s) {
  const lines = [];
  for (let ago_s = 0; ago_s < 62 * DAY_S; ago_s += 3_600) {
    const at = now_s - ago_s, hour = at % DAY_S / 3_600, growth = 1.4 - ago_s / (62 * DAY_S);
    NAMES.forEach((listing, rank) => {
      const n = Math.round((30 / (rank + 1)) * growth * (1.2 + Math.sin((hour - 9) / 24 * 2 * Math.PI)));
      if (n > 0) lines.push({ tenant: "shop-1", listing, at, n });
      if (n > 9) lines.push({ tenant: "shop-1", listing, at, n: Math.round(n / 10), type: "click" });
    });
  }
  return lines;
}

const now_s = Math.floor(Date.now() / 1_000);
let sent = 0;
for (let lines = events(now_s); lines.length;) {
  const part = lines.splice(0, BATCH), { accepted } = await post("/v1/events", PRODUCER, part.map(line => JSON.stringify(line)).join("\n"));
  assert.equal(accepted, part.length);
  sent += part.reduce((sum, { n }) => sum + n, 0);
}
await until("all is counted", async () => (await query({ from: String(now_s - 70 * DAY_S), to: String(now_s + 900), dimensions: [] })).total === sent);

/** Waits on the condition, with a bound. */
async function until(what, look) {
  for (const end = Date.now() + WAIT_MS; !await look();) {
    assert.ok(Date.now() < end, what);
    await new Promise(done => setTimeout(done, 50));
  }
}

/** Opens the page as a shop. */
async function visit(hash = "", { token = TOKEN, shop = "", ...options } = {}) {
  const window = await opened({ timezoneId: "Asia/Kathmandu", ...options }), begun = Date.now();
  await window.page.goto(new URL(`/impressions${hash}`, PAGE).href);
  if (shop) await window.page.fill("#tenant", shop);
  await window.page.fill("#token", token);
  await window.page.keyboard.press("Enter");
  await live(window.page);
  return { ...window, ms: Date.now() - begun };
}

const date = (days, zone = "Asia/Kathmandu") => new Intl.DateTimeFormat("en-CA", { timeZone: zone }).format(Date.now() + days * DAY_S * 1_000);
const total = async page => numberOf(await page.textContent("#total"));
const text = (page, id, pattern) => page.locator(id, { hasText: pattern }).waitFor();
const cells = async (page, column) => (await page.locator(`#values td:nth-child(${column})`).allTextContents()).map(text => numberOf(text) || 0);
const rows = (page, count) => page.waitForFunction(count => document.querySelectorAll("#values tr").length === count, count);
const sum = values => values.reduce((sum, value) => sum + value, 0);

test("the page is light and soon there, and polls are small and fast", async () => {
  const { page, errors, answers, ms } = await visit();
  const first = answers.slice(), bytes = await bytesOf(first);
  console.log(`impressions page: ${bytes} bytes in ${first.length} answers, live after ${ms} ms`);
  assert.ok(bytes <= BYTES_MAX, `${bytes} bytes`);
  const policy = first[0].headers()["content-security-policy"];
  assert.ok(policy.startsWith("default-src 'none'") && !policy.includes("unsafe"), policy);
  assert.ok(first.every(response => new URL(response.url()).origin === new URL(PAGE).origin), "nothing comes from elsewhere");
  // What was counted before the page came no longer moves: answers without rows.
  const polled = await page.waitForResponse(async response => response.request().method() === "POST" && (await response.text()).includes("\"unchanged\":true"));
  const { requestStart, responseEnd } = polled.request().timing();
  console.log(`a poll: ${(await polled.body()).length} bytes in ${Math.round(responseEnd - requestStart)} ms`);
  assert.ok((await polled.body()).length < 1_000);
  const body = JSON.parse(polled.request().postData()), times = [];
  for (let at = 0; at < 20; at += 1) {
    const begun = performance.now();
    await query(body);
    times.push(performance.now() - begun);
  }
  times.sort((a, b) => a - b);
  console.log(`20 polls: median ${times[10].toFixed(1)} ms, worst ${times[19].toFixed(1)} ms`);
  assert.ok(times[10] < POLL_MS_MAX, `${times[10]} ms`);
  assert.deepEqual(errors, []);
});

test("the token is kept for the tab only, and never in an address", async () => {
  const { page, answers } = await visit();
  assert.equal(await page.textContent("#shop"), "shop-1", "the token names the shop");
  const kept = await page.evaluate(() => ({ session: sessionStorage.getItem("impressions.token"), local: JSON.stringify(localStorage), address: location.href, cookie: document.cookie }));
  assert.equal(kept.session, TOKEN);
  assert.ok(![kept.local, kept.address, kept.cookie].some(text => text.includes(TOKEN)), JSON.stringify(kept));
  assert.ok(!answers.some(response => response.url().includes(TOKEN)));
  await page.reload();
  await live(page);
  await page.click("#leave");
  await text(page, "#ask-text", "Which shop?");
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  assert.equal(await page.locator("#shown").isVisible(), false);
});

test("a token opens its shop only; what is wrong with it is said", async () => {
  const { page } = await opened();
  await page.goto(new URL("/impressions", PAGE).href);
  const enter = async (shop, token, said) => {
    await page.fill("#tenant", shop);
    await page.fill("#token", token);
    await page.keyboard.press("Enter");
    await text(page, "#ask-text", said);
  };
  await enter("shop-1", "", "This server needs a token.");
  await enter("shop-2", PLAIN_TOKEN, "This token does not open this shop.");
  await enter("nobody", PLAIN_TOKEN, "This token does not open this shop.");
  await enter("shop-1", `${PLAIN_TOKEN.slice(0, -1)}${PLAIN_TOKEN.endsWith("0") ? 1 : 0}`, "This token does not open this shop.");
  await enter("shop-2", TOKEN, "This token does not open this shop.");
  await enter("", PLAIN_TOKEN, "Which shop?");
  await page.screenshot({ path: `${SHOTS}/impressions-ask.png`, fullPage: true });
  await isAccessible(page);
  await page.fill("#tenant", "shop-1");
  await page.fill("#token", PLAIN_TOKEN);
  await page.keyboard.press("Enter");
  await live(page);
  await text(page, "#shop", "shop-1");
});

test("today by hour is what the server counts, in the zone that is chosen", async () => {
  const { page, errors } = await visit();
  const own = await page.inputValue("#zone");
  // Chromium lists an older name of it.
  assert.equal(own, "Asia/Kathmandu");
  for (const zone of [own, "Australia/Lord_Howe", "America/New_York"]) {
    if (await page.inputValue("#zone") !== zone) await page.selectOption("#zone", zone);
    const today = date(0, zone), answer = await query({ from: today, to: date(1, zone), zone, dimensions: ["hour"], zeros: true });
    await page.waitForFunction(([zone, total]) => document.querySelector("#foot").textContent.includes(zone) && document.querySelector("#total").textContent === total, [answer.zone, number.format(answer.total)]);
    assert.equal(await page.locator("#values tr").count(), answer.rows.length);
    assert.equal(sum(await cells(page, 2)), answer.total, "the table adds up");
    assert.deepEqual((await page.locator("#values th").allTextContents()).slice(0, 3), answer.rows.slice(0, 3).map(row => row.hour.slice(0, 16).replace("T", " ")));
  }
  const moving = await page.locator("#values td:last-child").allTextContents();
  assert.ok(moving.includes("may change"), "the present hour is not settled");
  assert.ok(await page.locator("#chart .bar-of.moving").count() >= 1);
  assert.deepEqual(errors, []);
});

test("a day of 25 hours shows the hour that comes twice with its offsets", async () => {
  const { page } = await visit("#view=day&date=2026-11-01&zone=America/New_York");
  await rows(page, 25);
  const names = await page.locator("#values th").allTextContents();
  assert.deepEqual(names.slice(0, 4).map(name => name.slice(11)), ["00:00", "01:00 (-04:00)", "01:00 (-05:00)", "02:00"]);
  await page.click("#views [data-kind=month]");
  await rows(page, 30);
  await page.goto(new URL("/impressions#view=day&date=2026-03-08&zone=America/New_York", PAGE).href);
  await rows(page, 23);
});

test("events appear without a reload, in the hour and in its minute", async () => {
  const { page } = await visit("#zone=UTC");
  const before = await total(page), hour = numberOf(await page.textContent("#now-total"));
  await post("/v1/events", PRODUCER, JSON.stringify({ tenant: "shop-1", listing: "desk lamp", n: 777 }));
  await page.waitForFunction(sum => Number(document.querySelector("#total").textContent.replaceAll(",", "")) >= sum, before + 777);
  // The hour may have ended meanwhile.
  await page.waitForFunction(hour => { const now = Number(document.querySelector("#now-total").textContent.replaceAll(",", "")); return now >= hour + 777 || (now < hour && now >= 777); }, hour);
  await page.locator("#minutes .bar-of").first().waitFor({ state: "attached" });
  await page.focus("#minutes");
  await page.keyboard.press("Home");
  await text(page, "#minute-read", /^\d\d:00: [\d,]+ counted; [\d,]+ of this hour up to then/);
});

test("a month leads to a day and a day to an hour, by the pointer and by the keyboard, and back", async () => {
  const { page, errors } = await visit();
  const month = date(0).slice(0, 7), past = date(-35);
  await page.click("#views [data-kind=month]");
  await page.waitForFunction(day => document.querySelector("#values th")?.textContent === day, `${month}-01`);
  await page.click("#earlier");
  await page.waitForFunction(day => !document.querySelector("#values th")?.textContent.startsWith(day), month);
  const days = await page.locator("#values tr").count(), box = await page.locator("#chart").boundingBox();
  assert.ok(days >= 28 && days <= 31, `${days} days`);
  assert.match(await page.textContent("#key-before-text"), /^[A-Z][a-z]+ 1 00:00 to [A-Z][a-z]+ 1 00:00/);
  const answer = await query({ from: await page.locator("#values th").first().textContent(), to: `${month}-01`, zone: "Asia/Kathmandu", dimensions: ["day"] });
  assert.equal(await total(page), answer.total);
  // The last day, with the pointer.
  await page.mouse.click(box.x + box.width - 8, box.y + box.height / 2);
  await rows(page, 24);
  assert.equal(await page.getAttribute("#views [data-kind=day]", "aria-pressed"), "true");
  await page.focus("#chart");
  for (const key of ["Home", "ArrowRight", "ArrowRight"]) await page.keyboard.press(key);
  await text(page, "#read", /^02:00 to 03:00: \d/);
  await page.keyboard.press("Enter");
  await text(page, "#period", /^02:00 to 03:00, /);
  await rows(page, 4);
  assert.equal(sum(await cells(page, 2)), await total(page), "four quarters of an hour");
  await page.click("#later");
  await text(page, "#period", /^03:00 to 04:00, /);
  await page.click("#out");
  await rows(page, 24);
  await page.click("#out");
  await rows(page, days);
  await page.goBack();
  await rows(page, 24);
  const address = page.url();
  await page.goto(new URL(`/impressions#view=day&date=${past}&zone=Asia/Kathmandu`, PAGE).href);
  await page.waitForFunction(day => document.querySelector("#values th")?.textContent === `${day} 00:00`, past);
  assert.ok(!address.includes(TOKEN));
  assert.deepEqual(errors, []);
});

test("beside the period before, and a change is of equal times", async () => {
  const { page } = await visit(`#zone=${ZONE}`);
  await text(page, "#versus", / on the day before up to \d\d:\d\d: [\d,]+ after [\d,]+$/);
  const said = await page.textContent("#versus"), until = /up to (\d\d:\d\d)/.exec(said)[1], day = date(0, ZONE);
  const answer = await query({ from: day, to: `${day}T${until}`, zone: ZONE, dimensions: [], compare: "previous" });
  assert.ok(said.endsWith(`: ${number.format(answer.total)} after ${number.format(answer.previous.total)}`), said);
  await text(page, "#listings-until", `change up to ${until}`);
  const whole = await query({ from: day, to: date(1, ZONE), zone: ZONE, dimensions: ["hour"], zeros: true, compare: "previous" });
  assert.equal(sum(await cells(page, 3)), whole.previous.total, "the table has the whole day before");
  assert.equal(await page.locator("#chart .earlier").count(), 1);
  await page.click("#views [data-kind=week]");
  await text(page, "#versus", / on the week before/);
  await page.uncheck("#compare");
  await page.waitForFunction(() => !document.querySelector("#chart .earlier"));
  assert.equal(await page.locator("#before-head").isVisible(), false);
});

test("listings are ranked; one of them, or one type, is looked at alone", async () => {
  const { page } = await visit(`#view=day&date=${date(-1)}`);
  const of = { from: date(-1), to: date(0), zone: "Asia/Kathmandu" };
  const ranked = await query({ ...of, dimensions: ["listing"] });
  await page.locator("#listings li").nth(11).waitFor();
  assert.deepEqual(await page.locator("#listings button").allTextContents(), ranked.rows.map(row => row.listing));
  await page.locator("#listings button", { hasText: "armchair" }).click();
  await text(page, "#filter", "Only armchair");
  await page.waitForFunction(n => document.querySelector("#total").textContent === n, number.format(ranked.rows.find(row => row.listing === "armchair").n));
  await page.click("#unfilter");
  await page.waitForFunction(n => document.querySelector("#total").textContent === n, number.format(ranked.total));
  await page.selectOption("#type", "click");
  const clicks = await query({ ...of, dimensions: [], types: ["click"] });
  await page.waitForFunction(n => document.querySelector("#total").textContent === n, number.format(clicks.total));
});

test("the table and the listings are downloaded as CSV", async () => {
  const { page } = await visit(`#view=day&date=${date(-1)}`);
  const download = async button => {
    const [file] = await Promise.all([page.waitForEvent("download"), page.click(button)]);
    return { name: file.suggestedFilename(), lines: readFileSync(await file.path(), "utf8").trim().split("\r\n") };
  };
  await page.click("summary");
  const values = await download("#values-csv");
  assert.deepEqual([values.name, values.lines[0], values.lines.length], [`impressions-${date(-1)}.csv`, "hour,n,previous", 25]);
  assert.equal(sum(values.lines.slice(1).map(line => Number(line.split(",")[1]))), await total(page));
  const listings = await download("#listings-csv");
  assert.deepEqual([listings.lines[0], listings.lines.length], ["listing,n,previous", NAMES.length + 1]);
});

test("the seller's own alert is kept in this browser and says what it found", async () => {
  const { page } = await visit(`#zone=${ZONE}`);
  await page.fill("#alert-share", "1000");
  await page.check("#alert-on");
  await text(page, "#warning", /^Below your limit of 1000 %: [\d,]+ up to \d\d:\d\d, \d+ % of [\d,]+ last week/);
  await page.reload();
  await live(page);
  assert.ok(await page.isChecked("#alert-on"));
  await page.fill("#alert-share", "1");
  await page.keyboard.press("Tab");
  await page.selectOption("#alert-than", "previous");
  await page.waitForFunction(() => document.querySelector("#warning").hidden);
  await page.fill("#alert-share", "0");
  await page.keyboard.press("Tab");
  await text(page, "#alert-text", "0 is no limit: 1 to 1,000 %.");
  await page.uncheck("#alert-on");
  await page.waitForFunction(() => localStorage.length === 0);
});

test("an address that names no period shows today", async () => {
  const { page, errors } = await visit("#zone=UTC");
  const today = await page.textContent("#period");
  for (const view of ["hour&from=5&to=6", `hour&from=${date(-3)}&to=${date(2)}`, "day&date=2026-02-31"]) {
    await page.click("#views [data-kind=month]");
    await text(page, "#period", /^[A-Z][a-z]+ \d+$/);
    await page.goto(new URL(`/impressions#view=${view}&zone=UTC`, PAGE).href);
    await text(page, "#period", today);
    await live(page);
  }
  assert.deepEqual(errors, []);
});

test("days and hours of addresses are told from other texts", async () => {
  const code = readFileSync(new URL("../../streams/serve/src/http/impressions/periods.js", import.meta.url), "utf8");
  const { isDay, isHour } = await import(`data:text/javascript,${encodeURIComponent(code)}`);
  for (const day of ["1970-01-01", "2026-02-28", "2024-02-29", "2447-12-31"]) assert.ok(isDay(day), day);
  for (const day of ["", "2026-02-31", "2026-2-3", "0000-01-01", "1969-12-31", "9999-12-31", "2026-01-01T00:00:00Z"]) assert.ok(!isDay(day), day);
  const hours = [["2026-03-01T14:00:00+05:45", "2026-03-01T15:00:00+05:45"], ["2026-04-05T01:00:00+11:00", "2026-04-05T02:00:00+10:30"],
    ["2026-11-01T01:00:00-04:00", "2026-11-01T01:00:00-05:00"], ["2026-01-01T00:00:00Z", "2026-01-01T00:30:00Z"]];
  for (const [from, to] of hours) assert.ok(isHour(from, to), from);
  const others = [["5", "6"], ["2026-01-01", "2026-01-02"], ["2026-01-01T00:07:00Z", "2026-01-01T00:08:00Z"],
    ["2026-01-01T01:00:00Z", "2026-01-01T00:00:00Z"], ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00Z"], ["2026-01-01T00:00:00.5Z", "2026-01-01T01:00:00Z"]];
  for (const [from, to] of others) assert.ok(!isHour(from, to), from);
});

test("an alert of an unknown type hides nothing else", async () => {
  const { page, errors } = await visit(`#zone=${ZONE}`);
  await page.evaluate(() => localStorage.setItem("impressions.alert.shop-1", JSON.stringify({ share: 50, than: "previous", type: "nope" })));
  await page.reload();
  await text(page, "#alert-text", 'Your alert is not checked here: type "nope" is unknown');
  assert.ok(await total(page) > 0);
  await page.evaluate(() => localStorage.clear());
  assert.deepEqual(errors, []);
});

test("what is empty, what is not yet there and what is wrong are told apart", async () => {
  const { page } = await visit(`#view=day&date=${date(-9)}`, { token: EMPTY_TOKEN, shop: "shop-2" });
  await text(page, "#note", "Nothing was counted in this period. It is complete: no event is missing.");
  await page.locator("#no-listings").waitFor();
  await page.screenshot({ path: `${SHOTS}/impressions-empty.png`, fullPage: true });
  await isAccessible(page);
  await page.goto(new URL(`/impressions#view=day&date=${date(3)}`, PAGE).href);
  await text(page, "#note", "nothing of it is there yet");
  await page.click("#today");
  await text(page, "#note", /so far\. All events up to \d\d:\d\d/);
  await page.goto(new URL("/impressions#view=day&date=1970-01-01&zone=UTC", PAGE).href);
  await text(page, "#note", "no period before");
  assert.equal(await page.locator("#chart").isVisible(), false);
  await page.click("#today");
  await text(page, "#note", /so far/);
});

test("numbers are dimmed with their time while the server is away, and it is tried again", async () => {
  const { page } = await visit();
  await page.route(/\/v1\//, route => route.abort());
  await text(page, "#state", /^the server cannot be reached; numbers are of \d\d:\d\d; trying again$/);
  assert.ok(await page.evaluate(() => document.body.classList.contains("stale")));
  await page.screenshot({ path: `${SHOTS}/impressions-away.png`, fullPage: true });
  await page.unroute(/\/v1\//);
  await live(page);
  assert.ok(!await page.evaluate(() => document.body.classList.contains("stale")));
});

test("everything is reached by the Tab key", async () => {
  const { page } = await visit();
  await page.locator("#listings button").first().waitFor();
  const reached = await tabbed(page, 40);
  for (const id of ["leave", "earlier", "out", "zone", "type", "compare", "chart", "listings-csv", "minutes", "alert-on", "alert-share"]) {
    assert.ok(reached.includes(id), `${id} in ${reached.join()}`);
  }
});

for (const [place, colorScheme, options] of [
  ["desk", "dark", {}], ["desk", "light", {}], ["phone", "dark", { viewport: { width: 360, height: 740 }, hasTouch: true }],
  ["phone", "light", { viewport: { width: 390, height: 844 }, hasTouch: true }],
]) {
  test(`on a ${place}, ${colorScheme}: it fits, and nothing is hard to reach or to read`, async () => {
    const { page, errors } = await visit("", { colorScheme, reducedMotion: "reduce", ...options });
    await page.locator("#listings li").nth(5).waitFor();
    await page.screenshot({ path: `${SHOTS}/impressions-${place}-${colorScheme}.png`, fullPage: true });
    await page.click("summary");
    await page.locator("#values tr").first().waitFor();
    await isAccessible(page);
    await fits(page);
    assert.deepEqual(errors, []);
  });
}

test("a server that is killed and started again is found again, with every event once", async () => {
  const { PROGRAM, DIR, SECRET, SERVER } = process.env;
  const { page } = await visit("#view=week");
  const added = await post("/v1/events", PRODUCER, JSON.stringify({ tenant: "shop-1", listing: "rug", n: 4_321 }));
  assert.equal(added.accepted, 1);
  // It may be in memory only.
  process.kill(Number(SERVER), "SIGKILL");
  await text(page, "#state", "the server cannot be reached");
  const server = spawn(PROGRAM, ["serve", "--dir", DIR, "--listen", new URL(PAGE).host, "--secret-file", SECRET], { stdio: "ignore" });
  try {
    await live(page);
    const { from, to } = await page.locator("#values th").allTextContents().then(days => ({ from: days[0], to: days.at(-1) }));
    const behind = new Date(Date.parse(`${to}T00:00:00Z`) + DAY_S * 1_000).toISOString().slice(0, 10);
    const ask = () => query({ from, to: behind, zone: "Asia/Kathmandu", dimensions: [] });
    await until("the log is read", async () => (await query({ from: String(now_s - 70 * DAY_S), to: String(now_s + 3_600), dimensions: [] })).total === sent + 777 + 4_321);
    const { total: week } = await ask();
    await page.waitForFunction(n => document.querySelector("#total").textContent === n, number.format(week));
  } finally {
    server.kill();
  }
});
