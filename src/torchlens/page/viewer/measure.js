// How much room a text takes, from the widths of Helvetica's characters: draw/layout/measure.py in JavaScript.

const REGULAR = `
278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 278 278 584 584
584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 722 667 944 667 667 611 278
278 278 469 556 333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500
500 334 260 334 584`;
const BOLD = `
278 333 474 556 556 889 722 238 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 333 333 584 584
584 611 975 722 722 722 722 667 611 778 722 278 556 722 611 833 722 778 667 778 722 667 611 722 667 944 667 667 611 333
278 333 584 556 333 556 611 556 611 556 333 611 611 278 278 556 278 889 611 611 611 611 389 556 333 611 556 778 556 556
500 389 280 389 584`;

/** @type {(text: string) => number[]} */
const table = (text) => text.trim().split(/\s+/).map((width) => Number(width) / 1000);
const REGULAR_WIDTHS = table(REGULAR);
const BOLD_WIDTHS = table(BOLD);

/** Widths of characters beyond ASCII, which Python measured. @type {Map<string, number>} */
const measured = new Map();

/** @param {Record<string, number>} widths */
export function learnWidths(widths) {
  for (const [character, width] of Object.entries(widths)) measured.set(character, width);
}

export const NODE_SIZE = 11;
export const EDGE_SIZE = 9.5;
export const GROUP_SIZE = 11;
export const LEADING = 1.22;
export const BASELINE = 0.92;
export const DEPTH = 7;
const WIDEST = 420;

/** One line of text. Objects are shared, so that each is measured once. */
export class Text {
  /** @param {string} text @param {boolean} [bold] */
  constructor(text, bold = false) {
    this.text = text;
    this.bold = bold;
    /** @type {number} */
    this.em = -1;
  }

  /** @param {number} size */
  width(size) {
    if (this.em < 0) this.em = emWidth(this.text, this.bold);
    return size * this.em;
  }
}

/** @param {string} text @param {boolean} bold */
function emWidth(text, bold) {
  const widths = bold ? BOLD_WIDTHS : REGULAR_WIDTHS;
  let total = 0;
  for (const character of text) {
    const code = /** @type {number} */ (character.codePointAt(0));
    total += widths[code - 32] ?? measured.get(character) ?? 0.75;
  }
  return total;
}

/** Width and height of lines set one under the other. @param {readonly Text[]} lines @param {number} size */
export function blockSize(lines, size) {
  let width = 0;
  for (const line of lines) width = Math.max(width, line.width(size));
  return [width, lines.length * size * LEADING];
}

/** The same lines, those that are too long cut into several. @param {readonly Text[]} lines @param {number} size */
export function wrapped(lines, size) {
  if (!lines.some((line) => [...line.text].length * size >= WIDEST || line.text.includes("\n"))) return lines;
  return lines.flatMap((line) => wrap(line, size).map((part) => new Text(part, line.bold)));
}

/** @param {Text} line @param {number} size */
function wrap(line, size) {
  const parts = [];
  for (let rest of line.text.split(/\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/)) {
    while (new Text(rest, line.bold).width(size) > WIDEST) {
      const letters = [...rest];
      const cut = cutAt(letters, size, line.bold);
      parts.push(letters.slice(0, cut).join("").trimEnd());
      rest = letters.slice(cut).join("").trimStart();
    }
    parts.push(rest);
  }
  return parts;
}

/** Where to cut a line that is too long: after a space or a sign, else anywhere. @param {string[]} letters @param {number} size @param {boolean} bold */
function cutAt(letters, size, bold) {
  let room = WIDEST;
  let fits = 0;
  while (fits < letters.length && room > 0) {
    room -= size * emWidth(letters[fits], bold);
    if (room > 0) fits += 1;
  }
  fits = Math.max(1, fits);
  for (let cut = fits; cut > Math.floor(fits / 2); cut--) if (" ,.;/_-)".includes(letters[cut - 1])) return cut;
  return fits;
}

/** Width and height of a node with room for its text. @param {readonly Text[]} lines @param {string} shape */
export function nodeSize(lines, shape) {
  const height = lines.length * NODE_SIZE * LEADING;
  let widest = 0;
  if (shape !== "ellipse") {
    widest = 20;
    for (const line of lines) widest = Math.max(widest, line.width(NODE_SIZE));
    return shape === "box" ? [widest + 16, height + 10] : [widest + 16 + DEPTH, height + 10 + DEPTH];
  }
  const [half, shares] = ellipse(lines.length);
  widest = 36;
  lines.forEach((line, index) => (widest = Math.max(widest, line.width(NODE_SIZE) / shares[index])));
  return [widest + 10, 2 * half];
}

/** @type {Map<number, [number, number[]]>} */
const ellipses = new Map();

/** Half the height of an ellipse around so many lines, and how much of its width each can use. @param {number} lines */
function ellipse(lines) {
  let known = ellipses.get(lines);
  if (!known) {
    const lineHeight = NODE_SIZE * LEADING;
    const height = lines * lineHeight;
    const half = height * 0.66 + 3;
    const edge = (/** @type {number} */ index) => Math.abs(index * lineHeight - height / 2);
    const shares = Array.from({ length: lines }, (_, index) =>
      Math.sqrt(1 - (Math.max(edge(index), edge(index + 1)) / half) ** 2),
    );
    known = [half, shares];
    ellipses.set(lines, known);
  }
  return known;
}
