// The page: one graph, or two side by side, with outline, inspector, search and all controls.

import { byId, counted, el, humanSize } from "./dom.js";
import { download, toPng, toSvg } from "./export.js";
import { Inspector } from "./inspector.js";
import { pressed } from "./keys.js";
import { fromHash, toHash } from "./link.js";
import { Minimap } from "./minimap.js";
import { HAS_GRADIENT, Model, inflated, unpacked } from "./model.js";
import { Outline, lastPart } from "./outline.js";
import { colourBy, overlaysOf } from "./overlays.js";
import { THEMES, heatOf } from "./palette.js";
import { Pane } from "./pane.js";
import { SearchBox } from "./search_box.js";
import { Walk } from "./walk.js";

/**
 * @typedef {{pairs: [number, number][], answer: string[], first: [number, number] | null}} Comparison places of the one
 *   and the other log that are the same operation, what was found in lines, and where the two begin to differ
 */

export class App {
  /** @param {any[]} documents @param {Comparison} comparison */
  constructor(documents, comparison) {
    this.comparison = comparison;
    this.theme = "";
    this.overlay = "";
    /** @type {Pane[]} */
    this.panes = [];
    this.active = 0;
    this.matches = [new Map(comparison.pairs), new Map(comparison.pairs.map(([a, b]) => [b, a]))];
    this.following = false;
    /** where the way begins that is asked for by keys @type {number[]} */
    this.pathFrom = [];
    /** @type {[number, number]} */
    this.apart = [0, 0];
    /** @type {(Promise<Uint8Array> | null)[]} */
    this.bytes = documents.map(() => null);
    this.outline = new Outline(byId("outline"), () => this.pane);
    this.inspector = new Inspector(byId("inspector"), () => this.pane, (pane) => this.bytesOf(pane));
    this.searchBox = new SearchBox(() => this.pane);
    this.minimap = new Minimap(byId("minimap"), () => this.pane);
    this.walk = new Walk(() => this.pane, () => this.walkChanged());
    documents.forEach((document, index) => this.addPane(new Model(document), index, documents.length));
    this.ready = true;
    this.controls();
    this.applyTheme();
    this.restore();
    this.refresh();
  }

  get pane() {
    return this.panes[this.active];
  }

  get colours() {
    const dark = this.theme ? this.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    return dark ? THEMES.dark : THEMES.light;
  }

  /** @param {Model} model @param {number} index @param {number} total */
  addPane(model, index, total) {
    const canvas = /** @type {HTMLCanvasElement} */ (
      el("canvas", { class: "graph", tabindex: "0", role: "application", "aria-label": `graph of ${model.name}; the outline lists the same` })
    );
    const title = el("button", { class: "pane-title", text: model.name, dir: "auto", onclick: () => { this.activate(index); this.showWhole(); } });
    const head = total > 1 ? el("div", { class: "pane-head" }, title) : null;
    byId("panes").append(el("div", { class: head ? "pane headed" : "pane" }, head, canvas));
    canvas.addEventListener("pointerdown", () => this.activate(index));
    canvas.addEventListener("focus", () => this.activate(index));
    const pane = new Pane(model, canvas, this.colours, {
      selected: () => this.selected(index),
      moved: () => this.moved(index),
      rebuilt: () => this.rebuilt(index),
      hovered: (text, x, y) => this.hovered(canvas, text, x, y),
    });
    for (const place of Object.keys(model.edits)) pane.editedPlaces.add(Number(place));
    this.panes.push(pane);
    pane.dirty = false;
    pane.fitReadable();
  }

  /** @param {number} index */
  activate(index) {
    if (this.active === index) return;
    this.active = index;
    this.refresh();
  }

  /** @param {Pane} pane @returns {Promise<Uint8Array | null>} */
  bytesOf(pane) {
    const index = this.panes.indexOf(pane);
    const element = byId(`values${index}`);
    if (!element) return Promise.resolve(null);
    return (this.bytes[index] ??= inflated(element.textContent.trim()));
  }

  // ---- what follows from what

  /** Everything that shows the state of the active pane. */
  refresh() {
    this.outline.refresh();
    this.outline.select();
    this.inspector.refresh();
    this.minimap.refresh();
    this.breadcrumb();
    this.state();
  }

  /** @param {number} index */
  rebuilt(index) {
    if (!this.ready) return;
    this.colour(this.panes[index]);
    if (index !== this.active) return;
    this.outline.refresh();
    this.minimap.refresh();
    if (this.walk.isOn) this.walk.refresh();
    this.state();
  }

  /** @param {number} index */
  moved(index) {
    if (!this.ready) return;
    if (index === this.active) this.minimap.draw();
    if (this.panes.length > 1 && index === this.active && !this.following) this.lookAlike(index);
  }

  /** The other window follows: the same zoom, the matching operation at the same height. @param {number} index */
  lookAlike(index) {
    const { camera } = this.panes[index];
    const other = this.panes[1 - index];
    const [x, y] = this.apart;
    const sign = index ? -1 : 1;
    Object.assign(other.camera, { k: camera.k, x: camera.x + sign * x, y: camera.y + sign * y });
    other.repaint();
  }

  /** How far the selected operations lie apart, from the first log to the second. */
  measureApart() {
    const [one, other] = this.panes.map(({ marks, scene }) => scene.layout.nodes[marks.selectedNode]);
    if (one && other) this.apart = [other.x + other.width / 2 - one.x - one.width / 2, other.y - one.y];
  }

  /** @param {number} index */
  selected(index) {
    if (!this.ready) return;
    if (index === this.active) {
      this.outline.select();
      this.inspector.refresh();
      this.breadcrumb();
      this.state();
      byId("said").textContent = this.selectionWords();
      document.body.classList.toggle("has-selection", this.pane.selection !== null);
      this.panels();
    }
    this.follow(index);
  }

  /** The other log shows the matching operation. @param {number} index */
  follow(index) {
    if (this.panes.length < 2 || this.following) return;
    const { selection } = this.panes[index];
    const other = this.panes[1 - index];
    this.following = true;
    if (selection && "place" in selection) {
      const match = this.matches[index].get(selection.place);
      if (match === undefined) other.select(null);
      else other.reveal(match, false);
    } else if (selection) {
      const name = this.panes[index].mode.name(selection.group);
      const group = other.mode.depth.findIndex((_, each) => other.mode.name(each) === name);
      if (group >= 0) {
        const open = this.panes[index].state.open.has(selection.group);
        if (open !== other.state.open.has(group)) other.toggle(group);
        other.select({ group });
      }
    } else other.select(null);
    this.measureApart();
    this.following = false;
    this.lookAlike(index);
  }

  selectionWords() {
    const { selection, model, mode } = this.pane;
    if (!selection) return "nothing selected";
    if ("group" in selection) return `module ${mode.name(selection.group)}, ${this.pane.state.open.has(selection.group) ? "open" : "closed"}`;
    return `${model.ops.label[selection.place]}, ${model.ops.shape[selection.place]}`;
  }

  /** Controls and the address say what is so. */
  state() {
    const { pane } = this;
    byId("depth").textContent = String(pane.depth);
    byId("mode-unrolled").setAttribute("aria-pressed", String(pane.modeName === "unrolled"));
    byId("mode-rolled").setAttribute("aria-pressed", String(pane.modeName === "rolled"));
    byId("fold").setAttribute("aria-pressed", String(pane.state.folded.size > 0));
    byId("fold").disabled = !pane.mode.runs.length;
    byId("direction").value = pane.state.direction;
    byId("buffers").value = pane.state.buffers;
    byId("gradients").setAttribute("aria-pressed", String(pane.state.gradients));
    byId("shown").textContent = `${counted(pane.scene.shown.nodes.length)} boxes`;
    byId("show-all").hidden = pane.state.only === null;
    const hash = `#${toHash(pane, { overlay: this.overlay, theme: this.theme })}`;
    try {
      if (location.hash !== hash) history.replaceState(null, "", hash);
    } catch {
      // a page inside another may not touch its address
    }
  }

  restore() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const theme = parts.get("theme");
    if (theme === "light" || theme === "dark") this.setTheme(theme);
    if ([...parts.keys()].length) for (const pane of this.panes) fromHash(pane, parts);
    const colour = parts.get("colour");
    const wanted = parts.get("op") ?? parts.get("module");
    if (wanted && !this.pane.selection) byId("found").textContent = `no ${wanted} here`;
    if (colour && overlaysOf(this.pane.model).some((each) => each.name === colour)) this.setOverlay(colour);
    else if (this.panes.length > 1 && "error" in this.pane.model.numbers) this.setOverlay("own:error");
    if (!wanted && this.comparison.first) {
      this.showFirst();
      document.body.classList.remove("has-selection"); // on a narrow screen the details would lie over it
    }
  }

  /** What a comparison found, above both graphs. */
  showAnswer() {
    const [verdict, ...more] = this.comparison.answer;
    byId("comparison").hidden = verdict === undefined;
    byId("verdict").textContent = verdict ?? "";
    byId("verdict").parentElement.open = innerWidth > 900; // on a narrow screen the graphs need the room
    byId("grounds").replaceChildren(...more.map((line) => el("p", { text: line, dir: "auto" })));
    byId("first-difference").hidden = this.comparison.first === null;
  }

  /** Both graphs at the place where they begin to differ. */
  showFirst() {
    const { first } = this.comparison;
    if (!first) return;
    this.activate(0);
    this.pane.reveal(first[0]);
    if (this.matches[0].get(first[0]) !== first[1]) this.panes[1].reveal(first[1], false);
  }

  showWhole() {
    this.pane.select(null);
    this.pane.fit();
  }

  breadcrumb() {
    const { pane } = this;
    const { selection, mode } = pane;
    const group = !selection ? -1 : "group" in selection ? selection.group : mode.nodes.group[mode.nodeOf[selection.place]] ?? -1;
    const crumbs = this.panes.length > 1 ? [] : [el("button", { text: pane.model.name, dir: "auto", onclick: () => this.showWhole() })];
    for (const each of mode.path(group)) {
      crumbs.push(el("button", { text: lastPart(mode, each), title: mode.name(each), dir: "auto", onclick: () => { pane.select({ group: each }); pane.lookAtGroup(each); } }));
    }
    byId("breadcrumb").replaceChildren(...crumbs);
    const head = pane.canvas.parentElement?.querySelector(".pane-head");
    if (head && byId("breadcrumb").parentElement !== head) head.append(byId("breadcrumb"), byId("corner"));
  }

  /** @param {HTMLCanvasElement} canvas @param {string} text @param {number} x @param {number} y */
  hovered(canvas, text, x, y) {
    const tip = byId("tip");
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const rect = canvas.getBoundingClientRect();
    const left = Math.min(rect.left + x + 14, innerWidth - tip.offsetWidth - 8);
    const top = Math.min(rect.top + y + 16, innerHeight - tip.offsetHeight - 8);
    tip.style.transform = `translate(${left}px, ${top}px)`;
  }

  // ---- controls

  controls() {
    const { model } = this.pane;
    byId("name").textContent = this.panes.map((pane) => pane.model.name).join(" | ");
    byId("counts").textContent = this.panes.map((pane) => countsOf(pane.model)).join(" | ");
    this.showAnswer();
    const on = (/** @type {string} */ id, /** @type {string} */ event, /** @type {(event: any) => void} */ action) => byId(id).addEventListener(event, action);
    on("mode-unrolled", "click", () => this.each((pane) => pane.setMode("unrolled")));
    on("mode-rolled", "click", () => this.each((pane) => pane.setMode("rolled")));
    byId("modes").hidden = !this.panes.some((pane) => pane.model.hasRolled);
    on("deeper", "click", () => this.changeDepth(1));
    on("shallower", "click", () => this.changeDepth(-1));
    on("fold", "click", () => this.each((pane) => pane.setFolded(pane.state.folded.size === 0)));
    on("direction", "change", (event) => this.change({ direction: event.target.value }));
    on("buffers", "change", (event) => this.change({ buffers: event.target.value }));
    on("gradients", "click", () => this.change({ gradients: !this.pane.state.gradients }));
    byId("gradients").hidden = !model.ops.flags.some((flags) => flags & HAS_GRADIENT);
    on("show-all", "click", () => this.change({ only: null }));
    on("fit", "click", () => this.pane.fit());
    on("zoom-in", "click", () => this.pane.zoom(1.4));
    on("zoom-out", "click", () => this.pane.zoom(1 / 1.4));
    on("theme", "click", () => this.setTheme(this.colours === THEMES.dark ? "light" : "dark"));
    on("svg", "click", () => this.saveSvg());
    on("png", "click", async () => download(await toPng(this.pane), `${fileName(this.pane.model.name)}.png`));
    on("first-difference", "click", () => this.showFirst());
    on("help-button", "click", () => byId("help").showModal());
    on("close-help", "click", () => byId("help").close());
    on("outline-button", "click", () => this.togglePanel("outline"));
    on("inspector-button", "click", () => this.togglePanel("inspector"));
    on("menu-button", "click", () => this.togglePanel("menu"));
    this.overlayControl();
    this.walkControl(on);
    document.addEventListener("keydown", (event) => pressed(this, event));
    addEventListener("hashchange", () => this.hashChanged());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.applyTheme());
    addEventListener("resize", () => this.panels());
    this.panels();
  }

  /** @param {(pane: Pane) => void} action */
  each(action) {
    this.panes.forEach(action);
    this.refresh();
  }

  /** @param {Partial<import("./view.js").State>} state */
  change(state) {
    this.each((pane) => {
      Object.assign(pane.state, state);
      pane.rebuild();
      pane.fitReadable();
    });
  }

  /** @param {number} by */
  changeDepth(by) {
    this.each((pane) => {
      pane.setDepth(Math.min(Math.max(pane.depth + by, 1), pane.mode.deepest + 1));
      pane.fitReadable();
    });
  }

  /** @param {string} name */
  togglePanel(name) {
    document.body.classList.toggle(`show-${name}`);
    this.panels();
    for (const pane of this.panes) pane.repaint();
  }

  /** The buttons of panels say whether these are seen: on a wide screen the outline is, at first. */
  panels() {
    for (const name of ["outline", "inspector", "menu"]) {
      const seen = getComputedStyle(byId(name)).display !== "none";
      byId(`${name}-button`).setAttribute("aria-expanded", String(seen));
    }
  }

  saveSvg() {
    download(new Blob([toSvg(this.pane)], { type: "image/svg+xml" }), `${fileName(this.pane.model.name)}.svg`);
  }

  hashChanged() {
    const now = `#${toHash(this.pane, { overlay: this.overlay, theme: this.theme })}`;
    if (location.hash && location.hash !== now) fromHash(this.pane, new URLSearchParams(location.hash.slice(1)));
  }

  // ---- looks

  /** @param {string} theme */
  setTheme(theme) {
    this.theme = theme;
    this.applyTheme();
    this.state();
  }

  applyTheme() {
    const { colours } = this;
    document.documentElement.dataset.theme = colours === THEMES.dark ? "dark" : "light";
    for (const pane of this.panes) {
      pane.colours = colours;
      this.colour(pane);
    }
    this.minimap.refresh();
    this.inspector.refresh();
  }

  overlayControl() {
    const select = byId("colour");
    for (const overlay of overlaysOf(this.pane.model)) select.append(el("option", { value: overlay.name, text: overlay.title }));
    select.addEventListener("change", () => this.setOverlay(select.value));
  }

  /** @param {string} name */
  setOverlay(name) {
    this.overlay = name;
    byId("colour").value = name;
    for (const pane of this.panes) this.colour(pane);
    this.minimap.refresh();
    this.state();
  }

  /** @param {Pane} pane */
  colour(pane) {
    const overlay = this.overlay ? overlaysOf(pane.model).find((each) => each.name === this.overlay) ?? null : null;
    const legend = colourBy(pane, overlay);
    if (pane !== this.pane) return;
    const box = byId("legend");
    box.hidden = legend === null;
    if (!legend) return;
    const bar = el("div", { class: "bar", "aria-hidden": "true" });
    const shades = Array.from({ length: 11 }, (_, step) => heatOf(step / 10, this.colours === THEMES.dark)[0]);
    bar.style.background = `linear-gradient(to right, ${shades.join(",")})`;
    const ticks = el("div", { class: "ticks" }, el("span", { text: legend.low }), el("span", { text: legend.middle }), el("span", { text: legend.high }));
    const notes = [legend.scale, legend.note].map((text) => el("span", { class: "aside", text }));
    box.replaceChildren(el("strong", { text: legend.title }), bar, ticks, ...notes);
  }

  // ---- walk

  /** @param {(id: string, event: string, action: (event: any) => void) => void} on */
  walkControl(on) {
    on("walk-button", "click", () => this.toggleWalk());
    on("walk-play", "click", () => (this.walk.isPlaying ? this.walk.pause() : this.walk.play()));
    on("walk-back", "click", () => this.walk.goTo(this.walk.step - 1));
    on("walk-on", "click", () => this.walk.goTo(this.walk.step + 1));
    on("walk-end", "click", () => this.toggleWalk());
    on("walk-step", "input", (event) => this.walk.goTo(Number(event.target.value)));
  }

  /** The focus goes to what the next key should act on: space plays. */
  toggleWalk() {
    if (this.walk.isOn) {
      this.walk.stop();
      this.pane.canvas.focus();
    } else {
      document.body.classList.remove("show-menu"); // on a narrow screen it would lie over the walk
      this.panels();
      this.walk.start();
      byId("walk-play").focus();
    }
  }

  walkChanged() {
    const { walk } = this;
    byId("walk").hidden = !walk.isOn;
    byId("walk-button").setAttribute("aria-pressed", String(walk.isOn));
    byId("walk-play").textContent = walk.isPlaying ? "❚❚" : "▶";
    byId("walk-play").setAttribute("aria-label", walk.isPlaying ? "pause" : "play");
    if (!walk.isOn) return;
    const { model } = this.pane;
    const place = walk.stops[walk.step];
    byId("walk-step").max = String(walk.stops.length - 1);
    byId("walk-step").value = String(walk.step);
    byId("walk-where").textContent = `${walk.step + 1} of ${walk.stops.length}: ${model.ops.label[place]}`;
    const site = model.ops.site[place];
    const [file, line] = site >= 0 ? model.frames[model.stacks[site][0]] : [0, 0];
    byId("walk-line").textContent = site >= 0 ? (model.source[file]?.[line] ?? "").trim() : "";
  }
}

/** @param {Model} model */
const countsOf = (model) => `${counted(model.size)} operations · ${counted(model.modules.params[0] ?? 0)} parameters (${humanSize(model.modules.param_bytes[0] ?? 0)})`;

/** @param {string} name */
const fileName = (name) => name.replace(/[^\w.-]+/g, "_") || "model";

async function main() {
  try {
    const documents = await Promise.all(
      [...document.querySelectorAll("script.log")].map((element) => unpacked((element.textContent ?? "").trim())),
    );
    const data = byId("comparison-data");
    const comparison = data ? await unpacked(data.textContent.trim()) : { pairs: [], answer: [], first: null };
    // for tests and the curious: the state of the page
    Object.assign(window, { torchlens: new App(documents, comparison) });
    document.body.classList.add("ready");
  } catch (error) {
    byId("failure").hidden = false;
    byId("failure").textContent = `This page could not be shown: ${error}`;
    throw error;
  }
}

main();
