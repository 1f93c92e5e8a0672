// The page of one counter: its series with zoom, zone and the period before; what flows to it and from it. The total comes by
// subscription; the rest is asked for every few seconds while somebody looks, and soon after the total has changed.

import { counterPath } from "../cluster/award-links.js";
import { SmoothNumber, subscribe } from "../cluster/tidemark.js";
import { linkPages } from "../site/site.js";
import { drawGraph } from "./edge-graph.js";
import { SeriesChart } from "./series-chart.js";

const POLL_MS = 5_000, SOON_MS = 1_000, RETRY_MAX_MS = 30_000;
/** How long, as a server takes it and as people say it, with its usual length. */
const SPANS = [["1h", "hour", 3_600], ["1d", "day", 86_400], ["7d", "week", 604_800], ["30d", "30 days", 2_592_000], ["1y", "year", 31_556_952]];
/** Lengths of steps: the first that makes no more steps than these, and of which buckets are kept. */
const EVERY = [["1m", 60], ["5m", 300], ["15m", 900], ["1h", 3_600], ["2h", 7_200], ["1d", 86_400], ["1w", 604_800], ["1mo", 2_629_746]];
const STEPS_MAX = 100;
const UNITS_S = { s: 1, m: 60, h: 3_600, d: 86_400, w: 604_800, mo: 2_629_746, y: 31_556_952 };
/** The least that is zoomed to. */
const ZOOM_MIN_S = 300;
const REFUSED = new Set(["window", "zone", "period", "not_kept", "finer_than_kept", "error_not_attainable"]);
const NEAR_MAX = 10;
/** A graph of more counters is listed, not drawn; and its shape is asked for again after so long. */
const DRAWN_MAX = 60, SHAPE_MS = 30_000;

const $ = id => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const asked = new URLSearchParams(location.search);
const counter = (asked.get("counter") ?? "").trim(), path = pathOf(counter);
let token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
/** What is looked at: `{ last }` or `{ from, to }`, seconds. */
let span = asked.has("from") && asked.has("to") ? { from: Number(asked.get("from")), to: Number(asked.get("to")) } : { last: asked.get("last") ?? "1d" };
if (Object.values(span).some(Number.isNaN)) span = { last: "1d" };
/** Counts of what others flow to are those with what flows in, unless the address or somebody says which. */
let isOfChosen = asked.has("of");
let shown = null, shape = null, timer = null, due_ms = 0, failures = 0, looks = 0, subscription = null, isLive = false;

const total = new SmoothNumber(value => { $("total").textContent = number.format(value); });
const chart = new SeriesChart($("chart"), { onPoint: readOut, onChoose: zoomTo });

// ---- asking ----

function ask(text, { needsToken = false } = {}) {
  $("ask-text").textContent = text;
  $("ask-counter").hidden = needsToken;
  $("ask-token").hidden = !needsToken;
  $("counter").value = counter;
  $("ask").action = `/counter${location.hash}`;
  $("ask").hidden = false;
  (needsToken ? $("token") : $("counter")).focus();
}

$("ask").onsubmit = event => {
  if ($("ask-token").hidden) return;
  event.preventDefault();
  token = $("token").value.trim();
  history.replaceState(null, "", `#token=${encodeURIComponent(token)}`);
  linkPages(counter);
  $("ask").hidden = true;
  look();
};

/** An answer. An error says its `status` and `code`, if it is a server's. */
async function read(url, body) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const response = await fetch(url, { headers, cache: "no-store", ...(body && { method: "POST", body: JSON.stringify(body) }) });
  const answer = await response.json();
  if (response.ok) return answer;
  const { code, message = response.statusText } = answer.error ?? {};
  throw Object.assign(new Error(message), { status: response.status, code });
}

async function look() {
  clearTimeout(timer);
  looks += 1;
  const mine = looks;
  try {
    const [terms, graph] = await Promise.all([read(`/v1/namespaces/${encodeURIComponent(counter.split(/[/:]/)[0])}/series`), read(`${path}/graph`)]);
    if (!isOfChosen) $("of").value = graph.parents.length ? "total" : "direct";
    isOfChosen = true;
    const time = terms.policy ? await series(terms.policy.keep).catch(refusal) : null;
    const near = await neighbours(graph, time);
    if (mine !== looks) return;
    failures = 0;
    show({ terms, graph, time, near });
    if (!subscription) follow();
    else if (isLive) say("live", "live");
  } catch (error) {
    if (mine !== looks) return;
    if (refused(error)) return;
    failures += 1;
    say("waiting", `${error.status ? error.message : `not connected (${error.message})`}; trying again`);
  }
  lookIn(Math.min(RETRY_MAX_MS, POLL_MS * 2 ** failures));
}

/** While somebody looks. */
function lookIn(ms) {
  clearTimeout(timer);
  due_ms = performance.now() + ms;
  if (!document.hidden) timer = setTimeout(look, ms);
}

/** Not later than that; whatever changes all the time puts nothing off. */
function lookSoon() {
  if (due_ms - performance.now() > SOON_MS) lookIn(SOON_MS);
}

document.onvisibilitychange = () => document.hidden ? clearTimeout(timer) : look();

/** Whether asking again would change nothing. */
function refused({ status, message }) {
  if (!(status >= 400 && status < 500)) return false;
  say("waiting", message);
  if (status === 401) ask(token ? "This token is not the server’s." : "Reading needs a token here.", { needsToken: true });
  else if (shown) tellNote(message);
  else ask(message);
  return true;
}

/** Of an interval that cannot be answered; another one may be chosen. */
function refusal(error) {
  if (!REFUSED.has(error.code)) throw error;
  return { refusal: error.message };
}

/** What was counted in the interval, in each step of it, and in the steps of the period before. */
async function series(keep) {
  const zone = `zone=${encodeURIComponent($("zone").value)}&of=${$("of").value}`, query = spanQuery();
  const window = await read(`${path}/window?${query}&${zone}&compare=previous`);
  const { from_s, to_s } = window.window, every = everyFor(keep, to_s - from_s, window.at_unix_ms / 1_000 - from_s);
  const previous = $("compare").checked ? window.previous?.window : null;
  const of = query => read(`${path}/series?${query}&every=${every}&${zone}`);
  const [now, before] = await Promise.all([of(query), previous && of(`from=${previous.from_s}&to=${previous.to_s}`)]);
  return { window, every, now, before: before ? beside(now.steps, before.steps) : [] };
}

const spanQuery = () => span.last ? `last=${encodeURIComponent(span.last)}` : `from=${span.from}&to=${span.to}`;

/** Values of the steps before, counted from both beginnings: two periods may have a step more or less. */
const beside = (steps, before) => steps.map((_, at) => before[at]?.value ?? null);

function everyFor(keep, length_s, age_s) {
  const kept = Object.entries(keep).map(([granularity, ttl]) => [secondsOf(granularity), secondsOf(ttl)]);
  const fits = EVERY.filter(([, s]) => length_s / s <= STEPS_MAX), has = ([, s], age) => kept.some(([granularity, ttl]) => granularity <= s && ttl >= age);
  return (fits.find(every => has(every, age_s)) ?? fits.find(every => has(every, 0)) ?? EVERY.at(-1))[0];
}

function secondsOf(period) {
  const [, count, unit] = /^(\d+)([a-z]+)$/.exec(period) ?? [];
  return Number(count) * UNITS_S[unit];
}

/** The counters next to this one: those that flowed most in, with what they counted meanwhile where that is kept. */
async function neighbours({ counter: name, parents, children }, time) {
  const window = time?.now && span.last ? { last: span.last } : time?.now && { from: String(span.from), to: String(span.to) };
  if (window) window.zone = $("zone").value;
  const all = async (counters, windows) => counters.length ? (await read("/v1/read", { counters, windows, of: "total" })).counters : [];
  const some = names => all(names.slice(0, NEAR_MAX), window ? [window] : []).catch(() => all(names.slice(0, NEAR_MAX), []));
  const top = async () => {
    const { ranked } = await read(`/v1/top?children=${encodeURIComponent(name)}&k=${NEAR_MAX}&of=total&zone=${encodeURIComponent($("zone").value)}&${spanQuery()}`);
    return ranked.counters;
  };
  const [ranked, next] = await Promise.all([window && parents.length ? top().catch(() => []) : [], some(children)]);
  const rest = parents.filter(name => !ranked.some(read => nameOf(read.counter) === name)).slice(0, NEAR_MAX - ranked.length);
  return { from: [...ranked, ...await some(rest)], to: next };
}

function follow() {
  subscription = subscribe({
    counters: [counter], token,
    onTotal: ({ value }) => {
      if ($("of").value === "direct") total.set(value);
      if (!failures) lookSoon();
    },
    onState: (state, reason) => {
      isLive = state === "live";
      if (isLive) say("live", "live");
      else if (reason) say("waiting", `${reason}; trying again`);
    },
  });
}

function say(state, text) {
  if ($("state").textContent === text) return;
  $("state").dataset.state = state;
  $("state").textContent = text;
}

// ---- showing ----

function show(body) {
  shown = body;
  const { terms, graph, time, near } = body;
  $("shown").hidden = false;
  $("name").textContent = graph.counter;
  document.title = `${graph.counter} over time`;
  if ($("of").value === "total") total.set(graph.total);
  else if (!subscription) total.set(graph.direct);
  $("direct").textContent = number.format(graph.direct);
  $("sum").textContent = number.format(graph.total);
  $("facts").hidden = graph.total === graph.direct && !graph.parents.length;
  const isNew = graph.total === 0 && graph.direct === 0 && !graph.parents.length && !graph.children.length;
  if (isNew) tellNote("Nothing has been counted of this counter yet. Is its name right?");
  else if (!time) tellNote(`The namespace ${terms.namespace} keeps no series: nothing is known over time. This begins it: `, begins(terms.namespace));
  else tellNote("");
  $("time").hidden = !time;
  if (time) showTime(time);
  $("edges").hidden = !graph.parents.length && !graph.children.length;
  showNear("in-text", "parents", graph.parents, near.from, graph.cut);
  showNear("on-text", "children", graph.children, near.to, graph.cut);
  $("foot").textContent = graph.waiting ? `${number.format(graph.waiting)} changes of edges are being carried out: totals are of the graph before.` : "";
  showShape(graph);
}

const begins = namespace => `tidemark namespaces series ${namespace} --keep 1m:2d,1h:30d,1d:730d`;

function tellNote(text, command = "") {
  $("note").hidden = !text;
  if ($("note").textContent === text + command) return;
  $("note").replaceChildren(text, ...(command ? [element("code", command)] : []));
}

function showTime({ window, every, now, before, refusal: message }) {
  for (const button of $("spans").children) button.setAttribute("aria-pressed", button.dataset.last === span.last);
  if (message) return showRefusal(message);
  const { counted, previous } = window, name = SPANS.find(([last]) => last === span.last)?.[1];
  const interval = `${clock(window.window.from)} to ${clock(window.window.to)}`;
  const text = name ? `in the last ${name}` : `from ${interval}`;
  $("counted").textContent = number.format(counted.value);
  $("counted-text").textContent = text;
  const change = previous?.counted.value > 0 ? ` (${signed((counted.value - previous.counted.value) / previous.counted.value)})` : "";
  $("before").textContent = previous ? `· ${number.format(previous.counted.value)} in the period before${change}` : "· of the period before nothing is kept";
  $("error").textContent = `${errorText(window.window, counted)} ${stepsText(now.steps, every)}`;
  const said = `${counter}, ${text}: ${number.format(counted.value)} in ${now.steps.length} steps of ${every}`;
  chart.draw({ steps: now.steps, before, now_s: window.at_unix_ms / 1_000, text: said });
  $("later").setAttribute("aria-disabled", !canLater());
  return showValues(now.steps, before);
}

function showRefusal(message) {
  $("counted").textContent = "–";
  for (const id of ["counted-text", "before"]) $(id).textContent = "";
  $("error").textContent = message;
  chart.draw({ steps: [], before: [], now_s: 0, text: message });
  showValues([], []);
}

function errorText({ error_s: [from_s, to_s] }, { at_least, at_most }) {
  if (from_s + to_s === 0) return "The interval is covered exactly.";
  const ends = [from_s && `${duration(from_s)} at its beginning`, to_s && `${duration(to_s)} at its end`].filter(Boolean).join(" and ");
  if (at_least === at_most) return `Buckets differ from the interval by ${ends}, where nothing was counted.`;
  return `Buckets differ from the interval by ${ends}: between ${number.format(at_least)} and ${number.format(at_most)} were counted in it.`;
}

function stepsText(steps, every) {
  const most = Math.max(0, ...steps.flatMap(step => step.error_s ?? [])), gaps = steps.filter(step => step.value === null).length,
    shared = steps.filter(step => step.value !== null && !step.error_s).length;
  const error = most ? `, off by up to ${duration(most)} at either end` : "";
  return `Steps of ${every}${error}${gaps ? `; of ${gaps} nothing is kept` : ""}${shared ? `; ${shared} have no bucket of their own` : ""}.`;
}

function showValues(steps, before) {
  $("before-head").hidden = !before.length;
  $("values").replaceChildren(...steps.map((step, at) => {
    const row = element("tr"), name = element("th", clock(step.from));
    name.scope = "row";
    const cells = [step.value, step.at_least, step.at_most, ...(before.length ? [before[at]] : [])];
    row.append(name, ...cells.map(value => element("td", value === null ? "–" : number.format(value))));
    return row;
  }));
}

/** Of the step below the pointer. */
function readOut(index) {
  const step = shown?.time?.now?.steps[index], before = shown?.time?.before?.[index];
  const value = step && (step.value === null ? "not kept" : number.format(step.value));
  $("read").textContent = step ? `${clock(step.from)}: ${value}${before == null ? "" : `, before ${number.format(before)}`}` : "\u00a0";
}

function showNear(text, list, names, reads, cut) {
  const count = cut && names.length >= 1_000 ? "more than 1,000 counters" : names.length === 1 ? "1 counter" : `${number.format(names.length)} counters`;
  const first = names.length > reads.length ? `; the first ${reads.length}` : "", period = shown.time?.now ? " in the period" : "";
  $(text).textContent = names.length ? `${count}${first}. What ${names.length === 1 ? "it" : "each"} counted${period}, with what flows to it.` : "No counter.";
  const values = reads.map(read => read.windows[0]?.counted.value ?? read.value), most = Math.max(1, ...values);
  const items = reads.map((read, at) => {
    const item = element("li"), link = element("a", nameOf(read.counter)), bar = element("i");
    link.href = pageOf(nameOf(read.counter));
    bar.style.setProperty("--share", Math.max(0, values[at] / most));
    item.append(link, element("span", number.format(values[at])));
    if (read.windows[0]) item.append(element("small", `${number.format(read.value)} in all`, "dim"));
    item.append(bar);
    return item;
  });
  withFocus($(list), () => $(list).replaceChildren(...items));
}

/** Whoever stands on a link stands on it still when it is made anew. */
function withFocus(parent, replace) {
  const link = parent.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  replace();
  if (link) [...parent.querySelectorAll("a")].find(made => made.getAttribute("href") === link)?.focus({ preventScroll: true });
}

// ---- the graph ----

/** All from which counts flow to this counter, and to which its own do; asked for once in a while, and not where they are many. */
async function showShape(graph) {
  if (!graph.parents.length && !graph.children.length) return;
  const index = graph.index;
  if (!shape || (shape.index !== index && performance.now() - shape.at_ms > SOON_MS) || performance.now() - shape.at_ms > SHAPE_MS) {
    shape = { at_ms: performance.now(), index, found: null };
    const mine = shape, found = await around(graph).catch(() => null);
    if (mine !== shape) return;
    shape.found = found;
  }
  $("drawn").hidden = !shape.found;
  $("large").hidden = Boolean(shape.found);
  $("large").textContent = `The graph around it is not drawn: it has more than ${DRAWN_MAX} counters.`;
  if (!shape.found) return;
  const names = [...shape.found.keys()];
  const { counters } = await read("/v1/read", { counters: names, of: "total" });
  const vertices = new Map(names.map((name, at) => [name, { children: shape.found.get(name), href: pageOf(name), value: number.format(counters[at].value) }]));
  const frame = $("graph").parentElement;
  let middle;
  withFocus($("graph"), () => { middle = drawGraph($("graph"), vertices, nameOf(counters[0].counter)); });
  if (shape.isDrawn) return;
  shape.isDrawn = true;
  frame.scrollTo(middle.x - frame.clientWidth / 2, middle.y - frame.clientHeight / 2);
}

/** Name → names of those to which its counts flow next; `null` where there are too many. */
async function around(graph) {
  const found = new Map([[graph.counter, graph.children]]);
  for (const way of ["parents", "children"]) {
    for (let next = graph[way]; next.length;) {
      const names = [...new Set(next)].filter(name => !found.has(name));
      if (found.size + names.length > DRAWN_MAX) return null;
      const bodies = await Promise.all(names.map(name => read(`${pathOf(name)}/graph`)));
      for (const body of bodies) found.set(body.counter, body.children);
      next = bodies.flatMap(body => body[way]);
    }
  }
  return graph.cut ? null : found;
}

// ---- choosing ----

/** Looks at this from now on; the address says so too. */
function choose(next) {
  span = next;
  const params = new URLSearchParams({ counter, ...span, zone: $("zone").value, of: $("of").value });
  if ($("compare").checked) params.set("compare", "previous");
  history.replaceState(null, "", `?${params}${location.hash}`);
  look();
}

const now_s = () => Math.floor(shown.time.window.at_unix_ms / 1_000);
const present = () => [shown.time.window.window.from_s, shown.time.window.window.to_s];

function zoomTo(first, last) {
  const { steps } = shown.time.now;
  between(steps[first].from_s, steps[last].to_s);
}

/** What is not longer than the least is made so, around its middle; nothing begins behind now. */
function between(from, to) {
  const lack = Math.max(0, ZOOM_MIN_S - (to - from)) / 2, later = Math.max(0, to + lack - Math.ceil(now_s() / 60) * 60);
  choose({ from: Math.max(0, Math.round(from - lack - later)), to: Math.round(to + lack - later) });
}

const canLater = () => !span.last && present()[1] < now_s() - 1;

function move(way) {
  if (!shown?.time?.now || way > 0 && !canLater()) return;
  const [from, to] = present(), by = way * (to - from) / 2;
  between(from + by, to + by);
}

function zoom(factor) {
  if (!shown?.time?.now) return;
  const [from, to] = present(), middle = (from + to) / 2, half = (to - from) / 2 * factor;
  between(middle - half, middle + half);
}

$("earlier").onclick = () => move(-1);
$("later").onclick = () => move(1);
$("in").onclick = () => zoom(.5);
$("out").onclick = () => zoom(2);
for (const id of ["zone", "compare"]) $(id).onchange = () => choose(span);
$("of").onchange = () => {
  if (shown) total.set($("of").value === "total" ? shown.graph.total : shown.graph.direct);
  choose(span);
};
for (const [last, name] of SPANS) {
  const button = element("button", name);
  button.type = "button";
  button.dataset.last = last;
  button.onclick = () => choose({ last });
  $("spans").append(button);
}

// ---- small things ----

function element(tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

/** A time as the zone's clock shows it. */
const clock = text => `${text.slice(0, 10)} ${text.slice(11, 16)}`;
const nameOf = ({ namespace, key }) => `${namespace}/${key}`;
const signed = share => `${share < 0 ? "−" : "+"}${number.format(Math.round(Math.abs(share) * 100))} %`;

function pathOf(name) {
  const cut = name.search(/[/:]/);
  return `/v1/counters/${counterPath({ namespace: name.slice(0, cut), key: name.slice(cut + 1) })}`;
}

function pageOf(name) {
  return `/counter?${new URLSearchParams({ counter: name, ...span, zone: $("zone").value })}${location.hash}`;
}

function duration(s) {
  if (s < 120) return `${s} s`;
  if (s < 7_200) return `${Math.round(s / 60)} min`;
  return s < 172_800 ? `${Math.round(s / 3_600)} h` : `${Math.round(s / 86_400)} days`;
}

function fillZones() {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone, wanted = asked.get("zone") ?? own;
  const names = new Set(["UTC", own, wanted, ...Intl.supportedValuesOf("timeZone")]);
  $("zone").replaceChildren(...[...names].map(name => new Option(name, name, false, name === wanted)));
}

fillZones();
$("of").value = asked.get("of") === "total" ? "total" : "direct";
$("compare").checked = asked.get("compare") === "previous";
linkPages(counter);
if (!counter) ask("Which counter? Its namespace and key, as in search/queries.");
else look();
