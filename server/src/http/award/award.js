// The page of one award: waits for it while it has not come, then shows which increment it was and what its certificate says, and
// tells who has a session's token whether it was theirs, which no server hears.

import { awardPath, counterPath, saveCertificate } from "/assets/cluster/award-links.js";
import { exactly, format, linkPages, nameOf, timeElement } from "/assets/site/site.js";

/** The longest that a server waits for an award; and longer than any answer takes. */
const WAIT_S = 20, TRY_MS = 35_000;
const POLL_MS = 1_000;
const RETRY_MS = 1_000, RETRY_MAX_MS = 16_000;
/** An award holds so many bytes of the SHA-256 of a session's token. */
const SESSION_BYTES = 16;
const COMING = {
  armed: "Not awarded yet. It is armed: it cannot happen unseen.",
  arming: "Not awarded yet. It is being armed: nothing is promised before that is done.",
};

const $ = id => document.getElementById(id);
const asked = new URLSearchParams(location.search);
const counter = (asked.get("counter") ?? "").trim(), at = (asked.get("at") ?? "").replace(/[\s,_]/g, "");
let token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
/** What is known: the cluster as `/v1/cluster` says it, how far the milestone is, and its award. */
let cluster = null, coming = null, award = null;
/** In a row; and whether the last question about the award was answered, so that the next one may take its time. */
let failures = 0, isCalm = false;
let measuring = null;

// ---- asking ----

/** Asks for what is needed to go on, above all for a `field`. */
function ask(text, field) {
  const needsToken = field === "token";
  $("ask-text").textContent = text;
  $("ask-award").hidden = needsToken;
  $("ask-token").hidden = !needsToken;
  [$("counter").value, $("at").value] = [counter, asked.get("at") ?? ""];
  // What stands behind `#` in a form's action stays there.
  $("ask").action = `/award${location.hash}`;
  $("ask").hidden = false;
  $(field).focus();
}

$("ask").onsubmit = event => {
  if ($("ask-token").hidden) return;
  event.preventDefault();
  token = $("token").value.trim();
  history.replaceState(null, "", `#token=${encodeURIComponent(token)}`);
  linkPages(counter);
  $("ask").hidden = true;
  follow();
};

const headers = () => token ? { authorization: `Bearer ${token}` } : {};
const pause = ms => new Promise(done => setTimeout(done, ms));

/** An answer, and its text. Every error is one that another try may help, or says its `status`. */
async function read(path) {
  const response = await fetch(path, { headers: headers(), cache: "no-store", signal: AbortSignal.timeout(TRY_MS) });
  const text = await response.text(), body = exactly(text);
  if (response.ok) return { text, body };
  const { code, message = response.statusText } = body.error ?? {};
  throw Object.assign(new Error(message), { status: response.status, code });
}

/** Asks until there is a proof, or until asking again would change nothing. */
async function follow() {
  for (let goes = true; goes;) {
    try {
      goes = await step();
    } catch (error) {
      if (isFinal(error)) return refuse(error);
      [failures, isCalm] = [failures + 1, false];
      say("waiting", `${error.status ? error.message : `not connected (${error.message})`}; trying again`);
      await pause(Math.min(RETRY_MAX_MS, RETRY_MS * 2 ** (failures - 1)));
    }
  }
  return undefined;
}

/** One question; whether there is another one. */
async function step() {
  if (!cluster) return findCluster();
  return award ? findProof() : findAward();
}

async function findCluster() {
  cluster = (await read(`/v1/cluster?counter=${encodeURIComponent(counter)}`)).body;
  const name = nameOf(cluster.counter);
  $("name").textContent = name;
  $("number").textContent = format(at);
  document.title = `Number ${format(at)} of ${name}`;
  return true;
}

/** Does not wait at first, nor after a failure: a server that has no room for who waits still says how far it is. */
async function findAward() {
  const begun = performance.now(), waits = isCalm;
  const { body } = await read(`${awardPath(cluster.counter, at)}${waits ? `?wait_s=${WAIT_S}` : ""}`);
  isCalm = true;
  if (waits || body.award) failures = 0;
  sayLive();
  $("shown").hidden = false;
  if (body.award) showAward(body.award);
  else showComing(body.state);
  // Something on the way may answer for the server, at once and always the same.
  if (waits && !body.award && performance.now() - begun < POLL_MS) await pause(POLL_MS);
  return true;
}

/** Until a majority has signed, which takes a moment. */
async function findProof() {
  const { text, body } = await read(`${awardPath(cluster.counter, at)}/certificate`);
  failures = 0;
  sayLive();
  showProof(text, body);
  const isSigned = body.signatures.length >= majority();
  if (!isSigned) await pause(POLL_MS);
  return !isSigned;
}

/** Of an award that is known, nothing but the token can be wrong. */
const isFinal = ({ status }) => status === 401 || status >= 400 && status < 500 && !award;

function refuse({ status, code, message }) {
  isCalm = false;
  $("coming").hidden = true;
  say("waiting", message);
  if (status === 401) return ask(token ? "This token is not the server’s." : "Reading needs a token here.", "token");
  $("shown").hidden = true;
  return ask(refusal(code) ?? message, cluster ? "at" : "counter");
}

function refusal(code) {
  if (!cluster) return null;
  const name = nameOf(cluster.counter), n = format(at);
  if (code === "passed") return `Number ${n} of ${name} has no winner: the count had passed it before it was armed.`;
  if (code !== "not_found") return null;
  return `${name} has no milestone ${n}: it was never defined, or was removed, or passed so long ago that it is forgotten.`;
}

const sayLive = () => say("live", `live, seen from ${cluster.dc}`);

function say(state, text) {
  $("state").dataset.state = state;
  change($("state"), text);
}

// ---- before the award ----

function showComing(state) {
  coming = state;
  change($("told"), COMING[state] ?? "Not awarded yet.");
  if (!$("coming").hidden) return;
  $("coming").hidden = false;
  measure();
}

/** How far it is, while somebody looks. What an answer says of the next milestone itself may be of one before this one. */
async function measure() {
  try {
    const { value, rate_per_s: rate } = (await read(`/v1/counters/${counterPath(cluster.counter)}/progress`)).body;
    const left = BigInt(at) - BigInt(value), remaining = left > 0n ? left : 0n;
    change($("value"), format(value));
    change($("remaining"), format(remaining));
    change($("eta"), coming === "armed" && rate ? duration(Number(remaining) / Number(rate)) : "–");
  } catch {
    // Who waits for the award says that the server is away.
  }
  clearTimeout(measuring);
  if (!$("coming").hidden && !document.hidden) measuring = setTimeout(measure, POLL_MS);
}

document.onvisibilitychange = () => document.hidden || $("coming").hidden ? clearTimeout(measuring) : measure();

// ---- the award ----

function showAward(body) {
  award = body;
  const dc = cluster.dcs[award.dc], first = BigInt(award.first), count = BigInt(award.count), step = BigInt(award.step);
  const facts = [["Data centre", dcName(award.dc)], ["Place", dc?.place?.name]];
  if (award.time) facts.unshift(["Decided", timeElement(award.time)]);
  if (award.delta > 1) {
    const end = first + BigInt(award.delta) - 1n;
    facts.push(["Weight", format(award.delta)], ["Its numbers", `${format(first)} to ${format(end)}`]);
  }
  if (count > 1n) {
    const last = BigInt(award.at) + step * (count - 1n);
    facts.push(["Its milestones", `${format(count)}: from ${format(award.at)} to ${format(last)}, every ${format(step)}`]);
  }
  $("facts").replaceChildren(...facts.filter(([, value]) => value).map(fact));
  $("coming").hidden = true;
  $("awarded").hidden = false;
  change($("told"), `Awarded to an increment that was counted in ${dcName(award.dc)}.`);
  document.title = `Awarded: number ${format(at)} of ${nameOf(cluster.counter)}`;
  $("foot").textContent = `As ${cluster.dc} knows it.`;
  $("command").textContent = `tidemark verify --ca ca.pem --voters ${voters()} certificate-${at}.json`;
  showMine();
}

function fact([name, value]) {
  const row = document.createElement("div");
  const shown = element("dd", "");
  shown.append(value);
  row.append(element("dt", name), shown);
  return row;
}

/** The certificate's sums are made here; its signatures are only counted. */
function showProof(text, certificate) {
  const weights = new Map();
  for (const { group, weight } of certificate.award.before) {
    weights.set(group.dc, (weights.get(group.dc) ?? 0n) + BigInt(weight));
  }
  const sum = [...weights.values()].reduce((all, weight) => all + weight, 0n);
  $("rows").replaceChildren(...[...weights].map(weightRow));
  $("sum").textContent = format(sum);
  const expected = BigInt(award.first) - 1n, isRight = sum === expected, first = format(award.first);
  $("sum-text").classList.toggle("wrong", !isRight);
  change($("sum-text"), isRight ? `The sum is one less than number ${first}, as it must be.`
    : `The sum must be ${format(expected)}, one less than number ${first}: this certificate is wrong.`);
  const signed = certificate.signatures.length, more = signed < majority() ? ", and more may come" : "";
  change($("signed"), `Signed by ${signed} of ${voters()} voters; ${majority()} are needed${more}.`);
  $("certificate").href = `${awardPath(cluster.counter, at)}/certificate`;
  $("certificate").download = `certificate-${at}.json`;
  // What is saved is what is shown.
  $("certificate").onclick = event => {
    event.preventDefault();
    saveCertificate(new Blob([text], { type: "application/json" }), at);
  };
}

function weightRow([dc, weight]) {
  const row = document.createElement("tr"), name = element("th", dcName(dc));
  name.scope = "row";
  row.append(name, element("td", format(weight)));
  return row;
}

// ---- whose it is ----

function showMine() {
  $("mine").hidden = !award.session || !globalThis.crypto?.subtle;
  if (!award.session) {
    $("mine-text").textContent = "Its increment was counted without a session: no session can show that it won.";
  } else if ($("mine").hidden) {
    $("mine-text").textContent = "Browsers compute SHA-256 for secure pages only: open this page over https, or on localhost.";
  }
}

$("session").oninput = () => { $("verdict").textContent = ""; };

$("mine").onsubmit = async event => {
  event.preventDefault();
  const given = $("session").value.trim();
  if (!given) return;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(given)));
  const digits = [...digest.subarray(0, SESSION_BYTES)].map(byte => byte.toString(16).padStart(2, "0")).join("");
  const isMine = digits === award.session;
  $("verdict").dataset.mine = isMine ? "yes" : "no";
  $("verdict").textContent = isMine ? `Yes: number ${format(at)} was counted for this session.` : "No: it was another session’s.";
};

// ---- small things ----

function element(tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

/** A line that is read out is changed only where it says something else. */
function change(line, text) {
  if (line.textContent !== text) line.textContent = text;
}

const voters = () => cluster.dcs.filter(dc => dc.voter).length;
const majority = () => Math.floor(voters() / 2) + 1;
const dcName = index => cluster.dcs[index]?.name ?? `data centre ${index}`;

function duration(s) {
  if (s < 1.5) return "now";
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5_400) return `${Math.round(s / 60)} min`;
  return s < 172_800 ? `${Math.round(s / 3_600)} h` : `${format(Math.round(s / 86_400))} days`;
}

linkPages(counter);
if (!counter) ask("Which award? The counter’s namespace and key are needed, as in search/queries, and its number.", "counter");
else if (!/^\d{1,19}$/.test(at)) ask("Which number? Digits are expected, as in 1,000,000,000.", "at");
else follow();
