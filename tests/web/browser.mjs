// What the tests of all pages share: a Chromium, its windows, and what every page must be. MODULES is where npm put its packages,
// PAGE the first page of a demo, SHOTS a folder for screenshots, CHROMIUM the program.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, afterEach, before } from "node:test";

export const { PAGE, SHOTS } = process.env;
export const WAIT_MS = 45_000;

export const number = new Intl.NumberFormat("en");
export const numberOf = text => Number(text.replace(/\D/g, ""));

/** A Chromium; the packages are in the `node_modules` of a folder. */
export function launch(modules, executablePath = "/usr/bin/chromium-headless-shell") {
  const { chromium } = createRequire(`${modules}/`)("playwright-core");
  return chromium.launch({ executablePath, args: ["--no-sandbox"] });
}

/**
 * A Chromium for a file of tests, whose windows are closed after each: a page that stays open asks on. Returns what opens a
 * window, on a desk if nothing else is said: nothing is open in it yet. `errors` and `answers` are what its page came to.
 */
export function windows() {
  let browser;
  before(async () => { browser = await launch(process.env.MODULES, process.env.CHROMIUM); });
  afterEach(() => Promise.all(browser.contexts().map(context => context.close())));
  after(() => browser?.close());
  return async (options = {}) => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-US", ...options });
    context.setDefaultTimeout(WAIT_MS);
    const page = await context.newPage(), errors = [], answers = [];
    page.on("pageerror", error => errors.push(error.message));
    page.on("response", response => answers.push(response));
    return { page, errors, answers };
  };
}

/** Bytes of answers as they came over the network. */
export async function bytesOf(answers) {
  const sizes = await Promise.all(answers.map(response => response.request().sizes().catch(() => null)));
  return sizes.reduce((sum, size) => sum + size.responseBodySize + size.responseHeadersSize, 0);
}

export const live = page => page.locator("#state[data-state=live]").waitFor();

/** Waits until all milestones of a counter are armed: an increment that passes an arming one gets no award. */
export async function armed(send, name) {
  const states = async () => (await send("GET", `/v1/counters/${name}/milestones`)).milestones.map(({ state }) => state);
  const end = Date.now() + WAIT_MS;
  while ((await states()).includes("arming") && Date.now() < end) await new Promise(done => setTimeout(done, 50));
}

export async function fits(page) {
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `${overflow} px too wide`);
}

export async function isAccessible(page) {
  // Its own script, apart from what the page's policy lets in.
  await page.evaluate(readFileSync(createRequire(`${process.env.MODULES}/`).resolve("axe-core/axe.min.js"), "utf8"));
  // What is just appearing has other colours for a moment.
  await page.evaluate(() => {
    const ends = animation => animation.effect?.getComputedTiming().endTime !== Infinity;
    return Promise.allSettled(document.getAnimations().filter(ends).map(animation => animation.finished));
  });
  const { violations } = await page.evaluate(() => axe.run());
  assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map(node => node.html)]), []);
}

/** What the Tab key reaches, one after the other. */
export async function tabbed(page, times) {
  const reached = [];
  for (let n = 0; n < times; n += 1) {
    await page.keyboard.press("Tab");
    reached.push(await page.evaluate(() => document.activeElement.id || document.activeElement.tagName));
  }
  return reached;
}
