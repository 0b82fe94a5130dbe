// Which children of a container stand side by side, and which form its trunk: draw/layout/layering.py in JavaScript.

import { OUTSIDE } from "./containers.js";

/**
 * @typedef {import("./containers.js").Piece} Piece
 * @typedef {import("./containers.js").Stream} Stream
 * @typedef {{before: [number, number][][], after: [number, number][][], entered: Uint8Array, linked: Uint8Array}} Order
 *   the pieces that order the children: from an earlier child to a later one, with the least distance in layers
 */

/** @param {number} count @param {readonly Piece[]} pieces @param {readonly Stream[]} streams @returns {Order} */
export function orderOf(count, pieces, streams) {
  /** @type {[number, number][][]} */
  const before = Array.from({ length: count }, () => []);
  /** @type {[number, number][][]} */
  const after = Array.from({ length: count }, () => []);
  const entered = new Uint8Array(count);
  const linked = new Uint8Array(count);
  for (const piece of pieces) {
    const { tail, head } = piece;
    if (tail !== OUTSIDE) linked[tail] = 1;
    if (head === OUTSIDE) continue;
    linked[head] = 1;
    if (tail === OUTSIDE) entered[head] = 1;
    else if (tail < head && !streams[piece.stream].backward) {
      const distance = piece.label.length ? 2 : 1; // room for the label between them
      before[head].push([tail, distance]);
      after[tail].push([head, distance]);
    }
  }
  return { before, after, entered, linked };
}

/** The layer of each child, from 1. @param {Order} order @param {readonly Piece[]} pieces */
export function layersOf(order, pieces) {
  const count = order.before.length;
  const layer = new Array(count).fill(1);
  for (let child = 0; child < count; child++) {
    for (const [earlier, distance] of order.before[child]) {
      if (layer[earlier] + distance > layer[child]) layer[child] = layer[earlier] + distance;
    }
  }
  for (let child = count - 1; child >= 0; child--) {
    const after = order.after[child];
    // moving it up shortens the edges above it and lengthens those below
    if (after.length && order.before[child].length + order.entered[child] <= after.length) {
      let nearest = Infinity;
      for (const [later, distance] of after) nearest = Math.min(nearest, layer[later] - distance);
      layer[child] = Math.max(layer[child], nearest);
    }
  }
  spreadUnlinked(order, layer);
  return withoutEmpty(layer, pieces);
}

/** Children with no edge at all stand in a block rather than in one long row. @param {Order} order @param {number[]} layer */
function spreadUnlinked(order, layer) {
  const alone = [];
  for (let child = 0; child < layer.length; child++) if (!order.linked[child]) alone.push(child);
  const across = Math.max(4, Math.round(Math.sqrt(alone.length)));
  alone.forEach((child, index) => (layer[child] = 1 + Math.floor(index / across)));
}

/** @param {number[]} layer @param {readonly Piece[]} pieces */
function withoutEmpty(layer, pieces) {
  const used = new Set(layer);
  let last = 0;
  for (const each of layer) last = Math.max(last, each);
  if (used.size === last) return layer;
  for (const piece of pieces) if (piece.label.length && piece.tail < piece.head) used.add(layer[piece.tail] + 1);
  const renumbered = new Map([...used].sort((a, b) => a - b).map((old, index) => [old, index + 1]));
  return layer.map((old) => /** @type {number} */ (renumbered.get(old)));
}

/**
 * The heaviest path through the container, and which children are the heaviest neighbour of the one before them.
 * @param {Order} order @param {readonly number[]} weights
 */
export function trunkOf(order, weights) {
  const count = weights.length;
  const [above, bestAfter] = heaviest(order.after, weights, true);
  const [below, bestBefore] = heaviest(order.before, weights, false);
  /** by child: the next one, if each is the other's heaviest neighbour; else -1 */
  const mutual = bestAfter.map((later, child) => (later >= 0 && bestBefore[later] === child ? later : -1));
  let middle = 0;
  for (let child = 1; child < count; child++) {
    if (above[child] + below[child] - weights[child] > above[middle] + below[middle] - weights[middle]) middle = child;
  }
  const trunk = [middle];
  while (bestBefore[trunk[trunk.length - 1]] >= 0) trunk.push(bestBefore[trunk[trunk.length - 1]]);
  trunk.reverse();
  while (bestAfter[trunk[trunk.length - 1]] >= 0) trunk.push(bestAfter[trunk[trunk.length - 1]]);
  return { trunk, mutual };
}

/** @param {[number, number][][]} neighbours @param {readonly number[]} weights @param {boolean} backwards @returns {[number[], number[]]} */
function heaviest(neighbours, weights, backwards) {
  const count = weights.length;
  const total = new Array(count).fill(0);
  const best = new Array(count).fill(-1);
  for (let step = 0; step < count; step++) {
    const child = backwards ? count - 1 - step : step;
    let most = 0;
    for (const [other] of neighbours[child]) {
      if (total[other] > most) {
        most = total[other];
        best[child] = other;
      }
    }
    total[child] = most + weights[child];
  }
  return [total, best];
}
