// The search page: counts what is searched for at the data centre of one's country, and says so when it was a milestone.
//
// A query from a country whose home is another data centre is answered with a redirect: the browser goes there with a hop token,
// which counts once, however often it is shown, there or here. Everything that moves along stands behind `#`, which no server sees.

import { OwnAwards } from "/assets/own.js";
import { timeElement } from "/assets/site/site.js";
import { subscribe, SmoothNumber } from "/assets/tidemark.js";

const AWARDS_SHOWN_MAX = 10;
const VISITORS_STEP = 10;
/** A query that was not answered is sent again, under its id, so that it counts once. */
const RETRIES_MS = [300, 1_000, 3_000];
/** A data centre that has not answered a first word in this time is taken for gone. */
const REACH_MS = 2_500;
/** A hop is tried at its home and at its origin in turn for so long, each time so long, and a query of one's own country. */
const HOP_PATIENCE_MS = 60_000, HOP_TRY_MS = 10_000, QUERY_TRY_MS = 35_000;
/** A place that is not known yet is asked for again this often, at this interval. */
const PLACE_TRIES = 60, PLACE_AGAIN_MS = 1_000;
const $ = id => document.getElementById(id);
const number = new Intl.NumberFormat("en");

/** What came along with a redirect; of it the address keeps what is needed to show the answer again. */
const arrived = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
if (location.hash) {
  const { hop, q = "", from = "" } = arrived;
  history.replaceState(null, "", hop ? `#${new URLSearchParams({ hop, q, from })}` : location.pathname);
}
const setup = await (await fetch("/front/setup")).json();
const total = new SmoothNumber(value => { $("total").textContent = number.format(value); });
const visitors = new SmoothNumber(showVisitors);
const site = setup.sites[setup.own];
let subscription = null;
const listed = new Map();
const own = new OwnAwards({ url: site.url, all: setup.all, claim });

/** One per tab, and a new one when it has ended: a private window shares nothing. It goes along to other data centres. */
async function ownSession() {
  const kept = JSON.parse(sessionStorage.getItem("session") ?? "null");
  if (kept && kept.expires > Date.now() / 1_000 + 60) return kept.session;
  const made = await (await fetch("/front/session", { method: "POST" })).json();
  sessionStorage.setItem("session", JSON.stringify(made));
  return made.session;
}

/**
 * A hop may come from anywhere, as it counts once and for whom it says. Who one is, only from another of our pages that has just
 * sent the browser here: an address may be changed afterwards by whoever opened the window. Returns whether it was believed.
 */
function takeAlong() {
  const { session, expires, country } = arrived;
  const isFresh = performance.getEntriesByType("navigation")[0]?.type === "navigate";
  const isOurs = isFresh && setup.sites.some(({ url }) => document.referrer.startsWith(`${url}/`));
  if (session && isOurs) {
    sessionStorage.setItem("session", JSON.stringify({ session, expires: Number(expires) }));
    if (country) sessionStorage.setItem("country", country);
    return true;
  }
  delete arrived.after;
  delete arrived.ownAfter;
  return false;
}

function chooseCountry() {
  const select = $("country");
  for (const { code, name } of setup.countries) select.append(new Option(name, code));
  const guess = new Intl.Locale(navigator.language).maximize().region;
  select.value = sessionStorage.getItem("country") ?? guess;
  if (select.selectedIndex < 0) select.value = "US";
  select.onchange = () => {
    sessionStorage.setItem("country", select.value);
    showHome();
  };
  showHome();
}

function showHome() {
  const country = setup.countries.find(({ code }) => code === $("country").value);
  $("home").textContent = `counts in ${setup.sites[country.home].dc}`;
}

/** The subscription goes on where it was at the data centre before: positions mean the same everywhere. */
function follow() {
  subscription = subscribe({
    url: site.url,
    counters: [setup.all, setup.visitors],
    awards: "watched",
    session: ownSession,
    after: arrived.after ?? setup.after,
    ownAfter: arrived.ownAfter ?? setup.ownAfter,
    onTotal: ({ counter, value }) => (nameOf(counter) === setup.all ? total : visitors).set(value),
    onAward: listAward,
    onYours: ({ counter, at }) => celebrate(nameOf(counter), at),
    onClaim: turn => own.takeTurn(nameOf(turn.counter), turn),
    onTrial: rehearse,
    onAnew: ({ of }) => (of === "own" ? own.beginAnew() : listAnew()),
    onState: state => {
      $("state").textContent = { live: site.dc, waiting: "not connected, trying again" }[state] ?? state;
      $("state").dataset.state = state;
    },
  });
}

const nameOf = counter => `${counter.namespace}/${counter.key}`;

function showVisitors(value) {
  $("visitors").textContent = number.format(value);
  const done = value % VISITORS_STEP, left = VISITORS_STEP - done;
  $("next").textContent = `so far; the ${left === 1 ? "next one" : `${ordinal(left)} from now`} is a milestone`;
  [...$("steps").children].forEach((step, at) => step.classList.toggle("on", at < done));
}

function ordinal(n) {
  return `${n}${["th", "st", "nd", "rd"][n % 100 > 10 && n % 100 < 14 ? 0 : n % 10] ?? "th"}`;
}

/** Awards of the list may not have happened in the cluster as it is now. */
async function listAnew() {
  listed.clear();
  $("awards").replaceChildren();
  const { awards } = await (await fetch("/front/setup")).json();
  awards.forEach(listAward);
}

function listAward(award) {
  // Those that the page came with may come again.
  if (listed.has(award.position)) return;
  $("none")?.remove();
  const item = document.createElement("li"), at = document.createElement("b"), counter = nameOf(award.counter);
  at.textContent = number.format(award.at);
  const of = counter === setup.all ? "of all queries" : "of visitors’ own queries";
  item.append(at, ` ${of}, at ${setup.sites[award.dc]?.dc ?? "?"}`, award.time ? ", " : "", timeElement(award.time));
  listed.set(award.position, { item, counter, at: award.at });
  $("awards").prepend(item);
  while ($("awards").children.length > AWARDS_SHOWN_MAX) $("awards").lastChild.remove();
  markOwn();
  own.lookAgain(counter);
}

function markOwn() {
  for (const { item, counter, at } of listed.values()) item.classList.toggle("mine", own.has(counter, at));
}

function celebrate(counter, at) {
  own.celebrate(counter, at);
  markOwn();
}

/** An operator tries out how a winner is told: unlike an award in everything but its words. */
function rehearse({ counter, at }) {
  $("trial-number").textContent = number.format(at);
  $("trial-of").textContent = nameOf(counter) === setup.all ? "of all queries" : "of all visitors’ own queries";
  $("trial").hidden = false;
}

$("trial-close").onclick = () => {
  $("trial").hidden = true;
  $("q").focus();
};

/** The name makes it the same claim when it is sent again. */
async function claim(url) {
  return ask("", { session: await ownSession(), id: "search-page" }, null, { url });
}


$("form").onsubmit = async event => {
  event.preventDefault();
  const q = $("q").value.trim();
  if (!q) return;
  if (location.hash) history.replaceState(null, "", location.pathname);
  const what = { q, id: newId(), country: $("country").value };
  let along = null;
  await busy(q, async () => {
    // Once its hop was counted here, the query does not leave any more.
    if (along) return countHop(along.hop, [site.url, along.url]);
    const answered = await ask("/front/query", what, await ownSession());
    along = answered.redirect;
    return along ? goAlong(q, along) : answered;
  });
};

let queries = 0;

/** Shows what becomes of a query, and to its own visitor what it has won. `counting` may run again: the query has one id. */
async function busy(q, counting, isOwn = true) {
  const query = queries += 1;
  let leaves = false;
  $("go").disabled = true;
  $("answer").textContent = "Counting …";
  try {
    const counted = await counting();
    leaves = !counted;
    if (leaves) return;
    show(q, counted, isOwn);
    if (isPending(counted)) untilPlaced(query, q, counting, isOwn);
  } catch (error) {
    $("answer").textContent = failed(error);
  } finally {
    $("go").disabled = leaves;
    if (document.activeElement === $("q") && $("q").value.trim() === q) $("q").select();
  }
}

function show(q, counted, isOwn) {
  for (const place of counted.counted ?? []) {
    if (isOwn && place.place === "milestone") celebrate(nameOf(place.counter), place.at);
  }
  $("answer").replaceChildren(...answer(q, counted));
}

const isPending = ({ counted }) => (counted ?? []).some(({ place }) => place === "pending");

/** Asks for the place of a counted query again, until it is known or another query is shown. */
async function untilPlaced(query, q, counting, isOwn) {
  for (let tries = 0; tries < PLACE_TRIES; tries += 1) {
    await pause(PLACE_AGAIN_MS);
    if (query !== queries) return;
    const counted = await counting().catch(() => null);
    if (!counted || isPending(counted)) continue;
    if (query === queries) show(q, counted, isOwn);
    return;
  }
}

function failed({ code, final, message }) {
  if (code === "hop_expired") return "This query was sent a while ago: what became of it is no longer shown.";
  return final ? `Not counted: ${message}` : `Whether it is counted is not known: ${message}`;
}

/** Goes to the query's home; if that does not answer, the query counts here, unless its home has taken it. */
async function goAlong(q, { dc, url, hop }) {
  $("answer").textContent = `Going to ${dc} …`;
  const reached = await fetch(`${url}/front/setup`, { signal: AbortSignal.timeout(REACH_MS) }).catch(() => null);
  if (!reached?.ok) return countHop(hop, [site.url, url]);
  const { session, expires } = JSON.parse(sessionStorage.getItem("session"));
  const { after, ownAfter } = subscription;
  const along = { hop, q, from: setup.own, session, expires, country: $("country").value, after, ownAfter };
  const given = Object.entries(along).filter(([, value]) => value !== undefined && value !== null);
  location.assign(`${url}/#${new URLSearchParams(given)}`);
  return null;
}

/** Has a hop counted by the first of two data centres that can, each in its turn; until both refuse it for good. */
async function countHop(hop, urls) {
  const until = Date.now() + HOP_PATIENCE_MS;
  for (let round = 0; ; round += 1) {
    const errors = [];
    for (const url of urls) {
      try {
        return await ask("/front/hop", { hop }, null, { url, retries: [], within: HOP_TRY_MS });
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.every(({ final }) => final)) throw errors[0];
    if (Date.now() > until) throw errors.find(({ final }) => !final);
    await pause(RETRIES_MS[Math.min(round, RETRIES_MS.length - 1)]);
  }
}

const pause = ms => new Promise(done => setTimeout(done, ms));

function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map(byte => byte.toString(16).padStart(2, "0")).join("");
}

/** Asks a front end, again if it does not answer: every query counts once. An error that another try cannot help is `final`. */
async function ask(path, what, session, { url = site.url, retries = RETRIES_MS, within = QUERY_TRY_MS } = {}) {
  const headers = { "content-type": "application/json" };
  if (session) headers.authorization = `Session ${session}`;
  for (const wait of [...retries, null]) {
    let error;
    try {
      const signal = AbortSignal.timeout(within);
      const response = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(what), signal });
      const body = await response.json();
      if (response.ok) return body;
      const { code, message } = body.error;
      error = Object.assign(new Error(message), { code, final: response.status < 500 && code !== "hop_taken" });
    } catch (lost) {
      error = lost;
    }
    if (wait === null || error.final) throw error;
    await pause(wait);
  }
}

function answer(q, { dc, counted }) {
  const text = document.createElement("p"), more = document.createElement("p");
  const bold = document.createElement("b");
  bold.textContent = `“${q}”`;
  more.className = "dim";
  if (!counted) {
    text.append(bold, " is counted.");
    more.textContent = `Counted in ${dc}, before it came here.`;
    return [text, more];
  }
  const [all, own, country] = counted;
  text.append(bold, ` ${placed(all, "of all queries")}.`);
  const also = `visitors’ own queries${country ? " and those of its country" : ""}`;
  const exact = own.place === "number" || own.place === "milestone";
  more.textContent = `Counted in ${dc}, also among ${also}.${exact ? ` It ${placed(own, "of visitors’ own")}.` : ""}`;
  return [text, more];
}

function placed({ place, number: n, at }, of) {
  if (place === "milestone") return `is number ${number.format(at)} ${of}: a milestone`;
  if (place === "number") return `is number ${number.format(n)} ${of}`;
  if (place === "counted") return "is counted among all queries";
  return "is counted; its place will be known in a moment";
}

for (let step = 0; step < VISITORS_STEP; step += 1) $("steps").append(document.createElement("i"));
setup.awards.forEach(listAward);
const isBelieved = takeAlong();
chooseCountry();
follow();
if (arrived.hop) {
  const origin = arrived.from ? setup.sites[Number(arrived.from)] : undefined, q = (arrived.q ?? "").slice(0, $("q").maxLength);
  $("q").value = q;
  busy(q, () => countHop(arrived.hop, origin && origin !== site ? [site.url, origin.url] : [site.url]), isBelieved);
}
// Back from another data centre, to the page as it was left.
addEventListener("pageshow", ({ persisted }) => {
  if (!persisted || !$("go").disabled) return;
  $("go").disabled = false;
  $("answer").replaceChildren();
});
addEventListener("online", () => subscription.wake());
