// The order of things within each layer, and their positions across it: draw/layout/positions.py in JavaScript.

export const GAP = 18; // between two boxes of a layer
export const LINE_GAP = 8; // between two lines, or a line and a box
const PINNED = 1e6;
export const LINE = 500; // how much a line that passes layers wants to be straight
export const TRUNK = 100; // and a main path

/** @typedef {{other: number, here: number, there: number, weight: number}} Link offsets from the axes, and a weight */

/** What stands in the layers: children, lines that pass, and ports. Parallel lists, one entry per item. */
export class Items {
  /** @param {number} layers */
  constructor(layers) {
    /** extents across, from the item's axis @type {number[]} */
    this.left = [];
    /** @type {number[]} */
    this.right = [];
    /** a child, not a line @type {boolean[]} */
    this.box = [];
    /** belongs to the trunk, whose axis is at 0 @type {boolean[]} */
    this.pinned = [];
    /** to the layer before @type {Link[][]} */
    this.down = [];
    /** to the layer after @type {Link[][]} */
    this.up = [];
    /** @type {number[][]} */
    this.layers = Array.from({ length: layers }, () => []);
  }

  /** @param {number} layer @param {number} left @param {number} right @param {boolean} box @param {boolean} pinned */
  add(layer, left, right, box, pinned) {
    const item = this.left.length;
    this.left.push(left);
    this.right.push(right);
    this.box.push(box);
    this.pinned.push(pinned);
    this.down.push([]);
    this.up.push([]);
    this.layers[layer].push(item);
    return item;
  }

  /** @param {number} lower @param {number} upper @param {number} lowerOffset @param {number} upperOffset @param {number} weight */
  link(lower, upper, lowerOffset, upperOffset, weight) {
    this.up[lower].push({ other: upper, here: lowerOffset, there: upperOffset, weight });
    this.down[upper].push({ other: lower, here: upperOffset, there: lowerOffset, weight });
  }
}

/** The position across of every item. @param {Items} items @returns {number[]} */
export function placeItems(items) {
  if (items.layers.every((layer) => layer.length <= 1)) return new Array(items.left.length).fill(0);
  reduceCrossings(items);
  return positions(items);
}

/** Barycentre sweeps: each item moves to the mean position of its neighbours in the layer before, then after. @param {Items} items */
function reduceCrossings(items) {
  const { layers } = items;
  const position = new Array(items.left.length).fill(0);
  for (const layer of layers) layer.forEach((item, index) => (position[item] = index));
  const wide = layers.filter((layer) => layer.length > 1);
  const back = [...wide].reverse();
  for (let sweep = 0; sweep < 4; sweep++) {
    let changed = false;
    for (const layer of wide) changed = sortLayer(layer, items.down, position) || changed;
    for (const layer of back) changed = sortLayer(layer, items.up, position) || changed;
    if (!changed) return;
  }
}

/** @param {number[]} layer @param {Link[][]} links @param {number[]} position */
function sortLayer(layer, links, position) {
  let sorted = true;
  const wishes = new Map();
  let previous = -Infinity;
  for (const item of layer) {
    const near = links[item];
    let wish = position[item];
    if (near.length === 1) wish = position[near[0].other];
    else if (near.length) {
      let sum = 0;
      for (const link of near) sum += position[link.other];
      wish = sum / near.length;
    }
    wishes.set(item, wish);
    if (wish < previous) sorted = false;
    previous = wish;
  }
  if (sorted) return false;
  layer.sort((a, b) => wishes.get(a) - wishes.get(b));
  layer.forEach((item, index) => (position[item] = index));
  return true;
}

/** Each layer in turn: as near to the neighbours as order and room allow. @param {Items} items */
function positions(items) {
  const { layers, down, up, pinned } = items;
  const offsets = layers.map((layer) => offsetsOf(items, layer));
  const across = new Array(items.left.length).fill(0);
  layers.forEach((layer, index) => {
    const offset = offsets[index];
    const middle = offset.length > 1 ? offset[offset.length - 1] / 2 : 0;
    layer.forEach((item, at) => (across[item] = offset[at] - middle));
  });
  /** @type {[number[], number[]][]} */
  const forth = [];
  layers.forEach((layer, index) => {
    // what is alone on the trunk stays where it is
    if (layer.length > 1 || (layer.length && !pinned[layer[0]])) forth.push([layer, offsets[index]]);
  });
  const back = [...forth].reverse();
  for (let round = 0; round < 2; round++) {
    const before = across.slice();
    placeLayers(forth, down, pinned, across);
    placeLayers(back, up, pinned, across);
    if (across.every((now, item) => Math.abs(now - before[item]) < 1)) break;
  }
  const both = down.map((before, item) => before.concat(up[item]));
  placeLayers(forth, both, pinned, across);
  // a mean of both neighbours bends what should be straight: follow only one of them, and then only the other
  placeLayers(forth, strong(down), pinned, across);
  placeLayers(back, strong(up), pinned, across);
  return across;
}

/** Those that should be straight. @param {Link[][]} links */
const strong = (links) => links.map((near) => near.filter((link) => link.weight >= TRUNK));

/** Where each item stands when they are pushed together, the first at 0. @param {Items} items @param {number[]} layer */
function offsetsOf(items, layer) {
  /** @type {number[]} */
  const offsets = [];
  let at = 0;
  layer.forEach((item, index) => {
    if (index) {
      const previous = layer[index - 1];
      const gap = items.box[previous] && items.box[item] ? GAP : LINE_GAP;
      at += items.right[previous] + items.left[item] + gap;
    }
    offsets.push(at);
  });
  return offsets;
}

/** Each layer in turn as near as can be to where its links want it. @param {[number[], number[]][]} layers @param {Link[][]} links @param {boolean[]} pinned @param {number[]} across */
function placeLayers(layers, links, pinned, across) {
  for (const [layer, offsets] of layers) {
    const starts = [];
    const weights = [];
    for (let index = 0; index < layer.length; index++) {
      const item = layer[index];
      const offset = offsets[index];
      const near = links[item];
      let start = across[item] - offset;
      let weight = 1;
      if (pinned[item]) [start, weight] = [-offset, PINNED];
      else if (near.length === 1) {
        weight = near[0].weight;
        start = across[near[0].other] + near[0].there - near[0].here - offset;
      } else if (near.length) {
        start = weight = 0;
        for (const link of near) {
          start += (across[link.other] + link.there - link.here) * link.weight;
          weight += link.weight;
        }
        start = start / weight - offset;
      }
      starts.push(start);
      weights.push(weight);
    }
    const placed = pooled(starts, weights);
    for (let index = 0; index < layer.length; index++) across[layer[index]] = placed[index] + offsets[index];
  }
}

/** The numbers nearest to the wishes none of which is smaller than the one before it (isotonic regression). @param {number[]} wishes @param {number[]} weights */
export function pooled(wishes, weights) {
  /** @type {[number, number, number][]} */
  const pools = [];
  for (let index = 0; index < wishes.length; index++) {
    let at = wishes[index];
    let weight = weights[index];
    let count = 1;
    while (pools.length && pools[pools.length - 1][0] >= at) {
      const [before, more, members] = /** @type {[number, number, number]} */ (pools.pop());
      at = (at * weight + before * more) / (weight + more);
      weight += more;
      count += members;
    }
    pools.push([at, weight, count]);
  }
  const out = [];
  for (const [at, , count] of pools) for (let member = 0; member < count; member++) out.push(at);
  return out;
}
