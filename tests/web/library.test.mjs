// The browser library without a browser: what it says, what it does when connections fail, and numbers that never run ahead.

import assert from "node:assert/strict";
import { test } from "node:test";
import { SmoothNumber, subscribe } from "../../client/web/tidemark.js";

/** Sockets that a test opens, feeds and breaks. */
function sockets() {
  const made = [];
  class Socket {
    constructor(url, protocols) {
      Object.assign(this, { url: new URL(url), protocols, closed: false });
      made.push(this);
    }
    open() { this.onopen(); }
    say(message) { this.onmessage({ data: JSON.stringify(message) }); }
    break() { this.onclose({ reason: "" }); }
    close() { this.closed = true; }
  }
  return { made, Socket };
}

const award = (type, position) => ({ type, position, counter: { namespace: "search", key: "q" }, at: 1 });

/** Until the library has done what it does in a while. */
async function until(done) {
  for (let waited = 0; waited < 5_000; waited += 10) {
    if (done()) return;
    await new Promise(step => setTimeout(step, 10));
  }
  assert.fail("it does not happen");
}

test("a subscription shows its session, and says after a failure what it has seen", async () => {
  const { made, Socket } = sockets(), yours = [], awards = [], states = [];
  const subscription = subscribe({
    url: "https://counts.example/any", counters: ["search/q"], awards: "watched", session: "v1.x", WebSocket: Socket,
    onYours: ({ position }) => yours.push(position), onAward: ({ position }) => awards.push(position),
    onState: state => states.push(state),
  });
  await until(() => made.length === 1);
  assert.equal(made[0].url.href, "wss://counts.example/v1/live?counter=search%2Fq&awards=watched");
  assert.deepEqual(made[0].protocols, ["tidemark.v1", "session.v1.x"]);
  made[0].open();
  made[0].say({ type: "begin", position: "7.1" });
  made[0].break();
  await until(() => made.length === 2);
  assert.equal(made[1].url.searchParams.get("after"), "7.1", "though no award was seen");
  made[1].open();
  for (const position of ["8.10.a", "8.9.b", "8.10.b", "10.2.a", "9.5.c"]) made[1].say(award("award", position));
  made[1].say(award("yours", "8.10.a"));
  made[1].say(award("yours", "8.10.a"));
  assert.deepEqual([awards, yours], [["8.10.a", "8.10.b", "10.2.a"], ["8.10.a"]], "each once");
  made[1].break();
  await until(() => made.length === 3);
  const { searchParams } = made[2].url;
  assert.deepEqual([searchParams.get("after"), searchParams.get("own_after")], ["10.2.a", "8.10.a"]);
  subscription.close();
  assert.ok(made[2].closed);
  assert.deepEqual(states.slice(0, 4), ["connecting", "live", "waiting", "connecting"]);
  assert.equal(states.at(-1), "closed");
});

test("of several servers the next one is tried soon, from where the last one was left, and no total goes back", async () => {
  const { made, Socket } = sockets(), totals = [], awards = [];
  const total = (value, generation) => ({ type: "total", counter: { namespace: "search", key: "q" }, value, generation });
  const subscription = subscribe({
    url: ["https://first.example", "https://second.example"], counters: ["search/q"], WebSocket: Socket,
    onTotal: ({ value }) => totals.push(value), onAward: ({ position }) => awards.push(position),
  });
  await until(() => made.length === 1);
  assert.equal(made[0].url.host, "first.example");
  made[0].open();
  made[0].say({ type: "begin", position: "7.1" });
  made[0].say(award("award", "8.1.a"));
  made[0].say(total(100));
  const lost = Date.now();
  made[0].break();
  await until(() => made.length === 2);
  assert.ok(Date.now() - lost < 1_500);
  assert.deepEqual([made[1].url.host, made[1].url.searchParams.get("after")], ["second.example", "8.1.a"]);
  made[1].open();
  made[1].say(award("award", "8.1.a"));
  for (const value of [90, 101]) made[1].say(total(value));
  made[1].say(total(3, 1));
  assert.deepEqual([totals, awards], [[100, 100, 101, 3], ["8.1.a"]]);
  made[1].break();
  await until(() => made.length === 3);
  assert.equal(made[2].url.host, "first.example");
  subscription.close();
});

test("a position of another birth of the cluster is given up, said, and no award or total is held back by it", async () => {
  const { made, Socket } = sockets(), awards = [], yours = [], anew = [], totals = [];
  const [old, other] = ["000000000000000a", "000000000000000b"];
  const total = value => ({ type: "total", counter: { namespace: "search", key: "q" }, value });
  const subscription = subscribe({
    url: ["https://first.example", "https://second.example"], counters: ["search/q"], WebSocket: Socket,
    after: `${old}.500.1.ff`, ownAfter: `${old}.400.1.ff`,
    onAward: ({ position }) => awards.push(position), onYours: ({ position }) => yours.push(position),
    onAnew: ({ of, given, position }) => anew.push([of, given, position]), onTotal: ({ value }) => totals.push(value),
  });
  await until(() => made.length === 1);
  made[0].open();
  made[0].say({ type: "begin", birth: old, position: `${old}.500.1.ff` });
  made[0].say(total(1_000));
  made[0].break();
  await until(() => made.length === 2);
  made[1].open();
  const beginning = `${other}.0.0.0000000000000000`;
  made[1].say({ type: "begin", birth: other, position: beginning });
  made[1].say({ type: "anew", of: "awards", reason: "other_birth", given: `${old}.500.1.ff`, position: beginning });
  made[1].say({ type: "anew", of: "own", reason: "other_birth", given: `${old}.400.1.ff`, position: beginning });
  made[1].say(total(7));
  for (const position of [`${other}.3.1.ff`, `${other}.3.1.ff`, `${other}.4.2.00`]) made[1].say(award("award", position));
  made[1].say(award("yours", `${other}.3.1.ff`));
  assert.deepEqual(awards, [`${other}.3.1.ff`, `${other}.4.2.00`]);
  assert.deepEqual(yours, [`${other}.3.1.ff`]);
  assert.deepEqual(anew, [["awards", `${old}.500.1.ff`, beginning], ["own", `${old}.400.1.ff`, beginning]]);
  assert.deepEqual(totals, [1_000, 7], "a total of before holds back none of now");
  assert.deepEqual([subscription.after, subscription.ownAfter], [`${other}.4.2.00`, `${other}.3.1.ff`]);
  made[1].break();
  await until(() => made.length === 3);
  const { searchParams } = made[2].url;
  assert.deepEqual([searchParams.get("after"), searchParams.get("own_after")], [`${other}.4.2.00`, `${other}.3.1.ff`]);
  subscription.close();
});

test("awards of a restored cluster come behind those of its image", async () => {
  const { made, Socket } = sockets(), awards = [];
  const subscription = subscribe({ url: "https://counts.example", WebSocket: Socket, onAward: ({ position }) => awards.push(position) });
  await until(() => made.length === 1);
  made[0].open();
  const [image, next] = ["00000000000000ff.10.1.ff", "0000000000000001.4294967306.2.00"];
  made[0].say({ type: "begin", birth: "0000000000000001", position: "00000000000000ff.9.18446744073709551615.ffffffffffffffff" });
  for (const position of [image, image, next, next]) made[0].say(award("award", position));
  assert.deepEqual(awards, [image, next]);
  subscription.close();
});

test("where no WebSocket opens, events are read instead, in whatever pieces they come", async () => {
  const { made, Socket } = sockets(), totals = [], asked = [];
  const fetch = async (url, { headers }) => {
    asked.push([url.pathname, headers.authorization]);
    const bytes = new TextEncoder().encode(': there\n\nid: 1.1\ndata: {"type":"total","value":7}\n\ndata: {"type":"total","value":8}\n\n');
    const body = new ReadableStream({
      start(controller) {
        for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
        controller.close();
      },
    });
    return { ok: true, body };
  };
  const subscription = subscribe({
    url: "http://counts.example", session: "v1.x", WebSocket: Socket, fetch, onTotal: ({ value }) => totals.push(value),
  });
  await until(() => made.length === 1);
  made[0].break();
  await until(() => made.length === 2);
  made[1].break();
  await until(() => totals.length >= 2);
  await until(() => made.length === 3);
  assert.equal(asked.length, 1, "a WebSocket has another chance");
  subscription.close();
  assert.deepEqual(asked[0], ["/v1/events", "Session v1.x"]);
  assert.deepEqual(totals.slice(0, 2), [7, 8]);
});

test("a refusal is told and tried again, each time within a longer time, and a session is asked for anew", async context => {
  const reasons = [], waits = [], sessions = [];
  const random = context.mock.method(Math, "random", () => 1);
  const timer = globalThis.setTimeout;
  context.mock.method(globalThis, "setTimeout", (step, ms) => {
    if (ms < 20_000) waits.push(ms);
    return timer(step, ms < 20_000 ? 1 : ms);
  });
  const subscription = subscribe({
    url: "http://counts.example", transports: ["events"], onState: (state, reason) => state === "waiting" && reasons.push(reason),
    session: async () => `v1.${sessions.push(0)}`,
    fetch: async (url, { headers }) => ({ ok: false, status: 401, text: async () => headers.authorization }),
  });
  while (reasons.length < 8) await new Promise(step => timer(step, 5));
  subscription.close();
  assert.deepEqual(waits.slice(0, 7), [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
  assert.deepEqual(reasons.slice(0, 2), ["Error: 401: Session v1.1", "Error: 401: Session v1.2"]);
  assert.ok(random.mock.callCount() >= 7, "spread");
});

test("a server that has fallen silent is left, and waking connects anew", async context => {
  const { made, Socket } = sockets(), timer = globalThis.setTimeout;
  const limits = [];
  context.mock.method(globalThis, "setTimeout", (step, ms) => {
    if (ms > 20_000) limits.push(step);
    return timer(step, Math.min(ms, 1));
  });
  context.mock.method(globalThis, "clearTimeout", () => {});
  const subscription = subscribe({ url: "http://counts.example", WebSocket: Socket });
  while (made.length < 1) await new Promise(step => timer(step, 5));
  made[0].open();
  limits.at(-1)();
  while (made.length < 2) await new Promise(step => timer(step, 5));
  assert.ok(made[0].closed);
  made[1].open();
  subscription.wake();
  while (made.length < 3) await new Promise(step => timer(step, 5));
  assert.ok(made[1].closed);
  subscription.close();
});

test("a smooth number moves, arrives, and is never ahead of the truth", () => {
  let now = 0, frames = [];
  const shown = [];
  const number = new SmoothNumber(value => shown.push(value), { now: () => now, frame: step => frames.push(step), still: () => false });
  let truth = 0;
  for (let time = 0; time < 5_000; time += 10) {
    now = time;
    if (time % 100 === 0) number.set(truth = time * 70);
    if (time % 30 === 0) for (const step of frames.splice(0)) step();
    assert.ok(frames.length <= 1, "one frame is asked for at a time");
    assert.ok(shown.at(-1) <= truth, `${shown.at(-1)} is ahead of ${truth}`);
  }
  assert.ok(shown.length > 100, "it moves");
  assert.deepEqual(shown, shown.toSorted((a, b) => a - b));
  now += 1_000;
  for (const step of frames.splice(0)) step();
  assert.equal(shown.at(-1), truth);
  number.set(5);
  assert.equal(shown.at(-1), 5, "another counter's");
});

test("who wants no motion gets none", () => {
  const shown = [];
  const number = new SmoothNumber(value => shown.push(value), { now: () => 0, frame: () => assert.fail("a frame"), still: () => true });
  [1, 10, 100].forEach(value => number.set(value));
  assert.deepEqual(shown, [1, 10, 100]);
});
