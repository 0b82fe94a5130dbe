// Whatever stands in a layer, or passes through it as a line, becomes an item: draw/layout/layer_items.py in JavaScript.

import { OUTSIDE } from "./containers.js";
import { trunkOf } from "./layers.js";
import { BESIDE } from "./layout_types.js";
import { Items, LINE, TRUNK } from "./positions.js";

/**
 * @typedef {import("./containers.js").Piece} Piece
 * @typedef {import("./layout_types.js").Box} Box
 * @typedef {import("./layout_types.js").LayerPlan} LayerPlan
 */

const BESIDE_TRUNK = 25; // how much a port wants to be near the trunk that it leads to

/** The items, and which of them are the children and the ports (by stream); each direct piece gets its path. */
export class LayerItems {
  /** @param {LayerPlan} plan @param {readonly Box[]} boxes */
  constructor(plan, boxes) {
    this.plan = plan;
    this.boxes = boxes;
    const { trunk, mutual } = trunkOf(plan.order, boxes.map((box) => box.weight));
    this.mutual = mutual;
    this.onTrunk = new Uint8Array(boxes.length);
    this.nextOnTrunk = new Int32Array(boxes.length).fill(-1);
    trunk.forEach((child, index) => {
      this.onTrunk[child] = 1;
      if (index + 1 < trunk.length) this.nextOnTrunk[child] = trunk[index + 1];
    });
    const [first, last] = [trunk[0], trunk[trunk.length - 1]];
    this.mainEntry = plan.direct.find((piece) => piece.tail === OUTSIDE && piece.head === first)?.stream ?? -1;
    this.mainExit = plan.direct.find((piece) => piece.head === OUTSIDE && piece.tail === last)?.stream ?? -1;
    this.items = new Items(plan.end + 1);
    this.children = boxes.map((box, child) =>
      this.items.add(plan.layer[child], box.left, box.right, true, this.onTrunk[child] === 1),
    );
    /** @type {Map<number, number>} */
    this.entries = new Map();
    /** @type {Map<number, number>} */
    this.exits = new Map();
    /** the line that passes a layer @type {Map<string, number>} */
    this.passing = new Map();
    plan.direct.forEach((piece, number) => this.add(piece, number));
  }

  /** @param {Piece} piece @param {number} number */
  add(piece, number) {
    const { layer, end } = this.plan;
    const first = piece.tail === OUTSIDE ? 0 : layer[piece.tail];
    const last = piece.head === OUTSIDE ? end : layer[piece.head];
    let previous = this.start(piece);
    let offset = piece.tail === OUTSIDE ? 0 : this.boxes[piece.tail].exits.get(piece.stream) ?? 0;
    piece.path = [previous];
    if (last > first + 1) {
      previous = this.pass(piece, number, first, last, previous, offset);
      offset = 0;
    }
    if (piece.head === OUTSIDE) this.leave(piece, previous, offset, last - first);
    else this.arrive(piece, previous, offset, last - first);
  }

  /** @param {Piece} piece */
  start(piece) {
    if (piece.tail !== OUTSIDE) return this.children[piece.tail];
    let item = this.entries.get(piece.stream);
    if (item === undefined) {
      item = this.items.add(0, 1, 1, false, piece.stream === this.mainEntry);
      this.entries.set(piece.stream, item);
    }
    return item;
  }

  /** A line through each layer between; lines with the same origin share it until they part. @param {Piece} piece @param {number} number @param {number} first @param {number} last @param {number} previous @param {number} offset */
  pass(piece, number, first, last, previous, offset) {
    const own = piece.label.length ? number + 1 : 0;
    const pinned = piece.tail !== OUTSIDE && this.nextOnTrunk[piece.tail] >= 0 && this.nextOnTrunk[piece.tail] === piece.head;
    for (let layer = first + 1; layer < last; layer++) {
      const key = `${piece.tail},${piece.stream},${layer},${own}`;
      let item = this.passing.get(key);
      if (item === undefined) {
        const right = own && layer === Math.floor((first + last) / 2) ? BESIDE + piece.labelWidth : 1;
        item = this.items.add(layer, 1, right, false, pinned);
        this.passing.set(key, item);
        this.items.link(previous, item, offset, 0, layer === first + 1 ? 2 : LINE);
      }
      piece.path.push(item);
      previous = item;
      offset = 0;
    }
    return previous;
  }

  /** @param {Piece} piece @param {number} previous @param {number} offset @param {number} distance */
  leave(piece, previous, offset, distance) {
    let item = this.exits.get(piece.stream);
    if (item === undefined) {
      item = this.items.add(this.plan.end, 1, 1, false, piece.stream === this.mainExit);
      this.exits.set(piece.stream, item);
    }
    const beside = piece.tail !== OUTSIDE && this.onTrunk[piece.tail] === 1 && distance === 1;
    this.items.link(previous, item, offset, 0, beside ? BESIDE_TRUNK : 2);
    piece.path.push(item);
  }

  /** @param {Piece} piece @param {number} previous @param {number} offset @param {number} distance */
  arrive(piece, previous, offset, distance) {
    const child = this.children[piece.head];
    piece.path.push(child);
    let weight = 2;
    if (distance <= 1) {
      if (piece.tail !== OUTSIDE && this.mutual[piece.tail] === piece.head) {
        this.items.link(previous, child, 0, 0, TRUNK); // axis to axis: ports may lie elsewhere
        return;
      }
      weight = piece.tail === OUTSIDE && this.onTrunk[piece.head] === 1 ? BESIDE_TRUNK : 1;
    }
    this.items.link(previous, child, offset, this.boxes[piece.head].entries.get(piece.stream) ?? 0, weight);
  }
}
