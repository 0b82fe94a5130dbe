// Everything about what is selected, as real elements.

import { counted, el, humanNumber, humanSize, humanTime, shortNumber } from "./dom.js";
import { HAS_GRADIENT, IN_CONDITION, IN_PLACE } from "./model.js";
import { valueElements } from "./values.js";

/**
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./pane.js").Pane} Pane
 */

const MOST_LINKS = 60;

export class Inspector {
  /** @param {HTMLElement} panel @param {() => Pane} paneOf @param {(pane: Pane) => Promise<Uint8Array | null>} bytesOf */
  constructor(panel, paneOf, bytesOf) {
    this.panel = panel;
    this.paneOf = paneOf;
    this.bytesOf = bytesOf;
    this.shown = 0;
  }

  async refresh() {
    const pane = this.paneOf();
    const { selection } = pane;
    this.shown += 1;
    if (!selection) this.panel.replaceChildren(...this.about(pane));
    else if ("group" in selection) this.panel.replaceChildren(...this.module(pane, selection.group));
    else await this.operation(pane, selection.place);
  }

  // ---- the model

  /** @param {Pane} pane */
  about(pane) {
    const { model } = pane;
    const { ops } = model;
    const sum = (/** @type {number[]} */ numbers) => numbers.reduce((total, each) => total + (each ?? 0), 0);
    const parts = [
      el("h2", { text: model.name, dir: "auto" }),
      facts([
        ["operations", counted(model.size)],
        ["modules", counted(model.modules.address.length - 1)],
        ["parameters", `${counted(model.modules.params[0] ?? 0)} (${humanSize(model.modules.param_bytes[0] ?? 0)})`],
        ["tensors", humanSize(sum(ops.bytes))],
        ["time in operations", humanTime(sum(ops.time))],
        ["FLOPs", humanNumber(sum(ops.flops))],
      ]),
    ];
    if (!model.complete) parts.push(el("p", { class: "alarm", text: "⚠ Cut short: the forward pass raised an exception." }));
    for (const warning of model.warnings) parts.push(el("p", { class: "warning", text: warning, dir: "auto" }));
    if (model.values) parts.push(el("p", { class: "note", text: model.values.note }));
    parts.push(el("p", { class: "note", text: "Click a box for everything about it, double-click a module to open it. Press ? for the keys." }));
    return parts;
  }

  // ---- a module

  /** @param {Pane} pane @param {number} group */
  module(pane, group) {
    const { model, mode } = pane;
    const module = mode.module(group);
    const places = mode.placesIn(group);
    const sum = (/** @type {any[]} */ column) => places.reduce((total, place) => total + (column[place] ?? 0), 0);
    const open = pane.state.open.has(group);
    const run = mode.runOf[group];
    const { modules } = model;
    const params = modules.params[module];
    const parts = [
      el("h2", { text: mode.name(group), dir: "auto" }),
      el("p", { class: "kind", text: modules.qualname[module], dir: "auto" }),
      el(
        "div",
        { class: "actions" },
        button(open ? "Close" : "Open", () => pane.toggle(group)),
        button("Only this", () => pane.isolate()),
        run && button(pane.state.folded.has(run[0]) ? `Unfold ${mode.runs[run[0]].length} repeats` : `Fold ${mode.runs[run[0]].length} repeats`, () => {
          if (!pane.state.folded.delete(run[0])) pane.state.folded.add(run[0]);
          const first = mode.runs[run[0]][0][run[2]];
          pane.rebuild();
          pane.select({ group: first });
          pane.lookAtGroup(first);
        }),
      ),
      facts([
        ["operations", counted(places.length)],
        ["parameters", params ? `${counted(params)} (${humanSize(modules.param_bytes[module])})` : "none"],
        ["trained", params ? `${Math.round((100 * modules.trainable[module]) / params)} %` : ""],
        ["mode", modules.training[module] ? "train" : "eval"],
        ["time", humanTime(sum(model.ops.time))],
        ["FLOPs", humanNumber(sum(model.ops.flops))],
        ["tensors", humanSize(sum(model.ops.bytes))],
      ]),
      this.expression(`log.modules[${pythonString(mode.name(group))}]`),
    ];
    const inside = new Set(places);
    const into = [...new Set(places.flatMap((place) => model.parents[place]))].filter((place) => !inside.has(place));
    const out = places.filter((place) => model.children[place].some((child) => !inside.has(child)));
    parts.push(...this.links(pane, "Comes in", into), ...this.links(pane, "Goes out", out));
    const named = mode.children[group + 1].filter((item) => item < 0).map((item) => -1 - item);
    if (named.length) {
      parts.push(el("h3", { text: "Inside" }));
      parts.push(el("div", { class: "links" }, ...named.slice(0, MOST_LINKS).map((each) => this.groupLink(pane, each))));
    }
    return parts;
  }

  /** @param {Pane} pane @param {number} group */
  groupLink(pane, group) {
    return el("button", { class: "link", text: pane.mode.name(group), dir: "auto", onclick: () => {
      for (const around of pane.mode.path(pane.mode.groups.parent[group])) pane.state.open.add(around);
      pane.rebuild();
      pane.select({ group });
      pane.lookAtGroup(group);
    } });
  }

  // ---- an operation

  /** @param {Pane} pane @param {number} place */
  async operation(pane, place) {
    const { model } = pane;
    const { ops } = model;
    const turn = this.shown;
    const value = el("div", { class: "value" });
    const flags = ops.flags[place];
    const notes = [
      flags & IN_PLACE && "writes in place",
      flags & IN_CONDITION && "part of a condition",
      flags & HAS_GRADIENT && "has a gradient",
    ].filter(Boolean);
    const parts = [
      el("h2", { text: ops.label[place], dir: "auto" }),
      el("p", { class: "kind", text: [ops.role[place] === "op" ? ops.function[place] : ops.role[place], ...notes].join(" · ") }),
      ...this.passes(pane, place),
      ...this.gathered(pane, place),
      ...this.edit(model, place),
      facts([
        ["shape", ops.shape[place] || "scalar"],
        ["type", ops.dtype[place]],
        ["size", humanSize(ops.bytes[place])],
        ["device", ops.device[place] === "cpu" ? "" : ops.device[place]],
        ["time", ops.time[place] ? humanTime(ops.time[place]) : ""],
        ["FLOPs", ops.flops[place] ? humanNumber(ops.flops[place]) : ops.flops[place] === null ? "unknown" : ""],
        ["grad_fn", ops.grad_fn[place]],
        ["address", ops.address[place]],
      ]),
      ...this.numbers(model, place),
      ...this.crumbs(pane, place),
      value,
      ...this.source(model, place),
      ...this.call(pane, place),
      ...this.params(pane, place, turn),
      ...this.links(pane, "Parents", model.parents[place]),
      ...this.links(pane, "Children", model.children[place]),
      el(
        "div",
        { class: "actions" },
        button("Ancestors", () => pane.lightReach(false)),
        button("Descendants", () => pane.lightReach(true)),
        button(pane.state.only ? "Show all" : "Only these", () => pane.isolate()),
      ),
      this.expression(`log[${pythonString(ops.label[place])}].activation`),
    ];
    this.panel.replaceChildren(...parts);
    await this.fillValue(pane, place, value, turn);
  }

  /** @param {Pane} pane @param {number} place @param {HTMLElement} into @param {number} turn */
  async fillValue(pane, place, into, turn) {
    const { values } = pane.model;
    if (!values) return;
    const bytes = await this.bytesOf(pane);
    if (turn !== this.shown || !bytes) return;
    const stats = values.stats[place];
    if (stats) into.append(el("h3", { text: "Value" }), ...valueElements(stats, bytes));
    else into.append(el("p", { class: "note", text: "Its value is not in this page." }));
    const before = values.before?.[place];
    if (before) into.append(el("h3", { text: "Before the edit" }), ...valueElements(before, bytes));
    const gradient = values.gradients?.[place];
    if (gradient) into.append(el("h3", { text: "Gradient" }), ...valueElements(gradient, bytes));
  }

  /** What is drawn together with it, or could be. @param {Pane} pane @param {number} place */
  gathered(pane, place) {
    const { mode, state } = pane;
    const gather = mode.gatherOf[mode.nodeOf[place]];
    if (gather < 0 || state.only) return [];
    const { nodes } = mode.gathers[gather];
    const apart = state.apart.has(gather);
    const text = apart ? `Draw ${nodes.length} as one` : `Draw ${nodes.length} apart`;
    return [el("div", { class: "actions" }, button(text, () => pane.toggleGather(place)))];
  }

  /** @param {Model} model @param {number} place */
  edit(model, place) {
    const edit = model.edits[place];
    return edit ? [el("p", { class: "edit", text: `edited: ${edit}`, dir: "auto" })] : [];
  }

  /** Own numbers. @param {Model} model @param {number} place */
  numbers(model, place) {
    const rows = Object.entries(model.numbers)
      .filter(([, numbers]) => numbers[place] !== null && numbers[place] !== undefined)
      .map(([name, numbers]) => /** @type {[string, string]} */ ([name, shortNumber(/** @type {number} */ (numbers[place]))]));
    return rows.length ? [facts(rows)] : [];
  }

  /** The other passes of the same layer. @param {Pane} pane @param {number} place */
  passes(pane, place) {
    const { ops } = pane.model;
    const others = [];
    for (let other = 0; other < pane.model.size; other++) if (ops.layer[other] === ops.layer[place]) others.push(other);
    if (others.length < 2) return [];
    const buttons = others.slice(0, MOST_LINKS).map((other) =>
      el("button", { class: "link", text: ops.pass[other], "aria-current": other === place ? "true" : undefined, title: ops.label[other], onclick: () => pane.reveal(other) }),
    );
    return [el("h3", { text: `Pass ${ops.pass[place]} of ${others.length}` }), el("div", { class: "links passes" }, ...buttons)];
  }

  /** @param {Pane} pane @param {number} place */
  crumbs(pane, place) {
    const node = pane.mode.nodeOf[place];
    if (node < 0) return [];
    const path = pane.mode.path(pane.mode.nodes.group[node]);
    const module = pane.model.moduleOf(place);
    if (!path.length && !module) return [];
    const links = path.map((group) => this.groupLink(pane, group));
    const last = path.length ? pane.mode.address(path[path.length - 1]) : "";
    if (module && module !== last) links.push(el("span", { class: "link still", text: module, dir: "auto" }));
    return [el("h3", { text: "Module" }), el("div", { class: "links" }, ...links)];
  }

  /** @param {Model} model @param {number} place */
  source(model, place) {
    const site = model.ops.site[place];
    if (site < 0) return [];
    return [el("h3", { text: "Source" }), ...sourceOf(model, site)];
  }

  /** @param {Pane} pane @param {number} place */
  call(pane, place) {
    const { model } = pane;
    const call = model.ops.call[place];
    if (!call.length) return [];
    const rows = call.map((/** @type {number[]} */ [name, back, words], /** @type {number} */ index) =>
      el(
        "li",
        {},
        el("span", { class: "arg-name", text: model.strings[name] || String(index) }),
        back > 0
          ? el("span", {}, this.placeLink(pane, place - back), el("span", { class: "aside", text: ` ${model.ops.shape[place - back]}` }))
          : el("code", { text: model.strings[words], dir: "auto" }),
      ),
    );
    return [el("h3", { text: `${model.ops.function[place]}(…)` }), el("ul", { class: "arguments" }, ...rows)];
  }

  /** Each with its numbers, as far as they are in the page. @param {Pane} pane @param {number} place @param {number} turn */
  params(pane, place, turn) {
    const { model } = pane;
    const params = model.ops.params[place];
    if (!params.length) return [];
    const rows = params.map((/** @type {number[]} */ [address, shape, trained]) => {
      const name = model.strings[address];
      const stats = model.values?.params?.[name];
      const head = [el("code", { text: name, dir: "auto" }), el("span", { class: "aside", text: ` ${model.strings[shape]}${trained ? "" : ", frozen"}` })];
      if (!stats) return el("li", {}, ...head);
      const details = el("details", { class: "param", open: Boolean(stats.numbers) }, el("summary", {}, ...head));
      this.bytesOf(pane).then((bytes) => bytes && turn === this.shown && details.append(...valueElements(stats, bytes)));
      return el("li", {}, details);
    });
    return [el("h3", { text: "Parameters" }), el("ul", { class: "arguments" }, ...rows)];
  }

  /** @param {Pane} pane @param {string} title @param {number[]} places */
  links(pane, title, places) {
    if (!places.length) return [];
    const shown = places.slice(0, MOST_LINKS).map((place) => this.placeLink(pane, place));
    if (places.length > MOST_LINKS) shown.push(el("span", { class: "aside", text: `and ${places.length - MOST_LINKS} more` }));
    return [el("h3", { text: title }), el("div", { class: "links" }, ...shown)];
  }

  /** @param {Pane} pane @param {number} place */
  placeLink(pane, place) {
    return el("button", { class: "link", text: pane.model.ops.label[place], dir: "auto", title: pane.model.ops.shape[place], onclick: () => pane.reveal(place) });
  }

  /** @param {string} text */
  expression(text) {
    const button = el("button", { class: "copy", text: "Copy", onclick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select it"; // a sandbox without a clipboard
      }
    } });
    return el("div", { class: "expression" }, el("code", { text, dir: "ltr" }), button);
  }
}

/** @param {Model} model @param {number} site @returns {HTMLElement[]} */
export function sourceOf(model, site) {
  return model.stacks[site].slice(0, 3).map((frame, index) => {
    const [file, line, name] = model.frames[frame];
    const path = model.strings[file];
    const lines = Object.entries(model.source[file] ?? {}).filter(([number]) => Math.abs(Number(number) - line) <= (index ? 0 : 3));
    const code = el("pre", { class: "source", dir: "ltr", tabindex: "0", role: "group", "aria-label": "lines of code" });
    for (const [number, text] of lines) {
      code.append(el("span", { class: Number(number) === line ? "line here" : "line", "aria-current": Number(number) === line }, el("span", { class: "number", text: number.padStart(4) }), ` ${text}\n`));
    }
    const where = el("p", { class: "where", text: `${shortPath(path)}:${line} in ${model.strings[name]}`, title: path, dir: "ltr" });
    return el("div", {}, where, lines.length ? code : null);
  });
}

/** @param {string} path */
const shortPath = (path) => path.split(/[/\\]/).slice(-2).join("/");

/** @param {string} text */
export const pythonString = (text) => JSON.stringify(text);

/** @param {[string, string][]} rows */
function facts(rows) {
  const list = el("dl", { class: "facts-list" });
  for (const [name, value] of rows) if (value) list.append(el("dt", { text: name, dir: "auto" }), el("dd", { text: value, dir: "auto" }));
  return list;
}

/** @param {string} text @param {() => void} onclick */
const button = (text, onclick) => el("button", { text, onclick });
