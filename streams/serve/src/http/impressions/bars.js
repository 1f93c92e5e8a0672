// Counts as bars, with the period before as a line. The pointer and the arrow keys read a bar; a click or Enter zooms into it.

import { label, made, short } from "../cluster/chart.js";

const MARGIN = { left: 46, right: 2, top: 12, bottom: 24 };

export class Bars {
  #svg; #height; #width = 0; #shown = null; #pointed = -1; #told;

  /** `onPoint(index)` is told of the bar that is read, or -1; `onZoom(index)` of the one that is chosen, if bars can be. */
  constructor(svg, { height, onPoint, onZoom }) {
    this.#svg = svg;
    this.#height = height;
    this.#told = { onPoint, onZoom };
    svg.setAttribute("tabindex", "0");
    svg.setAttribute("role", "group");
    svg.setAttribute("aria-roledescription", "chart");
    new ResizeObserver(() => {
      const width = Math.round(svg.parentElement.clientWidth);
      if (!width || width === this.#width) return;
      this.#width = width;
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      svg.setAttribute("height", height);
      this.#redraw();
    }).observe(svg.parentElement);
    svg.onpointermove = event => this.#point(this.#at(event));
    svg.onpointerleave = () => { if (document.activeElement !== svg) this.#point(-1); };
    svg.onclick = event => this.#zoom(this.#at(event));
    svg.onkeydown = event => this.#key(event);
    svg.onblur = () => this.#point(-1);
  }

  /** `shown`: `{ bars, text }`; a bar is `{ n, before, isMoving, isAhead, label }`: `before` is `null` if nothing is compared. */
  draw(shown) {
    this.#shown = shown;
    if (this.#pointed >= shown.bars.length) this.#point(-1);
    this.#redraw();
  }

  #redraw() {
    if (!this.#width || !this.#shown) return;
    const { bars, text } = this.#shown, count = Math.max(1, bars.length);
    const { top, ticks } = scale(Math.max(1, ...bars.flatMap(bar => [bar.n, bar.before ?? 0])));
    const right = this.#width - MARGIN.right, bottom = this.#height - MARGIN.bottom;
    const y = value => round(bottom - value / top * (bottom - MARGIN.top));
    const wide = (right - MARGIN.left) / count, gap = wide > 5 ? Math.min(6, wide * .22) : 0;
    const x = index => round(MARGIN.left + index * wide);
    const parts = [hatch(), ...ticks.flatMap(tick => [
      made("path", { class: tick ? "grid" : "axis", d: `M${MARGIN.left} ${y(tick)}H${right}` }),
      label(MARGIN.left - 6, y(tick) + 4, "end", short(tick)),
    ])];
    bars.forEach((bar, at) => {
      if (!bar.n) return;
      const name = `bar-of${bar.isMoving ? " moving" : ""}${at === this.#pointed ? " pointed" : ""}`;
      const height = Math.max(1, round(bottom - y(bar.n)));
      parts.push(made("rect", { class: name, x: round(x(at) + gap / 2), width: Math.max(.5, round(wide - gap)), y: bottom - height, height }));
    });
    if (bars.some(bar => bar.before !== null)) {
      const steps = bars.map((bar, at) => `${at ? "L" : "M"}${x(at)} ${y(bar.before ?? 0)}L${x(at + 1)} ${y(bar.before ?? 0)}`);
      parts.push(made("path", { class: "earlier", d: steps.join("") }));
    }
    if (this.#pointed >= 0) {
      parts.push(made("rect", { class: "column", x: x(this.#pointed), width: round(wide), y: MARGIN.top, height: bottom - MARGIN.top }));
    }
    parts.push(...labels(bars, x, this.#height - 6, right));
    this.#svg.classList.toggle("zooms", Boolean(this.#told.onZoom));
    this.#svg.replaceChildren(...parts);
    if (this.#svg.getAttribute("aria-label") !== text) this.#svg.setAttribute("aria-label", text);
  }

  #at(event) {
    const px = event.clientX - this.#svg.getBoundingClientRect().left, count = this.#shown?.bars.length ?? 0;
    const at = Math.floor((px - MARGIN.left) / (this.#width - MARGIN.right - MARGIN.left) * count);
    return px < MARGIN.left || at >= count ? -1 : at;
  }

  #point(index) {
    if (index === this.#pointed) return;
    this.#pointed = index;
    this.#told.onPoint(index);
    this.#redraw();
  }

  #zoom(index) {
    if (index >= 0) this.#told.onZoom?.(index);
  }

  #key(event) {
    const last = (this.#shown?.bars.length ?? 0) - 1, from = this.#pointed;
    const ways = { ArrowLeft: from < 0 ? last : Math.max(0, from - 1), ArrowRight: Math.min(last, from + 1), Home: 0, End: last };
    if (event.key in ways) this.#point(ways[event.key]);
    else if (event.key === "Enter") this.#zoom(from);
    else return;
    event.preventDefault();
  }
}

/** What fills bars that may still change. */
function hatch() {
  const defs = made("defs", {}), pattern = made("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(made("rect", { class: "hatch-paper", width: 6, height: 6 }), made("rect", { class: "hatch-line", width: 3, height: 6 }));
  defs.append(pattern);
  return defs;
}

/** As many labels as have room. */
function labels(bars, x, y, right) {
  const parts = [];
  let free = 0;
  for (const [at, { label: text }] of bars.entries()) {
    if (!text || x(at) < free || x(at) + text.length * 7 > right + 2) continue;
    parts.push(label(x(at), y, "start", text));
    free = x(at) + text.length * 7 + 14;
  }
  return parts;
}

/** Whole round numbers up to at least `most`. */
function scale(most) {
  const digits = [1, 2, 2.5, 5, 10].map(digit => digit * 10 ** Math.floor(Math.log10(most / 4)));
  const step = Math.max(1, digits.find(step => step * 5 >= most * 1.05));
  const count = Math.ceil(most * 1.02 / step);
  return { top: count * step, ticks: Array.from({ length: count + 1 }, (_, at) => at * step) };
}

const round = value => Math.round(value * 10) / 10;
