// The browser library in a real Chromium, against servers that follow each other at one address: a restart, and a cluster that is founded
// anew. A page that stays open is told every award of both, each once, and that the second is another one.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { armed, windows } from "./browser.mjs";

const { FOLDER, TIDEMARK } = process.env;
const TRANSPORTS = ["websocket", "events"];
const opened = windows();
let server = null;

after(() => server?.kill("SIGKILL"));

/** A port that was free a moment ago: all servers of this test listen there. */
async function freePort() {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  await once(listener, "close");
  return port;
}

const port = await freePort();
const url = `http://127.0.0.1:${port}`;

/** Starts a server on a data directory; gives what sends requests to it. */
async function serve(name) {
  const data = `${FOLDER}/${name}`;
  server = spawn(TIDEMARK, ["serve", "--port", String(port), "--data-dir", data], { stdio: ["ignore", "pipe", "inherit"] });
  for await (const line of createInterface(server.stdout)) if (line.startsWith("Tidemark serves at ")) break;
  server.stdout.resume();
  const authorization = `Bearer ${readFileSync(`${data}/token`, "utf8").trim()}`;
  return async (method, path, body) => {
    const response = await fetch(new URL(path, url), { method, body, headers: { authorization } });
    assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
    return response.json();
  };
}

async function end(signal) {
  server.kill(signal);
  await once(server, "exit");
}

/** Each of these increments is awarded. */
async function award(send, times) {
  await send("PUT", "/v1/counters/search/q/milestones", JSON.stringify({ every: 1 }));
  await armed(send, "search/q");
  for (let n = 0; n < times; n += 1) assert.equal((await send("POST", "/v1/counters/search/q/add")).place, "milestone");
}

const positionsOf = async send => (await send("GET", "/v1/awards")).awards.map(({ position }) => position);

test("a page that stays open misses no award and is told none twice, and hears that the cluster is another", async () => {
  let send = await serve("first");
  await award(send, 1);
  const before = await positionsOf(send);
  const { page, errors } = await opened();
  await page.goto(url);
  await page.evaluate(async transports => {
    const { subscribe } = await import("/assets/cluster/tidemark.js");
    globalThis.seen = {};
    for (const name of transports) {
      const seen = globalThis.seen[name] = { awards: [], anew: [], totals: [], states: [] };
      seen.subscription = subscribe({
        counters: ["search/q"], awards: "all", transports: [name],
        onAward: ({ position }) => seen.awards.push(position), onAnew: anew => seen.anew.push(anew),
        onTotal: ({ value }) => seen.totals.push(value), onState: state => seen.states.push(state),
      });
    }
  }, TRANSPORTS);
  const seen = name => page.evaluate(name => {
    const { awards, anew, totals, states, subscription: { after } } = globalThis.seen[name];
    return { awards, anew, totals, states, after };
  }, name);
  const until = (count, value) => page.waitForFunction(([transports, count, value]) => transports.every(name => {
    const { awards, totals } = globalThis.seen[name];
    return awards.length >= count && totals.at(-1) === value;
  }), [TRANSPORTS, count, value], { timeout: 60_000 });
  await page.waitForFunction(transports => transports.every(name => globalThis.seen[name].subscription.after), TRANSPORTS);
  await award(send, 3);
  await until(3, 4);
  const first = (await positionsOf(send)).slice(before.length);

  await end("SIGKILL");
  send = await serve("first");
  await award(send, 2);
  await until(5, 6);
  const restarted = (await positionsOf(send)).slice(before.length);
  assert.deepEqual(restarted.slice(0, 3), first, "a restart moves no position");
  for (const name of TRANSPORTS) {
    const { awards, anew } = await seen(name);
    assert.deepEqual([awards, anew], [restarted, []], name);
  }

  await end("SIGTERM");
  send = await serve("second");
  await award(send, 3);
  await until(8, 3);
  await award(send, 1);
  await until(9, 4);
  const second = await positionsOf(send);
  for (const name of TRANSPORTS) {
    const { awards, anew, after } = await seen(name);
    assert.deepEqual(awards, [...restarted, ...second], name);
    assert.deepEqual(anew.map(({ of, reason, given }) => [of, reason, given]), [["awards", "other_birth", restarted.at(-1)]], name);
    assert.equal(after, second.at(-1), name);
  }
  // The page's own list has the awards of the cluster that there is.
  await page.waitForFunction(() => document.querySelectorAll("#awards li").length === 4);
  assert.deepEqual(errors, []);
  await end("SIGTERM");
});
