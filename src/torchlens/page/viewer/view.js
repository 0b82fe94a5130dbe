// What is shown of a log in one state: which modules are open, which repeats are folded. Says the same as
// draw/view/contents.py and links.py; a test compares them.

import { FROM_INPUT, HAS_GRADIENT, HIDDEN_BUFFER } from "./model.js";
import { Text } from "./measure.js";

/**
 * @typedef {import("./model.js").Mode} Mode
 * @typedef {{open: Set<number>, folded: Set<number>, apart: Set<number>, buffers: "meaningful" | "always" | "never",
 *   only: Set<number> | null, direction: string, gradients: boolean}} State
 *   groups that are open, runs that are folded, what could be gathered but is drawn apart, entries to show (null: all),
 *   whether the way of the gradient is drawn
 * @typedef {import("./containers.js").ViewNode & {node: number, box: number, gather: number, places: number[],
 *   passes: number, fill: string, fill2: string}} ShownNode   `node` of the mode, or the closed group `box`; the other is
 *   -1, as is `gather` unless the node stands for all that are gathered there
 * @typedef {import("./containers.js").ViewEdge & {condition: boolean, first: [number, number]}} ShownEdge
 * @typedef {import("./containers.js").ViewGroup & {box: number, dashed: boolean}} ShownGroup
 * @typedef {{nodes: ShownNode[], edges: ShownEdge[], groups: ShownGroup[], direction: string, shownBy: Int32Array}} Shown
 *   `shownBy`: the node of the view that shows each entry, -1 if none does
 */

const NOTHING = /** @type {readonly Text[]} */ (Object.freeze([]));
const IF = [new Text("IF", true)];
const FEW = 3; // tensors along one edge that need not be counted

/** @param {Mode} mode @param {State} state @returns {Shown} */
export function show(mode, state) {
  const closedIn = outermostClosed(mode, state.open);
  const originals = originalsOf(mode, state);
  const { nodes, shownBy } = shownNodes(mode, state, closedIn, originals);
  const edges = shownEdges(mode, state, nodes, shownBy);
  if (state.gradients) edges.push(...backwardEdges(mode, nodes, edges));
  const groups = shownGroups(mode, state, nodes);
  return { nodes, edges, groups, direction: state.direction, shownBy };
}

/** By group: the outermost closed one around it, itself included; -1 if it is open to view. @param {Mode} mode @param {Set<number>} open */
function outermostClosed(mode, open) {
  const { parent } = mode.groups;
  const closed = new Int32Array(parent.length);
  for (let group = 0; group < parent.length; group++) {
    const around = parent[group] < 0 ? -1 : closed[parent[group]];
    closed[group] = around >= 0 ? around : open.has(group) ? -1 : group;
  }
  return closed;
}

/** By node of the mode: the one that is drawn in its place, in the first block of a folded run, or first of what is gathered. @param {Mode} mode @param {State} state */
function originalsOf(mode, { folded, apart, only }) {
  const original = Int32Array.from({ length: mode.nodes.id.length }, (_, node) => node);
  for (const run of [...folded].sort((a, b) => a - b)) {
    const [first, ...others] = mode.runs[run];
    for (const block of others) {
      block.forEach((group, at) => {
        const copies = mode.members[group];
        mode.members[first[at]].forEach((node, index) => (original[copies[index]] = node));
      });
    }
  }
  for (let node = 0; node < original.length; node++) {
    const copied = original[original[node]]; // earlier ones are final
    const gather = mode.gatherOf[copied];
    original[node] = gather < 0 || apart.has(gather) || only ? copied : mode.gathers[gather].nodes[0];
  }
  return original;
}

/** @param {Mode} mode @param {State} state @param {Int32Array} closedIn @param {Int32Array} originals */
function shownNodes(mode, state, closedIn, originals) {
  const { model } = mode;
  const shownBy = new Int32Array(model.size).fill(-1);
  const byNode = new Int32Array(mode.nodes.id.length).fill(-1);
  const byGroup = new Int32Array(mode.groups.parent.length).fill(-1);
  /** @type {ShownNode[]} */
  const nodes = [];
  for (let number = 0; number < originals.length; number++) {
    const places = wantedPlaces(mode, state, number);
    if (!places) continue;
    const original = originals[number];
    const group = mode.nodes.group[original];
    const box = group < 0 ? -1 : closedIn[group];
    let at = box < 0 ? byNode[original] : byGroup[box];
    if (at < 0) {
      at = nodes.length;
      if (box < 0) byNode[original] = at;
      else byGroup[box] = at;
      nodes.push(box < 0 ? openNode(mode, original, state) : closedNode(mode, box, state));
    }
    // not what lies in another block that is drawn as this one
    if (box >= 0 && closedIn[mode.nodes.group[number]] === box) nodes[at].places.push(...places);
    for (const place of places) shownBy[place] = at;
  }
  if (mode.rolled) {
    for (const node of nodes) {
      if (node.box >= 0) node.passes = new Set(node.places.map((place) => mode.passIn(node.box, place))).size;
    }
  }
  return { nodes, shownBy };
}

/** The entries of a node that are to be shown; null if it is not. @param {Mode} mode @param {State} state @param {number} number */
export function wantedPlaces(mode, state, number) {
  const places = mode.nodes.places[number];
  const { flags, role } = mode.model.ops;
  const first = places[0];
  if (role[first] === "buffer" || role[first] === "update") {
    if (state.buffers === "never" || (state.buffers === "meaningful" && flags[first] & HIDDEN_BUFFER)) return null;
  }
  const { only } = state;
  return only && !places.some((place) => only.has(place)) ? null : places;
}

/** @param {Mode} mode @param {number} node @param {State} state @returns {ShownNode} */
function openNode(mode, node, { apart, only }) {
  const { nodes } = mode;
  const gather = apart.has(mode.gatherOf[node]) || only ? -1 : mode.gatherOf[node];
  /** @type {ShownNode} */
  const single = {
    id: nodes.id[node],
    lines: nodes.lines[node],
    shape: nodes.shape[node],
    fill: nodes.fill[node],
    fill2: nodes.fill2[node],
    dashed: nodes.dashed[node],
    group: nodes.group[node],
    node,
    box: -1,
    gather,
    places: nodes.places[node],
    passes: nodes.passes[node],
  };
  if (gather < 0) return single;
  const { nodes: all, lines } = mode.gathers[gather];
  const places = all.flatMap((each) => nodes.places[each]);
  return { ...single, lines, places, dashed: all.every((each) => nodes.dashed[each]) };
}

/** @param {Mode} mode @param {number} box @param {State} state @returns {ShownNode} */
function closedNode(mode, box, state) {
  const { groups } = mode;
  return {
    id: `@${box}`,
    lines: foldedLines(mode, box, groups.lines[box], state),
    shape: groups.shape[box],
    fill: groups.fill[box],
    fill2: groups.fill2[box],
    dashed: groups.dashed[box],
    group: groups.parent[box],
    node: -1,
    box,
    gather: -1,
    places: [],
    passes: 1,
  };
}

/** The lines of a module that stands for a run of others say so: `@h.0 ... @h.11 (x12)`. @param {Mode} mode @param {number} box @param {readonly Text[]} lines @param {State} state */
function foldedLines(mode, box, lines, state) {
  const run = mode.runOf[box];
  if (!run || !state.folded.has(run[0])) return lines;
  const blocks = mode.runs[run[0]];
  const last = blocks[blocks.length - 1][run[2]];
  return [new Text(`${mode.shownName(box)} ... ${mode.shownName(last)} (x${blocks.length})`, true), ...lines.slice(1)];
}

// ---- edges

/** All that goes from one node to another. @typedef {{source: number, target: number, first: [number, number], leaving: Set<number> | null, arriving: Set<number> | null, names: Set<number> | null, tensors: Set<number> | null, dashed: boolean, condition: boolean}} Link */

/** @param {Mode} mode @param {State} state @param {ShownNode[]} nodes @param {Int32Array} shownBy @returns {ShownEdge[]} */
function shownEdges(mode, state, nodes, shownBy) {
  const { model } = mode;
  const hidden = state.folded.size ? foldedBlocks(mode, state.folded) : null;
  /** @type {Map<number, Link>} */
  const found = new Map();
  for (const place of placesInOrder(mode, shownBy)) {
    const target = shownBy[place];
    const into = nodes[target];
    const names = into.box < 0 ? model.ops.arguments[place] : NOTHING;
    const parents = model.parents[place];
    const several = names.length > 0 && countShown(parents, shownBy, hidden, mode, place) > 1;
    for (let index = 0; index < parents.length; index++) {
      const parent = parents[index];
      const source = shownBy[parent];
      if (source < 0 || (hidden && hides(hidden, mode, parent, place))) continue;
      const leaving = passOf(mode, nodes[source], parent);
      const arriving = passOf(mode, into, place);
      if (source === target && leaving === arriving) continue; // inside a closed module
      const key = source * nodes.length + target;
      let link = found.get(key);
      if (!link) {
        link = {
          source,
          target,
          first: [parent, place],
          leaving: nodes[source].passes > 1 ? new Set() : null,
          arriving: into.passes > 1 ? new Set() : null,
          names: null,
          tensors: nodes[source].gather >= 0 || into.gather >= 0 ? new Set() : null,
          dashed: true,
          condition: false,
        };
        found.set(key, link);
      }
      if (several) for (const name of names[index]) (link.names ??= new Set()).add(name);
      if (link.tensors && !(hidden && isCopy(hidden, mode, place))) link.tensors.add(mode.nodeOf[parent]);
      link.leaving?.add(leaving);
      link.arriving?.add(arriving);
      if (model.ops.flags[parent] & FROM_INPUT) link.dashed = false;
      if (into.box < 0 && model.conditions.has(parent * model.size + place)) link.condition = true;
    }
  }
  return [...found.values()].map((link) => edgeOf(mode, nodes, link));
}

/** The entries that are shown, in the order of the nodes that they belong to. @param {Mode} mode @param {Int32Array} shownBy */
function* placesInOrder(mode, shownBy) {
  for (const places of mode.nodes.places) for (const place of places) if (shownBy[place] >= 0) yield place;
}

/** @param {number[]} parents @param {Int32Array} shownBy @param {Map<number, number>[] | null} hidden @param {Mode} mode @param {number} place */
function countShown(parents, shownBy, hidden, mode, place) {
  let count = 0;
  for (const parent of parents) {
    if (shownBy[parent] >= 0 && !(hidden && hides(hidden, mode, parent, place))) count += 1;
  }
  return count;
}

/** Which pass of its node an entry belongs to. @param {Mode} mode @param {ShownNode} node @param {number} place */
function passOf(mode, node, place) {
  if (node.passes === 1) return 1;
  return node.box < 0 ? mode.model.ops.pass[place] : mode.passIn(node.box, place);
}

/** By node of the mode: for each folded run around it, which block it is in. @param {Mode} mode @param {Set<number>} folded @returns {Map<number, number>[]} */
function foldedBlocks(mode, folded) {
  /** @type {Map<number, number>[]} */
  const blocks = mode.nodes.id.map(() => new Map());
  for (const run of folded) {
    mode.runs[run].forEach((block, number) => {
      for (const group of block) for (const node of mode.members[group]) blocks[node].set(run, number);
    });
  }
  return blocks;
}

/** Is this drawn as an equal one in the first block of a folded run? @param {Map<number, number>[]} blocks @param {Mode} mode @param {number} place */
function isCopy(blocks, mode, place) {
  return [...blocks[mode.nodeOf[place]].values()].some((block) => block > 0);
}

/** Does this edge lead from one block of a folded run to another? @param {Map<number, number>[]} blocks @param {Mode} mode @param {number} parent @param {number} place */
function hides(blocks, mode, parent, place) {
  const from = blocks[mode.nodeOf[parent]];
  const to = blocks[mode.nodeOf[place]];
  for (const [run, block] of from) if (to.has(run) && to.get(run) !== block) return true;
  return false;
}

/** @param {Mode} mode @param {ShownNode[]} nodes @param {Link} link @returns {ShownEdge} */
function edgeOf(mode, nodes, link) {
  const head = [];
  if (link.names?.size) head.push(new Text(argumentWords([...link.names].map((name) => mode.model.strings[name]))));
  if (link.arriving && link.arriving.size < nodes[link.target].passes) head.push(new Text(`In ${ranges(link.arriving)}`));
  const tail =
    link.leaving && link.leaving.size < nodes[link.source].passes ? [new Text(`Out ${ranges(link.leaving)}`)] : NOTHING;
  const count = link.tensors && link.tensors.size > FEW ? [new Text(`${link.tensors.size.toLocaleString("en-US")} tensors`)] : NOTHING;
  return {
    source: link.source,
    target: link.target,
    label: link.condition ? [...IF, ...count] : count,
    tailLabel: tail,
    headLabel: head.length ? head : NOTHING,
    dashed: link.dashed,
    condition: link.condition,
    first: link.first,
  };
}

/** All of them, or the first and the last. @param {string[]} names */
function argumentWords(names) {
  return names.length < 5 ? names.join(", ") : `${names[0]} ... ${names[names.length - 1].replace(/^arg /, "")}`;
}

/** Where gradients were logged on both sides of an edge, the gradient flowed back along it. @param {Mode} mode @param {ShownNode[]} nodes @param {ShownEdge[]} edges @returns {ShownEdge[]} */
function backwardEdges(mode, nodes, edges) {
  const { flags } = mode.model.ops;
  const has = nodes.map((node) => node.places.some((place) => flags[place] & HAS_GRADIENT));
  return edges
    .filter((edge) => edge.source !== edge.target && has[edge.source] && has[edge.target])
    .map((edge) => ({
      ...edge, source: edge.target, target: edge.source, label: NOTHING, tailLabel: NOTHING, headLabel: NOTHING,
      dashed: false, condition: false, backward: true,
    }));
}

/** `1, 3-5`. @param {Set<number>} numbers */
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts = [];
  for (let index = 0; index < sorted.length; index++) {
    const first = sorted[index];
    while (sorted[index + 1] === sorted[index] + 1) index += 1;
    parts.push(sorted[index] === first ? `${first}` : `${first}-${sorted[index]}`);
  }
  return parts.join(", ");
}

// ---- groups

/** The open modules around what is shown, outer ones first; nodes and groups then refer to them by their new numbers. @param {Mode} mode @param {State} state @param {ShownNode[]} nodes @returns {ShownGroup[]} */
function shownGroups(mode, state, nodes) {
  const { groups: all } = mode;
  const number = new Int32Array(all.parent.length).fill(-1);
  /** @type {ShownGroup[]} */
  const groups = [];
  for (const node of nodes) {
    for (const box of mode.path(node.group)) {
      if (number[box] >= 0) continue;
      number[box] = groups.length;
      const parent = all.parent[box] < 0 ? -1 : number[all.parent[box]];
      const lines = foldedLines(mode, box, all.openLines[box], state);
      groups.push({ id: `@${box}`, lines, parent, box, dashed: all.openDashed[box] });
    }
    node.group = node.group < 0 ? -1 : number[node.group];
  }
  return groups;
}
