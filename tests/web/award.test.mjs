// The page of one award in a real Chromium, against a demo that counts and has a milestone every few seconds.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { PAGE, SHOTS, bytesOf, fits, isAccessible, live, number, numberOf, tabbed, windows } from "./browser.mjs";

const COUNTER = "search/queries", EVERY = 3_000;
/** Two milestones away is some twelve seconds. */
const AWARD_MS = 60_000;
const BYTES_MAX = 60_000;
/** SHA-256("abc"), FIPS 180-2, appendix B.1: its first 16 bytes. */
const DIGEST_OF_ABC = "ba7816bf8f01cfea414140de5dae2223";
const ONE_AWARD = /\/v1\/awards\/[^?]*\/\d+(\?|$)/;
const opened = windows();

const addressOf = (at, counter = COUNTER) => new URL(`/award?${new URLSearchParams({ counter, at })}`, PAGE).href;
const asked = async path => (await fetch(new URL(path, PAGE))).json();

/** The newest milestone that is awarded; the first one comes some seconds after the demo's start. */
async function newest() {
  for (let n = 0; n < 3; n += 1) {
    const { awards: [award] } = await asked(`/v1/cluster?counter=${COUNTER}`);
    if (award) return award.at;
    await asked(`/v1/awards/${COUNTER}/${EVERY}?wait_s=20`);
  }
  return assert.fail("no milestone comes");
}

/** A window that shows the newest award; `change` changes what the server says of it. */
async function visit(options = {}, change = null) {
  const at = await newest(), window = await opened(options);
  if (change) await window.page.route(ONE_AWARD, changed(change));
  const begun = Date.now();
  await window.page.goto(addressOf(at));
  await window.page.locator("#certificate[href]").waitFor();
  return { ...window, at, ms: Date.now() - begun };
}

function changed(change) {
  return async route => {
    const response = await route.fetch(), body = await response.json();
    if (body.award) change(body.award);
    return route.fulfill({ response, json: body });
  };
}

const signed = page => page.locator("#signed", { hasText: /needed\.$/ }).waitFor();

async function saved(page) {
  const saving = page.waitForEvent("download");
  await page.click("#certificate");
  const download = await saving;
  return { name: download.suggestedFilename(), certificate: JSON.parse(readFileSync(await download.path(), "utf8")) };
}

test("an award that is there is shown with its proof, and the page is light", async () => {
  const { page, errors, answers, at, ms } = await visit();
  const first = answers.slice(), bytes = await bytesOf(first);
  console.log(`award page: ${bytes} bytes in ${first.length} answers, shown after ${ms} ms`);
  assert.ok(bytes < BYTES_MAX, `${bytes} bytes`);
  assert.deepEqual(first.filter(response => !response.ok() || !response.url().startsWith(new URL(PAGE).origin)), []);
  const policy = first[0].headers()["content-security-policy"];
  assert.ok(policy.startsWith("default-src 'none'") && !policy.includes("unsafe"), policy);

  await signed(page);
  const { award } = await asked(`/v1/awards/${COUNTER}/${at}/certificate`);
  const { dcs } = await asked(`/v1/cluster?counter=${COUNTER}`);
  const voters = dcs.filter(dc => dc.voter).length;
  assert.equal(await page.textContent("h1:visible"), `Number ${number.format(at)} of ${COUNTER}`);
  assert.match(await page.textContent("#told"), new RegExp(`counted in ${dcs[award.group.dc].name}\\.`));
  const weights = (await page.locator("#rows td").allTextContents()).map(numberOf);
  assert.equal(weights.length, new Set(award.before.map(({ group }) => group.dc)).size);
  assert.equal(weights.reduce((sum, weight) => sum + weight, 0), at - 1);
  assert.equal(await page.textContent("#sum"), number.format(at - 1));
  assert.match(await page.textContent("#sum-text"), /one less than number [\d,]+, as it must be/);
  assert.match(await page.textContent("#signed"), new RegExp(`^Signed by \\d+ of ${voters} voters`));
  assert.equal(await page.textContent("#command"), `tidemark verify --ca ca.pem --voters ${voters} certificate-${at}.json`);
  const { name, certificate } = await saved(page);
  assert.deepEqual([name, certificate.award], [`certificate-${at}.json`, award]);
  await page.screenshot({ path: `${SHOTS}/award-proof.png`, fullPage: true });
  assert.deepEqual(errors, []);
});

test("an award that comes while the page waits is shown without a reload", async () => {
  const at = await newest() + 2 * EVERY, { page, errors } = await opened();
  await page.goto(addressOf(at));
  await page.locator("#told", { hasText: "Not awarded yet" }).waitFor();
  await page.waitForFunction(() => /^[\d,]+$/.test(document.querySelector("#remaining").textContent));
  const counts = await page.locator("#value, #remaining").allTextContents();
  assert.equal(counts.map(numberOf).reduce((sum, count) => sum + count), at);
  await page.waitForFunction(() => /^(\d+ s|now)$/.test(document.querySelector("#eta").textContent));
  await fits(page);
  await page.evaluate(() => { globalThis.isTheSamePage = true; });
  await page.locator("#awarded").waitFor({ timeout: AWARD_MS });
  assert.ok(await page.evaluate(() => globalThis.isTheSamePage));
  assert.ok(await page.locator("#coming").isHidden());
  assert.equal(await page.title(), `Awarded: number ${number.format(at)} of ${COUNTER}`);
  await signed(page);
  assert.equal(await page.textContent("#sum"), number.format(at - 1));
  assert.deepEqual(errors, []);
});

test("what cannot be shown is told in words, and something else can be asked for", async () => {
  const at = await newest(), { page, errors } = await opened();
  await page.goto(new URL("/award", PAGE).href);
  await page.locator("#ask-text", { hasText: "Which award?" }).waitFor();
  for (const [counter, typed, told] of [
    ["nonsense", "5", "names no counter"],
    [COUNTER, "many", "Digits are expected"],
    [COUNTER, "1", `${COUNTER} has no milestone 1:`],
  ]) {
    await page.fill("#counter", counter);
    await page.fill("#at", typed);
    await page.keyboard.press("Enter");
    await page.locator("#ask-text", { hasText: told }).waitFor();
    assert.ok(await page.locator("#shown").isHidden());
  }
  await isAccessible(page);
  await page.fill("#at", number.format(at));
  await page.keyboard.press("Enter");
  await page.locator("#awarded").waitFor();
  const json = { error: { code: "passed", message: "the count had passed it before it was armed: it has no winner" } };
  await page.route(ONE_AWARD, route => route.fulfill({ status: 409, json }));
  await page.reload();
  await page.locator("#ask-text", { hasText: `Number ${number.format(at)} of ${COUNTER} has no winner` }).waitFor();
  assert.deepEqual(errors, []);
});

test("where reading needs a token, the page asks for it and keeps it behind the address, and the certificate can be saved", async () => {
  const at = await newest(), { page, errors } = await opened(), shown = [];
  await page.route(/\/v1\//, async route => {
    const { authorization } = await route.request().allHeaders();
    shown.push(authorization);
    if (authorization === "Bearer sesame") return route.continue();
    return route.fulfill({ status: 401, json: { error: { code: "unauthorized", message: "a token is needed" } } });
  });
  await page.goto(addressOf(at));
  for (const [token, seen] of [["wrong", "#ask-text:text('not the server')"], ["sesame", "#certificate[href]"]]) {
    await page.locator("#token").waitFor();
    await page.fill("#token", token);
    await page.keyboard.press("Enter");
    await page.locator(seen).waitFor();
  }
  assert.equal(new URL(page.url()).hash, "#token=sesame");
  assert.match(await page.getAttribute("#to-map", "href"), /\/cluster\?counter=.*#token=sesame$/);
  assert.equal((await saved(page)).certificate.award.at, at);
  assert.deepEqual([shown[0], shown[1], shown.at(-1)], [undefined, "Bearer wrong", "Bearer sesame"]);
  // Whoever asks for another award need not show it again.
  await page.goto(`${addressOf(1)}#token=sesame`);
  await page.locator("#ask-text", { hasText: "has no milestone" }).waitFor();
  await page.fill("#at", String(at));
  await page.keyboard.press("Enter");
  await page.locator("#awarded").waitFor();
  assert.deepEqual(errors, []);
});

test("a session's token is compared in the browser, and sent nowhere", async () => {
  const { page, errors, at } = await visit({}, award => { award.session = DIGEST_OF_ABC; });
  await signed(page);
  let sent = 0;
  page.on("request", () => { sent += 1; });
  for (const [token, mine, told] of [["abd", "no", "No: "], [" abc ", "yes", `Yes: number ${number.format(at)} `]]) {
    await page.fill("#session", token);
    assert.equal(await page.textContent("#verdict"), "");
    await page.keyboard.press("Enter");
    await page.locator(`#verdict[data-mine=${mine}]`, { hasText: told }).waitFor();
  }
  assert.equal(sent, 0);
  assert.deepEqual(errors, []);
});

test("where there is no session, or no secure page, it says so", async () => {
  const { page: none } = await visit({}, award => { award.session = null; });
  await none.locator("#mine-text", { hasText: "without a session" }).waitFor();
  assert.ok(await none.locator("#mine").isHidden());
  const at = await newest(), { page: insecure, errors } = await opened();
  await insecure.addInitScript(() => Object.defineProperty(Crypto.prototype, "subtle", { get: () => undefined }));
  await insecure.goto(addressOf(at));
  await insecure.locator("#mine-text", { hasText: "https, or on localhost" }).waitFor();
  assert.ok(await insecure.locator("#mine").isHidden());
  assert.deepEqual(errors, []);
});

test("a weight and several milestones are told exactly, and a sum that is wrong is called so", async () => {
  // 2^53 + 1 is the least number that a double does not hold.
  const large = 2n ** 53n + 1n, at = await newest(), { page, errors } = await opened();
  await page.route(ONE_AWARD, async route => {
    const response = await route.fetch(), body = await response.text();
    const award = `"at":${large + 2n},"step":2,"count":3,"first":${large},"delta":7,`;
    return route.fulfill({ response, body: body.replace(/"at":\d+,"step":\d+,"count":\d+,"first":\d+,"delta":\d+,/, award) });
  });
  await page.goto(addressOf(at));
  await page.locator("#sum-text.wrong", { hasText: `must be ${number.format(large - 1n)}, one less than` }).waitFor();
  const facts = await page.locator("#facts dd").allTextContents();
  assert.ok(facts.includes("7") && facts.includes(`${number.format(large)} to ${number.format(large + 6n)}`), facts.join("; "));
  assert.ok(facts.includes(`3: from ${number.format(large + 2n)} to ${number.format(large + 6n)}, every 2`), facts.join("; "));
  assert.deepEqual(errors, []);
});

test("while the server is away, or has no room for who waits, it says so and tries again", async () => {
  const at = await newest(), { page, errors } = await opened();
  await page.route(/\/v1\//, route => route.abort());
  await page.goto(addressOf(at));
  await page.locator("#state[data-state=waiting]", { hasText: /not connected .*; trying again/ }).waitFor();
  await page.unroute(/\/v1\//);
  await page.locator("#awarded").waitFor();
  const message = "overloaded: waits and events is at its limit of 512";
  await page.route(/wait_s=/, route => route.fulfill({ status: 503, json: { error: { code: "overloaded", message } } }));
  await page.goto(addressOf(await newest() + 2 * EVERY));
  await page.locator("#state[data-state=waiting]", { hasText: `${message}; trying again` }).waitFor();
  assert.match(await page.textContent("#told"), /Not awarded yet/);
  await page.unroute(/wait_s=/);
  await live(page);
  await page.locator("#awarded").waitFor({ timeout: AWARD_MS });
  assert.deepEqual(errors, []);
});

test("a key of odd bytes is asked for as it is", async () => {
  const { page, errors, answers } = await opened();
  await page.goto(addressOf(5, "search/100%25%FF/ä b"));
  await page.locator("#ask-text", { hasText: "search/100%25%FF/ä b has no milestone 5" }).waitFor();
  // The browser asks for the icon at any time.
  const paths = answers.map(answer => new URL(answer.url()).pathname).filter(path => path.startsWith("/v1/awards/"));
  assert.equal(paths.at(-1), "/v1/awards/search/100%25%FF%2F%C3%A4%20b/5");
  assert.deepEqual(errors, []);
});

for (const colorScheme of ["light", "dark"]) {
  test(`on a phone, with the keyboard, ${colorScheme}: it fits, and nothing is hard to reach or to read`, async () => {
    const { page, errors } = await visit({ viewport: { width: 360, height: 740 }, colorScheme, hasTouch: true });
    await signed(page);
    await fits(page);
    await page.focus("#to-time");
    assert.deepEqual(await tabbed(page, 3), ["certificate", "session", "BUTTON"]);
    await page.fill("#session", "not the winner’s");
    await page.keyboard.press("Enter");
    await page.locator("#verdict[data-mine=no]").waitFor();
    await isAccessible(page);
    await fits(page);
    await page.screenshot({ path: `${SHOTS}/award-phone-${colorScheme}.png`, fullPage: true });
    assert.deepEqual(errors, []);
  });
}

test("the list of the cluster's page leads to it, and it leads back", async () => {
  await newest();
  const { page, errors } = await opened();
  await page.goto(new URL(`/cluster?counter=${COUNTER}`, PAGE).href);
  await page.locator("#awards a").first().click();
  await page.locator("#awarded").waitFor();
  await page.click("#to-map");
  await page.locator("#map .dc").first().waitFor();
  assert.deepEqual(errors, []);
});
