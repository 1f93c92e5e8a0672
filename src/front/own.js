// One's own awards on the search page: a card for the newest, a list of the others, and what becomes of their claims.

import { timeElement } from "/assets/site/site.js";

const $ = id => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const TICK_MS = 1_000;
/** When it was decided is asked for so often: at first not every server has heard of the award. */
const TIME_TRIES_MAX = 10;

export class OwnAwards {
  #page; #known = new Map(); #shown = null;

  /** Of the page: the address of its server, the name of the counter of all queries, and how a claim is sent. */
  constructor(page) {
    this.#page = page;
    $("award-claim").onclick = () => this.#claim(this.#shown);
    $("award-close").onclick = () => {
      $("award").hidden = true;
      document.title = "Tidemark search";
      this.#show();
      $("q").focus();
    };
    setInterval(() => this.#tick(), TICK_MS);
  }

  has(counter, at) { return this.#known.has(`${counter} ${at}`); }

  /** The cluster is another than the one that these awards are of: the same milestones may be won again. */
  beginAnew() {
    this.#known.clear();
    $("yours").replaceChildren();
    $("award").hidden = true;
    this.#show();
  }

  /** Says it once, whoever brings the news first: the answer, or the push. */
  celebrate(counter, at) {
    if (this.has(counter, at)) return;
    const award = { counter, at, claim: null, isBusy: false, failed: "", time: null, tries: 0, item: newItem() };
    award.item.button.onclick = () => this.#claim(award);
    this.#known.set(`${counter} ${at}`, award);
    $("yours").prepend(award.item.li);
    // The greater news stays when both come.
    const isLess = !$("award").hidden && this.#shown.counter === this.#page.all && counter !== this.#page.all;
    if (!isLess) this.#open(award);
    this.#look(award);
    this.#lookWhen(award);
  }

  /** What nobody has claimed in time passes to the winner of a later award, whose page says so, also when it was closed. */
  takeTurn(counter, { at, holder, state }) {
    for (const milestone of new Set([at, holder])) {
      const award = this.#known.get(`${counter} ${milestone}`);
      if (!award) continue;
      if (state === "passed" && milestone === holder) this.#open(award);
      this.#look(award);
    }
  }

  /** A counter has another award: what waited for it has passed on. */
  lookAgain(counter) {
    for (const award of this.#known.values()) {
      if (award.counter === counter && award.claim?.state === "waiting") this.#look(award);
    }
  }

  #open(award) {
    this.#shown = award;
    $("award").hidden = false;
    document.title = `You are number ${number.format(award.at)}!`;
    this.#show();
  }

  #claimUrl({ counter, at }) { return `${this.#page.url}/v1/awards/${counter}/${at}/claim`; }

  /** An award may be claimed for a while by whom it names; where it is not to be claimed, nothing is said of it. */
  async #look(award) {
    const claim = await fetch(this.#claimUrl(award)).then(response => response.ok ? response.json() : null).catch(() => null);
    award.claim = claim ?? award.claim;
    this.#show();
  }

  async #lookWhen(award) {
    award.tries += 1;
    const url = `${this.#page.url}/v1/awards/${award.counter}/${award.at}`;
    const known = await fetch(url).then(response => response.ok ? response.json() : null).catch(() => null);
    award.time ??= known?.award?.time ?? null;
    if (award.time) this.#show();
  }

  async #claim(award) {
    award.isBusy = true;
    award.failed = "";
    this.#show();
    try {
      await Promise.all(toClaim(award).map(at => this.#page.claim(this.#claimUrl({ ...award, at }))));
    } catch ({ message }) {
      award.failed = message;
    }
    award.isBusy = false;
    await this.#look(award);
    if (award === this.#shown && !$("award").hidden && $("award-claim").hidden) $("award-close").focus();
  }

  #show() {
    const shown = $("award").hidden ? null : this.#shown;
    if (shown) this.#showCard(shown);
    for (const award of this.#known.values()) {
      const { li, at, of, text, button } = award.item;
      li.hidden = award === shown;
      at.textContent = number.format(award.at);
      of.textContent = ` ${this.#of(award)}. `;
      text.textContent = said(award);
      [button.hidden, button.disabled] = [!toClaim(award).length, award.isBusy];
    }
    $("own-awards").hidden = this.#known.size === (shown ? 1 : 0);
    this.#showTimes();
  }

  #showCard(award) {
    const { counter, at } = award;
    $("award-number").textContent = number.format(at);
    $("award-text").textContent = `${this.#of(award)}${counter === this.#page.all ? ", in all data centres" : ""}.`;
    $("award-time").replaceChildren(timeElement(award.time));
    $("award-page").href = `${this.#page.url}/award?counter=${encodeURIComponent(counter)}&at=${at}`;
    $("award-proof").href = `${this.#page.url}/v1/awards/${counter}/${at}/certificate`;
    [$("award-claim").hidden, $("award-claim").disabled] = [!toClaim(award).length, award.isBusy];
    const text = said(award);
    // Said again only when it is something else.
    if ($("award-claimed").textContent !== text) $("award-claimed").textContent = text;
    $("award").dataset.claim = toClaim(award).length ? "open" : award.claim?.holder === at ? award.claim.state : award.claim ? "passed" : "";
  }

  #tick() {
    this.#showTimes();
    // For a moment at the beginning it is not known until when.
    for (const award of this.#known.values()) {
      if (isOpen(award) && !award.claim.until_unix_ms) this.#look(award);
      if (!award.time && award.tries < TIME_TRIES_MAX) this.#lookWhen(award);
    }
  }

  /** Apart from what is said, which nobody wants to hear every second. */
  #showTimes() {
    const now = Date.now();
    if (this.#shown) $("award-left").textContent = left(this.#shown, now);
    for (const award of this.#known.values()) award.item.left.textContent = left(award, now);
  }

  #of({ counter }) { return counter === this.#page.all ? "of all queries" : "of all visitors’ own queries"; }
}

function newItem() {
  const [li, at, of, text, button, left] = ["li", "b", "span", "span", "button", "span"].map(name => document.createElement(name));
  [button.type, button.textContent, left.className] = ["button", "Claim it", "dim"];
  li.append(at, of, text, " ", button, " ", left);
  return { li, at, of, text, button, left };
}

/** Whether it may be claimed itself. */
const isOpen = ({ claim }) => claim?.state === "open" && claim.holder === claim.at;

/** Milestones of what may be claimed by whom an award names: its own, and those that have passed to it. */
function toClaim(award) {
  const own = isOpen(award) ? [award.claim.at] : [];
  return [...own, ...numbers(award, "open")];
}

/** Milestones of what has passed to the winner of an award and stands so. */
const numbers = ({ claim }, ...wanted) => (claim?.also ?? []).filter(({ state }) => wanted.includes(state)).map(({ at }) => at);

/** How the claim of an award stands, to whom it names. */
function said(award) {
  const { claim, isBusy, failed } = award, late = "You have not claimed it in time";
  if (isBusy) return "Claiming …";
  if (failed) return `Not claimed: ${failed}.`;
  if (!claim) return "";
  const named = (...wanted) => numbers(award, ...wanted).map(at => `number ${number.format(at)}`).join(", ");
  const [open, claimed, over] = [named("open"), named("claimed"), named("waiting", "lapsed")];
  const goesToo = open && `With it goes ${open}: that was not claimed in time, and has passed to you.`;
  const alsoYours = claimed && `, and so is ${claimed}, which was not claimed in time`;
  const overToo = over && `You have not claimed ${over} in time, which had passed to you.`;
  return [own(claim, late, alsoYours), goesToo, overToo].filter(Boolean).join(" ");
}

/** How an award's own claim stands. */
function own({ state, at, holder }, late, alsoYours) {
  if (holder !== at) return `${late}: it has passed to the winner of number ${number.format(holder)}.`;
  if (state === "claimed") return `Claimed: it is yours${alsoYours}.`;
  if (state === "waiting") return `${late}: it passes to the winner of the next one.`;
  if (state === "lapsed") return `${late}: it has no owner.`;
  return "";
}

/** Until when an award may be claimed. Whether that is over, the ledger says and not this clock. */
function left(award, now) {
  const until = award.claim?.until_unix_ms;
  if (!isOpen(award) || !until) return "";
  const seconds = Math.max(0, Math.ceil((until - now) / 1_000)), minutes = Math.floor(seconds / 60);
  const time = new Date(until).toLocaleTimeString();
  return `until ${time}, ${minutes ? `${minutes} min ` : ""}${String(seconds % 60).padStart(minutes ? 2 : 1, "0")} s left`;
}
