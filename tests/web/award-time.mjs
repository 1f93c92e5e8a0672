// How soon a visitor in a real Chromium is told of an award: from pressing Enter to the text on the page, at the leader's data centre.
//   cargo build --release && cargo test --test web && node tests/web/award-time.mjs [RATE [AWARDS]]
// RATE is the hits a second that the demo counts meanwhile (0), AWARDS how many are looked at (20). The command and npm's packages are
// where cargo has put them. Prints one line of JSON.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { launch } from "./browser.mjs";

const [rate = "0", awards = "20"] = process.argv.slice(2);
const target = resolve(process.env.CARGO_TARGET_DIR ?? `${import.meta.dirname}/../../target`), tidemark = `${target}/release/tidemark`;
const WAIT_MS = 15_000, SETTLE_MS = 3_000;

const demo = spawn(tidemark, ["demo", "--rate", rate, "--headless"], { stdio: ["ignore", "pipe", "inherit"] });
const ended = new Promise(done => demo.once("exit", done));
const browser = await launch(`${target}/tmp/web/npm`, process.env.CHROMIUM);
try {
  let page;
  for await (const line of createInterface({ input: demo.stdout })) {
    page ??= line.match(/^page: (.*)$/)?.[1];
    if (line === "ready") break;
  }
  const tab = await browser.newPage();
  tab.setDefaultTimeout(WAIT_MS);
  await tab.goto(page);
  await tab.locator("#state[data-state=live]").waitFor();
  // A country whose home this is: others' queries move on.
  const country = await tab.evaluate(async () => {
    const { own, countries } = await (await fetch("/front/setup")).json();
    return countries.find(({ home }) => home === own).code;
  });
  await tab.selectOption("#country", country);
  // The load has begun, and the page's own work is done.
  await tab.waitForTimeout(SETTLE_MS);
  const values = [];
  for (let n = 0; values.length < Number(awards); n += 1) {
    assert.ok(n < 40 * Number(awards), "no milestone comes");
    await tab.fill("#q", `query ${n}`);
    const ms = await tab.evaluate(q => new Promise(resolve => {
      const begun = performance.now(), award = document.querySelector("#award"), answer = document.querySelector("#answer");
      const look = () => {
        if (!award.hidden) resolve(performance.now() - begun);
        else if (answer.textContent.includes(q) && !document.querySelector("#go").disabled) resolve(null);
        else requestAnimationFrame(look);
      };
      document.querySelector("#go").click();
      look();
    }), `query ${n}`);
    if (ms === null) continue;
    values.push(Math.round(ms));
    await tab.click("#award-close");
  }
  const sorted = values.toSorted((a, b) => a - b);
  console.log(JSON.stringify({ rate_per_s: Number(rate), median_ms: sorted[sorted.length >> 1], worst_ms: sorted.at(-1), values }));
} finally {
  await browser.close();
  demo.kill("SIGTERM");
  await ended;
}
