// Counters and the edges along which counts flow, from left to right: each stands behind all that flow to it.

import { label, made } from "../cluster/chart.js";

const BOX = { width: 150, height: 44 };
const STEP = { x: 214, y: 58 };
const MARGIN = 18;
const NAME_CHARS = 20;

/** `vertices`: name → `{ children, href, value }`, of which `self` is the one in question: returns its middle. */
export function drawGraph(svg, vertices, self) {
  const names = [...vertices.keys()];
  const edges = names.flatMap(from => vertices.get(from).children.filter(to => vertices.has(to)).map(to => [from, to]));
  const layers = layered(names, edges), tallest = Math.max(...layers.map(layer => layer.length));
  const width = 2 * MARGIN + (layers.length - 1) * STEP.x + BOX.width, height = 2 * MARGIN + (tallest - 1) * STEP.y + BOX.height;
  const places = new Map();
  layers.forEach((layer, column) => layer.forEach((name, row) => {
    places.set(name, { x: MARGIN + column * STEP.x, y: MARGIN + (row + (tallest - layer.length) / 2) * STEP.y });
  }));
  const parts = edges.map(([from, to]) => edge(places.get(from), places.get(to), from === self || to === self));
  for (const layer of layers) {
    for (const name of layer) parts.push(box(name, vertices.get(name), places.get(name), name === self));
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.replaceChildren(...parts);
  const { x, y } = places.get(self);
  return { x: x + BOX.width / 2, y: y + BOX.height / 2 };
}

/** The longest way to each from where nothing flows in; within a layer, by where their neighbours stand. */
function layered(names, edges) {
  const depth = new Map(names.map(name => [name, 0]));
  for (let moved = true; moved;) {
    moved = false;
    for (const [from, to] of edges) {
      if (depth.get(to) > depth.get(from)) continue;
      depth.set(to, depth.get(from) + 1);
      moved = true;
    }
  }
  // What nothing flows to stands right before what it flows to.
  for (const name of names.filter(name => !edges.some(([, to]) => to === name))) {
    const next = edges.filter(([from]) => from === name).map(([, to]) => depth.get(to) - 1);
    if (next.length) depth.set(name, Math.min(...next));
  }
  const layers = Array.from({ length: Math.max(...depth.values()) + 1 }, () => []);
  for (const name of names) layers[depth.get(name)].push(name);
  const shown = layers.filter(layer => layer.length), row = new Map();
  const number = () => shown.forEach(layer => layer.forEach((name, at) => row.set(name, at - layer.length / 2)));
  number();
  for (const way of [[1, 0], [0, 1]]) {
    for (const layer of shown) {
      const middle = name => {
        const near = edges.filter(edge => edge[way[0]] === name).map(edge => row.get(edge[way[1]]));
        return near.length ? near.reduce((sum, at) => sum + at, 0) / near.length : row.get(name);
      };
      const places = new Map(layer.map(name => [name, middle(name)]));
      layer.sort((a, b) => places.get(a) - places.get(b));
      number();
    }
  }
  return shown;
}

function edge(from, to, isNear) {
  const [x, y, end, tip] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2], bend = (end - x) / 2;
  return made("path", { class: isNear ? "edge near-by" : "edge", d: `M${x} ${y}C${x + bend} ${y} ${end - bend} ${tip} ${end} ${tip}` });
}

function box(name, { href, value }, { x, y }, isSelf) {
  const link = made("a", { href, class: isSelf ? "self" : "" });
  const key = name.slice(name.indexOf("/") + 1), title = made("title", {});
  title.textContent = name;
  const text = key.length > NAME_CHARS ? `${key.slice(0, NAME_CHARS - 1)}…` : key;
  link.append(title, made("rect", { x, y, width: BOX.width, height: BOX.height, rx: 8 }),
    label(x + 10, y + 18, "start", text), label(x + 10, y + 35, "start", value, "value"));
  return link;
}
