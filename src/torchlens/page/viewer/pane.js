// One graph on one canvas: what is open, where one looks, what is selected.

import { beginningOf, between, centredOn, filledBy, keptInPlace, toWorld, wholeOf, zoomed } from "./camera.js";
import { READABLE, boxesAt, depthOf, openAt, readableDepth, readableMode } from "./depth.js";
import { paint } from "./paint.js";
import { listenTo } from "./pointer.js";
import { neighbours, pathBetween, relatives } from "./reach.js";
import { Scene } from "./scene.js";
import { show } from "./view.js";

/**
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./view.js").State} State
 * @typedef {{place: number} | {group: number}} Selection an entry of the log, or a module of the mode
 * @typedef {{selected?: (selection: Selection | null) => void, moved?: () => void, rebuilt?: () => void,
 *   hovered?: (text: string, x: number, y: number) => void}} Hooks
 * @typedef {import("./camera.js").Point} Point
 */

const DETAILS = 0.46; // the height of the details on a narrow screen, as in page.css

export class Pane {
  /** @param {Model} model @param {HTMLCanvasElement} canvas @param {import("./palette.js").Colours} colours @param {Hooks} hooks */
  constructor(model, canvas, colours, hooks) {
    this.model = model;
    this.canvas = canvas;
    this.ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.colours = colours;
    this.hooks = hooks;
    this.modeName = readableMode(model);
    /** @type {State} */
    this.state = { open: new Set(), folded: new Set(), apart: new Set(), buffers: "meaningful", only: null, direction: "topdown", gradients: false };
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
    this.setDepth(readableDepth(this.mode));
  }

  get mode() {
    return this.model.mode(this.modeName);
  }

  get size() {
    return { width: this.canvas.clientWidth || 800, height: this.canvas.clientHeight || 600 };
  }

  /** The part of the canvas that is seen when something is selected: on a narrow screen the details lie over its lower part. */
  get free() {
    const { width, height } = this.size;
    return { width, height: height * (matchMedia("(max-width: 900px)").matches ? 1 - DETAILS : 1) };
  }

  // ---- what is shown

  /** The level of nesting that is open everywhere. */
  get depth() {
    return depthOf(this.mode, this.state.open);
  }

  /** @param {number} depth 1: every module is closed */
  setDepth(depth) {
    this.state.open = openAt(this.mode, depth);
    this.rebuild();
    this.fit();
  }

  /** @param {string} name */
  setMode(name) {
    const selected = this.selection;
    const depth = this.depth;
    this.modeName = name;
    this.state.folded = new Set();
    this.state.apart = new Set();
    this.setDepth(depth);
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
    if (before && after) this.jumpTo(keptInPlace(this.camera, before, after, this.state.direction, at));
    this.select({ group });
    this.hooks.moved?.();
  }

  /** Draw apart what is gathered where an entry is drawn, or gather it again; the entry stays in place. @param {number} place */
  toggleGather(place) {
    const gather = this.mode.gatherOf[this.mode.nodeOf[place]];
    const before = this.scene.layout.nodes[this.scene.shown.shownBy[place]];
    if (gather < 0 || !before) return;
    if (!this.state.apart.delete(gather)) this.state.apart.add(gather);
    this.rebuild();
    const after = this.scene.layout.nodes[this.scene.shown.shownBy[place]];
    this.jumpTo(keptInPlace(this.camera, before, after, this.state.direction));
    this.select({ place });
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
    if (node < 0) return;
    const k = zoom ? Math.max(this.camera.k, 0.9) : this.camera.k;
    this.moveTo(centredOn(this.scene.layout.nodes[node], this.free, k));
  }

  /** @param {number} group */
  lookAtGroup(group) {
    const rect = this.rectOfGroup(group);
    if (rect) this.moveTo(filledBy(rect, this.size));
  }

  // ---- where one looks

  /** The whole graph. */
  fit() {
    this.jumpTo(wholeOf(this.scene, this.size));
    this.refit = () => this.fit();
  }

  /** As large as can be read, at the beginning. */
  fitReadable() {
    this.jumpTo(beginningOf(this.scene, this.scene.layout.nodes[0], this.size, this.state.direction));
    this.refit = () => this.fitReadable();
  }

  /** @param {import("./paint.js").Camera} to */
  jumpTo(to) {
    cancelAnimationFrame(this.frame);
    this.refit = null;
    Object.assign(this.camera, to);
    this.repaint();
    this.hooks.moved?.();
  }

  /** Gently, unless the reader wants no motion. @param {import("./paint.js").Camera} to */
  moveTo(to) {
    this.refit = null;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return this.jumpTo(to);
    const from = { ...this.camera };
    const begin = performance.now();
    const step = (/** @type {number} */ now) => {
      const share = Math.min(1, Math.max(0, (now - begin) / 180));
      this.jumpTo(between(from, to, share));
      if (share < 1) this.frame = requestAnimationFrame(step);
    };
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(step);
  }

  /** @param {number} x @param {number} y @returns {Point} */
  toWorld(x, y) {
    return toWorld(this.camera, x, y);
  }

  /** @param {number} factor @param {number} [x] @param {number} [y] */
  zoom(factor, x = this.size.width / 2, y = this.size.height / 2) {
    this.jumpTo(zoomed(this.camera, factor, { x, y }, this.scene, this.size));
  }

  /** @param {number} dx @param {number} dy of the canvas */
  pan(dx, dy) {
    const { k, x, y } = this.camera;
    this.jumpTo({ k, x: x - dx / k, y: y - dy / k });
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
      const { box, places } = this.scene.shown.nodes[found.node];
      if (box >= 0) this.toggle(box, point);
      else this.toggleGather(places[0]);
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
    this.litPlaces = pathBetween(this.model, from, to);
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
      this.state.only = inside ? neighbours(this.model, places) : relatives(this.model, places);
    }
    this.rebuild();
    this.fit();
  }
}
