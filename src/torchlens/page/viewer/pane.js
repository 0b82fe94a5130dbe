// One graph on one canvas: what is open, where one looks, what is selected.

import { paint } from "./paint.js";
import { listenTo } from "./pointer.js";
import { Scene } from "./scene.js";
import { show } from "./view.js";

/**
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./view.js").State} State
 * @typedef {{place: number} | {group: number}} Selection an entry of the log, or a module of the mode
 * @typedef {{selected?: (selection: Selection | null) => void, moved?: () => void, rebuilt?: () => void,
 *   hovered?: (text: string, x: number, y: number) => void}} Hooks
 * @typedef {{x: number, y: number}} Point
 */

const READABLE = 60; // boxes that a page opens with at most
const LARGEST = 4;

export class Pane {
  /** @param {Model} model @param {HTMLCanvasElement} canvas @param {import("./palette.js").Colours} colours @param {Hooks} hooks */
  constructor(model, canvas, colours, hooks) {
    this.model = model;
    this.canvas = canvas;
    this.ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.colours = colours;
    this.hooks = hooks;
    this.modeName = "unrolled";
    /** @type {State} */
    this.state = { open: new Set(), folded: new Set(), buffers: "meaningful", only: null, direction: "topdown", gradients: false };
    this.camera = { x: 0, y: 0, k: 1 };
    /** set anew by each rebuild, the first of them below */
    this.scene = /** @type {Scene} */ (/** @type {unknown} */ (null));
    /** @type {Selection | null} */
    this.selection = null;
    /** entries that were found @type {Set<number>} */
    this.hitPlaces = new Set();
    /** entries to be seen among the others @type {Set<number> | null} */
    this.litPlaces = null;
    /** the entry that a walk is at, -1 if there is none */
    this.walkPlace = -1;
    /** colours of nodes by a number @type {((node: number) => [string, string] | null) | null} */
    this.fillOf = null;
    /** @type {Set<number>} */
    this.editedPlaces = new Set();
    /** @type {import("./paint.js").Marks} */
    this.marks = {
      fillOf: null, selectedNode: -1, selectedGroup: -1, hits: new Set(), lit: null, current: -1,
      hoverNode: -1, hoverGroup: -1, edited: new Set(), hoverEdge: -1,
    };
    this.dirty = true;
    /** how long the parts took, in ms @type {Record<string, number>} */
    this.times = {};
    this.frame = 0;
    listenTo(this);
    /** what to do when the window gets another size, as long as the reader has not moved @type {(() => void) | null} */
    this.refit = null;
    new ResizeObserver(() => (this.refit ? this.refit() : this.repaint())).observe(canvas);
    if (boxesAt(this.mode, 1) > READABLE) this.state.folded = new Set(this.mode.runs.keys());
    this.setDepth(this.readableDepth());
  }

  get mode() {
    return this.model.mode(this.modeName);
  }

  get size() {
    return { width: this.canvas.clientWidth || 800, height: this.canvas.clientHeight || 600 };
  }

  // ---- what is shown

  /** The deepest level at which everything can still be read. */
  readableDepth() {
    const { mode } = this;
    let depth = 1;
    while (depth <= mode.deepest && boxesAt(mode, depth + 1) <= READABLE) depth += 1;
    return depth;
  }

  /** The level of nesting that is open everywhere. */
  get depth() {
    const { mode } = this;
    for (let depth = 1; depth <= mode.deepest; depth++) {
      for (let group = 0; group < mode.depth.length; group++) {
        if (mode.depth[group] === depth && !this.state.open.has(group)) return depth;
      }
    }
    return mode.deepest + 1;
  }

  /** @param {number} depth 1: every module is closed */
  setDepth(depth) {
    this.state.open = new Set();
    this.mode.depth.forEach((each, group) => each < depth && this.state.open.add(group));
    this.rebuild();
    this.fit();
  }

  /** @param {string} name */
  setMode(name) {
    const selected = this.selection;
    const depth = this.depth;
    this.modeName = name;
    this.state.folded = new Set();
    this.setDepth(Math.min(depth, Math.max(this.readableDepth(), depth)));
    this.select(selected && "place" in selected ? selected : null);
  }

  /** @param {boolean} folded */
  setFolded(folded) {
    this.state.folded = new Set(folded ? this.mode.runs.keys() : []);
    this.rebuild();
    this.fit();
  }

  rebuild() {
    const begin = performance.now();
    const shown = show(this.mode, this.state);
    const laidOut = performance.now();
    this.scene = new Scene(shown);
    this.times = { show: laidOut - begin, layout: performance.now() - laidOut };
    this.hooks.rebuilt?.();
    this.remark();
  }

  /** Open or close a module; it stays under the pointer. @param {number} group @param {Point} [at] of the canvas */
  toggle(group, at) {
    const before = this.rectOfGroup(group);
    if (this.state.open.has(group)) this.state.open.delete(group);
    else this.state.open.add(group);
    this.rebuild();
    const after = this.rectOfGroup(group);
    if (before && after) this.keepInPlace(before, after, at);
    this.select({ group });
    this.hooks.moved?.();
  }

  /** The node or box that shows a module, or the closed one that it lies in. @param {number} group */
  rectOfGroup(group) {
    const { scene, mode } = this;
    const open = scene.shown.groups.findIndex((each) => each.box === group);
    if (open >= 0) return scene.layout.groups[open];
    for (let around = group; around >= 0; around = mode.groups.parent[around]) {
      const closed = scene.shown.nodes.findIndex((each) => each.box === around);
      if (closed >= 0) return scene.layout.nodes[closed];
    }
    return null;
  }

  /** @param {import("./layout.js").Rect} before @param {import("./layout.js").Rect} after @param {Point} [at] */
  keepInPlace(before, after, at) {
    const { camera } = this;
    this.refit = null;
    const upwards = this.state.direction === "bottomup";
    const sideways = this.state.direction === "leftright";
    const anchor = (/** @type {import("./layout.js").Rect} */ rect) => ({
      x: sideways ? rect.x : rect.x + rect.width / 2,
      y: sideways ? rect.y + rect.height / 2 : upwards ? rect.y + rect.height : rect.y,
    });
    camera.x += anchor(after).x - anchor(before).x;
    camera.y += anchor(after).y - anchor(before).y;
    if (at) {
      const point = this.toWorld(at.x, at.y);
      const clamp = (/** @type {number} */ value, /** @type {number} */ low, /** @type {number} */ high) =>
        Math.min(Math.max(value, low), high);
      camera.x += clamp(point.x, after.x + 6, after.x + after.width - 6) - point.x;
      camera.y += clamp(point.y, after.y + 6, after.y + after.height - 6) - point.y;
    }
    this.repaint();
  }

  /** Open every module around an entry, and look at it. @param {number} place @param {boolean} [zoom] */
  reveal(place, zoom = true) {
    const node = this.mode.nodeOf[place];
    if (node < 0) return;
    let changed = false;
    for (const group of this.mode.path(this.mode.nodes.group[node])) {
      const run = this.mode.runOf[group];
      if (run && run[1] > 0 && this.state.folded.delete(run[0])) changed = true;
      if (!this.state.open.has(group)) {
        this.state.open.add(group);
        changed = true;
      }
    }
    if (this.state.only && !this.state.only.has(place)) {
      this.state.only = null;
      changed = true;
    }
    if (changed) this.rebuild();
    if (this.scene.shown.shownBy[place] < 0 && this.state.buffers !== "always") {
      this.state.buffers = "always"; // it is one that is usually left out
      this.rebuild();
    }
    this.select({ place });
    this.lookAt(place, zoom);
  }

  /** @param {number} place @param {boolean} [zoom] */
  lookAt(place, zoom = false) {
    const node = this.scene.shown.shownBy[place];
    if (node >= 0) this.centre(this.scene.layout.nodes[node], zoom);
  }

  /** @param {number} group */
  lookAtGroup(group) {
    const rect = this.rectOfGroup(group);
    if (!rect) return;
    const { width, height } = this.size;
    const k = Math.min(1.2, (width - 60) / rect.width, (height - 60) / rect.height);
    this.moveTo({ k, x: rect.x + rect.width / 2 - width / k / 2, y: rect.y + rect.height / 2 - height / k / 2 });
  }

  /** @param {import("./layout.js").Rect} rect @param {boolean} zoom */
  centre(rect, zoom) {
    const { width, height } = this.size;
    const k = zoom ? Math.max(this.camera.k, 0.9) : this.camera.k;
    this.moveTo({ k, x: rect.x + rect.width / 2 - width / k / 2, y: rect.y + rect.height / 2 - height / k / 2 });
  }

  // ---- where one looks

  /** The whole graph, or as much of its beginning as can be read. */
  fit() {
    const { width, height } = this.size;
    const { scene } = this;
    const whole = Math.min((width - 40) / Math.max(scene.width, 1), (height - 40) / Math.max(scene.height, 1));
    const k = Math.min(1.25, whole);
    const above = scene.height * k > height - 110 ? 0 : 12 / k; // below the breadcrumb
    this.moveTo({ k, x: scene.width / 2 - width / k / 2, y: scene.height / 2 - height / k / 2 - above }, false);
    this.refit = () => this.fit();
  }

  /** As large as can be read, at the beginning. */
  fitReadable() {
    this.fit();
    this.refit = () => this.fitReadable();
    const { width, height } = this.size;
    const { scene } = this;
    if (this.camera.k >= 0.45 || !scene.layout.nodes.length) return;
    const sideways = this.state.direction === "leftright";
    const [breadth, room] = sideways ? [scene.height, height] : [scene.width, width];
    const k = Math.max(0.7, Math.min(1, (room - 40) / Math.max(breadth, 1)));
    const first = scene.layout.nodes[0];
    const middle = { x: first.x + first.width / 2, y: first.y + first.height / 2 };
    const whole = breadth * k <= room;
    const x = whole ? scene.width / 2 : middle.x;
    const y = whole ? scene.height / 2 : middle.y;
    const top = this.state.direction === "bottomup" ? scene.height + 30 / k - height / k : -48 / k;
    this.moveTo(sideways ? { k, x: -30 / k, y: y - height / k / 2 } : { k, x: x - width / k / 2, y: top }, false);
    this.refit = () => this.fitReadable();
  }

  /** @param {import("./paint.js").Camera} to @param {boolean} [gently] */
  moveTo(to, gently = true) {
    cancelAnimationFrame(this.frame);
    this.refit = null;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!gently || still) {
      Object.assign(this.camera, to);
      this.repaint();
      this.hooks.moved?.();
      return;
    }
    const from = { ...this.camera };
    const begin = performance.now();
    const step = (/** @type {number} */ now) => {
      const share = Math.min(1, Math.max(0, (now - begin) / 180));
      const eased = share * (2 - share);
      this.camera.k = from.k + (to.k - from.k) * eased;
      this.camera.x = from.x + (to.x - from.x) * eased;
      this.camera.y = from.y + (to.y - from.y) * eased;
      this.repaint();
      this.hooks.moved?.();
      if (share < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  /** @param {number} x @param {number} y @returns {Point} */
  toWorld(x, y) {
    return { x: this.camera.x + x / this.camera.k, y: this.camera.y + y / this.camera.k };
  }

  /** @param {number} factor @param {number} [x] @param {number} [y] */
  zoom(factor, x = this.size.width / 2, y = this.size.height / 2) {
    const { camera, scene } = this;
    this.refit = null;
    const { width, height } = this.size;
    const least = Math.min(0.5, (0.5 * Math.min(width, height)) / Math.max(scene.width, scene.height, 1));
    const k = Math.min(LARGEST, Math.max(least, camera.k * factor));
    const point = this.toWorld(x, y);
    camera.k = k;
    camera.x = point.x - x / k;
    camera.y = point.y - y / k;
    this.repaint();
    this.hooks.moved?.();
  }

  /** @param {number} dx @param {number} dy of the canvas */
  pan(dx, dy) {
    this.refit = null;
    this.camera.x -= dx / this.camera.k;
    this.camera.y -= dy / this.camera.k;
    this.repaint();
    this.hooks.moved?.();
  }

  // ---- what is selected

  /** @param {Selection | null} selection */
  select(selection) {
    this.selection = selection;
    this.remark();
    this.hooks.selected?.(selection);
  }

  /** The entries that the selection stands for. @returns {number[]} */
  get selectedPlaces() {
    const { selection } = this;
    if (!selection) return [];
    if ("group" in selection) return this.mode.placesIn(selection.group);
    return this.mode.rolled ? this.mode.nodes.places[this.mode.nodeOf[selection.place]] : [selection.place];
  }

  /** Bring the marks in line with the selection and all else that is kept by entry. */
  remark() {
    const { marks, selection, scene } = this;
    const { shownBy } = scene.shown;
    marks.selectedNode = marks.selectedGroup = -1;
    if (selection && "place" in selection) marks.selectedNode = shownBy[selection.place];
    else if (selection) {
      marks.selectedGroup = selection.group;
      marks.selectedNode = scene.shown.nodes.findIndex((node) => node.box === selection.group);
    }
    const shown = (/** @type {Iterable<number>} */ places) => {
      const found = new Set();
      for (const place of places) if (shownBy[place] >= 0) found.add(shownBy[place]);
      return found;
    };
    marks.hits = shown(this.hitPlaces);
    marks.edited = shown(this.editedPlaces);
    marks.lit = this.litPlaces ? shown(this.litPlaces) : null;
    marks.current = this.walkPlace >= 0 ? shownBy[this.walkPlace] : -1;
    marks.hoverNode = marks.hoverGroup = marks.hoverEdge = -1;
    marks.fillOf = this.fillOf;
    this.repaint();
  }

  repaint() {
    if (this.dirty) return;
    this.dirty = true;
    requestAnimationFrame(() => this.paint());
  }

  paint() {
    this.dirty = false;
    const { width, height } = this.size;
    const ratio = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const begin = performance.now();
    paint(this.ctx, this.scene, this.camera, width, height, ratio, this.colours, this.marks);
    this.times.paint = performance.now() - begin;
  }

  // ---- mouse, pen and fingers: pointer.js

  /** @param {Point} point @param {boolean} shift */
  click(point, shift) {
    const world = this.toWorld(point.x, point.y);
    const found = this.scene.at(world.x, world.y);
    if (shift && this.selection && found.node >= 0) {
      this.lightPath(this.selectedPlaces, this.scene.shown.nodes[found.node].places);
      return;
    }
    if (found.node >= 0) this.selectNode(found.node);
    else if (found.group >= 0) this.select({ group: this.scene.shown.groups[found.group].box });
    else {
      this.litPlaces = null;
      this.select(null);
    }
  }

  /** @param {number} number of the view */
  selectNode(number) {
    const node = this.scene.shown.nodes[number];
    this.select(node.box >= 0 ? { group: node.box } : { place: node.places[0] });
  }

  /** @param {Point} point */
  open(point) {
    const world = this.toWorld(point.x, point.y);
    const found = this.scene.at(world.x, world.y);
    if (found.node >= 0) {
      const { box } = this.scene.shown.nodes[found.node];
      if (box >= 0) this.toggle(box, point);
    } else if (found.group >= 0) this.toggle(this.scene.shown.groups[found.group].box, point);
  }

  /** @param {Point | null} point */
  hover(point) {
    const { marks, scene } = this;
    const before = [marks.hoverNode, marks.hoverGroup, marks.hoverEdge].join();
    marks.hoverNode = marks.hoverGroup = marks.hoverEdge = -1;
    let text = "";
    if (point) {
      const world = this.toWorld(point.x, point.y);
      const found = scene.at(world.x, world.y);
      marks.hoverNode = found.node;
      if (found.node >= 0) text = scene.layout.nodeLines[found.node].map((line) => line.text).join("\n");
      else {
        marks.hoverEdge = scene.edgeAt(world.x, world.y, 5 / this.camera.k);
        if (marks.hoverEdge >= 0) text = this.edgeWords(marks.hoverEdge);
        else if (found.group >= 0) marks.hoverGroup = scene.shown.groups[found.group].box;
      }
      this.canvas.style.cursor = found.node >= 0 ? "pointer" : "grab";
    }
    if (before !== [marks.hoverNode, marks.hoverGroup, marks.hoverEdge].join()) this.repaint();
    this.hooks.hovered?.(text, point?.x ?? 0, point?.y ?? 0);
  }

  /** What flows along an edge. @param {number} number */
  edgeWords(number) {
    const edge = this.scene.shown.edges[number];
    const [from] = edge.first;
    const { ops } = this.model;
    const [source, target] = [edge.source, edge.target].map((each) => this.scene.layout.nodeLines[each][0]?.text);
    return `${source} → ${target}\n${ops.shape[from]} ${ops.dtype[from]}`;
  }

  // ---- what is lit

  /** @param {boolean} forward */
  lightReach(forward) {
    const places = this.selectedPlaces;
    this.litPlaces = places.length ? this.model.reach(places, forward) : null;
    this.remark();
  }

  /** Everything on a way from one to the other. @param {number[]} from @param {number[]} to */
  lightPath(from, to) {
    const meet = (/** @type {number[]} */ a, /** @type {number[]} */ b) => {
      const before = this.model.reach(b, false);
      return new Set([...this.model.reach(a, true)].filter((place) => before.has(place)));
    };
    const onward = meet(from, to);
    this.litPlaces = onward.size ? onward : meet(to, from);
    this.remark();
  }

  /** Show nothing but the selection and what feeds it or is fed by it; again, everything. */
  isolate() {
    if (this.state.only) this.state.only = null;
    else {
      const { selection } = this;
      const places = this.selectedPlaces;
      if (!places.length) return;
      const inside = selection !== null && "group" in selection;
      const all = inside ? neighbours(this.model, places) : new Set([...this.model.reach(places, true), ...this.model.reach(places, false)]);
      this.state.only = all;
    }
    this.rebuild();
    this.fit();
  }
}

/** These and what is joined to them directly. @param {Model} model @param {number[]} places */
function neighbours(model, places) {
  const found = new Set(places);
  for (const place of places) for (const other of [...model.parents[place], ...model.children[place]]) found.add(other);
  return found;
}

/** How many nodes there would be at this depth. @param {import("./model.js").Mode} mode @param {number} depth */
function boxesAt(mode, depth) {
  let count = 0;
  const { role } = mode.model.ops;
  mode.nodes.group.forEach((group, node) => {
    const first = mode.nodes.places[node][0];
    // many outputs, such as a cache of keys and values, are no reason to close everything else
    if (role[first] !== "output" && (group < 0 || mode.depth[group] < depth)) count += 1;
  });
  mode.depth.forEach((each) => (count += each === depth ? 1 : 0));
  return count;
}
