// The layout of one container: draw/layout/arrange.py and repeats.py in JavaScript.

import { EdgeRouting } from "./edge_routing.js";
import { split } from "./lanes.js";
import { LayerItems } from "./layer_items.js";
import { layersOf, orderOf } from "./layers.js";
import { Box, PAD } from "./layout_types.js";
import { placeItems } from "./positions.js";

/**
 * @typedef {import("./containers.js").Container} Container
 * @typedef {import("./containers.js").Piece} Piece
 * @typedef {import("./containers.js").Stream} Stream
 * @typedef {import("./layout_types.js").LayerPlan} LayerPlan
 * @typedef {{box: Box, places: [number, number][], label: [number, number]}} Arrangement
 *   a container's own box for its parent, where its children are (axis, start), and its label's corner
 */

/** @param {Container} container @param {readonly Stream[]} streams @returns {LayerPlan} */
export function planLayers(container, streams) {
  const order = orderOf(container.children.length, container.pieces, streams);
  const layer = layersOf(order, container.pieces);
  let end = 1;
  for (const each of layer) end = Math.max(end, each + 1);
  return { order, layer, end, ...split(container.pieces, layer, end) };
}

/** Lay out one container. @param {LayerPlan} plan @param {readonly Box[]} boxes @param {[number, number]} label the room for its own label @param {boolean} upright @param {boolean} root @returns {Arrangement} */
export function arrange(plan, boxes, label, upright, root) {
  if (!boxes.length) return framed(new Box(20, 20, 20 + (upright ? label[1] : 0), 0), [], label, upright);
  const layerItems = new LayerItems(plan, boxes);
  const routing = new EdgeRouting(plan, boxes, layerItems, placeItems(layerItems.items));
  routing.chooseSlots();
  const header = root || !upright ? 0 : label[1];
  const length = Math.max(routing.heights(header, root ? 0 : PAD), root || upright ? 0 : label[1]);
  const places = routing.places();
  routing.draw(places, length);
  let weight = 0;
  for (const box of boxes) weight += box.weight;
  const box = new Box(routing.left, routing.right, length, weight);
  box.entries = routing.entryPorts;
  box.exits = routing.exitPorts;
  if (root) return { box, places, label: [0, 0] };
  box.left += PAD;
  box.right += PAD;
  return framed(box, places, label, upright);
}

/** Make room for the group's own label where no line comes in. @param {Box} box @param {[number, number][]} places @param {[number, number]} label @param {boolean} upright @returns {Arrangement} */
function framed(box, places, [across, along], upright) {
  if (!upright) {
    box.left += across;
    box.length = Math.max(box.length, along);
    return { box, places, label: [-box.left, 0] };
  }
  const ports = [...box.entries.values()].sort((a, b) => a - b);
  if (!ports.length) {
    box.right = Math.max(box.right, across - box.left);
    return { box, places, label: [-box.left, 0] };
  }
  const borders = [-box.left, ...ports, box.right];
  for (let index = 0; index + 1 < borders.length; index++) {
    if (borders[index + 1] - borders[index] >= across) return { box, places, label: [borders[index], 0] };
  }
  const moreLeft = across - (ports[0] + box.left);
  const moreRight = across - (box.right - ports[ports.length - 1]);
  if (moreLeft <= moreRight) {
    box.left += moreLeft;
    return { box, places, label: [-box.left, 0] };
  }
  box.right += moreRight;
  return { box, places, label: [ports[ports.length - 1], 0] };
}

/** Lays out the containers of one picture; those that look alike are laid out once. */
export class Repeats {
  /** @param {readonly Stream[]} streams @param {boolean} upright */
  constructor(streams, upright) {
    this.streams = streams;
    this.upright = upright;
    /** @type {Map<string, {arranged: Arrangement, pieces: Piece[], streams: number[]}>} */
    this.known = new Map();
  }

  /** The layout of a container that is not the root and has no labels in the middle of its edges. @param {Container} container @param {readonly Box[]} boxes @param {[number, number]} label */
  arrange(container, boxes, label) {
    /** the streams, numbered as they come @type {Map<number, number>} */
    const numbers = new Map();
    const { pieces } = container;
    const looks = `${this.looksOf(pieces, numbers)}|${boxes.map((box) => looksOfBox(box, numbers)).join(";")}|${label}`;
    const known = this.known.get(looks);
    if (known) return repeated(known, pieces, [...numbers.keys()]);
    const arranged = arrange(planLayers(container, this.streams), boxes, label, this.upright, false);
    this.known.set(looks, { arranged, pieces, streams: [...numbers.keys()] });
    return arranged;
  }

  /** @param {readonly Piece[]} pieces @param {Map<number, number>} numbers */
  looksOf(pieces, numbers) {
    let looks = "";
    for (const piece of pieces) {
      let number = numbers.get(piece.stream);
      if (number === undefined) numbers.set(piece.stream, (number = numbers.size));
      const backward = this.streams[piece.stream].backward ? 1 : 0;
      looks += `${piece.tail},${piece.head},${number},${backward},${piece.headLabelWidth},${piece.headLabelHeight};`;
    }
    return looks;
  }
}

/** @param {Box} box @param {Map<number, number>} numbers */
function looksOfBox(box, numbers) {
  const flags = (box.oval ? 1 : 0) + (box.converges ? 2 : 0);
  let looks = `${box.left},${box.right},${box.length},${box.weight},${box.half},${flags},${box.tailRoom},${box.headRoom}`;
  for (const ends of [box.entries, box.exits, box.exitPorts]) {
    looks += "/";
    for (const [stream, at] of ends) looks += `${numbers.get(stream)}:${at},`;
  }
  return looks;
}

/** The same layout for other pieces and streams. @param {{arranged: Arrangement, pieces: Piece[], streams: number[]}} known @param {readonly Piece[]} pieces @param {number[]} streams @returns {Arrangement} */
function repeated(known, pieces, streams) {
  pieces.forEach((piece, index) => {
    piece.points = known.pieces[index].points;
    piece.headLabelAt = known.pieces[index].headLabelAt;
  });
  const renamed = new Map(known.streams.map((stream, index) => [stream, streams[index]]));
  const first = known.arranged.box;
  const box = Object.assign(new Box(0, 0, 0), first);
  const translate = (/** @type {Map<number, number>} */ ports) =>
    new Map([...ports].map(([stream, at]) => [/** @type {number} */ (renamed.get(stream)), at]));
  box.entries = translate(first.entries);
  box.exits = translate(first.exits);
  return { box, places: known.arranged.places, label: known.arranged.label };
}
