// Where one looks: the point of the graph at the upper left corner of the canvas, and how large it is drawn.

/**
 * @typedef {import("./paint.js").Camera} Camera
 * @typedef {import("./layout.js").Rect} Rect
 * @typedef {{width: number, height: number}} Size
 * @typedef {{x: number, y: number}} Point
 */

const LARGEST = 4;
const READABLE = 0.6; // text can be read from this scale on

/** A point of the canvas, in the graph. @param {Camera} camera @param {number} x @param {number} y @returns {Point} */
export const toWorld = (camera, x, y) => ({ x: camera.x + x / camera.k, y: camera.y + y / camera.k });

/** @param {Rect} rect @param {Size} size of the canvas @param {number} k @returns {Camera} */
export const centredOn = (rect, { width, height }, k) => ({
  k, x: rect.x + rect.width / 2 - width / k / 2, y: rect.y + rect.height / 2 - height / k / 2,
});

/** A box as large as fits. @param {Rect} rect @param {Size} size @returns {Camera} */
export function filledBy(rect, size) {
  return centredOn(rect, size, Math.min(1.2, (size.width - 60) / rect.width, (size.height - 60) / rect.height));
}

/** The whole graph. @param {Size} graph @param {Size} size @returns {Camera} */
export function wholeOf(graph, size) {
  const { width, height } = size;
  const whole = Math.min((width - 40) / Math.max(graph.width, 1), (height - 40) / Math.max(graph.height, 1));
  const k = Math.min(1.25, whole);
  const above = graph.height * k > height - 110 ? 0 : 12 / k; // below the breadcrumb
  const camera = centredOn({ x: 0, y: 0, width: graph.width, height: graph.height }, size, k);
  return { ...camera, y: camera.y - above };
}

/** The whole graph if that can be read; otherwise its beginning. @param {Size} graph @param {Rect | undefined} first its first node @param {Size} size @param {string} direction @returns {Camera} */
export function beginningOf(graph, first, size, direction) {
  const all = wholeOf(graph, size);
  if (all.k >= READABLE || !first) return all;
  const { width, height } = size;
  const sideways = direction === "leftright";
  const [breadth, room] = sideways ? [graph.height, height] : [graph.width, width];
  const k = Math.max(0.7, Math.min(1, (room - 40) / Math.max(breadth, 1)));
  const fits = breadth * k <= room;
  if (sideways) return { k, x: -30 / k, y: (fits ? graph.height / 2 : first.y + first.height / 2) - height / k / 2 };
  const x = (fits ? graph.width / 2 : first.x + first.width / 2) - width / k / 2;
  return { k, x, y: direction === "bottomup" ? graph.height + 30 / k - height / k : -48 / k };
}

/** Larger or smaller, around a point of the canvas that stays. @param {Camera} camera @param {number} factor @param {Point} at @param {Size} graph @param {Size} size @returns {Camera} */
export function zoomed(camera, factor, at, graph, size) {
  const least = Math.min(0.5, (0.5 * Math.min(size.width, size.height)) / Math.max(graph.width, graph.height, 1));
  const k = Math.min(LARGEST, Math.max(least, camera.k * factor));
  const point = toWorld(camera, at.x, at.y);
  return { k, x: point.x - at.x / k, y: point.y - at.y / k };
}

/**
 * A box that has become another one stays where it was: its side where the graph begins, and under the pointer.
 * @param {Camera} camera @param {Rect} before @param {Rect} after @param {string} direction @param {Point} [at] of the canvas
 * @returns {Camera}
 */
export function keptInPlace(camera, before, after, direction, at) {
  const [old, now] = [anchorOf(before, direction), anchorOf(after, direction)];
  const moved = { k: camera.k, x: camera.x + now.x - old.x, y: camera.y + now.y - old.y };
  if (!at) return moved;
  const point = toWorld(moved, at.x, at.y);
  moved.x += clamp(point.x, after.x + 6, after.x + after.width - 6) - point.x;
  moved.y += clamp(point.y, after.y + 6, after.y + after.height - 6) - point.y;
  return moved;
}

/** @param {Rect} rect @param {string} direction @returns {Point} */
function anchorOf(rect, direction) {
  if (direction === "leftright") return { x: rect.x, y: rect.y + rect.height / 2 };
  return { x: rect.x + rect.width / 2, y: direction === "bottomup" ? rect.y + rect.height : rect.y };
}

/** @param {number} value @param {number} low @param {number} high */
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** On the way from one to another, slower towards the end. @param {Camera} from @param {Camera} to @param {number} share @returns {Camera} */
export function between(from, to, share) {
  const eased = share * (2 - share);
  const mix = (/** @type {number} */ a, /** @type {number} */ b) => a + (b - a) * eased;
  return { k: mix(from.k, to.k), x: mix(from.x, to.x), y: mix(from.y, to.y) };
}
