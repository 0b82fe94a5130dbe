// How deep modules are open.

/** @typedef {import("./model.js").Mode} Mode */

export const READABLE = 60; // boxes that a page opens with at most

/** How many nodes there would be at this depth. @param {Mode} mode @param {number} depth 1: every module is closed */
export function boxesAt(mode, depth) {
  let count = 0;
  mode.nodes.group.forEach((group, node) => {
    const gather = mode.gatherOf[node];
    const isDrawn = gather < 0 || mode.gathers[gather].nodes[0] === node;
    if (isDrawn && (group < 0 || mode.depth[group] < depth)) count += 1;
  });
  mode.depth.forEach((each) => (count += each === depth ? 1 : 0));
  return count;
}

/** The deepest level at which everything can still be read. @param {Mode} mode */
export function readableDepth(mode) {
  let depth = 1;
  while (depth <= mode.deepest && boxesAt(mode, depth + 1) <= READABLE) depth += 1;
  return depth;
}

/** Loops are rolled up at first if every pass of them would be too much to read. @param {import("./model.js").Model} model */
export function readableMode(model) {
  if (!model.hasRolled) return "unrolled";
  const boxes = boxesAt(model.mode("unrolled"), 1);
  return boxes > 4 * READABLE && boxesAt(model.mode("rolled"), 1) < boxes * 0.6 ? "rolled" : "unrolled";
}

/** The modules that are open at this depth. @param {Mode} mode @param {number} depth @returns {Set<number>} */
export function openAt(mode, depth) {
  const open = /** @type {Set<number>} */ (new Set());
  mode.depth.forEach((each, group) => each < depth && open.add(group));
  return open;
}

/** The level of nesting that is open everywhere. @param {Mode} mode @param {Set<number>} open */
export function depthOf(mode, open) {
  let depth = mode.deepest + 1;
  mode.depth.forEach((each, group) => {
    if (!open.has(group)) depth = Math.min(depth, each);
  });
  return depth;
}
