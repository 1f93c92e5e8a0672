// The page of a shop: its impressions by hour, day or month in any zone, beside the period before, and its listings by rank. Everything
// comes from queries that say which answer the page has, so that an answer without news is a few hundred bytes.

import { Bars } from "./bars.js";
import {
  addDays, addMonths, clockOf, dateOf, dayText, instant, isDay, isHour, monthOf, monthText, quarterOf, shortDay, timeOf, weekOf, weekText,
} from "./periods.js";

const POLL_MS = 5_000, SETTLED_POLL_MS = 60_000, RETRY_MAX_MS = 30_000;
const LISTINGS_SHOWN = 20, CSV_ROWS_MAX = 100_000, MINUTE_MS = 60_000;
const KINDS = [["day", "Day"], ["week", "Week"], ["month", "Month"]];
const SVG = "http://www.w3.org/2000/svg";

const $ = id => document.getElementById(id);
const number = new Intl.NumberFormat("en");
/** Present names of zones that some browsers list under older names. */
const PRESENT_ZONES = {
  "Africa/Asmera": "Africa/Asmara", "America/Buenos_Aires": "America/Argentina/Buenos_Aires",
  "America/Catamarca": "America/Argentina/Catamarca", "America/Coral_Harbour": "America/Atikokan",
  "America/Cordoba": "America/Argentina/Cordoba", "America/Godthab": "America/Nuuk",
  "America/Indianapolis": "America/Indiana/Indianapolis", "America/Jujuy": "America/Argentina/Jujuy",
  "America/Louisville": "America/Kentucky/Louisville", "America/Mendoza": "America/Argentina/Mendoza", "Asia/Calcutta": "Asia/Kolkata",
  "Asia/Katmandu": "Asia/Kathmandu", "Asia/Rangoon": "Asia/Yangon", "Asia/Saigon": "Asia/Ho_Chi_Minh", "Atlantic/Faeroe": "Atlantic/Faroe",
  "Europe/Kiev": "Europe/Kyiv", "Pacific/Enderbury": "Pacific/Kanton", "Pacific/Ponape": "Pacific/Pohnpei", "Pacific/Truk": "Pacific/Chuuk",
};
const isZone = name => {
  try { return Boolean(new Intl.DateTimeFormat("en", { timeZone: name })); } catch { return false; }
};
const presentZone = name => {
  const present = PRESENT_ZONES[name];
  return present && isZone(present) ? present : name;
};
const own = presentZone(Intl.DateTimeFormat().resolvedOptions().timeZone);
let tenant = sessionStorage.getItem("impressions.tenant") ?? "", token = sessionStorage.getItem("impressions.token") ?? "";
/** What is looked at: `{ kind, date }`, or an hour as `{ kind: "hour", from, to }`. `isCurrent`: it moves on with the clock. */
let view = { kind: "day", isCurrent: true };
let listing = "", looks = 0, timer = null, failures = 0, ahead_ms = 0, shown = null, minuteBars = [];
/** Answers by what they are for: `{ asked, body }`. */
const answers = new Map();

const chart = new Bars($("chart"), { height: 280, onPoint: at => { $("read").textContent = readOut(at); }, onZoom: zoomInto });
const minutes = new Bars($("minutes"), { height: 150, onPoint: at => { $("minute-read").textContent = minuteText(at); } });

// ---- asking ----

/** The time by the server's clock. */
const now = () => Date.now() + ahead_ms;

async function send(query, accept) {
  const headers = { accept, ...(token && { authorization: `Bearer ${token}` }) };
  const body = JSON.stringify({ ...(tenant && { tenant }), zone: $("zone").value, ...query });
  const response = await fetch("/v1/impressions/query", { method: "POST", headers, body, cache: "no-store" });
  const date = Date.parse(response.headers.get("date"));
  // The header has whole seconds.
  if (date && Math.abs(date - now()) > 2_000) ahead_ms = date - Date.now();
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({}));
  throw Object.assign(new Error(error?.message ?? response.statusText), { status: response.status, code: error?.code });
}

/** The answer to a query: the one that the page has, if its rows are the same. */
async function ask(name, query) {
  const asked = JSON.stringify([tenant, $("zone").value, query]), known = answers.get(name);
  const old = known?.asked === asked ? known.body : null;
  const response = await send({ ...query, ...(old && { unless_version: old.version }) }, "application/json");
  const answer = await response.json(), body = answer.unchanged ? { ...old, ...answer } : answer;
  answers.set(name, { asked, body });
  return body;
}

const filters = () => ({ ...($("type").value && { types: [$("type").value] }), ...(listing && { listings: [listing] }) });

/** Beginning and end of what is looked at, and in what it is counted. */
function spanOf({ kind, date, from, to }) {
  if (kind === "hour") return { from, to, unit: "quarter", before: "previous" };
  if (kind === "day") return { from: date, to: addDays(date, 1), unit: "hour", before: "previous" };
  if (kind === "week") return { from: date, to: addDays(date, 7), unit: "day", before: "week" };
  return { from: date, to: addMonths(date, 1), unit: "day", before: "month" };
}

const startOf = (kind, date) => kind === "week" ? weekOf(date) : kind === "month" ? monthOf(date) : date;
const today = () => clockOf(now(), $("zone").value).date;

async function look() {
  clearTimeout(timer);
  const mine = looks += 1;
  try {
    const found = await all(mine);
    if (!found) return;
    failures = 0;
    show(found);
    say("live", "live");
    document.body.classList.remove("stale");
    again(found.body.state === "settled" ? SETTLED_POLL_MS : POLL_MS);
  } catch (error) {
    if (mine !== looks) return;
    fail(error);
  }
}

/** Asks one query after the other, so that a page is never more than one of the server's. */
async function all(mine) {
  if (view.isCurrent) view.date = startOf(view.kind, today());
  const { from, to, unit, before } = spanOf(view), compare = $("compare").checked ? { compare: before } : {};
  const isStale = () => mine !== looks;
  const body = await ask("chart", { from, to, dimensions: [unit], zeros: true, limit: 1_000, ...filters(), ...compare });
  if (isStale()) return null;
  const cut = cutOf(body), bars = barsOf(body, unit);
  const upTo = cut ? instant(cut) : to;
  const hasBegun = !cut || cut > Date.parse(body.from);
  const versus = compare.compare && hasBegun ? await ask("versus", { from, to: upTo, dimensions: [], ...filters(), ...compare }) : null;
  const ranked = await ask("listings", { from, to, dimensions: ["listing"], limit: LISTINGS_SHOWN, ...filters() });
  const names = ranked.rows.map(row => row.listing);
  const changes = versus && names.length
    ? await ask("changes", { from, to: upTo, dimensions: ["listing"], ...filters(), listings: names, ...compare }) : null;
  const types = await ask("types", { from, to, dimensions: ["type"], ...(listing && { listings: [listing] }) });
  const span = hourOf(body, bars);
  const hour = span ? await ask("hour", { ...span, dimensions: ["counted_at"], ...filters() }) : null;
  const alert = await checkAlert(body);
  return isStale() ? null : { body, bars, unit, cut, versus, ranked, changes, types, hour, alert };
}

/** Where the comparison ends while the period is not over: the last quarter of an hour that is complete. */
function cutOf({ to, complete_to }) {
  const end = Date.parse(to), complete = complete_to ? Date.parse(complete_to) : 0;
  return complete < end ? quarterOf(complete) : null;
}

/** The hour that holds the present, if it is looked at. */
function hourOf(body, bars) {
  const at = body.complete_to ? Date.parse(body.complete_to) : 0;
  if (view.kind === "hour") return at >= Date.parse(body.from) && at < Date.parse(body.to) ? { from: body.from, to: body.to } : null;
  const bar = view.kind === "day" ? bars.find(bar => Date.parse(bar.from) <= at && at < Date.parse(bar.to)) : null;
  return bar ? { from: bar.from, to: bar.to } : null;
}

/** Bars of an answer, each up to where the next begins. */
function barsOf({ rows, to, settled_to, complete_to }, unit) {
  const settled = settled_to ? Date.parse(settled_to) : 0, complete = complete_to ? Date.parse(complete_to) : 0;
  return rows.map((row, at) => {
    const from = row[unit], end = rows[at + 1]?.[unit] ?? to;
    return {
      from, to: end, n: row.n, before: row.previous ?? null, label: labelOf(from, unit),
      isMoving: Date.parse(end) > settled, isAhead: Date.parse(from) >= complete,
    };
  });
}

function labelOf(from, unit) {
  if (unit === "day") return view.kind === "month" ? String(Number(from.slice(8, 10))) : shortDay(dateOf(from));
  const [hour, minute] = timeOf(from).split(":").map(Number);
  return unit === "quarter" || (minute === 0 && hour % 3 === 0) ? timeOf(from) : "";
}

function again(ms) {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(look, ms);
}

document.onvisibilitychange = () => document.hidden ? clearTimeout(timer) : tenant || token ? look() : undefined;

const REFUSED = new Set(["not_kept", "range", "zone", "types", "listings", "compare", "too_many_groups", "limit"]);

function fail(error) {
  if (error.status === 401 || error.status === 403 || error.code === "tenant") return enter(error);
  if (REFUSED.has(error.code)) return refuse(error);
  failures += 1;
  document.body.classList.add("stale");
  const why = error.status ? error.message : "the server cannot be reached";
  const since = shown ? `; numbers are of ${timeOf(shown.body.complete_to ?? "")}` : "";
  say("waiting", `${why}${since}; trying again`);
  again(Math.min(RETRY_MAX_MS, 1_000 * 2 ** (failures - 1)));
}

/** What was asked for has no answer: the page says why, and shows nothing in its place. */
function refuse(error) {
  [$("shown").hidden, $("leave").hidden] = [false, false];
  change($("shop"), $("shop").textContent || tenant);
  document.body.classList.add("refused");
  say("live", "live");
  shown = null;
  tell("note", error.code === "not_kept" ? `Counts of this period are not kept any more. ${error.message}` : error.message);
  change($("total"), "–");
  change($("versus"), "\u00a0");
  showPeriod();
}

// ---- who asks ----

function enter(error) {
  const texts = {
    tenant: "Which shop?", unauthorized: "This server needs a token.", token_expired: "This token has expired. Ask for a new one.",
    forbidden: "This token does not open this shop.",
  };
  change($("ask-text"), texts[error?.code] ?? error?.message ?? "Which shop?");
  $("tenant").value = tenant;
  [$("ask").hidden, $("shown").hidden, $("leave").hidden] = [false, true, true];
  change($("shop"), "");
  say("waiting", "waiting for a shop");
  $(tenant ? "token" : "tenant").focus();
}

$("ask").onsubmit = event => {
  event.preventDefault();
  [tenant, token] = [$("tenant").value.trim(), $("token").value.trim()];
  if (!tenant && !token) return enter();
  sessionStorage.setItem("impressions.tenant", tenant);
  sessionStorage.setItem("impressions.token", token);
  $("token").value = "";
  $("ask").hidden = true;
  say("waiting", "loading");
  answers.clear();
  return look();
};

$("leave").onclick = () => {
  clearTimeout(timer);
  looks += 1;
  for (const key of ["impressions.tenant", "impressions.token"]) sessionStorage.removeItem(key);
  [tenant, token, listing, shown] = ["", "", "", null];
  answers.clear();
  enter();
};

// ---- showing ----

function say(state, text) {
  $("state").dataset.state = state;
  change($("state"), text);
}

/** A line that is read out is changed only where it says something else. */
function change(line, text) {
  if (line.textContent !== text) line.textContent = text;
}

function tell(id, text) {
  change($(id), text);
  $(id).hidden = !text;
}

function show(found) {
  shown = found;
  const { body, bars, unit } = found;
  document.body.classList.remove("refused");
  [$("shown").hidden, $("leave").hidden, $("ask").hidden] = [false, false, true];
  change($("shop"), body.tenant);
  showPeriod();
  change($("total"), number.format(body.total));
  showVersus(found);
  change($("complete"), body.complete_to ? clock(body.complete_to) : "nothing yet");
  change($("settled"), body.state === "settled" ? "all of it" : body.settled_to ? clock(body.settled_to) : "–");
  tell("note", noteOf(body));
  chart.draw({ bars, text: `${periodText()}: ${number.format(body.total)} in ${bars.length} ${unit}s. Arrow keys read a bar${unit === "quarter" ? "" : ", Enter zooms in"}.` });
  $("key-before").hidden = !body.previous;
  if (body.previous) change($("key-before-text"), beforeText(body.previous));
  change($("late"), body.late_total ? `${number.format(body.late_total)} of this shop came after their hour was settled` : "");
  showListings(found);
  showTypes(found.types);
  showHour(found.hour);
  showValues(found);
  showAlert(found.alert);
  $("later").setAttribute("aria-disabled", !canLater());
  $("out").setAttribute("aria-disabled", view.kind === "month");
}

function showPeriod() {
  for (const button of $("views").children) button.setAttribute("aria-pressed", button.dataset.kind === view.kind);
  change($("period"), periodText());
  document.title = `${periodText()} · Impressions`;
  tell("filter-name", listing);
  $("filter").hidden = !listing;
}

function periodText() {
  if (view.kind === "hour") return `${timeOf(view.from)} to ${timeOf(view.to)}, ${dayText(dateOf(view.from))}`;
  const texts = { day: dayText, week: weekText, month: monthText };
  const text = texts[view.kind](view.date);
  return view.isCurrent && view.kind === "day" ? `Today, ${text}` : text;
}

const BEFORE = { hour: "the same time the day before", day: "the day before", week: "the week before", month: "the month before" };

function showVersus({ body, cut, versus }) {
  const line = $("versus"), previous = versus?.previous;
  if (!versus) return change(line, $("compare").checked && cut ? "Nothing is complete yet to compare" : "\u00a0");
  const until = cut ? ` up to ${clock(versus.to)}` : "";
  if (previous.total === null) return change(line, `Of ${BEFORE[view.kind]} nothing is kept`);
  const n = cut ? versus.total : body.total;
  if (n === 0 && previous.total === 0) return change(line, `0, as on ${BEFORE[view.kind]}${until}`);
  const part = changeOf(n, previous.total);
  const made = element("b", part.text, part.name);
  const text = ` on ${BEFORE[view.kind]}${until}: ${number.format(n)} after ${number.format(previous.total)}`;
  if (line.textContent !== part.text + text) line.replaceChildren(made, text);
  return undefined;
}

/** How a count changed, as a text and the name of its colour. */
function changeOf(n, before) {
  if (n === before) return { text: "±0 %", name: "" };
  if (before === 0) return { text: "new", name: "up" };
  const share = (n - before) / before * 100, size = Math.abs(share);
  const rounded = size < 10 ? Math.round(size * 10) / 10 : Math.round(size);
  return { text: `${share < 0 ? "−" : "+"}${number.format(rounded)} %`, name: share < 0 ? "down" : "up" };
}

/** What there is to know of the answer, and why it has no counts. */
function noteOf(body) {
  const notes = [];
  if (body.paused_since) notes.push(`Counting is paused since ${clock(body.paused_since)}: newer events are kept and are counted later.`);
  notes.push(...body.incomplete_because.map(why => `Not complete: ${why}.`));
  if (body.not_kept_before) notes.push(`Counts before ${clock(body.not_kept_before)} are not kept.`);
  if (!body.total) notes.push(emptyText(body));
  return notes.join(" ");
}

function emptyText({ state, complete_to, from }) {
  if (state === "not_yet") return complete_to ? `This period has not begun: it begins on ${fullClock(from)}, and nothing of it is there yet.` : "Nothing was counted yet: the server is not ready.";
  if (state === "partial") return `Nothing was counted in this period so far. All events up to ${clock(complete_to)} are in the answer.`;
  return `Nothing was counted in this period. It is complete: no event is missing${state === "settled" ? "" : ", but late ones may come"}.`;
}

function beforeText({ from, to, total, unmatched }) {
  if (total === null) return "of the period before nothing is kept";
  const apart = unmatched ? `; ${number.format(unmatched)} of it at times that this period does not have` : "";
  return `${fullClock(from)} to ${fullClock(to)}${apart}`;
}

const fullClock = time => `${shortDay(dateOf(time))} ${timeOf(time)}`;

/** A time as the zone's clock shows it: with its date if that is not the day that is looked at. */
function clock(time) {
  const isOfDay = view.kind !== "week" && view.kind !== "month" && dateOf(time) === dateOf(view.kind === "hour" ? view.from : view.date);
  return isOfDay ? timeOf(time) : fullClock(time);
}

function stateOf(bar) {
  return bar.isAhead ? "not yet" : bar.isMoving ? "may change" : "settled";
}

function barText(bar) {
  if (shown.unit === "day") return dayText(dateOf(bar.from));
  return `${timeOf(bar.from)} to ${timeOf(bar.to)}${offsetOf(bar)}`;
}

/** The offset of an hour that the clock shows twice. */
function offsetOf({ from }) {
  const isTwice = shown.bars.some(bar => bar.from !== from && bar.from.slice(0, 16) === from.slice(0, 16));
  return isTwice ? ` (${from.slice(19)})` : "";
}

function readOut(at) {
  const bar = shown?.bars[at];
  if (!bar) return "\u00a0";
  const before = bar.before === null ? "" : `, before ${number.format(bar.before)}`;
  return `${barText(bar)}: ${number.format(bar.n)}${before}, ${stateOf(bar)}`;
}

function showListings({ ranked, changes, cut }) {
  const before = new Map(changes?.rows.map(row => [row.listing, row]) ?? []);
  const most = Math.max(1, ...ranked.rows.map(row => row.n));
  const items = ranked.rows.map((row, at) => {
    const item = element("li"), name = element("button", row.listing), pair = before.get(row.listing);
    name.type = "button";
    name.dataset.listing = row.listing;
    name.onclick = () => choose({ listing: row.listing });
    const part = !changes ? { text: "", name: "" } : pair ? changeOf(pair.n, pair.previous ?? 0) : { text: "new", name: "up" };
    const bar = document.createElementNS(SVG, "svg"), rect = document.createElementNS(SVG, "rect");
    bar.setAttribute("aria-hidden", "true");
    rect.setAttribute("width", `${row.n / most * 100}%`);
    rect.setAttribute("height", "100%");
    bar.append(rect);
    item.append(element("span", String(at + 1), "rank"), name, element("b", number.format(row.n)), element("span", part.text, `change ${part.name}`), bar);
    return item;
  });
  change($("listings-until"), changes && cut ? `change up to ${clock(changes.to)}` : "");
  // Whoever stands on a listing stands on it still.
  const focused = document.activeElement?.dataset?.listing;
  $("listings").replaceChildren(...items);
  if (focused !== undefined) [...$("listings").querySelectorAll("button")].find(button => button.dataset.listing === focused)?.focus({ preventScroll: true });
  $("no-listings").hidden = items.length > 0;
  tell("more", ranked.more ? `The first ${LISTINGS_SHOWN}; the CSV has all.` : "");
}

function showTypes({ rows }) {
  const chosen = $("type").value, names = new Set([...rows.map(row => row.type), ...(chosen ? [chosen] : [])]);
  const wanted = ["", ...[...names].sort()];
  if ([...$("type").options].map(option => option.value).join() === wanted.join()) return;
  $("type").replaceChildren(...wanted.map(name => new Option(name || "all", name, false, name === chosen)));
}

/** The present hour by the minute in which its events were counted. */
function showHour(hour) {
  $("hour").hidden = !hour;
  for (const id of ["now-title", "now-total"]) $(id).parentElement.hidden = !hour;
  if (!hour) return;
  const from = Date.parse(hour.from), count = Math.round((Date.parse(hour.to) - from) / MINUTE_MS), last = Date.parse(hour.complete_to);
  const byMinute = new Map();
  let apart = 0;
  for (const { counted_at, n } of hour.rows) {
    const at = counted_at ? Math.floor((Date.parse(counted_at) - from) / MINUTE_MS) : -1;
    if (at >= 0 && at < count) byMinute.set(at, (byMinute.get(at) ?? 0) + n);
    else apart += n;
  }
  const start = Number(timeOf(hour.from).slice(3)), hours = Number(timeOf(hour.from).slice(0, 2));
  let sum = apart;
  const bars = Array.from({ length: count }, (_, at) => {
    const n = byMinute.get(at) ?? 0, minute = start + at, time = `${pad((hours + Math.floor(minute / 60)) % 24)}:${pad(minute % 60)}`;
    sum += n;
    return { n, before: null, time, sum, isMoving: from + (at + 1) * MINUTE_MS > last, isAhead: from + at * MINUTE_MS > last, label: at % 10 === 0 ? time : "" };
  });
  change($("now-total"), number.format(hour.total));
  const none = hour.total === 0 ? " No event of this hour was counted yet." : "";
  const also = apart ? ` ${number.format(apart)} were counted before this hour, or before the server’s last start, and are in no bar.` : "";
  change($("hour-text"), `${timeOf(hour.from)} to ${timeOf(hour.to)}: ${number.format(hour.total)} so far. Each bar has the events of this hour that the server counted in one minute.${also}${none}`);
  minuteBars = bars;
  minutes.draw({ bars, text: `This hour, minute by minute: ${number.format(hour.total)} so far. Arrow keys read a bar.` });
}

function minuteText(at) {
  const bar = minuteBars[at];
  if (!bar) return "\u00a0";
  return bar.isAhead ? `${bar.time}: not yet` : `${bar.time}: ${number.format(bar.n)} counted; ${number.format(bar.sum)} of this hour up to then`;
}

const pad = value => String(value).padStart(2, "0");

function showValues({ body, bars, unit }) {
  change($("at-head"), unit === "day" ? "Day" : "From");
  $("before-head").hidden = !body.previous;
  $("values").replaceChildren(...bars.map(bar => {
    const row = element("tr"), name = element("th", unit === "day" ? dateOf(bar.from) : "");
    if (unit !== "day") name.append(element("span", `${dateOf(bar.from)} `, "date"), `${timeOf(bar.from)}${offsetOf(bar)}`);
    name.scope = "row";
    row.append(name, element("td", bar.isAhead && !bar.n ? "–" : number.format(bar.n)));
    if (body.previous) row.append(element("td", bar.before === null ? "–" : number.format(bar.before)));
    row.append(element("td", stateOf(bar)));
    return row;
  }));
  change($("foot"), `Hours and days are those of ${body.zone}. Read from ${number.format(body.as_of.blobs)} ${body.as_of.blobs === 1 ? "blob" : "blobs"} at index ${number.format(body.as_of.index)}.`);
}

// ---- the alert ----

const alertKey = name => `impressions.alert.${name}`;

/** The alert of a shop, which this browser keeps. */
function keptAlert(name) {
  try {
    const kept = JSON.parse(localStorage.getItem(alertKey(name)) ?? "null");
    return kept && Number(kept.share) > 0 && ["week", "previous"].includes(kept.than) ? kept : null;
  } catch {
    return null;
  }
}

/** What counts of today are below, up to the last quarter of an hour that is complete. */
async function checkAlert({ tenant: name, complete_to }) {
  const kept = keptAlert(name), date = today();
  if (!kept || !complete_to) return { kept, body: null };
  const to = quarterOf(Date.parse(complete_to));
  // The day has begun a quarter of an hour ago.
  if (clockOf(to - 1, $("zone").value).date !== date) return { kept, body: null };
  const types = kept.type ? { types: [kept.type] } : {};
  try {
    return { kept, body: await ask("alert", { from: date, to: instant(to), dimensions: [], compare: kept.than, ...types }) };
  } catch (error) {
    // Another server may not know the type. The rest of the page is shown.
    if (error.code !== "types") throw error;
    return { kept, body: null, why: error.message };
  }
}

function showAlert({ kept, body, why }) {
  const isEdited = $("alert").contains(document.activeElement);
  if (!isEdited) {
    $("alert-on").checked = Boolean(kept);
    if (kept) [$("alert-share").value, $("alert-than").value] = [kept.share, kept.than];
  }
  const before = body?.previous?.total, name = kept?.than === "week" ? "last week" : "yesterday";
  const events = kept?.type ? `events of type ${kept.type}` : "all events";
  const where = "It is checked while this page is open, and kept in this browser.";
  if (!body) {
    tell("warning", "");
    if (why) return change($("alert-text"), `Your alert is not checked here: ${why}`);
    return change($("alert-text"), kept ? `${where} Nothing of today is complete yet.` : where);
  }
  const isKnown = before !== null && before > 0, share = isKnown ? body.total / before * 100 : null;
  const isBelow = isKnown && share < kept.share;
  const counts = `${number.format(body.total)} up to ${timeOf(body.to)}, ${isKnown ? `${Math.round(share)} % of ${number.format(before)} ${name}` : `and nothing to compare with ${name}`}`;
  tell("warning", isBelow ? `Below your limit of ${kept.share} %: ${counts} (${events}).` : "");
  return change($("alert-text"), `${isBelow ? "Below your limit" : "Not below your limit"}: ${counts}, ${events}. ${where}`);
}

$("alert").onsubmit = event => event.preventDefault();
for (const id of ["alert-on", "alert-share", "alert-than"]) {
  $(id).onchange = () => {
    const share = Number($("alert-share").value), key = alertKey(shown?.body.tenant ?? tenant);
    if (!$("alert-on").checked) localStorage.removeItem(key);
    else if (!(share >= 1 && share <= 1_000)) return change($("alert-text"), `${$("alert-share").value || "Nothing"} is no limit: 1 to 1,000 %.`);
    else localStorage.setItem(key, JSON.stringify({ share, than: $("alert-than").value, type: $("type").value }));
    return look();
  };
}

// ---- choosing ----

/** Looks at this from now on; the address says so behind its `#`, which no server sees. */
function choose(next) {
  if (next.view) view = next.view;
  if ("listing" in next) listing = next.listing;
  chart.draw({ bars: shown?.bars ?? [], text: "Loading" });
  $("read").textContent = "\u00a0";
  const params = new URLSearchParams({ view: view.kind, zone: $("zone").value });
  if (view.kind === "hour") [["from", view.from], ["to", view.to]].forEach(([name, value]) => params.set(name, value));
  else if (!view.isCurrent) params.set("date", view.date);
  if ($("type").value) params.set("type", $("type").value);
  if (listing) params.set("listing", listing);
  if (!$("compare").checked) params.set("compare", "none");
  if (location.hash !== `#${params}`) history.pushState(null, "", `#${params}`);
  look();
}

/** A view of a date; it moves on with the clock if it is the present one. */
function viewOf(kind, date) {
  const start = startOf(kind, date);
  return { kind, date: start, isCurrent: start === startOf(kind, today()) };
}

const dateOfView = () => view.kind === "hour" ? dateOf(view.from) : view.date;

function zoomInto(at) {
  const bar = shown?.bars[at];
  if (!bar || shown.unit === "quarter") return;
  if (shown.unit === "day") choose({ view: viewOf("day", dateOf(bar.from)) });
  else choose({ view: { kind: "hour", from: bar.from, to: bar.to } });
}

function canLater() {
  return view.kind === "hour" ? Date.parse(view.to) <= now() : startOf(view.kind, today()) > view.date;
}

function move(way) {
  if (way > 0 && !canLater()) return;
  if (view.kind === "hour") return moveHour(way);
  const steps = { day: date => addDays(date, way), week: date => addDays(date, 7 * way), month: date => addMonths(date, way) };
  choose({ view: viewOf(view.kind, steps[view.kind](view.date)) });
}

/** The hour beside this one, which the server knows: an hour of a zone may have 30 or 90 minutes. */
async function moveHour(way) {
  const edge = Date.parse(way < 0 ? view.from : view.to), near = { from: instant(edge - 2 * 3_600_000), to: instant(edge + 2 * 3_600_000) };
  const body = await send({ ...near, dimensions: ["hour"], zeros: true }, "application/json").then(response => response.json()).catch(fail);
  const starts = body?.rows.map(row => row.hour) ?? [], at = starts.findIndex(start => Date.parse(start) === edge);
  if (at < 1 || at + 1 >= starts.length) return;
  choose({ view: { kind: "hour", from: starts[way < 0 ? at - 1 : at], to: starts[way < 0 ? at : at + 1] } });
}

function zoomOut() {
  if (view.kind === "month") return;
  choose({ view: viewOf(view.kind === "hour" ? "day" : "month", dateOfView()) });
}

function readAddress() {
  const params = new URLSearchParams(location.hash.slice(1)), kind = params.get("view") ?? "day", date = params.get("date");
  const isDate = isDay(date ?? "");
  fillZones(params.get("zone") ?? own);
  listing = params.get("listing") ?? "";
  $("compare").checked = params.get("compare") !== "none";
  const type = params.get("type") ?? "";
  if (![...$("type").options].some(option => option.value === type)) $("type").append(new Option(type, type));
  $("type").value = type;
  const [from, to] = [params.get("from") ?? "", params.get("to") ?? ""];
  if (kind === "hour" && isHour(from, to)) view = { kind, from, to };
  else view = KINDS.some(([known]) => known === kind) && isDate ? viewOf(kind, date) : { kind: KINDS.some(([known]) => known === kind) ? kind : "day", isCurrent: true };
  if (view.isCurrent) view.date = startOf(view.kind, today());
}

function fillZones(wanted) {
  const names = new Set(["UTC", own, ...Intl.supportedValuesOf("timeZone").map(presentZone).sort()]);
  const chosen = isZone(wanted) ? presentZone(wanted) : own;
  names.add(chosen);
  $("zone").replaceChildren(...[...names].map(name => new Option(name, name, false, name === chosen)));
}

for (const [kind, name] of KINDS) {
  const button = element("button", name);
  button.type = "button";
  button.dataset.kind = kind;
  button.onclick = () => choose({ view: viewOf(kind, view.isCurrent ? today() : dateOfView()) });
  $("views").append(button);
}
$("earlier").onclick = () => move(-1);
$("later").onclick = () => move(1);
$("out").onclick = zoomOut;
$("today").onclick = () => choose({ view: { kind: "day", date: today(), isCurrent: true } });
$("unfilter").onclick = () => choose({ listing: "" });
$("zone").onchange = () => choose({ view: view.kind === "hour" ? viewOf("day", dateOfView()) : view.isCurrent ? viewOf(view.kind, today()) : view });
for (const id of ["type", "compare"]) $(id).onchange = () => choose({});
onpopstate = () => {
  readAddress();
  if (tenant || token) look();
};

// ---- CSV ----

async function download(name, query) {
  try {
    const response = await send({ ...query, ...filters(), limit: CSV_ROWS_MAX }, "text/csv");
    const link = element("a");
    link.href = URL.createObjectURL(await response.blob());
    link.download = `${name}-${dateOfView()}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), MINUTE_MS);
    if (response.headers.get("tidemark-more") === "true") tell("note", `The file has the first ${number.format(CSV_ROWS_MAX)} rows only: there are more.`);
  } catch (error) {
    fail(error);
  }
}

const compared = before => $("compare").checked ? { compare: before } : {};
$("values-csv").onclick = () => {
  const { from, to, unit, before } = spanOf(view);
  download("impressions", { from, to, dimensions: [unit], zeros: true, ...compared(before) });
};
$("listings-csv").onclick = () => {
  const { from, to, before } = spanOf(view);
  download("listings", { from, to, dimensions: ["listing"], ...compared(before) });
};

function element(tag, text = "", name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (name) made.className = name;
  return made;
}

readAddress();
if (tenant || token) {
  say("waiting", "loading");
  look();
} else enter();
