// Paints the wall from a live message: the fill is the metric, edge and glyph are the state, old values are hatched.
import {ageText, shortAge} from "./ages.js";

const BINS = 16;
const FRESH_INTERVALS = 2;
const STATES = {h: "healthy", d: "degraded", f: "failed", u: "unknown", m: "maintenance", o: "out of service"};
const TILE = {h: "", d: "deg", f: "down", u: "unk", m: "mt", o: "out"};
const HEAD_GLYPH = {d: ["risk", "c-risk"], f: ["x", ""], u: ["unk", "t2"], m: ["maint", "c-maint"], o: ["out", "t3"]};
const SVG = "http://www.w3.org/2000/svg";

export function glyph(name, classes = "g") {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", classes);
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#g-${name}`);
  svg.append(use);
  return svg;
}

/** 0 to 15 on the metric's fixed scale, -1 for a missing value. The server counts the same way. */
export function binOf(value, scale) {
  if (value === null || value === undefined) return -1;
  return Math.min(BINS - 1, Math.max(0, Math.trunc(((value - scale.low) / (scale.high - scale.low)) * BINS)));
}

export class Wall {
  constructor(root, data) {
    this.root = root;
    this.data = data;
    this.isMatrix = root.classList.contains("mx");
    this.cells = [];
    for (const cell of root.querySelectorAll("[data-i]")) this.cells[Number(cell.dataset.i)] = cell;
    this.tiles = [];
    for (const tile of root.querySelectorAll("[data-n]")) this.tiles[Number(tile.dataset.n)] = tile;
    this.nodeOf = data.nodes.flatMap(([, slots], node) => slots.map(() => node));
    this.message = null;
    this.drawn = [];
  }

  /** Which node (by index) and slot the cell with this index is. */
  placeOf(index) {
    let first = 0;
    for (const [node, [name, slots]] of this.data.nodes.entries()) {
      if (index < first + slots.length) return {node, name, slot: slots[index - first]};
      first += slots.length;
    }
    return null;
  }

  /** Takes a message; returns false when the wall's places have changed and the page must be asked for again. */
  show(message, now) {
    if (message.wall !== this.data.wall) return false;
    this.message = message;
    this.paint(now);
    return true;
  }

  /** Draws what the newest message says at `now`; called again each second, so that old values hatch by themselves. */
  paint(now) {
    const message = this.message;
    if (!message) return;
    const scale = this.data.metrics[message.metric];
    const limit = FRESH_INTERVALS * message.interval;
    const since = now - message.as_of;
    for (let index = 0; index < this.cells.length; index += 1) {
      const cell = this.cells[index];
      if (!cell) continue;
      const known = message.ages[index];
      const age = known === undefined ? 0 : known ?? Infinity;
      const old = age + since > limit;
      const value = message.values[index];
      const inDownNode = message.node_states[this.nodeOf[index]] === "f";
      this.paintCell(cell, index, message.states[index], old ? -1 : binOf(value, scale), value, inDownNode);
    }
    for (let index = 0; index < this.tiles.length; index += 1) {
      if (this.tiles[index]) this.paintTile(this.tiles[index], index, message, since > limit);
    }
  }

  paintCell(cell, index, state, bin, value, inDownNode) {
    const key = `${state}${bin}${inDownNode}${this.isMatrix ? value : ""}`;
    if (this.drawn[index] === key) return;
    this.drawn[index] = key;
    const fill = bin < 0 ? "nd" : `b${bin}`;
    const byState = {f: "fail", d: `${fill} risk`, u: "nd", m: "mtc", o: "oos"}[state] ?? fill;
    // The tile of a node that is down is red as a whole: its GPUs are hatched, not marked one by one.
    const covered = inDownNode && state === "f" && !this.isMatrix;
    cell.className = this.isMatrix ? byState : `c ${covered ? "nd" : byState}`;
    if (this.isMatrix) this.writeNumber(cell, state, bin, value);
    else if (covered) cell.replaceChildren();
    else if (state === "f" || state === "d") cell.replaceChildren(glyph(state === "f" ? "x" : "tri", ""));
    else if (cell.firstChild) cell.replaceChildren();
  }

  writeNumber(cell, state, bin, value) {
    const word = document.createElement("span");
    if (state === "f") cell.replaceChildren(glyph("x", ""));
    else {
      word.textContent = value === null || bin < 0 || state === "u" ? "" : value.toLocaleString("en");
      cell.replaceChildren(word);
    }
    if (state !== "h") {
      const hidden = document.createElement("span");
      hidden.className = "sr";
      hidden.textContent = ` ${STATES[state]}`;
      cell.append(hidden);
    }
  }

  paintTile(tile, index, message, silent) {
    const state = silent && !"mo".includes(message.node_states[index]) ? "u" : message.node_states[index];
    if (tile.dataset.state === state) return;
    const first = tile.dataset.state === undefined;
    tile.dataset.state = state;
    const kept = tile.classList.contains("sel");
    tile.className = `${this.isMatrix ? "" : "n "}${TILE[state]}${kept ? " sel" : ""}`;
    if (this.isMatrix) return;
    tile.setAttribute("aria-label", this.label(index, message, state));
    const head = tile.querySelector("b");
    const old = head.querySelector("i");
    if (first && old && state === message.node_states[index]) return;
    old?.remove();
    if (state !== "h") head.append(this.headMark(state, message.since[index] ?? message.as_of));
  }

  headMark(state, since) {
    const mark = document.createElement("i");
    const [name, colour] = HEAD_GLYPH[state];
    const age = document.createElement("em");
    age.dataset.ageOf = new Date(since * 1000).toISOString();
    age.dataset.ageShort = "";
    age.textContent = shortAge(ageText(this.message.as_of - since));
    mark.append(glyph(name, `g ${colour}`), age);
    return mark;
  }

  label(index, message, state) {
    const words = [`${this.data.nodes[index][0]}, ${STATES[state]}`];
    let first = 0;
    for (let node = 0; node < index; node += 1) first += this.data.nodes[node][1].length;
    this.data.nodes[index][1].forEach((slot, offset) => {
      const own = message.states[first + offset];
      if (own !== "h" && own !== state) words.push(`GPU ${slot} ${STATES[own]}`);
    });
    return words.join(", ");
  }

  /** One sentence about what changed since the message before, or "". */
  news(before, message) {
    if (!before || before.wall !== message.wall) return "";
    const byPlace = new Map();
    for (let index = 0; index < message.states.length; index += 1) {
      const state = message.states[index];
      if (state === before.states[index]) continue;
      const key = `${STATES[state]} on ${this.placeOf(index).name}`;
      byPlace.set(key, (byPlace.get(key) ?? 0) + 1);
    }
    if (!byPlace.size) return "";
    const [[what, count], ...rest] = [...byPlace].sort((a, b) => b[1] - a[1]);
    const more = rest.length ? `, and changes in ${rest.length} more places` : "";
    return `${count} GPU${count === 1 ? "" : "s"} ${what}${more}`;
  }

  /** The fresh values, in display units. */
  values(now) {
    const {message} = this;
    const limit = FRESH_INTERVALS * message.interval - (now - message.as_of);
    return message.values.filter((value, index) => {
      const age = message.ages[index];
      return value !== null && (age === undefined ? 0 : age ?? Infinity) <= limit;
    });
  }
}
