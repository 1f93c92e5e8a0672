// The rate over the last minutes, drawn by hand: an area, a few ticks with their units, and where milestones were.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 52, right: 2, top: 22, bottom: 24 };
const HEIGHT = 250;
const number = new Intl.NumberFormat("en");

export class RateChart {
  #svg; #width = 0; #last = null;

  constructor(svg) {
    this.#svg = svg;
    new ResizeObserver(() => {
      const width = Math.round(svg.parentElement.clientWidth);
      if (!width || width === this.#width) return;
      this.#width = width;
      svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
      svg.style.height = `${HEIGHT}px`;
      if (this.#last) this.draw(...this.#last);
    }).observe(svg.parentElement);
  }

  /** `points`: `{ s, rate }`, ascending; `marks`: `{ s, text }`; all in seconds, the last `span` up to `now`. */
  draw(points, marks, now, span) {
    this.#last = [points, marks, now, span];
    if (!this.#width) return;
    const shown = points.filter(point => point.s >= now - span - 2);
    const { top, ticks } = scale(Math.max(1, ...shown.map(point => point.rate)));
    const right = this.#width - MARGIN.right, bottom = HEIGHT - MARGIN.bottom;
    const x = s => round(right - (now - s) / span * (right - MARGIN.left));
    const y = rate => round(bottom - rate / top * (bottom - MARGIN.top));
    const parts = [];
    for (const tick of ticks) {
      parts.push(made("path", { class: "grid", d: `M${MARGIN.left} ${y(tick)}H${right}` }), label(MARGIN.left - 6, y(tick) + 4, "end", short(tick)));
    }
    parts.push(label(0, 11, "start", "per second"));
    for (let back = 0; back <= span; back += span > 60 ? 60 : span / 2) {
      const text = back === 0 ? "now" : back % 60 ? `${back} s ago` : `${back / 60} min ago`;
      parts.push(label(x(now - back), HEIGHT - 6, back === 0 ? "end" : back === span ? "start" : "middle", text));
    }
    if (shown.length > 1) {
      const line = shown.map(({ s, rate }) => `${Math.max(MARGIN.left, x(s))} ${y(rate)}`).join("L");
      parts.push(made("path", { class: "area", d: `M${Math.max(MARGIN.left, x(shown[0].s))} ${bottom}L${line}L${x(shown.at(-1).s)} ${bottom}Z` }));
      parts.push(made("path", { class: "line", d: `M${line}` }));
    }
    let free = right;
    for (const { s, text } of marks.filter(mark => x(mark.s) >= MARGIN.left).reverse()) {
      const width = text.length * 7 + 8, at = x(s) + width > right ? x(s) - width : x(s) + 4;
      parts.push(made("path", { class: "mark", d: `M${x(s)} ${MARGIN.top - 4}V${bottom}` }));
      if (at + width > free) continue;
      parts.push(label(at, MARGIN.top + 4, "start", text, "mark"));
      free = at;
    }
    this.#svg.replaceChildren(...parts);
    this.#svg.setAttribute("aria-label", said(shown));
  }
}

function said(shown) {
  if (shown.length < 2) return "Rate: not known yet";
  const rates = shown.map(point => point.rate), text = rate => number.format(Math.round(rate));
  const minutes = Math.max(1, Math.round((shown.at(-1).s - shown[0].s) / 60));
  return `Rate over the last ${minutes} min: now ${text(rates.at(-1))} per second, at least ${text(Math.min(...rates))}, at most ${text(Math.max(...rates))}`;
}

/** Round numbers up to at least `most`. */
function scale(most) {
  const step = [1, 2, 2.5, 5, 10].map(digit => digit * 10 ** Math.floor(Math.log10(most / 3))).find(step => step * 4 >= most * 1.08);
  const ticks = [0, 1, 2, 3, 4].map(at => at * step).filter(tick => tick < most * 1.08 + step);
  return { top: ticks.at(-1), ticks };
}

export function short(value) {
  if (value >= 1e6) return `${value / 1e6}M`;
  return value >= 1e4 ? `${value / 1e3}k` : number.format(value);
}

const round = value => Math.round(value * 10) / 10;

export function made(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export function label(x, y, anchor, text, name = "") {
  const element = made("text", { x, y, "text-anchor": anchor, class: name });
  element.textContent = text;
  return element;
}
