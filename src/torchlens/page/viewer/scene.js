// A laid out view, ready to be painted and pointed at: shapes with their places, found by a grid.

import { layOut } from "./layout.js";
import { DEPTH } from "./measure.js";

/**
 * @typedef {import("./view.js").Shown} Shown
 * @typedef {import("./layout.js").Layout} Layout
 * @typedef {import("./layout.js").Rect} Rect
 */

const CELL = 480;
const MOST_CELLS = 48; // what covers more is looked at every time

/** Numbers of things by where they are. */
export class Grid {
  /** @param {number} count @param {(index: number) => [number, number, number, number]} boundsOf */
  constructor(count, boundsOf) {
    /** @type {Map<number, number[]>} */
    this.cells = new Map();
    /** @type {number[]} */
    this.large = [];
    this.isLarge = new Uint8Array(count);
    this.seen = new Uint32Array(count);
    this.round = 0;
    this.bounds = new Float32Array(count * 4);
    for (let index = 0; index < count; index++) {
      const bounds = boundsOf(index);
      this.bounds.set(bounds, index * 4);
      this.put(index, bounds);
    }
  }

  /** @param {number} index @param {[number, number, number, number]} bounds */
  put(index, [left, top, right, bottom]) {
    const columns = Math.floor(right / CELL) - Math.floor(left / CELL) + 1;
    const rows = Math.floor(bottom / CELL) - Math.floor(top / CELL) + 1;
    if (columns * rows > MOST_CELLS) {
      this.large.push(index);
      this.isLarge[index] = 1;
      return;
    }
    for (let row = Math.floor(top / CELL); row <= Math.floor(bottom / CELL); row++) {
      for (let column = Math.floor(left / CELL); column <= Math.floor(right / CELL); column++) {
        const key = row * 65536 + column;
        const cell = this.cells.get(key);
        if (cell) cell.push(index);
        else this.cells.set(key, [index]);
      }
    }
  }

  /** What overlaps an area, each once, in order. @param {number} left @param {number} top @param {number} right @param {number} bottom */
  find(left, top, right, bottom) {
    const { bounds } = this;
    const overlaps = (/** @type {number} */ i) =>
      bounds[i * 4] <= right && bounds[i * 4 + 2] >= left && bounds[i * 4 + 1] <= bottom && bounds[i * 4 + 3] >= top;
    const rows = Math.floor(bottom / CELL) - Math.floor(top / CELL) + 1;
    const columns = Math.floor(right / CELL) - Math.floor(left / CELL) + 1;
    /** @type {number[]} */
    const found = [];
    if (rows * columns > this.cells.size) {
      for (let index = 0; index < this.seen.length; index++) if (overlaps(index)) found.push(index);
      return found;
    }
    this.round += 1;
    for (const index of this.large) if (overlaps(index)) found.push(index);
    for (let row = Math.floor(top / CELL); row <= Math.floor(bottom / CELL); row++) {
      for (let column = Math.floor(left / CELL); column <= Math.floor(right / CELL); column++) {
        for (const index of this.cells.get(row * 65536 + column) ?? []) {
          if (this.seen[index] === this.round) continue;
          this.seen[index] = this.round;
          if (overlaps(index)) found.push(index);
        }
      }
    }
    return found.sort((a, b) => a - b);
  }
}

export class Scene {
  /** @param {Shown} shown */
  constructor(shown) {
    this.shown = shown;
    /** @type {Layout} */
    this.layout = layOut(shown);
    this.width = this.layout.width;
    this.height = this.layout.height;
    const { nodes, groups, edges } = this.layout;
    this.nodeGrid = new Grid(nodes.length, (index) => around(nodes[index]));
    this.groupGrid = new Grid(groups.length, (index) => around(groups[index]));
    this.edgeGrid = new Grid(edges.length, (index) => boundsOfRoute(edges[index]));
    /** by node of the view: the edges that leave it and arrive @type {number[][]} */
    this.leaving = nodes.map(() => []);
    /** @type {number[][]} */
    this.arriving = nodes.map(() => []);
    shown.edges.forEach((edge, number) => {
      this.leaving[edge.source].push(number);
      this.arriving[edge.target].push(number);
    });
    this.depths = new Uint8Array(groups.length);
    shown.groups.forEach((group, number) => {
      this.depths[number] = group.parent < 0 ? 0 : this.depths[group.parent] + 1;
    });
    this.labels = this.layout.edgeLabels;
    this.labelGrid = new Grid(this.labels.length, (index) => around(this.labels[index].rect));
  }

  /** The node, else the innermost group, at a place. @param {number} x @param {number} y @returns {{node: number, group: number}} */
  at(x, y) {
    const nodes = this.nodeGrid.find(x, y, x, y);
    if (nodes.length) return { node: nodes[nodes.length - 1], group: -1 };
    const groups = this.groupGrid.find(x, y, x, y);
    let innermost = -1;
    for (const group of groups) if (innermost < 0 || this.depths[group] >= this.depths[innermost]) innermost = group;
    return { node: -1, group: innermost };
  }

  /** The edge that passes near a place, -1 if none does. @param {number} x @param {number} y @param {number} near */
  edgeAt(x, y, near) {
    let best = -1;
    let least = near;
    for (const number of this.edgeGrid.find(x - near, y - near, x + near, y + near)) {
      const distance = distanceTo(this.layout.edges[number], x, y);
      if (distance < least) [best, least] = [number, distance];
    }
    return best;
  }
}

/** @param {Rect} rect @returns {[number, number, number, number]} */
const around = (rect) => [rect.x, rect.y, rect.x + rect.width, rect.y + rect.height];

/** @param {number[][]} route @returns {[number, number, number, number]} */
function boundsOfRoute(route) {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const command of route) {
    for (let i = 0; i < command.length; i += 2) {
      if (command[i] < left) left = command[i];
      if (command[i] > right) right = command[i];
      if (command[i + 1] < top) top = command[i + 1];
      if (command[i + 1] > bottom) bottom = command[i + 1];
    }
  }
  return [left - 4, top - 4, right + 4, bottom + 4];
}

/** From a place to the nearest point of a line, its curves taken as straight. @param {number[][]} route @param {number} x @param {number} y */
function distanceTo(route, x, y) {
  let [fromX, fromY] = route[0];
  let least = Infinity;
  for (const command of route.slice(1)) {
    const [toX, toY] = command.slice(-2);
    const length = (toX - fromX) ** 2 + (toY - fromY) ** 2;
    const share = length ? Math.min(1, Math.max(0, ((x - fromX) * (toX - fromX) + (y - fromY) * (toY - fromY)) / length)) : 0;
    least = Math.min(least, Math.hypot(fromX + share * (toX - fromX) - x, fromY + share * (toY - fromY) - y));
    [fromX, fromY] = [toX, toY];
  }
  return least;
}

/** The front of a closed module, whose sides lie above and to the right. @param {Rect} rect @returns {Rect} */
export const frontOf = (rect) => ({ x: rect.x, y: rect.y + DEPTH, width: rect.width - DEPTH, height: rect.height - DEPTH });
