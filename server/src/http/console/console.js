// The first page: every counter by its name, awards as they come, and how the process is. Counts of the rows that are shown come by
// subscription; which counters there are, and health, is asked for every few seconds while somebody looks.

import { awardPage } from "../cluster/award-links.js";
import { subscribe } from "../cluster/tidemark.js";
import { exactly, format, linkPages, nameOf, timeElement } from "../site/site.js";

/** Rows of a page: a subscription takes 100. */
const ROWS = 50;
const AWARDS_SHOWN_MAX = 100;
const POLL_MS = 5_000, RETRY_MAX_MS = 30_000, TYPED_MS = 200;

const $ = id => document.getElementById(id);
const query = new URLSearchParams(location.search);
let token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
/** Names of all namespaces, and those that the prefix asks for. */
let namespaces = [];
/** Where pages begin: `{ at, after }`, a number of a namespace and a key; the last is the page that is shown. */
let pages = [{ at: 0, after: null }], next = null;
let timer = null, typing = null, failures = 0, looks = 0, subscription = null, watched = "", last = null, isLive = false;
const rows = new Map(), awards = new Set();

// ---- asking ----

const headers = () => token ? { authorization: `Bearer ${token}` } : {};

async function read(path) {
  const response = await fetch(path, { headers: headers(), cache: "no-store" });
  const body = exactly(await response.text());
  if (response.ok) return body;
  throw Object.assign(new Error(body.error?.message ?? response.statusText), { status: response.status });
}

async function look() {
  clearTimeout(timer);
  const mine = looks += 1;
  try {
    const [status, known] = await Promise.all([read("/v1/status"), read("/v1/namespaces")]);
    if (mine !== looks) return;
    showHealth(status);
    showNamespaces(known.namespaces.map(({ name }) => name));
    const found = await page(pages.at(-1));
    if (mine !== looks) return;
    failures = 0;
    $("shown").hidden = false;
    show(found);
    if (isLive) say("live", "live");
  } catch (error) {
    if (mine !== looks) return;
    if (error.status === 401) return needToken();
    failures += 1;
    say("waiting", `${error.status ? error.message : "not connected"}; trying again`);
  }
  const wait = failures ? Math.min(RETRY_MAX_MS, 1_000 * 2 ** (failures - 1)) : POLL_MS;
  if (!document.hidden) timer = setTimeout(look, wait);
}

/** Namespaces that the prefix asks for, and the prefix of keys. */
function wanted() {
  const text = $("prefix").value.trim(), cut = text.indexOf("/");
  if (cut < 0) return { names: namespaces.filter(name => name.startsWith(text)), prefix: "" };
  return { names: namespaces.filter(name => name === text.slice(0, cut)), prefix: text.slice(cut + 1) };
}

/** Counters from a place on, through as many namespaces as are needed, and where the next page begins. */
async function page({ at, after }) {
  const { names, prefix } = wanted(), found = [];
  for (let space = at, from = after; space < names.length; space += 1, from = null) {
    const params = new URLSearchParams({ prefix: `${names[space]}/${prefix}`, limit: ROWS - found.length });
    if (from) params.set("after", from);
    const body = await read(`/v1/range?${params}`);
    found.push(...body.counters);
    if (found.length >= ROWS) {
      const rest = body.next ? { at: space, after: body.next } : { at: space + 1, after: null };
      return { found, next: rest.at < names.length ? rest : null };
    }
  }
  return { found, next: null };
}

function needToken() {
  $("ask-text").textContent = token ? "This token is not the server’s." : "Reading needs a token here.";
  [$("ask").hidden, $("shown").hidden] = [false, true];
  say("waiting", "waiting for a token");
  subscription?.close();
  [subscription, watched] = [null, ""];
  $("token").focus();
}

$("ask").onsubmit = event => {
  event.preventDefault();
  token = $("token").value.trim();
  history.replaceState(null, "", `#token=${encodeURIComponent(token)}`);
  linkPages();
  $("ask").hidden = true;
  look();
};

document.onvisibilitychange = () => document.hidden ? clearTimeout(timer) : look();

// ---- what is shown ----

function showHealth({ ready, reason, dc, ledger, view }) {
  change($("ready"), ready ? "ready" : "not ready");
  $("ready").dataset.state = ready ? "ready" : "not-ready";
  change($("dc"), dc ?? "–");
  change($("leader"), ledger?.leader ?? "–");
  const behind_ms = Math.max(0, ...(view?.groups ?? []).map(group => Number(group.ms)));
  change($("behind"), behind_ms < 1_000 ? "less than 1 s" : `${Math.round(behind_ms / 1_000)} s`);
  const text = [reason, ledger?.warning].filter(Boolean).join("; ");
  change($("reason"), text);
  $("reason").hidden = !text;
}

function showNamespaces(names) {
  if (names.join() === namespaces.join()) return mark();
  namespaces = names;
  $("namespaces").replaceChildren(...names.map(name => {
    const chip = element("button", name);
    chip.type = "button";
    chip.onclick = () => find(chip.getAttribute("aria-pressed") === "true" ? "" : `${name}/`);
    return chip;
  }));
  return mark();
}

/** Shows which namespace the prefix names. */
function mark() {
  const [space, key] = $("prefix").value.trim().split("/", 2);
  for (const chip of $("namespaces").children) chip.setAttribute("aria-pressed", key !== undefined && chip.textContent === space);
}

function show({ found, next: rest }) {
  next = rest;
  const names = found.map(({ counter }) => nameOf(counter));
  for (const [name, row] of rows) {
    if (!names.includes(name)) {
      row.remove();
      rows.delete(name);
    }
  }
  found.forEach(({ counter, value }, at) => {
    const row = rows.get(names[at]) ?? newRow(names[at]);
    if ($("rows").children[at] !== row) $("rows").insertBefore(row, $("rows").children[at] ?? null);
    fill(row, format(value), "");
  });
  $("table").hidden = !found.length;
  showEmpty(found.length);
  [$("back").disabled, $("on").disabled] = [pages.length < 2, !next];
  $("paging").hidden = pages.length < 2 && !next;
  change($("place"), `Page ${pages.length}`);
  watch(names);
}

function newRow(name) {
  const row = document.createElement("tr"), head = document.createElement("th"), way = element("td"), page = element("a", name), map = element("a", "Map");
  head.scope = "row";
  page.href = `/counter?counter=${encodeURIComponent(name)}${location.hash}`;
  map.href = `/cluster?counter=${encodeURIComponent(name)}${location.hash}`;
  map.setAttribute("aria-label", `${name} on the map`);
  head.append(page);
  way.append(map);
  const pending = element("td");
  pending.className = "more";
  row.append(head, element("td"), pending, way);
  rows.set(name, row);
  return row;
}

function fill(row, value, pending) {
  change(row.children[1], value);
  if (pending !== "") change(row.children[2], pending);
}

function showEmpty(count) {
  const text = $("prefix").value.trim(), space = namespaces.find(name => name === "search") ?? namespaces[0] ?? "default";
  $("empty").hidden = count > 0;
  change($("example"), `${space}/queries`);
  if (count > 0) return;
  const isLater = pages.length > 1;
  change($("empty-text"), isLater ? "There are no more counters." : text ? `No counter begins with ${text}` : "No counters yet. Count something:");
  $("command").parentElement.hidden = isLater || Boolean(text);
  const auth = "-H \"Authorization: Bearer $(cat tidemark-data/token)\"";
  change($("command"), `tidemark add ${space}/queries\n\ncurl -X POST ${auth} ${location.origin}/v1/counters/${space}/queries/add`);
}

// ---- live ----

function watch(names) {
  if (subscription && names.join(" ") === watched) return;
  watched = names.join(" ");
  subscription?.close();
  subscription = subscribe({
    counters: names, awards: "all", after: last ?? "0.0", token,
    onTotal({ counter, value, pending }) {
      const row = rows.get(nameOf(counter));
      // One that has lost digits is as it was asked for.
      if (row && Number.isSafeInteger(value)) fill(row, format(value), pending ? format(pending) : "–");
    },
    onAward: showAward,
    onAnew: () => beginAnew(names),
    onState(state, reason) {
      isLive = state === "live";
      if (isLive) say("live", "live");
      else say("waiting", reason ?? state);
    },
  });
}

/** Awards of the list may not have happened in the cluster as it is now: all are asked for again. */
function beginAnew(names) {
  awards.clear();
  $("awards").replaceChildren();
  $("no-awards").hidden = false;
  last = null;
  subscription?.close();
  subscription = null;
  watch(names);
}

function showAward(award) {
  last = award.position;
  if (awards.has(award.position)) return;
  awards.add(award.position);
  const item = element("li"), link = element("a"), entry = element("span");
  link.href = awardPage(award.counter, award.at);
  link.append(element("b", format(award.at)));
  entry.className = "entry";
  entry.append(nameOf(award.counter), timeElement(award.time));
  item.append(link, entry);
  $("awards").prepend(item);
  $("no-awards").hidden = true;
  if ($("awards").children.length > AWARDS_SHOWN_MAX) $("awards").lastChild.remove();
}

// ---- choosing ----

function find(text) {
  $("prefix").value = text;
  begin();
}

function begin() {
  pages = [{ at: 0, after: null }];
  const text = $("prefix").value.trim();
  history.replaceState(null, "", `${location.pathname}${text ? `?prefix=${encodeURIComponent(text)}` : ""}${location.hash}`);
  mark();
  look();
}

$("prefix").oninput = () => {
  clearTimeout(typing);
  typing = setTimeout(begin, TYPED_MS);
};
$("find").onsubmit = event => {
  event.preventDefault();
  clearTimeout(typing);
  begin();
};
$("on").onclick = () => {
  if (!next) return;
  pages.push(next);
  look();
};
$("back").onclick = () => {
  pages.pop();
  look();
};

// ---- small things ----

function say(state, text) {
  $("state").dataset.state = state;
  change($("state"), text);
}

function element(tag, text = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

/** A line that is read out is changed only where it says something else. */
function change(line, text) {
  if (line.textContent !== text) line.textContent = text;
}

$("prefix").value = query.get("prefix") ?? "";
linkPages();
look();
