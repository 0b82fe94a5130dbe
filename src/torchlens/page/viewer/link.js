// What is shown, in the address: a link or a reload brings it back.

import { openAt } from "./depth.js";

/** @typedef {import("./pane.js").Pane} Pane */

/** @param {Pane} pane @param {{overlay: string, theme: string}} looks */
export function toHash(pane, looks) {
  const { mode, state, selection } = pane;
  const depth = pane.depth;
  const parts = new URLSearchParams();
  if (selection && "place" in selection) parts.set("op", pane.model.ops.label[selection.place]);
  else if (selection) parts.set("module", mode.name(selection.group));
  if (pane.model.hasRolled) parts.set("mode", pane.modeName);
  parts.set("depth", String(depth));
  const open = [...state.open].filter((group) => mode.depth[group] >= depth);
  if (open.length) parts.set("open", open.sort((a, b) => a - b).join("."));
  if (state.folded.size) parts.set("fold", state.folded.size === mode.runs.length ? "all" : [...state.folded].join("."));
  if (state.apart.size) parts.set("apart", [...state.apart].join("."));
  if (state.direction !== "topdown") parts.set("direction", state.direction);
  if (state.buffers !== "meaningful") parts.set("buffers", state.buffers);
  if (looks.overlay) parts.set("colour", looks.overlay);
  if (looks.theme) parts.set("theme", looks.theme);
  return parts.toString();
}

/** Bring a pane into the state that an address describes; what makes no sense is left out. @param {Pane} pane @param {URLSearchParams} parts */
export function fromHash(pane, parts) {
  const { state } = pane;
  const modeName = parts.get("mode");
  if (modeName && ["rolled", "unrolled"].includes(modeName) && pane.model.hasRolled) pane.modeName = modeName;
  const { mode } = pane;
  const direction = parts.get("direction");
  if (direction && ["topdown", "bottomup", "leftright"].includes(direction)) state.direction = direction;
  const buffers = parts.get("buffers");
  if (buffers === "always" || buffers === "never") state.buffers = buffers;
  const depth = Number(parts.get("depth"));
  if (depth >= 1) {
    state.open = openAt(mode, depth);
  }
  for (const group of numbers(parts.get("open"))) if (group < mode.depth.length) state.open.add(group);
  const fold = parts.get("fold");
  const runs = fold === "all" ? [...mode.runs.keys()] : numbers(fold);
  state.folded = new Set(runs.filter((run) => run < mode.runs.length));
  state.apart = new Set(numbers(parts.get("apart")).filter((gather) => gather < mode.gathers.length));
  pane.rebuild();
  pane.fitReadable();
  const name = parts.get("op") ?? parts.get("module");
  const place = pane.model.placeOf.get(name ?? "");
  if (place !== undefined) pane.reveal(place);
  else if (name) {
    const group = mode.depth.findIndex((_, each) => mode.name(each) === name || mode.address(each) === name);
    if (group >= 0) {
      pane.select({ group });
      pane.lookAtGroup(group);
    }
  }
}

/** @param {string | null} text */
const numbers = (text) => (text ?? "").split(".").filter(Boolean).map(Number).filter((each) => Number.isInteger(each) && each >= 0);
