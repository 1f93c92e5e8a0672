// A counter's steps as bars, with the period before as a line: drawn by hand, read with the pointer, and zoomed by drawing over a part.

import { label, made, short } from "../cluster/chart.js";

const MARGIN = { left: 52, right: 2, top: 16, bottom: 24 };
const HEIGHT = 280;
/** Less than this was a click. */
const DRAG_PX = 6;
/** Room for a label below the bars. */
const LABEL_PX = 80;

export class SeriesChart {
  #svg; #width = 0; #last = null; #from = null; #pointed = -1; #told;

  /** `onPoint(index)` is told of the step below the pointer, or -1; `onChoose(first, last)` of those that were drawn over. */
  constructor(svg, { onPoint, onChoose }) {
    this.#svg = svg;
    this.#told = { onPoint, onChoose };
    new ResizeObserver(() => {
      const width = Math.round(svg.parentElement.clientWidth);
      if (!width || width === this.#width) return;
      this.#width = width;
      svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
      svg.style.height = `${HEIGHT}px`;
      if (this.#last) this.draw(this.#last);
    }).observe(svg.parentElement);
    svg.onpointermove = event => this.#move(event);
    svg.onpointerleave = () => this.#point(-1);
    svg.onpointerdown = event => {
      if (event.button !== 0 || !this.#last?.steps.length) return;
      svg.setPointerCapture(event.pointerId);
      this.#from = this.#at(event);
    };
    svg.onpointerup = event => this.#choose(event);
    svg.onpointercancel = () => this.#drop();
  }

  /** `shown`: `{ steps, before, now_s, text }`: steps of a series, values of the period before or none, and what all of it says. */
  draw(shown) {
    this.#last = shown;
    if (!this.#width) return;
    const { steps, before, now_s } = shown, known = steps.flatMap(step => step.value === null ? [] : [step.at_most, step.at_least]);
    const { low, high, ticks } = scale([...known, ...before.filter(value => value !== null)]);
    const right = this.#width - MARGIN.right, bottom = HEIGHT - MARGIN.bottom;
    const y = value => round(bottom - (value - low) / (high - low) * (bottom - MARGIN.top));
    const parts = ticks.flatMap(tick => [
      made("path", { class: tick ? "grid" : "axis", d: `M${MARGIN.left} ${y(tick)}H${right}` }),
      label(MARGIN.left - 6, y(tick) + 4, "end", short(tick)),
    ]);
    const wide = (right - MARGIN.left) / Math.max(1, steps.length), gap = wide > 5 ? Math.min(4, wide * .2) : 0;
    const x = index => round(MARGIN.left + index * wide);
    steps.forEach((step, at) => {
      const place = { x: x(at) + gap / 2, width: Math.max(.5, round(wide - gap)) };
      if (step.value === null) return parts.push(made("rect", { class: "gap", ...place, y: MARGIN.top, height: bottom - MARGIN.top }));
      const top = Math.min(y(step.value), y(0)), height = Math.max(step.value ? 1 : 0, Math.abs(y(step.value) - y(0)));
      const open = step.to_s > now_s ? " open" : "", pointed = at === this.#pointed ? " pointed" : "";
      parts.push(made("rect", { class: `bar-of${open}${pointed}`, ...place, y: top, height: round(height) }));
      if (step.at_least === step.at_most) return undefined;
      return parts.push(made("path", { class: "whisker", d: `M${x(at + .5)} ${y(step.at_least)}V${y(step.at_most)}` }));
    });
    parts.push(...earlier(before, x, y), ...labels(steps, x, this.#width));
    this.#svg.replaceChildren(...parts);
    if (this.#svg.getAttribute("aria-label") !== shown.text) this.#svg.setAttribute("aria-label", shown.text);
  }

  #at(event) {
    return event.clientX - this.#svg.getBoundingClientRect().left;
  }

  #index(px) {
    const count = this.#last?.steps.length ?? 0;
    const index = Math.floor((px - MARGIN.left) / (this.#width - MARGIN.right - MARGIN.left) * count);
    return Math.min(count - 1, Math.max(0, index));
  }

  #point(index) {
    if (index === this.#pointed) return;
    this.#pointed = index;
    this.#told.onPoint(index);
    if (this.#last && this.#from === null) this.draw(this.#last);
  }

  #move(event) {
    const px = this.#at(event);
    this.#point(px < MARGIN.left ? -1 : this.#index(px));
    if (this.#from === null) return;
    this.#svg.querySelector(".chosen")?.remove();
    const [left, right] = [Math.max(MARGIN.left, Math.min(this.#from, px)), Math.max(this.#from, px)];
    this.#svg.append(made("rect", { class: "chosen", x: left, width: Math.max(0, right - left), y: MARGIN.top, height: HEIGHT - MARGIN.bottom - MARGIN.top }));
  }

  #choose(event) {
    const from = this.#from, to = this.#at(event);
    this.#drop();
    if (from === null || Math.abs(to - from) < DRAG_PX) return;
    const [first, last] = [from, to].map(px => this.#index(px)).sort((a, b) => a - b);
    this.#told.onChoose(first, last);
  }

  #drop() {
    this.#from = null;
    this.#svg.querySelector(".chosen")?.remove();
  }
}

/** Where the period before stood, step by step. */
function earlier(before, x, y) {
  const parts = before.map((value, at) => value === null ? "" : `${before[at - 1] === null || at === 0 ? "M" : "L"}${x(at)} ${y(value)}L${x(at + 1)} ${y(value)}`);
  return before.length ? [made("path", { class: "earlier", d: parts.join("") })] : [];
}

/** Dates, or times of day where there are few days, as the zone's clock says them: as many as have room. */
function labels(steps, x, width) {
  const parts = [], days = new Set(steps.map(step => step.from.slice(0, 10))).size, isShort = days < steps.length;
  let told = "", free = 0;
  for (const [at, { from }] of steps.entries()) {
    const day = from.slice(0, 10), time = from.slice(11, 16), isNew = day !== told;
    const text = !isShort ? day : isNew && at > 0 || days > 3 ? day.slice(5) : time;
    if (isShort && days > 3 && !isNew) continue;
    told = day;
    if (x(at) < free || x(at) + LABEL_PX > width) continue;
    parts.push(label(x(at), HEIGHT - 6, "start", text));
    free = x(at) + text.length * 7 + 16;
  }
  return parts;
}

/** Round numbers from at most the least of 0 and `values` to at least the most. */
function scale(values) {
  const most = Math.max(1, ...values), least = Math.min(0, ...values), reach = most - least;
  const digits = [1, 2, 2.5, 5, 10].map(digit => digit * 10 ** Math.floor(Math.log10(reach / 4)));
  const step = Math.max(1, digits.find(step => step * 5 >= reach * 1.05));
  const [low, high] = [Math.floor(least / step) * step, Math.ceil(most * 1.02 / step) * step];
  return { low, high, ticks: Array.from({ length: Math.round((high - low) / step) + 1 }, (_, at) => low + at * step) };
}

const round = value => Math.round(value * 10) / 10;
