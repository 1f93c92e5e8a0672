// The page of the cluster: one counter in all data centres. Totals and awards come by subscription; the rest is asked for once a
// second while somebody looks, and more often near a milestone, where things change in a tenth of a second.

import { awardPage, awardPath, saveCertificate } from "./award-links.js";
import { subscribe, SmoothNumber } from "./tidemark.js";
import { RateChart } from "./chart.js";
import { WorldMap } from "./map.js";
import { linkPages, timeElement } from "../site/site.js";

const POLL_MS = 1_000, POLL_NEAR_MS = 100;
/** A milestone is near when it comes within this at the present rate. */
const NEAR_S = 2;
/** Who was sequenced is shown so for this: it lasts a tenth of a second, too short to see. */
const HOLD_S = 1.2;
const TELL_MS = 8_000;
/** The chart begins short and grows with what is known. */
const CHART_SPANS_S = [30, 60, 120, 180], CHART_S = 180;
/** Counts come in lots, so rates are taken over some seconds: of data centres over so many, in the chart over so many points. */
const RATE_S = 3, POINT_S = 1, POINTS_PER_RATE = 3;
const AWARDS_MAX = 5;
const MODES = { free: "free", rights: "rights", sequenced: "sequenced", cut: "cut off" };

const $ = id => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const counter = new URLSearchParams(location.search).get("counter");
let token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";

const total = new SmoothNumber(value => { $("total").textContent = number.format(value); });
const map = new WorldMap($("map"), choose);
const chart = new RateChart($("chart"));
/** `{ s, counted: [], sum }`, as far back as the chart goes. */
const samples = [], points = [], marks = [];
/** Positions of the awards that were taken in. */
const awards = new Set();
/** When each data centre was last seen so. */
const sequenced = new Map();
let last = null, chosen = -1, subscription = null, timer = null, failures = 0, near = false, start = null, telling = null, isLive = false;

// ---- asking ----

function ask(text, { needsToken = false } = {}) {
  $("ask-text").textContent = text;
  $("ask-counter").hidden = needsToken;
  $("ask-token").hidden = !needsToken;
  $("counter").value = counter ?? "";
  $("ask").hidden = false;
  (needsToken ? $("token") : $("counter")).focus();
}

$("ask").onsubmit = event => {
  if ($("ask-token").hidden) return;
  event.preventDefault();
  token = $("token").value.trim();
  history.replaceState(null, "", `#token=${encodeURIComponent(token)}`);
  linkPages(counter ?? "");
  $("ask").hidden = true;
  look();
};

const headers = () => token ? { authorization: `Bearer ${token}` } : {};

async function look() {
  clearTimeout(timer);
  try {
    const response = await fetch(`/v1/cluster?counter=${encodeURIComponent(counter)}`, { headers: headers(), cache: "no-store" });
    const body = await response.json();
    if (!response.ok) return refuse(response.status, body.error?.message ?? response.statusText);
    failures = 0;
    take(body, performance.now() / 1_000);
  } catch (error) {
    failures += 1;
    say("waiting", `not connected (${error.message}); trying again`);
  }
  lookIn(near ? POLL_NEAR_MS : POLL_MS * Math.min(10, 1 + failures));
}

/** While somebody looks; who looked away and back meanwhile has asked already. */
function lookIn(ms) {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(look, ms);
}

/** Asking again would change nothing, except where the server is not ready. */
function refuse(status, message) {
  say("waiting", message);
  if (status === 401) return ask(token ? "This token is not the server’s." : "Reading needs a token here.", { needsToken: true });
  if (status >= 500) {
    lookIn(2 * POLL_MS);
    return undefined;
  }
  return ask(message);
}

document.onvisibilitychange = () => document.hidden ? clearTimeout(timer) : look();

const sayLive = () => say("live", `live, seen from ${last.dc}`);

function say(state, text) {
  if ($("state").textContent === text) return;
  $("state").dataset.state = state;
  $("state").textContent = text;
}

// ---- what came ----

function take(body, s) {
  last = body;
  const sum = body.dcs.reduce((all, dc) => all + dc.counted, 0);
  samples.push({ s, sum, counted: body.dcs.map(dc => dc.counted) });
  while (samples[0].s < s - RATE_S - 1) samples.shift();
  point(s, sum);
  const then = samples.find(sample => sample.s >= s - RATE_S) ?? samples[0], passed = s - then.s;
  const rateOf = (now, before) => passed > 0 ? Math.max(0, now - before) / passed : null;
  body.rate = rateOf(sum, then.sum);
  body.dcs.forEach((dc, at) => {
    const unheard = dc.mode === "cut" && dc.heard_ms > RATE_S * 1_000;
    dc.rate = unheard ? null : rateOf(dc.counted, then.counted[at] ?? 0);
    if (dc.mode === "sequenced") sequenced.set(dc.name, s);
    else if (dc.mode === "rights" && s - sequenced.get(dc.name) < HOLD_S) dc.mode = "sequenced";
  });
  const most = Math.max(1, ...body.dcs.map(dc => dc.rate ?? 0));
  body.dcs.forEach(dc => { dc.share = Math.min(1, (dc.rate ?? 0) / most); });
  if (chosen < 0) chosen = Math.max(0, body.dcs.findIndex(dc => dc.name === (body.ledger.leader ?? body.dc)));
  const first = !subscription;
  body.awards.toReversed().forEach(award => takeAward(award, !first, s));
  if (first) follow(body);
  if (isLive) sayLive();
  show(body);
}

/** One point a second, whatever the pace of asking. */
function point(s, sum) {
  const before = points.at(-1);
  if (before && s - before.s < POINT_S * .9) return;
  const then = points.at(-POINTS_PER_RATE);
  const rate = then ? Math.max(0, sum - then.sum) / (s - then.s) : null;
  points.push({ s, sum, rate });
  while (points[0].s < s - CHART_S - 5) points.shift();
  while (marks[0]?.s < s - CHART_S) marks.shift();
  const known = points.filter(point => point.rate !== null), age = s - points[0].s;
  chart.draw(known, marks, s, CHART_SPANS_S.find(span => span >= age) ?? CHART_S);
}

function follow(body) {
  subscription = subscribe({
    counters: [counter], awards: "watched", token, after: body.awards[0]?.position,
    onTotal: ({ value, up = value }) => {
      total.set(value);
      showNext(up);
    },
    onAward: award => {
      takeAward(award, true, performance.now() / 1_000);
      look();
    },
    // Awards of the list may not have happened in the cluster as it is now: the next look brings those that have.
    onAnew: () => {
      awards.clear();
      $("awards").replaceChildren();
      look();
    },
    onState: (state, reason) => {
      isLive = state === "live";
      if (isLive) sayLive();
      else if (reason) say("waiting", `${reason}; trying again`);
    },
  });
}

function takeAward(award, isNew, s) {
  if (awards.has(award.position)) return;
  awards.add(award.position);
  $("none")?.remove();
  $("awards").prepend(awardItem(award));
  while ($("awards").children.length > AWARDS_MAX) $("awards").lastChild.remove();
  start = award.at;
  if (!isNew) return;
  marks.push({ s, text: number.format(award.at) });
  // Whoever was sequenced for it is no more.
  sequenced.clear();
  tell(`${number.format(award.at)} awarded at ${last.dcs[award.dc]?.name ?? "?"}`, false);
  map.award(last.dcs[award.dc]?.name, last.ledger.leader, number.format(award.at));
  $("awards").firstChild.classList.add("new");
}

// ---- showing ----

function show(body) {
  $("shown").hidden = false;
  $("name").textContent = `${body.counter.namespace}/${body.counter.key}`;
  if (!$("total").textContent.trim()) total.set(body.total);
  $("rate").textContent = body.rate === null ? "–" : number.format(Math.round(body.rate));
  $("pending").textContent = number.format(body.pending);
  $("leader").textContent = body.ledger.leader ?? "nowhere at present";
  map.show(body.dcs, { seen: body.dc, leader: body.ledger.leader });
  map.choose(chosen);
  showNext(body.up ?? body.total);
  showPanel();
  showRows(body);
  const unplaced = body.dcs.filter(dc => !dc.place).map(dc => dc.name);
  $("world").classList.toggle("unmapped", unplaced.length === body.dcs.length);
  $("unplaced").hidden = unplaced.length === 0;
  $("unplaced").textContent = `Not on the map, because the layout has no location for them: ${unplaced.join(", ")}.`;
  $("foot").textContent = `As ${body.dc} knows it, at entry ${number.format(body.ledger.index)} of the ledger.`;
}

/** How far the next milestone is, and whether the increments before it are placed one by one. */
function showNext(value) {
  const { next_milestone: at, rate, dcs } = last;
  $("next").hidden = at === null;
  if (at === null) {
    near = false;
    return;
  }
  start ??= value;
  const left = Math.max(1, at - value), seconds = rate ? left / rate : Infinity;
  near = seconds < NEAR_S;
  const when = seconds < 1.5 ? " · now" : seconds < 7_200 ? ` · ${duration(seconds)}` : "";
  $("next-text").replaceChildren("Next milestone ", bold(number.format(at)), ` · ${number.format(left)} to go${when}`);
  // Right behind an award nobody has rights either.
  if (near && dcs.filter(dc => dc.mode === "sequenced").length > dcs.length / 2) {
    tell(`In the zone of ${number.format(at)}: placed one by one`, true);
  }
  const share = at > start ? (value - start) / (at - start) : 0;
  $("bar").style.setProperty("--share", Math.min(1, Math.max(0, share)));
}

/** What has just happened, for a while. */
function tell(text, isZone) {
  clearTimeout(telling);
  telling = setTimeout(tell, isZone ? HOLD_S * 1_000 : TELL_MS, "", false);
  $("next").classList.toggle("in-zone", isZone);
  if ($("news").textContent !== text) $("news").textContent = text;
}

function choose(index) {
  chosen = index;
  map.choose(index);
  showPanel();
}

/** Label and value, for the panel and the table alike. */
function values(dc) {
  return [
    ["Per second", dc.rate === null ? "–" : number.format(Math.round(dc.rate))],
    ["Counted", number.format(dc.counted)],
    ["Rights", dc.rights === null ? "–" : number.format(dc.rights)],
    ["Not placed", dc.pending === null ? "–" : number.format(dc.pending)],
    ["Round trip", dc.name === last.dc ? "here" : dc.round_trip_ms === null ? "–" : `${dc.round_trip_ms.toFixed(dc.round_trip_ms < 10 ? 1 : 0)} ms`],
    ["Last change", dc.name === last.dc ? "here" : dc.heard_ms === null ? "–" : ago(dc.heard_ms)],
  ];
}

function showPanel() {
  const dc = last?.dcs[chosen];
  if (!dc) return;
  const leads = dc.name === last.ledger.leader;
  const roles = [leads && "Leads the ledger.", dc.voter && !leads && "Votes in the ledger.", dc.name === last.dc && "This page is its view."];
  const list = element("dl");
  for (const [name, value] of [["Mode", null], ...values(dc)]) {
    const row = element("div"), shown = element("dd", value ?? "");
    if (value === null) shown.append(badge(dc.mode));
    row.append(element("dt", name), shown);
    list.append(row);
  }
  $("panel").dataset.dc = dc.name;
  $("panel").replaceChildren(element("h2", dc.name), element("p", dc.place?.name ?? "place not known", "dim"), list, element("p", roles.filter(Boolean).join(" "), "roles"));
}

function showRows({ dcs }) {
  while ($("rows").children.length > dcs.length) $("rows").lastChild.remove();
  dcs.forEach((dc, at) => {
    const row = $("rows").children[at] ?? newRow(at), [name, mode, ...cells] = row.children;
    row.classList.toggle("chosen", at === chosen);
    name.firstChild.textContent = dc.name;
    name.children[1].textContent = dc.place?.name ?? "";
    if (mode.dataset.mode !== dc.mode) {
      mode.dataset.mode = dc.mode;
      mode.replaceChildren(badge(dc.mode));
      name.lastChild.replaceWith(badge(dc.mode));
    }
    values(dc).forEach(([, value], cell) => {
      if (cells[cell].textContent !== value) cells[cell].textContent = value;
    });
  });
}

function newRow(at) {
  const row = element("tr"), name = element("th");
  name.scope = "row";
  const button = element("button");
  button.type = "button";
  button.onclick = () => {
    choose(at);
    $("map").scrollIntoView({ block: "nearest" });
  };
  // On a phone the mode stands here.
  name.append(button, element("small", "", "dim"), badge("free"));
  row.append(name);
  for (let cell = 0; cell < 7; cell += 1) {
    row.append(element("td", "", cell > 2 ? "more" : ""));
  }
  $("rows").append(row);
  return row;
}

function awardItem(award) {
  const item = element("li"), page = element("a"), link = element("a", "certificate");
  const weight = award.delta > 1 ? `, an increment of ${number.format(award.delta)} from number ${number.format(award.first)} on` : "";
  page.href = awardPage(award.counter, award.at);
  page.append(bold(number.format(award.at)));
  link.href = `${awardPath(award.counter, award.at)}/certificate`;
  link.onclick = event => token && fetchCertificate(event, link.href, award.at);
  link.setAttribute("aria-label", `certificate of ${number.format(award.at)}`);
  const entry = element("span", `${last.dcs[award.dc]?.name ?? "?"}${weight}`, "entry");
  entry.append(timeElement(award.time));
  item.append(page, entry, link);
  return item;
}

/** A link cannot show a token: the certificate is fetched and saved. */
async function fetchCertificate(event, url, at) {
  event.preventDefault();
  const response = await fetch(url, { headers: headers() });
  if (response.ok) return saveCertificate(await response.blob(), at);
  const { error } = await response.json().catch(() => ({}));
  return say("waiting", `no certificate: ${error?.message ?? response.statusText}`);
}

// ---- small things ----

function element(tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

const bold = text => element("b", text);
const badge = mode => element("span", MODES[mode], `mode ${mode}`);
const ago = ms => ms < 950 ? `${Math.round(ms)} ms ago` : `${duration(ms / 1_000)} ago`;

function duration(s) {
  if (s < 90) return `${Math.round(s)} s`;
  return s < 5_400 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3_600)} h`;
}

linkPages(counter ?? "");
if (counter) look();
else ask("Which counter? Its namespace and key, as in search/queries.");
