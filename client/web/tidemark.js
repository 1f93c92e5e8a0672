// Live totals, milestones and one's own awards from a Tidemark server. No dependencies; types in tidemark.d.ts.
//
// A subscription reconnects by itself, waiting longer after every failure and never in step with others, and misses no award: it
// says the last position it saw. Where the cluster was founded anew, or restored from images, since then, it begins anew and says so:
// it is told each award of the new history that the page cannot have seen. Totals may be skipped, never stale for long: the server sends the latest, ten times a second at most.

const PROTOCOL = "tidemark.v1";
const RETRY_MIN_MS = 250;
const RETRY_MAX_MS = 15_000;
/** All who lost one server come back within this, not in one moment. */
const RETRY_SPREAD_MS = 2_000;
/** Where there are other servers, the next one is tried within this. */
const NEXT_SERVER_MS = 1_000;
/** A connection that lived so long was a good one: the next failure is a first one. */
const STEADY_MS = 5_000;
/** WebSockets that did not open before server-sent events are tried, once. */
const SOCKET_FAILURES_MAX = 2;
/** A server that says nothing for so long, not even that it is there, is gone (it speaks every 20 s). */
const SILENCE_MAX_MS = 45_000;

/** Subscribes; returns at once. */
export function subscribe(options) {
  return new Subscription(options);
}

class Subscription {
  #options; #closed = false; #failures = 0; #socketFailures = 0; #end = null; #retry = null;
  #after; #ownAfter; #birth = null; #state = "";
  #servers; #server = 0; #totals = new Map();

  constructor(options) {
    this.#options = { counters: [], transports: ["websocket", "events"], ...options };
    this.#servers = [this.#options.url ?? []].flat();
    this.#after = options.after ?? null;
    this.#ownAfter = options.ownAfter ?? null;
    this.#connect();
  }

  /** Where a later subscription goes on. */
  get after() { return this.#after; }
  get ownAfter() { return this.#ownAfter; }

  close() {
    this.#closed = true;
    clearTimeout(this.#retry);
    this.#end?.();
    this.#become("closed");
  }

  /** Connects anew: the page knows that the network is another, or back. */
  wake() {
    if (this.#closed) return;
    clearTimeout(this.#retry);
    const end = this.#end;
    this.#end = null;
    end?.();
    this.#failures = 0;
    this.#connect();
  }

  #connect() {
    this.#retry = null;
    this.#become("connecting");
    const usable = this.#options.transports.filter(name => name !== "websocket" || typeof this.#socketClass() === "function");
    const wanted = this.#socketFailures < SOCKET_FAILURES_MAX ? usable[0] : usable.at(-1);
    const begun = Date.now(), stop = new AbortController();
    let opened = false, silence = null;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => ended("nothing was heard"), SILENCE_MAX_MS);
    };
    const open = () => {
      opened = true;
      this.#become("live");
    };
    const ended = reason => {
      if (stop.signal.aborted) return;
      stop.abort();
      clearTimeout(silence);
      if (this.#closed || this.#end !== end) return;
      this.#end = null;
      // After events, WebSockets have another chance.
      this.#socketFailures = wanted === "websocket" && !opened ? this.#socketFailures + 1 : 0;
      this.#failures = opened && Date.now() - begun > STEADY_MS ? 0 : this.#failures + 1;
      this.#server += 1;
      const others = this.#servers.length > 1 && this.#failures < this.#servers.length;
      const most = others
        ? NEXT_SERVER_MS
        : Math.min(RETRY_MAX_MS, Math.max(RETRY_MIN_MS * 2 ** this.#failures, opened ? RETRY_SPREAD_MS : 0));
      this.#retry = setTimeout(() => this.#connect(), RETRY_MIN_MS + Math.random() * (most - RETRY_MIN_MS));
      this.#become("waiting", reason);
    };
    const end = () => ended("it is not wanted any more");
    this.#end = end;
    heard();
    const connection = { signal: stop.signal, open, ended, heard };
    this.#shown().then(shown => {
      if (stop.signal.aborted) return undefined;
      return wanted === "websocket" ? this.#socket(connection, shown) : this.#events(connection, shown);
    }).catch(error => ended(String(error)));
  }

  /** Who asks: a session that may have been renewed, or an operator. */
  async #shown() {
    const { session, token } = this.#options;
    const given = typeof session === "function" ? await session() : session;
    if (given) return { protocol: [`session.${given}`], headers: { authorization: `Session ${given}` } };
    return token ? { protocol: [`bearer.${token}`], headers: { authorization: `Bearer ${token}` } } : { protocol: [], headers: {} };
  }

  #socketClass() { return this.#options.WebSocket ?? globalThis.WebSocket; }

  #address(path) {
    const servers = this.#servers;
    const url = new URL(path, servers.length ? servers[this.#server % servers.length] : globalThis.location?.href);
    for (const counter of this.#options.counters) url.searchParams.append("counter", counter);
    if (this.#options.awards) url.searchParams.set("awards", this.#options.awards);
    if (this.#after) url.searchParams.set("after", this.#after);
    if (this.#ownAfter) url.searchParams.set("own_after", this.#ownAfter);
    return url;
  }

  #socket({ signal, open, ended, heard }, { protocol }) {
    const url = this.#address("/v1/live");
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new (this.#socketClass())(url, [PROTOCOL, ...protocol]);
    socket.onopen = open;
    socket.onmessage = event => {
      if (signal.aborted) return;
      heard();
      this.#take(event.data);
    };
    socket.onclose = event => ended(event.reason || "the connection ended");
    signal.addEventListener("abort", () => socket.close());
  }

  async #events({ signal, open, ended, heard }, { headers }) {
    const fetching = this.#options.fetch ?? globalThis.fetch;
    const response = await fetching(this.#address("/v1/events"), { headers, signal, cache: "no-store" });
    if (!response.ok) throw new Error(`${response.status}: ${messageOf(await response.text())}`);
    open();
    let text = "";
    for await (const chunk of chunks(response.body.pipeThrough(new TextDecoderStream()))) {
      heard();
      const events = (text + chunk).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const data = event.split("\n").filter(line => line.startsWith("data:")).map(line => line.slice(5).trimStart());
        if (data.length && !signal.aborted) this.#take(data.join("\n"));
      }
    }
    ended("the events ended");
  }

  #take(text) {
    const message = JSON.parse(text), { onTotal, onAward, onYours, onClaim, onTrial } = this.#options;
    if (message.type === "total") onTotal?.(this.#seen(message));
    if (message.type === "trial") onTrial?.(message);
    if (message.type === "begin") this.#begin(message);
    if (message.type === "anew") this.#beginAnew(message);
    if (message.type === "award" && isBehind(message.position, this.#after)) {
      this.#after = message.position;
      onAward?.(message);
    }
    if ((message.type === "yours" || message.type === "claim") && isBehind(message.position, this.#ownAfter)) {
      this.#ownAfter = message.position;
      (message.type === "yours" ? onYours : onClaim)?.(message);
    }
  }

  #begin({ birth, position }) {
    // Totals of another birth of the cluster may be less than those that were seen.
    if (this.#birth !== birth) this.#totals.clear();
    this.#birth = birth;
    // Before the first award: what comes while the connection is away is behind this.
    this.#after ??= position ?? null;
  }

  /** The position that was said is not part of the cluster's history: what comes now stands behind another one. */
  #beginAnew(message) {
    if (message.of === "own") this.#ownAfter = message.position;
    else this.#after = message.position;
    this.#options.onAnew?.(message);
  }

  /** Another server may know less than the one before: nothing goes back. */
  #seen(total) {
    if (this.#servers.length < 2) return total;
    const { counter, value, up = value, down = 0, generation = 0 } = total;
    const name = `${counter.namespace}/${counter.key}`, last = this.#totals.get(name);
    const goesBack = last && (generation < last.generation || (generation === last.generation && (up < last.up || down < last.down)));
    if (goesBack) return last;
    this.#totals.set(name, { ...total, up, down, generation });
    return total;
  }

  #become(state, reason) {
    if (state === this.#state) return;
    this.#state = state;
    this.#options.onState?.(state, reason);
  }
}

/** What a server's error says. */
function messageOf(text) {
  try {
    return JSON.parse(text).error.message ?? text;
  } catch {
    return text;
  }
}

/** Not every browser iterates over a stream. */
async function* chunks(stream) {
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/**
 * Whether an award's position, `BIRTH.INDEX.MILESTONE.DIGEST`, is behind another one of its history; `BIRTH.INDEX.MILESTONE` is behind all
 * that begin so. Indices of later births are greater, so births are not compared. Without a birth it is 0.0, the beginning.
 */
function isBehind(position, other) {
  if (!other) return true;
  const [parts, others] = [position, other].map(text => {
    const all = text.split("."), marked = all.length > 2 && all[0].length === 16;
    const [index, at, digest = "f".repeat(16)] = marked ? all.slice(1) : all;
    return [BigInt(index), BigInt(at), BigInt(`0x${digest}`)];
  });
  const first = parts.findIndex((part, place) => part !== others[place]);
  return first >= 0 && parts[first] > others[first];
}

/** Updates that come within this are one movement. */
const GLIDE_MIN_MS = 100;
const GLIDE_MAX_MS = 1_000;

/** A number that moves smoothly towards the latest total, and is never ahead of it. `show` is called with whole numbers. */
export class SmoothNumber {
  #show; #now; #frame; #still;
  #from = 0; #to = null; #began = 0; #glide = GLIDE_MIN_MS; #last = null; #shown = null; #asked = false;

  constructor(show, options = {}) {
    this.#show = show;
    this.#now = options.now ?? (() => performance.now());
    this.#frame = options.frame ?? (step => requestAnimationFrame(step));
    const query = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)");
    this.#still = options.still ?? (() => query?.matches ?? false);
  }

  /** The latest truth. A smaller one than before is another counter's, or of one that began again: it is shown at once. */
  set(value) {
    const now = this.#now();
    if (this.#to === null || value < this.#to || this.#still()) {
      [this.#from, this.#to, this.#last] = [value, value, now];
    } else {
      // It arrives about when the next one is due.
      this.#glide = Math.min(GLIDE_MAX_MS, Math.max(GLIDE_MIN_MS, now - this.#last));
      [this.#from, this.#to, this.#began, this.#last] = [this.#at(now), value, now, now];
    }
    this.#step();
  }

  #at(now) {
    const share = Math.min(1, Math.max(0, (now - this.#began) / this.#glide));
    return Math.min(this.#to, Math.floor(this.#from + (this.#to - this.#from) * share));
  }

  #step() {
    const value = this.#at(this.#now());
    if (value !== this.#shown) {
      this.#shown = value;
      this.#show(value);
    }
    if (value < this.#to && !this.#asked) {
      this.#asked = true;
      this.#frame(() => {
        this.#asked = false;
        this.#step();
      });
    }
  }
}
