/** A counter's name. `key` is text: bytes that are not UTF-8 are written `%XX`. */
export interface CounterName { namespace: string; key: string }

/** The latest total of a counter. Numbers beyond 2^53 lose their last digits, as in all JavaScript. */
export interface Total {
  type: "total";
  counter: CounterName;
  /** Never exceeds what happened; never goes back at one server, but by what is counted down: it is `up` less `down`. */
  value: number;
  /** Something was counted on it once, as far as the server knows; left out by servers that do not say it. */
  known?: boolean;
  /** Durable or heard of, not yet in `value`. */
  pending: number;
  /** Upper bound, for counters with milestones. */
  at_most: number | null;
  ledger_index: number;
  /** How often the counter began again, at 0; left out while it never has. Halves of one generation never go back. */
  generation?: number;
  /** What was counted up: milestones are about this. Left out while nothing was counted down: then it is `value`. */
  up?: number;
  /** What was counted down; left out while nothing was. */
  down?: number;
}

/** An award: the one increment that reached a milestone. */
export interface Award {
  type: "award" | "yours";
  counter: CounterName;
  /** The milestone; with `step` and `count`, several that one increment reached. */
  at: number;
  step: number;
  count: number;
  /** The increment was number `first`, up to `first + delta - 1`. */
  first: number;
  delta: number;
  dc: number;
  group: number;
  client: string;
  /** Digest of the winner's session. */
  session: string | null;
  /** Where it stands among all awards. */
  position: string;
  /** When it was decided, by the clock of the ledger's leader, as RFC 3339 in UTC; left out of awards from before times were kept. */
  time?: string;
  /** The same in milliseconds since 1970. */
  time_unix_ms?: number;
}

/** What became of an award that is to be claimed. */
export interface ClaimTurn {
  type: "claim";
  counter: CounterName;
  /** The award's (first) milestone. */
  at: number;
  /**
   * `passed`: who held it before has not claimed it in time, and this session may; `claimed`: this session has; `waiting` and
   * `lapsed`: this session has not, in time.
   */
  state: "passed" | "claimed" | "waiting" | "lapsed";
  /** The award that makes it this session's to claim: itself, or a later one of the counter. */
  holder: number;
  /** Digest of this session. */
  session: string | null;
  position: string;
}

/** The position that was said is not part of the cluster's history: awards are told from another one on. */
export interface Anew {
  type: "anew";
  /** Whose awards: anybody's (`after`), or the session's own (`ownAfter`). */
  of: "awards" | "own";
  /**
   * `other_birth`: the cluster was founded anew, or restored from images that are older than the position. `ahead`: the ledger has not
   * decided as much.
   */
  reason: "other_birth" | "ahead";
  /** The position that was said. */
  given: string;
  /** All awards behind it follow. None of them that the page has not seen is left out; with `ahead`, it may have seen some. */
  position: string;
}

export type State = "connecting" | "live" | "waiting" | "closed";

export interface Options {
  /**
   * Of the server, `https://counts.example`; the page's own when left out. Of several the next one is tried when one is lost, no award
   * is missed and no total goes back.
   */
  url?: string | URL | (string | URL)[];
  /** `NAMESPACE/KEY` of counters whose totals are wanted, 100 at most. */
  counters?: string[];
  /** Whose awards, besides the session's own. Left out: with a session none, else those of `counters`, or without any all. */
  awards?: "all" | "watched" | "none";
  /** The session's token, from the front end; or what gets one, asked at every connection, so that it may be renewed. */
  session?: string | (() => string | Promise<string>);
  /** The server's token, for pages of operators. */
  token?: string;
  /** Only awards behind this position. */
  after?: string;
  /** Only the session's own awards, and turns of their claims, behind this position; left out, all of them. */
  ownAfter?: string;
  onTotal?(total: Total): void;
  onAward?(award: Award): void;
  /** An award of this session: each once. */
  onYours?(award: Award): void;
  /** What became of an award that was this session's to claim, each once. */
  onClaim?(turn: ClaimTurn): void;
  /** An operator rehearses the award of a milestone, as if this session had won. Nothing has happened, nothing is kept. */
  onTrial?(trial: { type: "trial"; counter: CounterName; at: number }): void;
  /** The subscription begins anew, by itself: what the page shows of awards behind `given` may not have happened. */
  onAnew?(anew: Anew): void;
  onState?(state: State, reason?: string): void;
  /** In the order in which they are tried. */
  transports?: ("websocket" | "events")[];
  /** For tests, and for where they are not global. */
  WebSocket?: typeof WebSocket;
  fetch?: typeof fetch;
}

export interface Subscription {
  /** The last position seen of awards, and of the session's own. */
  readonly after: string | null;
  readonly ownAfter: string | null;
  close(): void;
  /** Connects anew, now. */
  wake(): void;
}

export function subscribe(options: Options): Subscription;

export interface SmoothOptions {
  /** Milliseconds. */
  now?: () => number;
  /** Calls back before the next frame. */
  frame?: (step: () => void) => unknown;
  /** Whether numbers jump instead of moving; left out, what the person asked the browser for. */
  still?: () => boolean;
}

/** A number that moves smoothly towards the latest total, and is never ahead of it. */
export class SmoothNumber {
  constructor(show: (value: number) => void, options?: SmoothOptions);
  set(value: number): void;
}
