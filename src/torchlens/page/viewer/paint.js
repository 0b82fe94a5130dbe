// Paints a scene on a canvas: only what lies in the window, and only as fine as can be seen.

import { BASELINE, DEPTH, EDGE_SIZE, GROUP_SIZE, LEADING, NODE_SIZE } from "./measure.js";
import { frontOf } from "./scene.js";

/**
 * @typedef {import("./scene.js").Scene} Scene
 * @typedef {import("./palette.js").Colours} Colours
 * @typedef {import("./layout.js").Rect} Rect
 * @typedef {{x: number, y: number, k: number}} Camera the place in the upper left corner, and the zoom
 * @typedef {{fillOf: ((node: number) => [string, string] | null) | null, selectedNode: number, selectedGroup: number,
 *   hits: Set<number>, lit: Set<number> | null, current: number, hoverNode: number, hoverGroup: number,
 *   edited: Set<number>, hoverEdge: number}} Marks
 *   fill and font colours of a node (null: the usual ones); lit: all others are faint; current: of the walk
 */

export const FONT = "Helvetica, Arial, 'Liberation Sans', 'Nimbus Sans', 'DejaVu Sans', sans-serif";
const FAINT = 0.18;

/** @param {CanvasRenderingContext2D} ctx @param {Scene} scene @param {Camera} camera @param {number} width @param {number} height @param {number} ratio @param {Colours} colours @param {Marks} marks */
export function paint(ctx, scene, camera, width, height, ratio, colours, marks) {
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.globalAlpha = 1;
  ctx.fillStyle = colours.canvas;
  ctx.fillRect(0, 0, width, height);
  const { x, y, k } = camera;
  ctx.setTransform(ratio * k, 0, 0, ratio * k, -x * k * ratio, -y * k * ratio);
  const painter = new Painter(ctx, scene, k, colours, marks, [x, y, x + width / k, y + height / k]);
  painter.groups();
  painter.edges();
  painter.nodes();
  painter.edgeLabels();
  painter.groupLabels();
}

class Painter {
  /** @param {CanvasRenderingContext2D} ctx @param {Scene} scene @param {number} k @param {Colours} colours @param {Marks} marks @param {[number, number, number, number]} area */
  constructor(ctx, scene, k, colours, marks, area) {
    this.ctx = ctx;
    this.scene = scene;
    this.k = k;
    this.colours = colours;
    this.marks = marks;
    this.area = area;
    this.visibleGroups = scene.groupGrid.find(...area);
    this.visibleNodes = scene.nodeGrid.find(...area);
  }

  // ---- groups

  groups() {
    const { ctx, scene, k, colours, marks } = this;
    for (const number of this.visibleGroups) {
      const rect = scene.layout.groups[number];
      if (rect.width * k < 1.5 || rect.height * k < 1.5) continue;
      const { box, dashed } = scene.shown.groups[number];
      ctx.fillStyle = colours[`group${scene.depths[number] % 4}`];
      ctx.beginPath();
      if (rect.width * k > 24) ctx.roundRect(rect.x, rect.y, rect.width, rect.height, Math.min(8, 6 / k));
      else ctx.rect(rect.x, rect.y, rect.width, rect.height);
      ctx.fill();
      const selected = marks.selectedGroup === box;
      ctx.strokeStyle = selected ? colours.selected : marks.hoverGroup === box ? colours.muted : colours.groupLine;
      ctx.lineWidth = (selected ? 2.5 : 1.2) / Math.min(1, Math.max(k, 0.02));
      if (selected) ctx.lineWidth = Math.max(2.5, 2.5 / k);
      if (dashed) ctx.setLineDash([5, 3]);
      ctx.stroke();
      ctx.setLineDash([]);
    }
  }

  /** Names stay in sight while a part of the box is, and keep a readable size when all is small. */
  groupLabels() {
    const { ctx, scene, k, colours } = this;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    /** @type {[number, number, number, number][]} */
    const taken = [];
    for (const number of this.visibleGroups) {
      const rect = scene.layout.groups[number];
      const label = scene.layout.groupLabels[number];
      const [bold, ...rest] = label.lines;
      if (!bold) continue;
      if (k >= 0.6) {
        ctx.fillStyle = colours.text;
        ctx.font = `bold ${GROUP_SIZE}px ${FONT}`;
        let baseline = label.rect.y + GROUP_SIZE * BASELINE;
        ctx.fillText(bold.text, label.rect.x, baseline, label.rect.width);
        ctx.font = `${GROUP_SIZE}px ${FONT}`;
        ctx.fillStyle = colours.muted;
        for (const line of rest) ctx.fillText(line.text, label.rect.x, (baseline += GROUP_SIZE * LEADING), label.rect.width);
      } else this.smallGroupLabel(rect, bold.text, taken);
    }
  }

  /** Outer names come first; a name for which there is no room is left out. @param {Rect} rect @param {string} text @param {[number, number, number, number][]} taken */
  smallGroupLabel(rect, text, taken) {
    const { ctx, k, colours } = this;
    const room = rect.width * k;
    if (room < 44 || rect.height * k < 18) return;
    const size = Math.min(GROUP_SIZE, room / 6) / k;
    ctx.font = `bold ${size}px ${FONT}`;
    const width = Math.min(ctx.measureText(text).width, rect.width - 8 / k);
    const [left, top] = [rect.x + 2 / k, rect.y + 2 / k];
    const [right, bottom] = [left + width + 6 / k, top + size * 1.3];
    if (taken.some(([l, t, r, b]) => l < right && r > left && t < bottom && b > top)) return;
    taken.push([left, top, right, bottom]);
    ctx.fillStyle = colours.canvas;
    ctx.globalAlpha = 0.82;
    ctx.fillRect(left, top, right - left, bottom - top);
    ctx.globalAlpha = 1;
    ctx.fillStyle = colours.text;
    ctx.fillText(text, rect.x + 5 / k, rect.y + 2 / k + size, rect.width - 8 / k);
  }

  // ---- edges

  edges() {
    const { ctx, scene, k, colours, marks } = this;
    if (k < 0.015) return;
    const { lit } = marks;
    /** @type {Record<"solid" | "dashed" | "faint" | "into" | "outof" | "backward", number[]>} */
    const { solid, dashed, faint, into, outof, backward } = { solid: [], dashed: [], faint: [], into: [], outof: [], backward: [] };
    for (const number of scene.edgeGrid.find(...this.area)) {
      const at = number * 4;
      const { bounds } = scene.edgeGrid;
      if ((bounds[at + 2] - bounds[at] + bounds[at + 3] - bounds[at + 1]) * k < 3) continue;
      const edge = scene.shown.edges[number];
      if (marks.selectedNode >= 0 && edge.target === marks.selectedNode) into.push(number);
      else if (marks.selectedNode >= 0 && edge.source === marks.selectedNode) outof.push(number);
      else if (number === marks.hoverEdge) outof.push(number);
      else if (lit && !(lit.has(edge.source) && lit.has(edge.target))) faint.push(number);
      else (edge.backward ? backward : edge.dashed ? dashed : solid).push(number);
    }
    const pen = Math.max(1, 0.7 / k);
    ctx.globalAlpha = FAINT;
    this.strokeEdges(faint, colours.line, pen, false);
    ctx.globalAlpha = 1;
    this.strokeEdges(solid, colours.line, pen, false);
    this.strokeEdges(dashed, colours.line, pen, k > 0.25);
    this.strokeEdges(backward, colours.backward, pen, false);
    this.strokeEdges(into, colours.parents, pen * 2.2, false);
    this.strokeEdges(outof, colours.children, pen * 2.2, false);
  }

  /** @param {number[]} numbers @param {string} colour @param {number} pen @param {boolean} dashed */
  strokeEdges(numbers, colour, pen, dashed) {
    if (!numbers.length) return;
    const { ctx, scene, k } = this;
    ctx.strokeStyle = colour;
    ctx.lineWidth = pen;
    if (dashed) ctx.setLineDash([5, 3]);
    ctx.beginPath();
    /** @type {Map<string, number[]>} */
    const shared = new Map();
    for (const number of numbers) {
      if (scene.edgeGrid.isLarge[number]) traceInside(ctx, scene.layout.edges[number], this.area, shared);
      else trace(ctx, scene.layout.edges[number]);
    }
    for (const [x, y, toX, toY] of shared.values()) {
      ctx.moveTo(x, y);
      ctx.lineTo(toX, toY);
    }
    ctx.stroke();
    ctx.setLineDash([]);
    if (k < 0.3) return;
    ctx.fillStyle = colour;
    ctx.beginPath();
    const [left, top, right, bottom] = this.area;
    for (const number of numbers) {
      const route = scene.layout.edges[number];
      const end = route[route.length - 1];
      const [x, y] = [end[end.length - 2], end[end.length - 1]];
      if (x > left - 9 && x < right + 9 && y > top - 9 && y < bottom + 9) arrowHead(ctx, route, 0.75 + 0.25 * Math.min(pen, 2.2));
    }
    ctx.fill();
  }

  edgeLabels() {
    const { ctx, scene, k, colours } = this;
    if (k < 0.55) return;
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    for (const number of scene.labelGrid.find(...this.area)) {
      const label = scene.labels[number];
      let baseline = label.rect.y + EDGE_SIZE * BASELINE;
      for (const line of label.lines) {
        ctx.font = `${line.bold ? "bold " : ""}${EDGE_SIZE}px ${FONT}`;
        ctx.fillStyle = line.bold ? colours.text : colours.muted;
        ctx.fillText(line.text, label.rect.x, baseline, Math.max(label.rect.width, 8));
        baseline += EDGE_SIZE * LEADING;
      }
    }
  }

  // ---- nodes

  nodes() {
    const { scene, k, marks, ctx } = this;
    const { lit } = marks;
    /** @type {Map<string, number[]>} */
    const tiny = new Map();
    for (const number of this.visibleNodes) {
      const rect = scene.layout.nodes[number];
      if (rect.width * k < 0.5) continue;
      if (k < 0.22 && rect.height * k < 14) {
        const [fill] = this.fillOf(number);
        const key = lit && !lit.has(number) ? `~${fill}` : fill;
        const same = tiny.get(key);
        if (same) same.push(number);
        else tiny.set(key, [number]);
        continue;
      }
      ctx.globalAlpha = lit && !lit.has(number) ? FAINT : 1;
      this.node(number, rect);
    }
    for (const [fill, numbers] of tiny) this.tinyNodes(fill, numbers);
    ctx.globalAlpha = 1;
    this.outlines();
  }

  /** @param {number} number @returns {[string, string]} */
  fillOf(number) {
    const own = this.marks.fillOf?.(number);
    return own ?? [this.colours[this.scene.shown.nodes[number].fill], this.colours.text];
  }

  /** Too small for more than a spot of colour: all of one colour at once. @param {string} fill @param {number[]} numbers */
  tinyNodes(fill, numbers) {
    const { ctx, scene, colours, k } = this;
    ctx.globalAlpha = fill.startsWith("~") ? FAINT : 1;
    ctx.fillStyle = fill.replace("~", "");
    ctx.beginPath();
    for (const number of numbers) {
      const { x, y, width, height } = scene.layout.nodes[number];
      ctx.rect(x, y, width, height);
    }
    ctx.fill();
    if (k > 0.06) {
      ctx.strokeStyle = colours.border;
      ctx.lineWidth = 0.6 / k;
      ctx.stroke();
    }
  }

  /** @param {number} number @param {Rect} rect */
  node(number, rect) {
    const { ctx, scene, k, colours } = this;
    const node = scene.shown.nodes[number];
    const [fill, font] = this.fillOf(number);
    const second = node.fill2 && !this.marks.fillOf?.(number) ? colours[node.fill2] : "";
    ctx.lineWidth = Math.max(1, 0.8 / k);
    ctx.strokeStyle = colours.border;
    if (node.shape === "box3d") this.backOf(rect, fill);
    ctx.fillStyle = second ? this.gradient(rect, fill, second) : fill;
    this.outline(node.shape, rect);
    ctx.fill();
    if (node.dashed) ctx.setLineDash([4, 3]);
    ctx.stroke();
    ctx.setLineDash([]);
    this.words(number, node.shape === "box3d" ? frontOf(rect) : rect, font);
  }

  /** @param {Rect} rect @param {string} first @param {string} second */
  gradient(rect, first, second) {
    const gradient = this.ctx.createLinearGradient(rect.x, 0, rect.x + rect.width, 0);
    gradient.addColorStop(0, first);
    gradient.addColorStop(1, second);
    return gradient;
  }

  /** @param {string} shape @param {Rect} rect */
  outline(shape, rect) {
    const { ctx } = this;
    ctx.beginPath();
    if (shape === "ellipse") {
      ctx.ellipse(rect.x + rect.width / 2, rect.y + rect.height / 2, rect.width / 2, rect.height / 2, 0, 0, 2 * Math.PI);
    } else {
      const { x, y, width, height } = shape === "box3d" ? frontOf(rect) : rect;
      ctx.roundRect(x, y, width, height, shape === "box3d" ? 5 : 3);
    }
  }

  /** Two more sheets behind a closed module say that there is something in it. @param {Rect} rect @param {string} fill */
  backOf(rect, fill) {
    const { ctx } = this;
    const front = frontOf(rect);
    ctx.fillStyle = fill;
    for (const away of [DEPTH, DEPTH / 2]) {
      ctx.beginPath();
      ctx.roundRect(front.x + away, front.y - away, front.width, front.height, 5);
      ctx.fill();
      ctx.stroke();
    }
  }

  /** @param {number} number @param {Rect} rect @param {string} font */
  words(number, rect, font) {
    const { ctx, scene, k, colours } = this;
    const lines = scene.layout.nodeLines[number];
    if (!lines.length) return;
    ctx.textAlign = "center";
    ctx.textBaseline = "alphabetic";
    const middle = rect.x + rect.width / 2;
    if (k < 0.6) {
      this.oneLine(lines[0], rect, font, scene.shown.nodes[number].shape === "ellipse" ? 0.8 : 0.92);
      return;
    }
    let baseline = rect.y + (rect.height - lines.length * NODE_SIZE * LEADING) / 2 + NODE_SIZE * BASELINE;
    const muted = font === colours.text ? colours.text : font;
    for (const line of lines) {
      ctx.font = `${line.bold ? "bold " : ""}${NODE_SIZE}px ${FONT}`;
      ctx.fillStyle = line.bold ? font : muted;
      if (line.text) ctx.fillText(line.text, middle, baseline, line.width(NODE_SIZE) + 1);
      baseline += NODE_SIZE * LEADING;
    }
  }

  /** Only the name, as large as the node allows. @param {import("./measure.js").Text} line @param {Rect} rect @param {string} font @param {number} share */
  oneLine(line, rect, font, share) {
    const size = Math.min(rect.height * 0.5, ((rect.width * share) / line.width(1)), 18);
    if (size * this.k < 3.2) return;
    this.ctx.font = `bold ${size}px ${FONT}`;
    this.ctx.fillStyle = font;
    this.ctx.fillText(line.text, rect.x + rect.width / 2, rect.y + rect.height / 2 + size * 0.35, rect.width * 0.96);
  }

  /** Around what is found, selected, edited, or being computed. */
  outlines() {
    const { colours, marks, scene, k } = this;
    const visible = new Set(this.visibleNodes);
    const around = (/** @type {number} */ number, /** @type {string} */ colour, /** @type {number} */ pen) => {
      if (!visible.has(number)) return;
      this.ctx.strokeStyle = colour;
      this.ctx.lineWidth = Math.max(pen, pen / k);
      this.outline(scene.shown.nodes[number].shape, scene.layout.nodes[number]);
      this.ctx.stroke();
    };
    if (marks.hits.size) for (const number of this.visibleNodes) if (marks.hits.has(number)) around(number, colours.hit, 2.5);
    if (marks.edited.size) for (const number of this.visibleNodes) if (marks.edited.has(number)) around(number, colours.edited, 2.5);
    if (marks.hoverNode >= 0) around(marks.hoverNode, colours.muted, 1.6);
    if (marks.selectedNode >= 0) around(marks.selectedNode, colours.selected, 3);
    if (marks.current >= 0) around(marks.current, colours.step, 4);
  }
}

/** @param {CanvasRenderingContext2D} ctx @param {number[][]} route */
function trace(ctx, route) {
  ctx.moveTo(route[0][0], route[0][1]);
  for (let index = 1; index < route.length; index++) {
    const c = route[index];
    if (c.length === 2) ctx.lineTo(c[0], c[1]);
    else ctx.bezierCurveTo(c[0], c[1], c[2], c[3], c[4], c[5]);
  }
}

/**
 * The part of a long route that can be seen. Where one tensor feeds a thousand operations, a thousand routes share the
 * same straight line: it is painted once.
 * @param {CanvasRenderingContext2D} ctx @param {number[][]} route @param {[number, number, number, number]} area
 * @param {Map<string, number[]>} shared
 */
function traceInside(ctx, route, [left, top, right, bottom], shared) {
  let [x, y] = route[0];
  let drawing = false;
  for (let index = 1; index < route.length; index++) {
    const c = route[index];
    const [toX, toY] = [c[c.length - 2], c[c.length - 1]];
    const outside = Math.max(x, toX) < left || Math.min(x, toX) > right || Math.max(y, toY) < top || Math.min(y, toY) > bottom;
    if (outside) drawing = false;
    else if (c.length === 2 && (Math.abs(toX - x) < 0.6 || Math.abs(toY - y) < 0.6)) {
      const from = [Math.min(Math.max(x, left - 9), right + 9), Math.min(Math.max(y, top - 9), bottom + 9)];
      const to = [Math.min(Math.max(toX, left - 9), right + 9), Math.min(Math.max(toY, top - 9), bottom + 9)];
      const line = from.concat(to);
      shared.set(line.map(Math.round).join(), line);
      drawing = false;
    } else {
      if (!drawing) ctx.moveTo(x, y);
      if (c.length === 2) ctx.lineTo(toX, toY);
      else ctx.bezierCurveTo(c[0], c[1], c[2], c[3], toX, toY);
      drawing = true;
    }
    x = toX;
    y = toY;
  }
}

/** @param {CanvasRenderingContext2D} ctx @param {number[][]} route @param {number} scale */
function arrowHead(ctx, route, scale) {
  const end = route[route.length - 1];
  const before = end.length > 2 ? end.slice(2, 4) : route[route.length - 2].slice(-2);
  const [x, y] = end.slice(-2);
  const length = Math.hypot(x - before[0], y - before[1]) || 1;
  const right = (x - before[0]) / length;
  const down = (y - before[1]) / length;
  const back = 8 * scale;
  const half = 3 * scale;
  ctx.moveTo(x, y);
  ctx.lineTo(x - right * back - down * half, y - down * back + right * half);
  ctx.lineTo(x - right * back + down * half, y - down * back - right * half);
  ctx.closePath();
}
