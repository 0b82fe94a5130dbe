// Colours by a number: time, memory, work, parameters, NaN, the user's own, the error of a comparison.

import { humanNumber, humanSize, humanTime, shortNumber } from "./dom.js";
import { THEMES, heatOf } from "./palette.js";

/**
 * @typedef {import("./model.js").Model} Model
 * @typedef {import("./pane.js").Pane} Pane
 * @typedef {{name: string, title: string, of: (place: number) => number | null, words: (amount: number) => string,
 *   most: boolean}} Overlay   `most`: a module has the largest number inside it, rather than the sum
 * @typedef {{title: string, low: string, middle: string, high: string, scale: string,
 *   note: string}} Legend   `middle`: the number at half the bar
 */

/** @param {Model} model @returns {Overlay[]} */
export function overlaysOf(model) {
  const { ops } = model;
  /** @type {Overlay[]} */
  const all = [
    { name: "time", title: "Time", of: (place) => ops.time[place], words: humanTime, most: false },
    { name: "memory", title: "Memory", of: (place) => ops.bytes[place], words: humanSize, most: false },
    { name: "flops", title: "FLOPs", of: (place) => ops.flops[place], words: humanNumber, most: false },
    { name: "params", title: "Parameters", of: (place) => ops.numel[place], words: humanNumber, most: false },
  ];
  const { values } = model;
  if (values) {
    const bad = (/** @type {number} */ place) => {
      const stats = values.stats[place];
      return stats ? stats.nan + stats.inf : null;
    };
    all.push({ name: "nan", title: "NaN and Inf", of: bad, words: humanNumber, most: false });
    const size = (/** @type {number} */ place) => values.stats[place]?.rms ?? null;
    all.push({ name: "rms", title: "Size of values (RMS)", of: size, words: shortNumber, most: true });
  }
  for (const [name, numbers] of Object.entries(model.numbers)) {
    all.push({ name: `own:${name}`, title: name, of: (place) => numbers[place], words: shortNumber, most: true });
  }
  return all.filter((overlay) => overlay.name === "nan" || someNumber(model, overlay));
}

/** @param {Model} model @param {Overlay} overlay */
function someNumber(model, overlay) {
  for (let place = 0; place < model.size; place++) if (overlay.of(place)) return true;
  return false;
}

/** Colour the nodes of a pane; returns what the colours mean. @param {Pane} pane @param {Overlay | null} overlay @returns {Legend | null} */
export function colourBy(pane, overlay) {
  if (!overlay) {
    pane.fillOf = null;
    pane.remark();
    return null;
  }
  const { amounts, low, high } = amountsOf(pane, overlay);
  const share = (/** @type {number} */ amount) => Math.sqrt(Math.max(0, amount - low) / (high - low || 1));
  pane.fillOf = (number) => {
    const amount = amounts[number];
    if (amount === null) return null;
    return heatOf(share(amount), pane.colours === THEMES.dark);
  };
  pane.remark();
  return {
    title: overlay.title,
    low: overlay.words(low),
    middle: overlay.words(low + (high - low) / 4),
    high: overlay.words(high),
    scale: "not linear: half the bar is a quarter",
    note: overlay.most ? "modules: the largest inside" : "modules: the sum of what is inside",
  };
}

/** The number of each node of the view, and their ends. @param {Pane} pane @param {Overlay} overlay */
function amountsOf(pane, overlay) {
  let [low, high] = [0, 0];
  const { role } = pane.model.ops;
  const amounts = pane.scene.shown.nodes.map((node) => {
    if (node.box < 0 && role[node.places[0]] === "input") return null;
    let total = null;
    for (const place of node.places) {
      const amount = overlay.of(place);
      if (amount === null || amount === undefined || !Number.isFinite(amount)) continue;
      total = total === null ? amount : overlay.most ? Math.max(total, amount) : total + amount;
    }
    if (total !== null) [low, high] = [Math.min(low, total), Math.max(high, total)];
    return total;
  });
  return { amounts, low, high };
}
