// What the layout of one container works with: draw/layout/layout_types.py in JavaScript.

export const ARROW = 8; // length of an arrow's head
export const CONVERGE = 10; // from labels side by side to the node they are for
export const PAD = 12; // inside a group's border
export const BESIDE = 5; // from a line to its label
export const ASIDE = 10; // between lines that end at the same node

/**
 * @typedef {{order: import("./layers.js").Order, layer: number[], end: number,
 *   direct: import("./containers.js").Piece[], lanes: import("./lanes.js").Lane[]}} LayerPlan
 *   what can be said about a container without any size
 */

/** A child as its container sees it: extents across from its axis, length along, and where lines meet it. */
export class Box {
  /** @param {number} left @param {number} right @param {number} length @param {number} [weight] @param {number} [half] @param {boolean} [oval] */
  constructor(left, right, length, weight = 1, half = 0, oval = false) {
    this.left = left;
    this.right = right;
    this.length = length;
    this.weight = weight;
    this.half = half; // of a node, without the room for labels; 0 for a group
    this.oval = oval;
    /** by stream, from the axis @type {Map<number, number>} */
    this.entries = NO_PORTS;
    /** @type {Map<number, number>} */
    this.exits = NO_PORTS;
    /** where a line leaves the node itself, if elsewhere @type {Map<number, number>} */
    this.exitPorts = NO_PORTS;
    this.tailRoom = 0; // along, for the labels where lines leave
    this.headRoom = 0;
    this.converges = false; // labels need more room than the node is wide
  }

  /** How far the node's outline lies inside its box, away from its middle. @param {number} port */
  inset(port) {
    if (!this.oval || !port) return 0;
    return (this.length / 2) * (1 - Math.sqrt(1 - Math.min(1, (port / this.half) ** 2)));
  }
}

/** Shared by all boxes that have none: never written to. @type {Map<number, number>} */
const NO_PORTS = new Map();
