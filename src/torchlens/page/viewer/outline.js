// The model as a tree of real elements, of which only those in sight exist: for keyboards, screen readers, and reading.

import { el } from "./dom.js";
import { wantedPlaces } from "./view.js";

/** @typedef {import("./pane.js").Pane} Pane */
/** @typedef {{item: number, depth: number, position: number, siblings: number}} Row   a group as -1 - group, else a node */

const HEIGHT = 26;

export class Outline {
  /** @param {HTMLElement} tree @param {() => Pane} paneOf */
  constructor(tree, paneOf) {
    this.tree = tree;
    this.paneOf = paneOf;
    /** @type {Row[]} */
    this.rows = [];
    this.focused = 0;
    this.space = el("div", { class: "outline-space", role: "presentation" });
    tree.replaceChildren(this.space);
    tree.addEventListener("scroll", () => this.render());
    tree.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.render()).observe(tree);
  }

  /** The rows of all that is open. */
  refresh() {
    const { mode, state } = this.paneOf();
    /** @type {Row[]} */
    const rows = [];
    const visit = (/** @type {number} */ group, /** @type {number} */ depth) => {
      const children = mode.children[group + 1].filter((item) => item < 0 || this.isListed(item));
      children.forEach((item, index) => {
        rows.push({ item, depth, position: index + 1, siblings: children.length });
        if (item < 0 && state.open.has(-1 - item)) visit(-1 - item, depth + 1);
      });
    };
    visit(-1, 1);
    this.rows = rows;
    this.focused = Math.min(this.focused, Math.max(0, rows.length - 1));
    this.space.style.height = `${rows.length * HEIGHT}px`;
    this.render();
  }

  /** @param {number} node */
  isListed(node) {
    const { scene, mode, state } = this.paneOf();
    const { shownBy } = scene.shown;
    const place = mode.nodes.places[node][0];
    // what a folded run stands for is listed as well
    return shownBy[place] >= 0 || (state.folded.size > 0 && wantedPlaces(mode, state, node) !== null);
  }

  /** Bring a row into sight. @param {number} index */
  scrollTo(index) {
    const top = index * HEIGHT;
    const { tree } = this;
    if (top < tree.scrollTop || top + HEIGHT > tree.scrollTop + tree.clientHeight) {
      tree.scrollTop = top - tree.clientHeight / 2 + HEIGHT / 2;
    }
  }

  /** The row of what is selected. @returns {number} */
  selectedRow() {
    const { selection, mode } = this.paneOf();
    if (!selection) return -1;
    const item = "group" in selection ? -1 - selection.group : mode.nodeOf[selection.place];
    return this.rows.findIndex((row) => row.item === item);
  }

  select() {
    const index = this.selectedRow();
    if (index >= 0) {
      this.focused = index;
      this.scrollTo(index);
    }
    this.render();
  }

  render() {
    const { tree, space, rows } = this;
    const first = Math.max(0, Math.floor(tree.scrollTop / HEIGHT) - 6);
    const last = Math.min(rows.length, first + Math.ceil((tree.clientHeight || 400) / HEIGHT) + 12);
    const selected = this.selectedRow();
    const made = [];
    for (let index = first; index < last; index++) made.push(this.row(index, index === selected));
    const hadFocus = tree.contains(document.activeElement) && document.activeElement !== tree;
    space.replaceChildren(...made);
    if (hadFocus) this.focusRow();
  }

  /** @param {number} index @param {boolean} selected */
  row(index, selected) {
    const { item, depth, position, siblings } = this.rows[index];
    const pane = this.paneOf();
    const { mode } = pane;
    const group = item < 0 ? -1 - item : -1;
    const open = group >= 0 && pane.state.open.has(group);
    const lines = group >= 0 ? mode.groups.openLines[group] : mode.nodes.lines[item];
    const name = group >= 0 ? lastPart(mode, group) : lines[0].text;
    const aside = group >= 0 ? pane.model.modules.class[mode.module(group)] : pane.model.ops.shape[mode.nodes.places[item][0]];
    const row = el(
      "div",
      {
        class: `row${selected ? " selected" : ""}${group >= 0 ? " module" : ""}`,
        role: "treeitem",
        id: `row${index}`,
        tabindex: index === this.focused ? "0" : "-1",
        "aria-level": depth,
        "aria-setsize": siblings,
        "aria-posinset": position,
        "aria-selected": selected ? "true" : "false",
        "aria-expanded": group >= 0 ? String(open) : undefined,
        "data-name": group >= 0 ? mode.name(group) : mode.nodes.id[item],
        onclick: () => this.choose(index),
        ondblclick: () => group >= 0 && pane.toggle(group),
      },
      el("span", { class: "twisty", "aria-hidden": "true", text: group < 0 ? "" : open ? "▾" : "▸", onclick: (/** @type {Event} */ event) => {
        event.stopPropagation();
        if (group >= 0) pane.toggle(group);
      } }),
      el("span", { class: `swatch ${group >= 0 ? mode.groups.fill[group] : mode.nodes.fill[item]}`, "aria-hidden": "true" }),
      el("span", { class: "row-name", text: name, dir: "auto" }),
      el("span", { class: "row-aside", text: aside, dir: "auto" }),
    );
    row.style.top = `${index * HEIGHT}px`;
    row.style.paddingInlineStart = `${4 + Math.min(depth - 1, 12) * 12}px`;
    return row;
  }

  /** @param {number} index */
  choose(index) {
    const { item } = this.rows[index];
    const pane = this.paneOf();
    this.focused = index;
    if (item < 0) {
      pane.select({ group: -1 - item });
      pane.lookAtGroup(-1 - item);
    } else {
      const place = pane.mode.nodes.places[item][0];
      pane.select({ place });
      pane.lookAt(place, true);
    }
  }

  focusRow() {
    const row = /** @type {HTMLElement | null} */ (this.space.querySelector(`#row${this.focused}`));
    row?.focus({ preventScroll: true });
  }

  /** @param {number} index */
  moveFocus(index) {
    this.focused = Math.min(Math.max(index, 0), this.rows.length - 1);
    this.scrollTo(this.focused);
    this.render();
    this.focusRow();
  }

  /** The keys of a tree. @param {KeyboardEvent} event */
  key(event) {
    const row = this.rows[this.focused];
    if (!row) return;
    const pane = this.paneOf();
    const group = row.item < 0 ? -1 - row.item : -1;
    const open = group >= 0 && pane.state.open.has(group);
    if (event.key === "ArrowDown") this.moveFocus(this.focused + 1);
    else if (event.key === "ArrowUp") this.moveFocus(this.focused - 1);
    else if (event.key === "Home") this.moveFocus(0);
    else if (event.key === "End") this.moveFocus(this.rows.length - 1);
    else if (event.key === "ArrowRight" && group >= 0) {
      if (open) this.moveFocus(this.focused + 1);
      else this.toggleKept(group);
    } else if (event.key === "ArrowLeft") {
      if (open) this.toggleKept(group);
      else this.moveFocus(this.parentOf(this.focused));
    } else if (event.key === "Enter" || event.key === " ") this.choose(this.focused);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} group */
  toggleKept(group) {
    this.paneOf().toggle(group);
    this.focused = Math.max(0, this.rows.findIndex((row) => row.item === -1 - group));
    this.moveFocus(this.focused);
  }

  /** @param {number} index */
  parentOf(index) {
    const { depth } = this.rows[index];
    while (index > 0 && this.rows[index].depth >= depth) index -= 1;
    return index;
  }
}

/** `self_attn` of `encoder.0.self_attn`, with the number of the call. @param {import("./model.js").Mode} mode @param {number} group */
export function lastPart(mode, group) {
  const parent = mode.groups.parent[group];
  const name = mode.name(group);
  const around = parent < 0 ? "" : `${mode.address(parent)}.`;
  return around.length > 1 && name.startsWith(around) ? name.slice(around.length) : name;
}
