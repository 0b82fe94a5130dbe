// Edges that skip many layers, or run back in a loop, lie in lanes: draw/layout/lanes.py in JavaScript.

import { OUTSIDE } from "./containers.js";

/** @typedef {import("./containers.js").Piece} Piece */

export const LONG = 14; // an edge over more layers than this lies in a lane

/** A line along the side: from one source to many targets, or from many sources to one. */
export class Lane {
  /** @param {number} first @param {number} last */
  constructor(first, last) {
    this.first = first;
    this.last = last;
    /** @type {Piece[]} */
    this.pieces = [];
    this.column = 0;
  }
}

/**
 * The pieces that pass between the layers, and the lanes of the others.
 * @param {readonly Piece[]} pieces @param {readonly number[]} layer @param {number} end the layer of the way out
 * @returns {{direct: Piece[], lanes: Lane[]}}
 */
export function split(pieces, layer, end) {
  const firstOf = (/** @type {Piece} */ piece) => (piece.tail === OUTSIDE ? 0 : layer[piece.tail]);
  const lastOf = (/** @type {Piece} */ piece) => (piece.head === OUTSIDE ? end : layer[piece.head]);
  /** @type {Piece[]} */
  const direct = [];
  /** @type {Piece[]} */
  const sideways = [];
  for (const piece of pieces) {
    const distance = lastOf(piece) - firstOf(piece);
    (distance > 0 && distance <= LONG ? direct : sideways).push(piece);
  }
  if (!sideways.length) return { direct, lanes: [] };

  /** @type {Map<string, number>} */
  const fromSource = new Map();
  /** @type {Map<number, number>} */
  const toTarget = new Map();
  for (const piece of sideways) {
    const source = `${piece.tail},${piece.stream}`;
    fromSource.set(source, (fromSource.get(source) ?? 0) + 1);
    toTarget.set(piece.head, (toTarget.get(piece.head) ?? 0) + 1);
  }
  /** @type {Map<string, Lane>} */
  const lanes = new Map();
  for (const piece of sideways) {
    const source = `${piece.tail},${piece.stream}`;
    let first = firstOf(piece);
    let last = lastOf(piece);
    const most = Math.max(4, fromSource.get(source) ?? 0);
    const gathered = piece.head !== OUTSIDE && (toTarget.get(piece.head) ?? 0) > most && first < last;
    const key = gathered ? `0,${piece.head}` : `1,${source}`;
    let lane = lanes.get(key);
    if (!lane) lanes.set(key, (lane = new Lane(first, last)));
    if (first >= last) [first, last] = [last - 1, first + 1]; // a loop: it turns beyond both ends
    lane.first = Math.min(lane.first, first);
    lane.last = Math.max(lane.last, last);
    lane.pieces.push(piece);
  }
  return { direct, lanes: [...lanes.values()] };
}

/** Give each lane the innermost column that is free over its whole length; returns how many there are. @param {Lane[]} lanes */
export function assignColumns(lanes) {
  /** by column: the last layer that it is busy in @type {number[]} */
  const busy = [];
  for (const lane of [...lanes].sort((a, b) => a.first - b.first || a.last - b.last)) {
    let column = busy.findIndex((last) => last < lane.first);
    if (column < 0) column = busy.push(0) - 1;
    busy[column] = lane.last;
    lane.column = column;
  }
  return busy.length;
}
