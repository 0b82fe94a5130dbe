// A log as the page knows it: the reader of page/page_data.py.

import { Text, learnWidths } from "./measure.js";

/** Bits of `ops.flags`. */
export const FROM_INPUT = 1;
export const IN_PLACE = 2;
export const HIDDEN_BUFFER = 4;
export const HAS_GRADIENT = 8;
export const IN_CONDITION = 16;

/**
 * @typedef {{[column: string]: any[]}} Columns
 * @typedef {{lines: Text[][], shape: string[], fill: string[], fill2: string[], dashed: boolean[]}} Looks
 */

/** One way to draw the log: every operation (rolled: every layer) as a node, every module as a group. */
export class Mode {
  /** @param {any} data @param {Model} model @param {boolean} rolled */
  constructor(data, model, rolled) {
    this.model = model;
    this.rolled = rolled;
    const first = summed(data.nodes.place);
    /** @type {Looks & {id: string[], places: number[][], passes: number[], group: Int32Array}} */
    this.nodes = {
      ...looks(data.nodes, model),
      id: model.texts(summed(data.nodes.id)),
      places: first.map((place, node) => summed([place, ...data.nodes.places[node]])),
      passes: data.nodes.passes,
      group: Int32Array.from(summed(data.nodes.group)),
    };
    /** @type {Looks & {openLines: Text[][], parent: Int32Array, box: number[], openDashed: boolean[]}} */
    this.groups = {
      ...looks(data.groups, model),
      openLines: data.groups.open_lines.map((/** @type {number[]} */ line) => model.lines(line)),
      parent: Int32Array.from(summed(data.groups.parent)),
      box: summed(data.groups.box),
      openDashed: data.groups.open_dashed.map(Boolean),
    };
    /** blocks of groups that repeat @type {number[][][]} */
    this.runs = data.runs;
    /** nodes that can be drawn as one, and what that one says @type {{nodes: number[], lines: Text[]}[]} */
    this.gathers = data.gathers.map((/** @type {number[][]} */ [nodes, lines]) => ({ nodes: summed(nodes), lines: model.lines(lines) }));
    /** by node: which of them it belongs to, or -1 */
    this.gatherOf = new Int32Array(first.length).fill(-1);
    this.gathers.forEach(({ nodes }, gather) => nodes.forEach((node) => (this.gatherOf[node] = gather)));
    const groups = this.groups.parent.length;
    this.depth = new Int32Array(groups);
    /** the operations or layers inside each group, at any depth @type {number[][]} */
    this.members = Array.from({ length: groups }, () => []);
    /** what lies directly in each group, and at the top: groups as numbers below 0, -1 - group @type {number[][]} */
    this.children = Array.from({ length: groups + 1 }, () => []);
    this.nodeOf = new Int32Array(model.size).fill(-1);
    this.fillTree();
    /** by group: [run, number of its block, its place in the block], or null @type {([number, number, number] | null)[]} */
    this.runOf = new Array(groups).fill(null);
    this.runs.forEach((blocks, run) =>
      blocks.forEach((block, number) => block.forEach((group, at) => (this.runOf[group] = [run, number, at]))),
    );
    this.deepest = groups ? Math.max(...this.depth) : 0;
  }

  fillTree() {
    const { parent } = this.groups;
    const seen = new Uint8Array(parent.length);
    for (let group = 0; group < parent.length; group++) {
      this.depth[group] = parent[group] < 0 ? 1 : this.depth[parent[group]] + 1;
    }
    const reach = (/** @type {number} */ group) => {
      while (group >= 0 && !seen[group]) {
        seen[group] = 1;
        this.children[parent[group] + 1].push(-1 - group);
        group = parent[group];
      }
    };
    this.nodes.group.forEach((group, node) => {
      reach(group);
      this.children[group + 1].push(node);
      for (const place of this.nodes.places[node]) this.nodeOf[place] = node;
      for (let around = group; around >= 0; around = parent[around]) this.members[around].push(node);
    });
  }

  /** @param {number} group */
  module(group) {
    return this.rolled ? this.groups.box[group] : this.model.calls.module[this.groups.box[group]];
  }

  /** @param {number} group @returns {string} */
  address(group) {
    return this.model.modules.address[this.module(group)];
  }

  /** The full name of a group, with its call if there are several: `encoder.fc:2`. @param {number} group */
  name(group) {
    const module = this.module(group);
    const address = this.model.modules.address[module];
    const several = !this.rolled && this.model.callCounts[module] > 1;
    return several ? `${address}:${this.model.calls.number[this.groups.box[group]]}` : address;
  }

  /** As it stands in its box, without the number of passes: `@.fc:2` inside `@encoder`. @param {number} group */
  shownName(group) {
    return this.groups.openLines[group][0].text.replace(/ \(x\d+\)$/, "");
  }

  /** The groups around a node or group, outermost first, itself included if it is a group. @param {number} group */
  path(group) {
    const path = [];
    for (; group >= 0; group = this.groups.parent[group]) path.unshift(group);
    return path;
  }

  /** In which call of the group's module an entry was computed. @param {number} group @param {number} place */
  passIn(group, place) {
    if (!this.rolled) return 1;
    const { calls, ops } = this.model;
    const module = this.groups.box[group];
    /** outermost such call @type {number} */
    let found = 1;
    for (let call = ops.home[place]; call >= 0; call = calls.parent[call]) {
      if (calls.module[call] === module) found = calls.number[call];
    }
    return found;
  }

  /** All entries of a group. @param {number} group */
  placesIn(group) {
    return this.members[group].flatMap((node) => this.nodes.places[node]);
  }
}

/** From steps to numbers. @param {number[]} steps */
function summed(steps) {
  let total = 0;
  return steps.map((step) => (total += step));
}

/** @param {any} data @param {Model} model @returns {Looks} */
function looks(data, model) {
  const names = summed(data.name);
  return {
    lines: data.lines.map((/** @type {number[]} */ lines, /** @type {number} */ at) => model.lines([names[at], ...lines])),
    shape: model.texts(data.shape),
    fill: model.texts(data.fill),
    fill2: model.texts(data.fill2),
    dashed: data.dashed.map(Boolean),
  };
}

export class Model {
  /** @param {any} data */
  constructor(data) {
    learnWidths(data.widths);
    /** @type {string[]} */
    this.strings = data.strings;
    /** @type {string} */
    this.name = data.name;
    /** @type {boolean} */
    this.complete = data.complete;
    /** @type {string[]} */
    this.warnings = data.warnings;
    /** @type {[Map<number, Text>, Map<number, Text>]} */
    this.known = [new Map(), new Map()];
    const raw = data.ops;
    /** @type {number} */
    this.size = raw.label.length;
    /** @type {Columns} */
    this.ops = { ...raw, layer: summed(raw.layer), home: summed(raw.home), label: this.texts(summed(raw.label)) };
    for (const column of ["type", "role", "function", "address", "shape", "dtype", "device", "grad_fn"]) {
      this.ops[column] = this.texts(raw[column]);
    }
    /** @type {number[][]} */
    this.parents = raw.parents.map((/** @type {number[]} */ back, /** @type {number} */ place) => back.map((each) => place - each));
    /** @type {number[][]} */
    this.children = Array.from({ length: this.size }, () => []);
    this.parents.forEach((parents, place) => parents.forEach((parent) => this.children[parent].push(place)));
    /** @type {Columns} */
    this.calls = { ...data.calls, module: summed(data.calls.module), parent: summed(data.calls.parent) };
    this.callCounts = new Int32Array(data.modules.address.length);
    for (const module of this.calls.module) this.callCounts[module] += 1;
    /** @type {Columns} */
    this.modules = { ...data.modules, address: this.texts(summed(data.modules.address)) };
    for (const column of ["class", "qualname"]) this.modules[column] = this.texts(data.modules[column]);
    this.conditions = new Set(data.conditions.map((/** @type {[number, number]} */ [a, b]) => a * this.size + b));
    /** @type {number[][]} */
    this.stacks = data.stacks;
    /** @type {[number, number, number][]} */
    this.frames = data.frames;
    /** @type {Record<string, Record<string, string>>} */
    this.source = data.source;
    /** own numbers by name, each by place @type {Record<string, (number | null)[]>} */
    this.numbers = data.numbers ?? {};
    /** @type {any} */
    this.values = data.values ?? null;
    /** @type {Record<string, string>} */
    this.edits = data.edits ?? {};
    this.placeOf = new Map(this.ops.label.map((/** @type {string} */ label, /** @type {number} */ place) => [label, place]));
    this.modesData = data.modes;
    /** @type {Map<string, Mode>} */
    this.modes = new Map();
  }

  get hasRolled() {
    return "rolled" in this.modesData;
  }

  /** @param {string} name */
  mode(name) {
    const wanted = name === "rolled" && this.hasRolled ? "rolled" : "unrolled";
    let mode = this.modes.get(wanted);
    if (!mode) this.modes.set(wanted, (mode = new Mode(this.modesData[wanted], this, wanted === "rolled")));
    return mode;
  }

  /** @param {number[]} numbers */
  texts(numbers) {
    return numbers.map((number) => this.strings[number]);
  }

  /** Lines of a node or group, the first of them bold. @param {number[]} numbers */
  lines(numbers) {
    return numbers.map((number, index) => this.text(number, index === 0));
  }

  /** @param {number} number @param {boolean} bold */
  text(number, bold) {
    const known = this.known[bold ? 1 : 0];
    let text = known.get(number);
    if (!text) known.set(number, (text = new Text(this.strings[number], bold)));
    return text;
  }

  /** The module that does just this operation, if there is one; else the one it was computed in. @param {number} place */
  moduleOf(place) {
    const home = this.ops.home[place];
    return home < 0 ? "" : this.modules.address[this.calls.module[home]];
  }

  /** Everything that feeds these entries, or that they feed, themselves included. @param {Iterable<number>} places @param {boolean} forward */
  reach(places, forward) {
    const next = forward ? this.children : this.parents;
    const found = new Set(places);
    const stack = [...found];
    while (stack.length) {
      for (const other of next[/** @type {number} */ (stack.pop())]) {
        if (!found.has(other)) {
          found.add(other);
          stack.push(other);
        }
      }
    }
    return found;
  }
}

/** The data of a page: base64 of gzip of JSON. @param {string} text @returns {Promise<any>} */
export async function unpacked(text) {
  return JSON.parse(new TextDecoder().decode(await inflated(text)));
}

/** @param {string} text */
export async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
