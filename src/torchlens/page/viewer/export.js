// The graph as it is shown, as SVG or PNG.

import { BASELINE, EDGE_SIZE, GROUP_SIZE, LEADING, NODE_SIZE } from "./measure.js";
import { FONT, paint } from "./paint.js";
import { frontOf } from "./scene.js";

/** @typedef {import("./pane.js").Pane} Pane */

const MARGIN = 16;

/** @param {string} text */
const escaped = (text) =>
  text.replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g, "\ufffd").replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
/** @param {number} number */
const n = (number) => number.toFixed(1);

/** @param {Pane} pane */
export function toSvg(pane) {
  const { scene, colours, fillOf } = pane;
  const { layout, shown } = scene;
  const [width, height] = [scene.width + 2 * MARGIN, scene.height + 2 * MARGIN];
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${n(width)}" height="${n(height)}" viewBox="${-MARGIN} ${-MARGIN} ${n(width)} ${n(height)}" font-family="${escaped(FONT)}">`,
    `<title>${escaped(pane.model.name)}</title>`,
    `<rect x="${-MARGIN}" y="${-MARGIN}" width="100%" height="100%" fill="${colours.canvas}"/>`,
  ];
  layout.groups.forEach((rect, number) => {
    const dash = shown.groups[number].dashed ? ' stroke-dasharray="5,3"' : "";
    out.push(`<rect x="${n(rect.x)}" y="${n(rect.y)}" width="${n(rect.width)}" height="${n(rect.height)}" rx="6" fill="${colours[`group${scene.depths[number] % 4}`]}" stroke="${colours.groupLine}"${dash}/>`);
  });
  layout.edges.forEach((route, number) => {
    const path = route.map((c, index) => (index ? (c.length === 2 ? "L" : "C") : "M") + c.map(n).join(" ")).join("");
    const dash = shown.edges[number].dashed ? ' stroke-dasharray="5,3"' : "";
    const line = shown.edges[number].backward ? colours.backward : colours.line;
    out.push(`<path d="${path}" fill="none" stroke="${line}"${dash}/>`, arrow(route, line));
  });
  layout.nodes.forEach((rect, number) => {
    const node = shown.nodes[number];
    const [fill, font] = fillOf?.(number) ?? [colours[node.fill], colours.text];
    out.push(shape(node, rect, fill, colours.border));
    const inner = node.shape === "box3d" ? frontOf(rect) : rect;
    const lines = layout.nodeLines[number];
    let baseline = inner.y + (inner.height - lines.length * NODE_SIZE * LEADING) / 2 + NODE_SIZE * BASELINE;
    for (const line of lines) {
      out.push(words(line, inner.x + inner.width / 2, baseline, NODE_SIZE, font, true));
      baseline += NODE_SIZE * LEADING;
    }
  });
  for (const label of layout.groupLabels) block(out, label, GROUP_SIZE, colours.text);
  for (const label of layout.edgeLabels) block(out, label, EDGE_SIZE, colours.muted);
  out.push("</svg>");
  return out.join("\n");
}

/** @param {string[]} out @param {import("./layout.js").Label} label @param {number} size @param {string} colour */
function block(out, label, size, colour) {
  label.lines.forEach((line, index) => out.push(words(line, label.rect.x, label.rect.y + size * (BASELINE + index * LEADING), size, colour, false)));
}

/** @param {import("./measure.js").Text} line @param {number} x @param {number} y @param {number} size @param {string} colour @param {boolean} centred */
function words(line, x, y, size, colour, centred) {
  if (!line.text) return "";
  const anchor = centred ? ' text-anchor="middle"' : "";
  const bold = line.bold ? ' font-weight="bold"' : "";
  return `<text x="${n(x)}" y="${n(y)}" font-size="${size}" textLength="${n(line.width(size))}" lengthAdjust="spacingAndGlyphs" fill="${colour}"${anchor}${bold}>${escaped(line.text)}</text>`;
}

/** @param {import("./view.js").ShownNode} node @param {import("./layout.js").Rect} rect @param {string} fill @param {string} line */
function shape(node, rect, fill, line) {
  const dash = node.dashed ? ' stroke-dasharray="4,3"' : "";
  const style = `fill="${fill}" stroke="${line}"${dash}`;
  if (node.shape === "ellipse") {
    return `<ellipse cx="${n(rect.x + rect.width / 2)}" cy="${n(rect.y + rect.height / 2)}" rx="${n(rect.width / 2)}" ry="${n(rect.height / 2)}" ${style}/>`;
  }
  const front = node.shape === "box3d" ? frontOf(rect) : rect;
  const sheets = node.shape === "box3d" ? [7, 3.5, 0] : [0];
  return sheets.map((away) => `<rect x="${n(front.x + away)}" y="${n(front.y - away)}" width="${n(front.width)}" height="${n(front.height)}" rx="4" ${style}/>`).join("");
}

/** @param {number[][]} route @param {string} colour */
function arrow(route, colour) {
  const end = route[route.length - 1];
  const before = end.length > 2 ? end.slice(2, 4) : route[route.length - 2].slice(-2);
  const [x, y] = end.slice(-2);
  const length = Math.hypot(x - before[0], y - before[1]) || 1;
  const [right, down] = [(x - before[0]) / length, (y - before[1]) / length];
  const foot = [x - right * 8, y - down * 8];
  return `<path d="M${n(x)} ${n(y)}L${n(foot[0] - down * 3)} ${n(foot[1] + right * 3)}L${n(foot[0] + down * 3)} ${n(foot[1] - right * 3)}Z" fill="${colour}"/>`;
}

/** @param {Pane} pane @returns {Promise<Blob>} */
export function toPng(pane) {
  const { scene } = pane;
  const [width, height] = [scene.width + 2 * MARGIN, scene.height + 2 * MARGIN];
  const scale = Math.min(2, 16000 / Math.max(width, height), Math.sqrt(120e6 / (width * height)));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(width * scale);
  canvas.height = Math.ceil(height * scale);
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
  const marks = { ...pane.marks, selectedNode: -1, selectedGroup: -1, hoverNode: -1, hoverGroup: -1, hoverEdge: -1 };
  paint(ctx, scene, { x: -MARGIN, y: -MARGIN, k: scale }, width * scale, height * scale, 1, pane.colours, marks);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))), "image/png"));
}

/** @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
