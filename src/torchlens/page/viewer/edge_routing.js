// How high layers and gaps are, and the course of each line through them: draw/layout/edge_routing.py in JavaScript.

import { OUTSIDE } from "./containers.js";
import { assignColumns } from "./lanes.js";
import { ARROW, ASIDE, BESIDE, CONVERGE } from "./layout_types.js";

/**
 * @typedef {import("./containers.js").Piece} Piece
 * @typedef {import("./layout_types.js").Box} Box
 * @typedef {import("./layout_types.js").LayerPlan} LayerPlan
 * @typedef {import("./layer_items.js").LayerItems} LayerItems
 */

const CROSSING = 12; // the least height of a crossing zone
const TRACK = 5; // between two lines across in a crossing zone
const MOST_TRACKS = 30; // more than this share the room
const WIDE = 50; // a line that moves farther across gets a track
const LANE = 9; // between two lanes
const STRAIGHT = 0.4;

/** The heights of layers and gaps, and the lines through them, once all positions across are known. */
export class EdgeRouting {
  /** @param {LayerPlan} plan @param {readonly Box[]} boxes @param {LayerItems} layerItems @param {number[]} across */
  constructor(plan, boxes, layerItems, across) {
    const { items } = layerItems;
    this.plan = plan;
    this.boxes = boxes;
    this.across = across;
    this.axis = layerItems.children.map((item) => across[item]);
    /** @type {Map<number, number>} */
    this.entryPorts = new Map();
    /** @type {Map<number, number>} */
    this.exitPorts = new Map();
    for (const [stream, item] of layerItems.entries) this.entryPorts.set(stream, across[item]);
    for (const [stream, item] of layerItems.exits) this.exitPorts.set(stream, across[item]);
    this.left = -Infinity;
    this.right = -Infinity;
    for (let item = 0; item < across.length; item++) {
      this.left = Math.max(this.left, items.left[item] - across[item]);
      this.right = Math.max(this.right, items.right[item] + across[item]);
    }
    this.start = new Array(plan.end + 1).fill(0);
    this.band = new Array(plan.end + 1).fill(0);
    this.begins = new Array(plan.end).fill(0);
    this.ends = new Array(plan.end).fill(0);
    /** by gap: the tracks by what lies in them @type {(Map<string, number> | null)[]} */
    this.tracks = new Array(plan.end).fill(null);
    if (plan.lanes.length) this.openLanes();
  }

  openLanes() {
    const columns = assignColumns(this.plan.lanes);
    const first = this.right + ASIDE;
    for (const lane of this.plan.lanes) {
      const at = first + lane.column * LANE;
      for (const piece of lane.pieces) {
        piece.lane = at;
        if (piece.tail === OUTSIDE && !this.entryPorts.has(piece.stream)) this.entryPorts.set(piece.stream, at);
        if (piece.head === OUTSIDE && !this.exitPorts.has(piece.stream)) this.exitPorts.set(piece.stream, at);
      }
    }
    this.right = first + (columns - 1) * LANE;
  }

  // ---- across

  /** @param {Piece} piece */
  tailAt(piece) {
    if (piece.tail === OUTSIDE) return /** @type {number} */ (this.entryPorts.get(piece.stream));
    return this.axis[piece.tail] + (this.boxes[piece.tail].exits.get(piece.stream) ?? 0);
  }

  /** @param {Piece} piece */
  headAt(piece) {
    if (piece.head === OUTSIDE) return /** @type {number} */ (this.exitPorts.get(piece.stream));
    return this.axis[piece.head] + piece.slot;
  }

  /** Where each line ends at its head: at a group's port, or side by side on a node. */
  chooseSlots() {
    /** @type {[number, Piece][][]} */
    const arriving = this.boxes.map(() => []);
    for (const piece of this.plan.direct) {
      if (piece.head === OUTSIDE) continue;
      const { path } = piece;
      arriving[piece.head].push([path.length === 2 ? this.tailAt(piece) : this.across[path[path.length - 2]], piece]);
    }
    for (const lane of this.plan.lanes) {
      for (const piece of lane.pieces) if (piece.head !== OUTSIDE) arriving[piece.head].push([piece.lane, piece]);
    }
    arriving.forEach((pieces, child) => {
      const box = this.boxes[child];
      if (!box.half) {
        for (const [, piece] of pieces) piece.slot = piece.port = /** @type {number} */ (box.entries.get(piece.stream));
      } else if (pieces.some(([, piece]) => piece.headLabel.length)) slotsWithLabels(box, pieces);
      else if (pieces.length) slots(box, pieces, this.axis[child]);
    });
  }

  // ---- along

  /** Fix layers and gaps along the flow; returns the container's length. @param {number} start @param {number} pad */
  heights(start, pad) {
    const { plan, boxes, band } = this;
    const { end } = plan;
    const tailRoom = new Array(end + 1).fill(0);
    const headRoom = new Array(end + 1).fill(0);
    boxes.forEach((box, child) => {
      const layer = plan.layer[child];
      band[layer] = Math.max(band[layer], box.length);
      tailRoom[layer] = Math.max(tailRoom[layer], box.tailRoom);
      headRoom[layer - 1] = Math.max(headRoom[layer - 1], box.headRoom);
    });
    for (const piece of plan.direct) {
      if (piece.label.length && piece.path.length > 2) {
        const layer = this.labelLayer(piece);
        band[layer] = Math.max(band[layer], piece.labelHeight + 4);
      }
    }
    const crossing = this.crossings();
    if (!this.entryPorts.size) {
      crossing[0] = this.onlyLanes(0);
      headRoom[0] = Math.max(headRoom[0], pad);
    }
    if (!this.exitPorts.size) {
      crossing[end - 1] = this.onlyLanes(end - 1);
      tailRoom[end - 1] = Math.max(tailRoom[end - 1], pad);
    }
    let at = start;
    for (let layer = 0; layer < end; layer++) {
      this.begins[layer] = at + band[layer] + tailRoom[layer];
      this.ends[layer] = this.begins[layer] + crossing[layer];
      at = this.start[layer + 1] = this.ends[layer] + headRoom[layer];
    }
    return at;
  }

  /** @param {Piece} piece */
  labelLayer(piece) {
    return Math.floor((this.plan.layer[piece.tail] + this.plan.layer[piece.head]) / 2);
  }

  /** @param {number} gap */
  onlyLanes(gap) {
    const count = this.tracks[gap]?.size ?? 0;
    return count ? CROSSING + TRACK * Math.min(count, MOST_TRACKS) : 0;
  }

  /** @param {number} gap @param {string} key */
  openTrack(gap, key) {
    const tracks = (this.tracks[gap] ??= new Map());
    if (!tracks.has(key)) tracks.set(key, tracks.size);
  }

  /** Lines that go far across get a track of their own; returns the height of each crossing zone. */
  crossings() {
    const { plan, across } = this;
    const farthest = new Array(plan.end).fill(0);
    for (const piece of plan.direct) {
      const { path } = piece;
      let gap = piece.tail === OUTSIDE ? 0 : plan.layer[piece.tail];
      let at = this.tailAt(piece);
      const last = path.length - 1;
      for (let step = 1; step <= last; step++) {
        const to = step === last ? this.headAt(piece) : across[path[step]];
        const far = Math.abs(to - at);
        if (far > WIDE) this.openTrack(gap, `${piece.tail},${piece.stream}`);
        else if (far > farthest[gap]) farthest[gap] = far;
        if (far > STRAIGHT) at = to; // as in passLayers: steps that are too small to be drawn add up
        gap += 1;
      }
    }
    for (const lane of plan.lanes) {
      for (const piece of lane.pieces) for (const gap of this.laneGaps(piece)) this.openTrack(gap, laneKey(lane));
    }
    return farthest.map(
      (far, gap) =>
        CROSSING + Math.max(Math.min(far * 0.25, 12), TRACK * Math.min(this.tracks[gap]?.size ?? 0, MOST_TRACKS)),
    );
  }

  /** The gaps where a piece goes over to its lane, and back from it. @param {Piece} piece */
  laneGaps(piece) {
    const first = piece.tail === OUTSIDE ? 0 : this.plan.layer[piece.tail];
    const last = piece.head === OUTSIDE ? this.plan.end - 1 : this.plan.layer[piece.head] - 1;
    return [first, last];
  }

  /** @param {number} gap @param {string} key */
  trackAt(gap, key) {
    const tracks = /** @type {Map<string, number>} */ (this.tracks[gap]);
    const begin = this.begins[gap];
    return begin + ((this.ends[gap] - begin) * (/** @type {number} */ (tracks.get(key)) + 1)) / (tracks.size + 1);
  }

  /** Axis and start of each child. A node that is a little shorter than its layer stands in the layer's middle. @returns {[number, number][]} */
  places() {
    return this.boxes.map((box, child) => {
      const layer = this.plan.layer[child];
      const spare = this.band[layer] - box.length;
      return [this.axis[child], this.start[layer] + (box.half && spare < 40 ? spare / 2 : 0)];
    });
  }

  // ---- lines

  /** @param {[number, number][]} places @param {number} length */
  draw(places, length) {
    for (const piece of this.plan.direct) {
      this.leave(piece, places);
      this.passLayers(piece);
      this.arrive(piece, places, length);
    }
    for (const lane of this.plan.lanes) {
      const key = laneKey(lane);
      for (const piece of lane.pieces) {
        this.leave(piece, places);
        this.useLane(piece, key);
        this.arrive(piece, places, length);
      }
    }
  }

  /** @param {Piece} piece @param {[number, number][]} places */
  leave(piece, places) {
    const at = this.tailAt(piece);
    if (piece.tail === OUTSIDE) {
      piece.points.push([at, 0, null]);
      return;
    }
    const box = this.boxes[piece.tail];
    const [axis, start] = places[piece.tail];
    const end = start + box.length;
    const port = box.exitPorts.get(piece.stream);
    if (port === undefined) piece.points.push([at, end - box.inset(at - axis), null]);
    else {
      piece.points.push([axis + port, end - box.inset(port), null]);
      piece.points.push([axis + port, end, null]);
      piece.points.push([at, end + CONVERGE, null]);
    }
  }

  /** @param {Piece} piece @param {[number, number][]} places @param {number} length */
  arrive(piece, places, length) {
    if (piece.head === OUTSIDE) {
      piece.points.push([this.headAt(piece), length, null]);
      return;
    }
    const box = this.boxes[piece.head];
    const [axis, start] = places[piece.head];
    if (piece.slot !== piece.port) {
      piece.points.push([axis + piece.slot, start - ARROW - CONVERGE, null]);
      piece.points.push([axis + piece.port, start - ARROW, null]);
    }
    piece.points.push([axis + piece.port, start + box.inset(piece.port), null]);
    if (piece.headLabel.length) {
      const away = box.converges ? ARROW + CONVERGE : 2;
      piece.headLabelAt = [axis + piece.slot + BESIDE, start - away - piece.headLabelHeight];
    }
  }

  /** @param {Piece} piece */
  passLayers(piece) {
    const { points, path } = piece;
    let gap = piece.tail === OUTSIDE ? 0 : this.plan.layer[piece.tail];
    let at = this.tailAt(piece);
    const last = path.length - 1;
    for (let step = 1; step <= last; step++) {
      const to = step === last ? this.headAt(piece) : this.across[path[step]];
      const far = Math.abs(to - at);
      if (far > STRAIGHT) {
        const track = far > WIDE ? this.trackAt(gap, `${piece.tail},${piece.stream}`) : null;
        points.push([at, this.begins[gap], null]);
        points.push([to, this.ends[gap], track]);
        at = to;
      }
      gap += 1;
      if (piece.label.length && last > 1 && step < last && gap === this.labelLayer(piece)) {
        piece.labelAt = [to + BESIDE, this.start[gap] + (this.band[gap] - piece.labelHeight) / 2];
      }
    }
  }

  /** @param {Piece} piece @param {string} key */
  useLane(piece, key) {
    const { points, lane } = piece;
    const [first, last] = this.laneGaps(piece);
    const onward = first < last; // else a loop, which turns back
    const at = this.tailAt(piece);
    const to = this.headAt(piece);
    if (Math.abs(lane - at) > STRAIGHT) {
      points.push([at, this.begins[first], null]);
      points.push([lane, onward ? this.ends[first] : this.begins[first], this.trackAt(first, key)]);
    }
    if (Math.abs(to - lane) > STRAIGHT) {
      points.push([lane, onward ? this.begins[last] : this.ends[last], null]);
      points.push([to, this.ends[last], this.trackAt(last, key)]);
    }
  }
}

/** @param {import("./lanes.js").Lane} lane */
const laneKey = (lane) => `lane ${lane.column}`;

/** Lines without labels end side by side, the straightest about in the middle. @param {Box} box @param {[number, Piece][]} pieces @param {number} axis */
function slots(box, pieces, axis) {
  let middle = 0;
  if (pieces.length > 1) {
    pieces.sort((a, b) => a[0] - b[0]);
    pieces.forEach(([from], index) => {
      if (Math.abs(from - axis) < Math.abs(pieces[middle][0] - axis)) middle = index;
    });
  }
  let aside = pieces[middle][0] - axis;
  if (Math.abs(aside) > 0.4 * box.half) aside = 0;
  const most = Math.max(1, middle, pieces.length - 1 - middle);
  const step = Math.min(ASIDE, (0.7 * box.half - Math.abs(aside)) / most);
  pieces.forEach(([, piece], index) => (piece.slot = piece.port = aside + (index - middle) * step));
}

/** Lines with labels come in beside each other, wide enough for the labels, and converge at the node. @param {Box} box @param {[number, Piece][]} pieces */
function slotsWithLabels(box, pieces) {
  if (pieces.length === 1) return;
  pieces.sort((a, b) => a[0] - b[0]);
  let at = -slotsWidth(pieces.map(([, piece]) => piece)) / 2;
  for (const [, piece] of pieces) {
    piece.slot = piece.port = at + ASIDE / 2;
    if (box.converges) piece.port *= (0.7 * box.half) / Math.max(box.left, box.right);
    at += slotWidth(piece.headLabelWidth);
  }
}

/** @param {readonly Piece[]} pieces */
export function slotsWidth(pieces) {
  let width = 0;
  for (const piece of pieces) width += slotWidth(piece.headLabelWidth);
  return width;
}

/** @param {number} label */
const slotWidth = (label) => ASIDE + (label ? label + BESIDE : 0);
