// Values as pictures: histograms, images, heat maps, lines, and the numbers themselves where there are few.

import { el, shortNumber } from "./dom.js";
import { shadeOf } from "./palette.js";

/**
 * What page/values.py says of a tensor. Bytes lie in one array, at `hist` and `tiles.at`.
 * @typedef {{kind: string, width: number, height: number, count: number, columns: number, at: number, low: number,
 *   high: number, what: string}} Tiles
 * @typedef {{n: number, min: number | null, max: number | null, mean: number | null, rms: number | null, nan: number,
 *   inf: number, hist?: number, tiles?: Tiles, numbers?: (number | string)[], shape: number[], sampled?: boolean}} Stats
 */

const BINS = 32;

/** @param {Stats} stats @param {Uint8Array} bytes @returns {HTMLElement[]} */
export function valueElements(stats, bytes) {
  const parts = [];
  if (stats.nan || stats.inf) {
    const words = [stats.nan && `${stats.nan} NaN`, stats.inf && `${stats.inf} Inf`].filter(Boolean).join(", ");
    parts.push(el("p", { class: "alarm", text: `⚠ ${words} of ${stats.n}` }));
  }
  if (stats.numbers) parts.push(numbersTable(stats));
  if (stats.tiles) parts.push(picture(stats.tiles, bytes));
  if (stats.hist !== undefined) parts.push(histogram(stats, bytes));
  if (stats.min !== null && stats.max !== null) {
    const facts = [`min ${shortNumber(stats.min)}`, `max ${shortNumber(stats.max)}`];
    if (stats.mean !== null) facts.push(`mean ${shortNumber(stats.mean)}`);
    if (stats.rms !== null) facts.push(`RMS ${shortNumber(stats.rms)}`);
    if (stats.sampled) facts.push("(mean, RMS and histogram of a sample)");
    parts.push(el("p", { class: "facts" }, ...facts.flatMap((text) => [el("span", { text }), " "])));
  }
  return parts;
}

/** @param {Tiles} tiles @param {Uint8Array} bytes */
function picture(tiles, bytes) {
  const { width, height, count, columns, kind } = tiles;
  if (kind === "line") return line(tiles, bytes);
  const rows = Math.ceil(count / columns);
  const gap = count > 1 ? 1 : 0;
  const canvas = /** @type {HTMLCanvasElement} */ (el("canvas", { class: "thumbnail", role: "img", "aria-label": tiles.what }));
  canvas.width = columns * (width + gap) - gap;
  canvas.height = rows * (height + gap) - gap;
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = ctx.createImageData(width, height);
  const colour = kind === "image";
  for (let tile = 0; tile < count; tile++) {
    const start = tiles.at + tile * width * height * (colour ? 3 : 1);
    for (let pixel = 0; pixel < width * height; pixel++) {
      const rgb = colour ? bytes.subarray(start + pixel * 3, start + pixel * 3 + 3) : shade(bytes[start + pixel]);
      image.data.set(rgb, pixel * 4);
      image.data[pixel * 4 + 3] = 255;
    }
    ctx.putImageData(image, (tile % columns) * (width + gap), Math.floor(tile / columns) * (height + gap));
  }
  const scale = Math.min(16, Math.max(1, Math.floor(260 / canvas.width)));
  canvas.style.width = `${Math.min(264, canvas.width * scale)}px`;
  const ends = colour ? "" : `, ${shortNumber(tiles.low)} dark to ${shortNumber(tiles.high)} light`;
  return el("figure", {}, canvas, el("figcaption", { text: tiles.what + ends }));
}

/** Byte 0 stands for a NaN. @type {number[][]} */
const SHADES = Array.from({ length: 256 }, (_, byte) => (byte ? shadeOf((byte - 1) / 254) : [213, 0, 120]));
/** @param {number} byte */
const shade = (byte) => SHADES[byte];

/** @param {Tiles} tiles @param {Uint8Array} bytes */
function line(tiles, bytes) {
  const canvas = sharp(264, 64);
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  canvas.className = "line-plot";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", tiles.what);
  ctx.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent") || "#0072B2";
  ctx.lineWidth = 1.4;
  ctx.beginPath();
  for (let index = 0; index < tiles.width; index++) {
    const x = tiles.width > 1 ? 3 + (index / (tiles.width - 1)) * 258 : 132;
    const y = 60 - (Math.max(0, bytes[tiles.at + index] - 1) / 254) * 56;
    if (index) ctx.lineTo(x, y);
    else ctx.moveTo(x, y);
  }
  ctx.stroke();
  const words = `${tiles.what}, from ${shortNumber(tiles.low)} to ${shortNumber(tiles.high)}`;
  return el("figure", {}, canvas, el("figcaption", { text: words }));
}

/** @param {Stats} stats @param {Uint8Array} bytes */
function histogram(stats, bytes) {
  const canvas = sharp(264, 56);
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  canvas.className = "histogram";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `histogram from ${shortNumber(stats.min ?? 0)} to ${shortNumber(stats.max ?? 0)}`);
  ctx.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent") || "#0072B2";
  const wide = 264 / BINS;
  for (let bin = 0; bin < BINS; bin++) {
    const height = (bytes[/** @type {number} */ (stats.hist) + bin] / 255) * 54;
    ctx.fillRect(bin * wide + 0.5, 56 - height, wide - 1, height);
  }
  const ends = el("figcaption", { class: "ends" }, el("span", { text: shortNumber(stats.min ?? 0) }), el("span", { text: shortNumber(stats.max ?? 0) }));
  return el("figure", {}, canvas, ends);
}

/** A canvas that is sharp on fine screens. @param {number} width @param {number} height */
function sharp(width, height) {
  const canvas = document.createElement("canvas");
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.getContext("2d")?.scale(ratio, ratio);
  return canvas;
}

/** Every number, in rows as long as the last dimension. @param {Stats} stats */
function numbersTable(stats) {
  const numbers = /** @type {(number | string)[]} */ (stats.numbers);
  const columns = stats.shape.length ? stats.shape[stats.shape.length - 1] || 1 : 1;
  const finite = numbers.filter((each) => typeof each === "number").map((each) => Math.abs(/** @type {number} */ (each)));
  const most = Math.max(...finite, 1e-30);
  const table = el("table", { class: "numbers", "aria-label": "every number of the tensor" });
  for (let start = 0; start < numbers.length; start += columns) {
    const cells = numbers.slice(start, start + columns).map((each) => {
      const cell = el("td", { text: typeof each === "number" ? shortNumber(each) : each });
      if (typeof each === "number") {
        cell.style.setProperty("--share", `${Math.round((Math.abs(each) / most) * 70)}%`);
        cell.className = each < 0 ? "negative" : "positive";
      } else cell.className = "alarm";
      return cell;
    });
    table.append(el("tr", {}, ...cells));
  }
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "numbers" }, table);
}
