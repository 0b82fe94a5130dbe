// A view as containers, with every edge cut where it crosses a border: draw/layout/container_tree.py in JavaScript.

/**
 * @typedef {import("./measure.js").Text} Text
 * @typedef {{id: string, lines: readonly Text[], shape: string, dashed: boolean, group: number}} ViewNode
 * @typedef {{source: number, target: number, label: readonly Text[], tailLabel: readonly Text[],
 *   headLabel: readonly Text[], dashed?: boolean, backward?: boolean}} ViewEdge
 * @typedef {{id: string, lines: readonly Text[], parent: number}} ViewGroup
 * @typedef {{nodes: ViewNode[], edges: ViewEdge[], groups: ViewGroup[], direction: string}} View
 *   nodes in execution order; groups outer before inner; groups and ends of edges by their number, -1 for none
 * @typedef {[number, number, number | null]} Point across, along, and the height of the line across that leads there
 */

export const OUTSIDE = -1; // the end of a piece that lies at a port of its container
const NONE = /** @type {readonly Text[]} */ (Object.freeze([]));

/** The part of an edge that lies in one container. Edges that carry the same value share their pieces. */
export class Piece {
  /** @param {number} tail @param {number} head @param {number} stream @param {readonly Text[]} label @param {readonly Text[]} headLabel */
  constructor(tail, head, stream, label, headLabel) {
    this.tail = tail;
    this.head = head;
    this.stream = stream;
    this.label = label;
    this.headLabel = headLabel;
    this.labelWidth = 0;
    this.labelHeight = 0;
    this.headLabelWidth = 0;
    this.headLabelHeight = 0;
    /** @type {number[]} */
    this.path = [];
    this.slot = 0;
    this.port = 0;
    this.lane = 0;
    /** @type {Point[]} */
    this.points = [];
    /** @type {[number, number] | null} */
    this.labelAt = null;
    /** @type {[number, number] | null} */
    this.headLabelAt = null;
  }
}

/** The picture (number 0) or a group (its number plus one). */
export class Container {
  /** @param {number} parent @param {number} depth */
  constructor(parent, depth) {
    this.parent = parent;
    this.depth = depth;
    /** nodes by their number; container c as nodes + c @type {number[]} */
    this.children = [];
    /** @type {Map<string, Piece>} */
    this.shared = new Map();
    /** @type {Piece[]} */
    this.pieces = [];
    /** the edge of each piece that is not shared, else -1 @type {number[]} */
    this.owners = [];
  }
}

/** One place where edges leave a node; a different label there makes a different place. */
export class Stream {
  /** @param {number} node @param {readonly Text[]} label @param {boolean} backward */
  constructor(node, label, backward) {
    this.node = node;
    this.label = label;
    this.backward = backward;
    this.loops = false;
  }
}

export class ContainerTree {
  /** @param {Container[]} containers @param {number[]} containerOf @param {Int32Array} position */
  constructor(containers, containerOf, position) {
    this.containers = containers;
    this.containerOf = containerOf;
    this.position = position;
    /** @type {Stream[]} */
    this.streams = [];
    /** by node @type {Map<number, number[]>} */
    this.streamsOf = new Map();
    /** by edge: containers and pieces from tail to head @type {{container: number, piece: Piece}[][]} */
    this.routes = [];
  }
}

/** @param {readonly Text[]} lines */
const key = (lines) => lines.map((line) => (line.bold ? "*" : " ") + line.text).join("\n");

/** Containers in the view's order, and the pieces that each edge consists of. @param {View} view */
export function cutIntoContainers(view) {
  const tree = containersOf(view);
  /** @type {Map<string, number>} */
  const numbers = new Map();
  view.edges.forEach((edge, index) => {
    let { source: tail, target: head, tailLabel, headLabel } = edge;
    const backward = Boolean(edge.backward);
    if (backward) [tail, head, tailLabel, headLabel] = [head, tail, headLabel, tailLabel];
    const name = `${tail},${backward ? 1 : 0},${tailLabel.length ? key(tailLabel) : ""}`;
    let stream = numbers.get(name);
    if (stream === undefined) {
      stream = tree.streams.length;
      numbers.set(name, stream);
      tree.streams.push(new Stream(tail, tailLabel, backward));
      const others = tree.streamsOf.get(tail);
      if (others) others.push(stream);
      else tree.streamsOf.set(tail, [stream]);
    }
    if (head <= tail) tree.streams[stream].loops = true;
    tree.routes.push(cut(tree, index, tail, head, stream, headLabel, edge.label));
  });
  return tree;
}

/** @param {View} view */
function containersOf(view) {
  const containers = [new Container(-1, 0)];
  for (const group of view.groups) {
    const parent = group.parent + 1;
    containers.push(new Container(parent, containers[parent].depth + 1));
  }
  const nodes = view.nodes.length;
  const position = new Int32Array(nodes + containers.length).fill(-1);
  const containerOf = view.nodes.map((node) => node.group + 1);
  const enter = (/** @type {number} */ child, /** @type {number} */ parent) => {
    position[child] = containers[parent].children.length;
    containers[parent].children.push(child);
  };
  const reach = (/** @type {number} */ container) => {
    while (container && position[nodes + container] < 0) {
      enter(nodes + container, containers[container].parent);
      container = containers[container].parent;
    }
  };
  containerOf.forEach((container, node) => {
    reach(container);
    enter(node, container);
  });
  for (let container = 1; container < containers.length; container++) reach(container);
  return new ContainerTree(containers, containerOf, position);
}

/**
 * The edge's pieces: out of the tail's containers, across the innermost one that both are in, into the head's.
 * @param {ContainerTree} tree @param {number} index @param {number} tail @param {number} head @param {number} stream
 * @param {readonly Text[]} headLabel @param {readonly Text[]} label
 */
function cut(tree, index, tail, head, stream, headLabel, label) {
  const { containers, position, containerOf } = tree;
  const nodes = containerOf.length;
  let inside = containerOf[tail];
  let into = containerOf[head];
  let leaving = position[tail];
  let entering = position[head];
  let own = headLabel.length || label.length ? index : -1;
  const first = [];
  const last = [];
  while (inside !== into) {
    if (containers[inside].depth >= containers[into].depth) {
      first.push({ container: inside, piece: pieceIn(containers[inside], leaving, OUTSIDE, stream, -1, NONE, NONE) });
      leaving = position[nodes + inside];
      inside = containers[inside].parent;
    } else {
      last.push({ container: into, piece: pieceIn(containers[into], OUTSIDE, entering, stream, own, headLabel, NONE) });
      entering = position[nodes + into];
      into = containers[into].parent;
      headLabel = NONE;
      own = label.length ? index : -1;
    }
  }
  first.push({ container: inside, piece: pieceIn(containers[inside], leaving, entering, stream, own, headLabel, label) });
  return first.concat(last.reverse());
}

/** @param {Container} container @param {number} tail @param {number} head @param {number} stream @param {number} own @param {readonly Text[]} headLabel @param {readonly Text[]} label */
function pieceIn(container, tail, head, stream, own, headLabel, label) {
  const name = `${tail},${head},${stream},${own}`;
  let piece = container.shared.get(name);
  if (!piece) {
    piece = new Piece(tail, head, stream, label, headLabel);
    container.shared.set(name, piece);
    container.pieces.push(piece);
    container.owners.push(own);
  }
  return piece;
}
