// The world with the data centres: where they stand, how they do, what links them, and the way of an increment that is awarded.

import { LAND } from "./land.js";

const SVG = "http://www.w3.org/2000/svg";
/** As land.js was projected: degrees east of its middle, units per radian. */
const MIDDLE = 11, SCALE = 1_000 / Math.PI;
/** What is shown of the globe, in units. */
const WIDE = { left: -845, right: 845, top: -490, bottom: 290 }, NARROW = { left: -800, right: 700, top: -475, bottom: 260 };
/** Half the circumference: a line that leaves on one side comes in on the other. */
const HALF = 1_000;
const ARC_STEPS = 48;
/** Narrower than this the map has no labels. */
const LABELS_FROM_PX = 640;
/** A dot with its label is a box, whose middle is so far below the dot. */
const LABEL_LIFT_PX = 6, LETTER_PX = 6.6;
const TARGET_PX = 24;
const WAY_IN_MS = 900, WAY_OUT_MS = 1_100, GLOW_MS = 9_000;
const DEGREE = Math.PI / 180;

export class WorldMap {
  #svg; #choose; #layers = {}; #width = 0; #frame = WIDE; #unit = 1; #dcs = []; #nodes = []; #chosen = 0; #links = [];
  #seen = null; #leader = null; #still; #awarded = null; #fading = 0; #key = "";

  /** `choose` is called with the index of a data centre that was chosen. */
  constructor(svg, choose) {
    [this.#svg, this.#choose] = [svg, choose];
    this.#still = matchMedia("(prefers-reduced-motion: reduce)");
    for (const name of ["land", "links", "tethers", "way", "dots", "news"]) this.#layers[name] = add(svg, "g", { class: name });
    Object.entries({ role: "toolbar", "aria-label": "Data centres, from west to east: arrow keys move" })
      .forEach(([name, value]) => this.#layers.dots.setAttribute(name, value));
    add(this.#layers.land, "path", { d: LAND });
    this.#layers.dots.addEventListener("keydown", event => this.#onKey(event));
    new ResizeObserver(() => this.#resize()).observe(svg.parentElement);
  }

  /** Data centres as `/v1/cluster` says, each with its `rate` and `share` of the largest one; `seen` is where this was seen. */
  show(dcs, { seen, leader }) {
    this.#dcs = dcs;
    const key = JSON.stringify([seen, dcs.map(dc => [dc.name, dc.place])]);
    [this.#seen, this.#leader] = [seen, leader];
    if (key !== this.#key) {
      this.#key = key;
      this.#resize(true);
    }
    this.#dressAll();
  }

  #dressAll() {
    this.#nodes.forEach(node => this.#dress(node));
    for (const { index, path } of this.#links) {
      const dc = this.#dcs[index], more = `${dc.name === this.#leader ? " led" : ""}${index === this.#chosen ? " chosen" : ""}`;
      path.setAttribute("class", `link ${dc.mode}${more}`);
    }
  }

  /** Marks a data centre as the chosen one. */
  choose(index) {
    this.#chosen = index;
    for (const node of this.#nodes) {
      node.group.setAttribute("aria-pressed", node.index === index);
      node.group.setAttribute("tabindex", node.index === this.#stop() ? 0 : -1);
    }
    this.#links.forEach(({ index: other, path }) => path.classList.toggle("chosen", other === index));
  }

  /** The one tab stop of the map. */
  #stop() {
    return this.#nodes.some(node => node.index === this.#chosen) ? this.#chosen : this.#nodes[0]?.index;
  }

  // ---- where things are ----

  #resize(anew = false) {
    const width = Math.round(this.#svg.parentElement.clientWidth);
    if (!width || (width === this.#width && !anew)) return;
    this.#width = width;
    this.#frame = width >= LABELS_FROM_PX ? WIDE : NARROW;
    const { left, right, top, bottom } = this.#frame;
    this.#unit = width / (right - left);
    const height = Math.round((bottom - top) * this.#unit);
    this.#svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.#svg.style.height = `${height}px`;
    this.#layers.land.setAttribute("transform", `scale(${this.#unit}) translate(${-left} ${-top})`);
    this.#place(height);
    this.#drawLinks();
    this.#dressAll();
  }

  #at({ longitude, latitude }) {
    const { x, y } = project(longitude, latitude);
    return { x: (x - this.#frame.left) * this.#unit, y: (y - this.#frame.top) * this.#unit };
  }

  /** Dots as near to their places as they fit beside one another, each tied to its place. */
  #place(height) {
    const labelled = this.#width >= LABELS_FROM_PX, lift = labelled ? LABEL_LIFT_PX : 0;
    const focused = this.#nodes.find(node => node.group === document.activeElement)?.index;
    this.#layers.dots.replaceChildren();
    this.#layers.tethers.replaceChildren();
    const half = labelled ? ({ name }) => ({ x: name.length * LETTER_PX / 2 + 4, y: 19 }) : () => ({ x: TARGET_PX / 2, y: TARGET_PX / 2 });
    const placed = this.#dcs.flatMap((dc, index) => dc.place ? [{ index, dc, lift, half: half(dc), home: this.#at(dc.place) }] : []);
    spread(placed, { width: this.#width, height });
    placed.sort((a, b) => a.x - b.x || a.index - b.index);
    this.#nodes = placed.map(node => this.#node(node, labelled));
    this.choose(this.#chosen);
    this.#nodes.find(node => node.index === focused)?.group.focus();
  }

  #node({ index, dc, home, x, y }, labelled) {
    if (Math.hypot(x - home.x, y - home.y) > 5) {
      add(this.#layers.tethers, "path", { d: `M${round(home.x)} ${round(home.y)}L${round(x)} ${round(y)}` });
      add(this.#layers.tethers, "circle", { cx: round(home.x), cy: round(home.y), r: 1.6 });
    }
    const group = add(this.#layers.dots, "g", { role: "button", "aria-label": `${dc.name}, ${dc.place.name}`, "data-dc": dc.name });
    group.setAttribute("transform", `translate(${round(x)} ${round(y)})`);
    add(group, "rect", { class: "target", x: -TARGET_PX / 2, y: -TARGET_PX / 2, width: TARGET_PX, height: TARGET_PX });
    const halo = add(group, "circle", { class: "halo" }), dot = add(group, "circle", { class: "dot" });
    const sign = add(group, "path", { class: "sign" }), star = add(group, "path", { class: "star", d: STAR });
    if (labelled) add(group, "text", { y: 23 }).textContent = dc.name;
    group.addEventListener("pointerenter", event => event.pointerType === "mouse" && this.#choose(index));
    group.addEventListener("focus", () => this.#choose(index));
    group.addEventListener("click", () => this.#choose(index));
    return { index, group, halo, dot, sign, star, x, y, size: labelled ? 11 : 8 };
  }

  /** Its area is its rate; its form its mode. */
  #dress({ index, group, halo, dot, sign, star, size }) {
    const dc = this.#dcs[index];
    // Of one that is cut off nobody knows the rate: it is as large as its sign.
    const radius = dc.mode === "cut" ? size * .7 : round(3.5 + (size - 3.5) * Math.sqrt(dc.share));
    group.setAttribute("class", `dc ${dc.mode}${dc.name === this.#seen ? " seen" : ""}${dc.name === this.#awarded ? " awarded" : ""}`);
    halo.setAttribute("r", radius + 3);
    dot.setAttribute("r", radius);
    const arm = round(radius * .5);
    sign.setAttribute("d", dc.mode === "cut" ? `M${-arm} ${-arm}L${arm} ${arm}M${arm} ${-arm}L${-arm} ${arm}` : "");
    star.setAttribute("transform", `translate(${radius + 2} ${-radius - 2})`);
    star.style.display = dc.name === this.#leader ? "" : "none";
  }

  // ---- links ----

  /** From where this is seen to all others: what one data centre can know. */
  #drawLinks() {
    this.#layers.links.replaceChildren();
    this.#links = [];
    const own = this.#nodeOf(this.#seen);
    if (!own) return;
    for (const other of this.#nodes.filter(node => node !== own)) {
      this.#links.push({ index: other.index, path: add(this.#layers.links, "path", { d: this.#drawn(this.#way(own, other)) }) });
    }
  }

  #nodeOf(name) { return this.#nodes.find(node => this.#dcs[node.index].name === name); }

  /** Points on the great circle between two data centres, which begins and ends at their dots; where it goes round, it is cut. */
  #way(from, to) {
    const [a, b] = [from, to].map(node => this.#dcs[node.index].place);
    const points = greatCircle(a, b).map(place => this.#at(place));
    const ease = (share, end, home) => ({ x: (end.x - home.x) * share, y: (end.y - home.y) * share });
    const [home, far] = [this.#at(a), this.#at(b)];
    return points.map((point, step) => {
      const share = step / (points.length - 1), near = ease((1 - share) ** 3, from, home), end = ease(share ** 3, to, far);
      return { x: point.x + near.x + end.x, y: point.y + near.y + end.y };
    });
  }

  /** A path through points; a leap round the world is none. */
  #drawn(points) {
    const apart = (point, before) => Math.abs(point.x - before.x) > HALF * this.#unit;
    return points.map((point, at) => `${at === 0 || apart(point, points[at - 1]) ? "M" : "L"}${round(point.x)} ${round(point.y)}`).join("");
  }

  // ---- an award ----

  /** Shows the way of the increment: from where it was counted to the ledger's leader, and the news from there to all. */
  async award(winner, leader, text) {
    const [from, centre] = [this.#nodeOf(winner), this.#nodeOf(leader)];
    if (!from) return;
    this.#glow(winner, text);
    const others = this.#nodes.filter(node => node !== centre);
    if (this.#still.matches || !centre) {
      if (centre && centre !== from) this.#line(this.#way(from, centre), "in");
      return;
    }
    if (centre !== from) await this.#travel([this.#way(from, centre)], "in", WAY_IN_MS);
    await this.#travel(others.map(node => this.#way(centre, node)), "out", WAY_OUT_MS);
  }

  #glow(winner, text) {
    this.#dim();
    clearTimeout(this.#fading);
    this.#awarded = winner;
    this.#dressAll();
    const half = text.length * 4.6 + 9, { x, y } = this.#besides(this.#nodeOf(winner), half);
    const news = add(this.#layers.news, "g", { transform: `translate(${round(x)} ${round(y)})` });
    add(news, "rect", { x: -half, y: -13, width: 2 * half, height: 24, rx: 12 });
    add(news, "text", { y: 4.5 }).textContent = text;
    this.#fading = setTimeout(() => this.#dim(), GLOW_MS);
  }

  /** Where a text covers no dot, if there is such a place. */
  #besides({ x, y }, half) {
    const sides = [[0, -30], [0, 40], [half + 20, 0], [-half - 20, 0]].map(([right, down]) => ({ x: x + right, y: y + down }));
    const covered = at => this.#nodes.filter(node => Math.abs(node.x - at.x) < half + 8 && Math.abs(node.y - at.y) < 20).length;
    const outside = at => at.y < 14 || at.x < half || at.x > this.#width - half ? 100 : 0;
    return sides.sort((a, b) => covered(a) + outside(a) - covered(b) - outside(b))[0];
  }

  #dim() {
    this.#awarded = null;
    this.#layers.way.replaceChildren();
    this.#layers.news.replaceChildren();
    this.#dressAll();
  }

  #line(way, name) { return add(this.#layers.way, "path", { class: `way ${name}`, d: this.#drawn(way) }); }

  /** Sparks go along the ways, all arriving at once, each drawing its line behind it. */
  #travel(ways, name, ms) {
    const begun = performance.now();
    const sparks = ways.map(way => {
      return { way, line: this.#line([], name), spark: add(this.#layers.way, "circle", { class: `spark ${name}`, r: name === "in" ? 5 : 3.5 }) };
    });
    return new Promise(done => {
      const step = () => {
        const share = Math.min(1, (performance.now() - begun) / ms), eased = share * share * (3 - 2 * share);
        for (const { way, line, spark } of sparks) {
          const upto = eased * (way.length - 1), whole = Math.floor(upto), point = between(way, upto);
          line.setAttribute("d", this.#drawn([...way.slice(0, whole + 1), point]));
          spark.setAttribute("transform", `translate(${round(point.x)} ${round(point.y)})`);
        }
        if (share < 1 && sparks[0]?.line.isConnected) return requestAnimationFrame(step);
        sparks.forEach(({ spark }) => spark.remove());
        return done();
      };
      requestAnimationFrame(step);
    });
  }

  // ---- the keyboard ----

  #onKey(event) {
    const at = this.#nodes.findIndex(node => node.group === document.activeElement);
    if (at < 0) return;
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: this.#nodes.length - 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") this.#choose(this.#nodes[at].index);
    else if (to === undefined) return;
    else this.#nodes[(to + this.#nodes.length) % this.#nodes.length].group.focus();
    event.preventDefault();
  }
}

const STAR = "M0-6 1.7-1.9 6-1.9 2.6.9 3.9 5 0 2.5-3.9 5-2.6.9-6-1.9-1.7-1.9Z";
const round = value => Math.round(value * 10) / 10;

function add(parent, tag, attributes = {}) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent.append(made);
  return made;
}

/** The cylindrical projection of Tom Patterson: what leaves on one side comes in at the same height on the other. */
function project(longitude, latitude) {
  const phi = latitude * DEGREE, p2 = phi * phi;
  return {
    x: SCALE * ((longitude - MIDDLE + 540) % 360 - 180) * DEGREE,
    y: -SCALE * phi * (1.0148 + p2 * p2 * (0.23185 + p2 * (-0.14499 + p2 * 0.02406))),
  };
}

function greatCircle(a, b) {
  const vector = ({ latitude, longitude }) => {
    const [phi, lambda] = [latitude * DEGREE, longitude * DEGREE];
    return [Math.cos(phi) * Math.cos(lambda), Math.cos(phi) * Math.sin(lambda), Math.sin(phi)];
  };
  const [u, v] = [vector(a), vector(b)];
  const angle = Math.acos(Math.min(1, u[0] * v[0] + u[1] * v[1] + u[2] * v[2])) || 1e-9;
  return Array.from({ length: ARC_STEPS + 1 }, (_, step) => {
    const share = step / ARC_STEPS, p = Math.sin((1 - share) * angle) / Math.sin(angle), q = Math.sin(share * angle) / Math.sin(angle);
    const [x, y, z] = u.map((value, axis) => p * value + q * v[axis]);
    return { longitude: Math.atan2(y, x) / DEGREE, latitude: Math.atan2(z, Math.hypot(x, y)) / DEGREE };
  });
}

function between(way, at) {
  const whole = Math.min(way.length - 2, Math.floor(at)), rest = at - whole, [a, b] = [way[whole], way[whole + 1]];
  return { x: a.x + (b.x - a.x) * rest, y: a.y + (b.y - a.y) * rest };
}

/** Moves boxes apart, each held to its home; the same every time. A dot stands above the middle of its box. */
function spread(nodes, { width, height }) {
  for (const node of nodes) [node.x, node.y] = [node.home.x, node.home.y + node.lift];
  for (let round = 0; round < 300; round += 1) {
    const pull = round < 240 ? .03 : 0;
    for (const node of nodes) {
      node.x += (node.home.x - node.x) * pull;
      node.y += (node.home.y + node.lift - node.y) * pull;
    }
    for (const [at, a] of nodes.entries()) for (const b of nodes.slice(at + 1)) {
      const [wide, high] = [a.half.x + b.half.x, a.half.y + b.half.y];
      const dx = (b.x - a.x) / wide || .01, dy = (b.y - a.y) / high || .01, apart = (dx ** 8 + dy ** 8) ** (1 / 8);
      if (apart >= 1) continue;
      // In the direction in which they stand, so that neighbours stay neighbours.
      const by = (1 - apart) / Math.hypot(dx, dy) / 4;
      a.x -= dx * by * wide;
      a.y -= dy * by * high;
      b.x += dx * by * wide;
      b.y += dy * by * high;
    }
    for (const node of nodes) {
      node.x = Math.min(width - node.half.x, Math.max(node.half.x, node.x));
      node.y = Math.min(height - node.half.y, Math.max(node.half.y, node.y));
    }
  }
  for (const node of nodes) node.y -= node.lift;
}
