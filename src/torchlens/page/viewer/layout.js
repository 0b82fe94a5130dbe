// Where everything of a view lies: draw/layout/layout.py in JavaScript. A test compares the two.

import { Repeats, arrange, planLayers } from "./arrange.js";
import { OUTSIDE, cutIntoContainers } from "./containers.js";
import { slotsWidth } from "./edge_routing.js";
import { LONG } from "./lanes.js";
import { ARROW, ASIDE, BESIDE, Box, CONVERGE } from "./layout_types.js";
import { EDGE_SIZE, GROUP_SIZE, NODE_SIZE, blockSize, nodeSize, wrapped } from "./measure.js";

/**
 * @typedef {import("./containers.js").View} View
 * @typedef {import("./containers.js").ContainerTree} ContainerTree
 * @typedef {import("./containers.js").Piece} Piece
 * @typedef {import("./containers.js").Point} Point
 * @typedef {import("./measure.js").Text} Text
 * @typedef {{x: number, y: number, width: number, height: number}} Rect
 * @typedef {{owner: number, lines: readonly Text[], rect: Rect, size: number}} Label
 * @typedef {number[][]} Route the start (x, y); then the ends of straight lines, or two control points and an end
 * @typedef {{width: number, height: number, nodes: Rect[], nodeLines: (readonly Text[])[], groups: Rect[],
 *   groupLabels: Label[], edges: Route[], edgeLabels: Label[]}} Layout
 */

const ROUND = 14; // the radius of a corner
const CURVE = 0.45; // makes a cubic curve a quarter of a circle

/** The layout of a view; its upper left corner is at (0, 0). @param {View} view @returns {Layout} */
export function layOut(view) {
  const upright = view.direction !== "leftright";
  const tree = cutIntoContainers(view);
  const plans = placeMiddleLabels(tree, upright);
  const lines = view.nodes.map((node) => wrapped(node.lines, NODE_SIZE));
  const boxes = nodeBoxes(view, tree, lines, upright);
  const groupLines = view.groups.map((group) => wrapped(group.lines, GROUP_SIZE));
  const nodes = view.nodes.length;
  const repeats = new Repeats(tree.streams, upright);
  const arranged = new Array(tree.containers.length);
  for (let index = tree.containers.length - 1; index >= 0; index--) {
    const container = tree.containers[index];
    const inside = container.children.map((child) => boxes[child]);
    const room = index ? turned(...groupLabelRoom(groupLines[index - 1]), upright) : turned(0, 0, true);
    const plan = plans.get(index);
    arranged[index] = plan
      ? arrange(plan, inside, room, upright, !index)
      : repeats.arrange(container, inside, room);
    boxes[nodes + index] = arranged[index].box;
  }
  return new Assembly(view, tree, arranged, boxes, lines, groupLines).layout();
}

/** Width and height as sizes across and along the flow, or the other way round. @param {number} width @param {number} height @param {boolean} upright @returns {[number, number]} */
const turned = (width, height, upright) => (upright ? [width, height] : [height, width]);

/** @param {readonly Text[]} lines @returns {[number, number]} */
function groupLabelRoom(lines) {
  const [width, height] = blockSize(lines, GROUP_SIZE);
  return [width + 18, height + 8];
}

/** A label in the middle has its room between two layers; on an edge without such a place it goes to the head. @param {ContainerTree} tree @param {boolean} upright */
function placeMiddleLabels(tree, upright) {
  /** @type {Map<number, import("./layout_types.js").LayerPlan>} */
  const plans = new Map();
  tree.containers.forEach((container, number) => {
    /** @type {{edge: number, piece: Piece}[]} */
    const labelled = [];
    container.pieces.forEach((piece, index) => {
      if (piece.label.length) labelled.push({ edge: container.owners[index], piece });
    });
    if (labelled.length || !number) plans.set(number, planLayers(container, tree.streams));
    for (const { edge, piece } of labelled) {
      const { layer } = /** @type {import("./layout_types.js").LayerPlan} */ (plans.get(number));
      const distance = layer[piece.head] - layer[piece.tail];
      if (distance >= 2 && distance <= LONG) {
        const [width, height] = blockSize(piece.label, EDGE_SIZE);
        [piece.labelWidth, piece.labelHeight] = turned(width, height, upright);
      } else {
        const route = tree.routes[edge];
        const last = route[route.length - 1].piece;
        last.headLabel = [...piece.label, ...last.headLabel];
        piece.label = [];
      }
    }
  });
  for (const container of tree.containers) {
    for (const piece of container.pieces) {
      if (!piece.headLabel.length) continue;
      const [width, height] = blockSize(piece.headLabel, EDGE_SIZE);
      [piece.headLabelWidth, piece.headLabelHeight] = turned(width, height, upright);
    }
  }
  return plans;
}

/** @param {View} view @param {ContainerTree} tree @param {(readonly Text[])[]} lines @param {boolean} upright */
function nodeBoxes(view, tree, lines, upright) {
  const boxes = view.nodes.map((node, number) => {
    const [width, height] = nodeSize(lines[number], node.shape);
    const [across, along] = turned(width, height, upright);
    const half = across / 2;
    return new Box(half, half, along, node.dashed ? 1 : 10, half, node.shape === "ellipse"); // the main path leads from the input
  });
  for (const [node, streams] of tree.streamsOf) {
    const first = tree.streams[streams[0]];
    if (streams.length > 1 || first.label.length || first.backward) makeExits(boxes[node], tree, streams, upright);
  }
  for (const container of tree.containers) {
    /** by child: all that arrive where a label stands @type {Map<number, Piece[]>} */
    const labelled = new Map();
    for (const piece of container.pieces) {
      if (piece.head !== OUTSIDE && container.children[piece.head] < boxes.length) {
        boxes[container.children[piece.head]].headRoom = ARROW;
        if (piece.headLabel.length) labelled.set(piece.head, []);
      }
    }
    if (!labelled.size) continue;
    for (const piece of container.pieces) labelled.get(piece.head)?.push(piece);
    for (const [child, pieces] of labelled) makeRoomForLabels(boxes[container.children[child]], pieces);
  }
  for (const _ of tree.containers) boxes.push(new Box(0, 0, 0));
  return boxes;
}

/** Places side by side where lines leave a node, with room for the labels there; loops turn off to the right. @param {Box} box @param {ContainerTree} tree @param {number[]} streams @param {boolean} upright */
function makeExits(box, tree, streams, upright) {
  const rank = (/** @type {number} */ s) => (tree.streams[s].backward ? 2 : 0) + (tree.streams[s].loops ? 1 : 0);
  streams.sort((a, b) => rank(a) - rank(b));
  const sizes = streams.map((stream) => {
    const [width, height] = blockSize(tree.streams[stream].label, EDGE_SIZE);
    return turned(width, height, upright);
  });
  const tallest = Math.max(...sizes.map(([, along]) => along));
  if (streams.some((stream) => tree.streams[stream].backward)) box.tailRoom = ARROW; // theirs point at this side
  const exits = new Map();
  box.exits = exits;
  if (!tallest) {
    // the forward edges leave in the middle, the backward ones beside them
    streams.forEach((stream, index) => exits.set(stream, Math.min(index * ASIDE, 0.7 * box.half)));
    return;
  }
  const widths = sizes.map(([across]) => ASIDE + (across ? across + BESIDE : 0));
  let total = 0;
  for (const width of widths) total += width;
  let at = streams.length > 1 ? -total / 2 : -ASIDE / 2;
  streams.forEach((stream, index) => {
    exits.set(stream, at + ASIDE / 2);
    at += widths[index];
  });
  const farthest = Math.max(...[...exits.values()].map(Math.abs));
  const converges = farthest > 0.7 * box.half;
  if (converges) {
    box.exitPorts = new Map([...exits].map(([stream, offset]) => [stream, (offset * 0.7 * box.half) / farthest]));
  }
  box.left = Math.max(box.left, streams.length > 1 ? total / 2 : 0);
  box.right = Math.max(box.right, at);
  box.tailRoom = Math.max(box.tailRoom, tallest + 3) + (converges ? CONVERGE : 0);
}

/** Where lines arrive at a node. @param {Box} box @param {Piece[]} pieces */
function makeRoomForLabels(box, pieces) {
  const tallest = Math.max(...pieces.map((piece) => piece.headLabelHeight));
  if (pieces.length === 1) box.right = Math.max(box.right, BESIDE + pieces[0].headLabelWidth + ASIDE / 2);
  else {
    const half = slotsWidth(pieces) / 2;
    box.converges = half > 0.7 * box.half;
    box.left = Math.max(box.left, half);
    box.right = Math.max(box.right, half);
  }
  box.headRoom = Math.max(ARROW, tallest + 3 + (box.converges ? ARROW + CONVERGE : 0));
}

/** Puts the containers' layouts together, in the coordinates of the picture. */
class Assembly {
  /** @param {View} view @param {ContainerTree} tree @param {import("./arrange.js").Arrangement[]} arranged @param {Box[]} boxes @param {(readonly Text[])[]} lines @param {(readonly Text[])[]} groupLines */
  constructor(view, tree, arranged, boxes, lines, groupLines) {
    this.view = view;
    this.tree = tree;
    this.arranged = arranged;
    this.boxes = boxes;
    this.lines = lines;
    this.groupLines = groupLines;
    this.upright = view.direction !== "leftright";
    this.flipped = view.direction === "bottomup";
    const root = arranged[0].box;
    this.breadth = root.left + root.right;
    this.length = root.length;
    /** by container: its axis and start @type {[number, number][]} */
    this.origin = arranged.map(() => [0, 0]);
    /** @type {[number, number][]} */
    this.at = boxes.map(() => [0, 0]);
    this.origin[0] = [root.left, 0];
    tree.containers.forEach((container, index) => {
      const [across, along] = this.origin[index];
      container.children.forEach((child, position) => {
        const [axis, start] = arranged[index].places[position];
        this.at[child] = [across + axis, along + start];
        if (child >= view.nodes.length) this.origin[child - view.nodes.length] = this.at[child];
      });
    });
  }

  /** @returns {Layout} */
  layout() {
    const [width, height] = turned(this.breadth, this.length, this.upright);
    const nodes = this.view.nodes.length;
    return {
      width,
      height,
      nodes: this.view.nodes.map((_, number) => {
        const box = this.boxes[number];
        return this.rect(this.at[number][0] - box.half, this.at[number][1], 2 * box.half, box.length);
      }),
      nodeLines: this.lines,
      groups: this.view.groups.map((_, number) => {
        const child = nodes + number + 1;
        const box = this.boxes[child];
        return this.rect(this.at[child][0] - box.left, this.at[child][1], box.left + box.right, box.length);
      }),
      groupLabels: this.view.groups.map((_, number) => this.groupLabel(number + 1)),
      edges: this.view.edges.map((_, number) => this.route(number)),
      edgeLabels: this.view.edges.flatMap((_, number) => this.labels(number)),
    };
  }

  /** @param {number} across @param {number} along @param {number} breadth @param {number} length @returns {Rect} */
  rect(across, along, breadth, length) {
    if (!this.upright) return { x: along, y: across, width: length, height: breadth };
    return { x: across, y: this.flipped ? this.length - along - length : along, width: breadth, height: length };
  }

  /** @param {number} container @returns {Label} */
  groupLabel(container) {
    const lines = this.groupLines[container - 1];
    const [width, height] = groupLabelRoom(lines);
    const [breadth, length] = turned(width, height, this.upright);
    const [axis, start] = this.origin[container];
    const [across, along] = this.arranged[container].label;
    const rect = this.rect(axis + across, start + along, breadth, length);
    const inner = { x: rect.x + 9, y: rect.y + 4, width: rect.width - 18, height: rect.height - 8 };
    return { owner: container - 1, lines, rect: inner, size: GROUP_SIZE };
  }

  // ---- edges

  /** @param {number} number */
  labels(number) {
    const edge = this.view.edges[number];
    /** @type {Label[]} */
    const found = [];
    if (!edge.label.length && !edge.headLabel.length && !edge.tailLabel.length) return found;
    for (const { container, piece } of this.tree.routes[number]) {
      if (piece.label.length && piece.labelAt) found.push(this.edgeLabel(number, piece.label, container, piece.labelAt));
      if (piece.headLabel.length && piece.headLabelAt) {
        found.push(this.edgeLabel(number, piece.headLabel, container, piece.headLabelAt));
      }
    }
    const first = this.tree.routes[number][0].piece;
    const stream = this.tree.streams[first.stream];
    if (stream.label.length) {
      const [axis, start] = this.at[stream.node];
      const box = this.boxes[stream.node];
      const away = 1 + (box.exitPorts.size ? CONVERGE : 0);
      const across = axis + /** @type {number} */ (box.exits.get(first.stream)) + BESIDE;
      found.push(this.edgeLabel(number, stream.label, null, [across, start + box.length + away]));
    }
    return found;
  }

  /** @param {number} edge @param {readonly Text[]} lines @param {number | null} container @param {[number, number]} at @returns {Label} */
  edgeLabel(edge, lines, container, at) {
    const [across, along] = container === null ? [0, 0] : this.origin[container];
    const [width, height] = blockSize(lines, EDGE_SIZE);
    const [breadth, length] = turned(width, height, this.upright);
    return { owner: edge, lines, rect: this.rect(across + at[0], along + at[1], breadth, length), size: EDGE_SIZE };
  }

  /** @param {number} number @returns {Route} */
  route(number) {
    /** @type {Point[]} */
    const points = [];
    for (const { container, piece } of this.tree.routes[number]) {
      const [across, along] = this.origin[container];
      for (const [u, v, track] of piece.points) points.push([across + u, along + v, track === null ? null : along + track]);
    }
    const route = lineThrough(points);
    if (!this.upright) for (const command of route) swapPairs(command);
    else if (this.flipped) for (const command of route) flip(command, this.length);
    return this.view.edges[number].backward ? reversed(route) : route;
  }
}

/** @param {number[]} command */
function swapPairs(command) {
  for (let i = 0; i < command.length; i += 2) [command[i], command[i + 1]] = [command[i + 1], command[i]];
}

/** @param {number[]} command @param {number} far */
function flip(command, far) {
  for (let i = 1; i < command.length; i += 2) command[i] = far - command[i];
}

/** Straight along the flow, curved where the line changes its place across. @param {Point[]} points @returns {Route} */
function lineThrough(points) {
  let [u, v] = points[0];
  /** @type {Route} */
  const route = [[u, v]];
  const last = points.length - 1;
  for (let index = 1; index <= last; index++) {
    const [toU, toV, track] = points[index];
    if (Math.abs(toU - u) < 0.5) {
      if (index < last && Math.abs(points[index + 1][0] - toU) < 0.5) continue; // the line goes on straight
      route.push([toU, toV]);
    } else if (track === null) {
      const middle = (v + toV) / 2;
      route.push([u, middle, toU, middle, toU, toV]);
    } else turnTwice(route, u, v, toU, toV, track);
    u = toU;
    v = toV;
  }
  return route;
}

/** Along the flow to the track, on it across, and along the flow again, with round corners. @param {Route} route @param {number} u @param {number} v @param {number} toU @param {number} toV @param {number} track */
function turnTwice(route, u, v, toU, toV, track) {
  const sign = toU > u ? 1 : -1;
  const room = Math.abs(toU - u) / 2;
  const first = Math.min(ROUND, room, Math.abs(track - v));
  const second = Math.min(ROUND, room, Math.abs(toV - track));
  const up = track > v ? 1 : -1;
  const on = toV > track ? 1 : -1;
  if (Math.abs(track - v) > first) route.push([u, track - up * first]);
  const corner = u + sign * first;
  route.push([u, track - up * first * CURVE, u + sign * first * CURVE, track, corner, track]);
  if (2 * room > first + second) route.push([toU - sign * second, track]);
  route.push([toU - sign * second * CURVE, track, toU, track + on * second * CURVE, toU, track + on * second]);
  if (Math.abs(toV - track) > second) route.push([toU, toV]);
}

/** @param {Route} route @returns {Route} */
function reversed(route) {
  const ends = route.map((command) => command.slice(-2));
  const back = [ends[ends.length - 1]];
  for (let index = route.length - 1; index > 0; index--) {
    const command = route[index];
    back.push(
      command.length === 2
        ? ends[index - 1]
        : [command[2], command[3], command[0], command[1], ends[index - 1][0], ends[index - 1][1]],
    );
  }
  return back;
}
