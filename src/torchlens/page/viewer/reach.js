// What depends on what, as sets of entries of the log.

/** @typedef {import("./model.js").Model} Model */

/** Everything on a way from one to the other, whichever comes first. @param {Model} model @param {number[]} from @param {number[]} to */
export function pathBetween(model, from, to) {
  const onward = meeting(model, from, to);
  return onward.size ? onward : meeting(model, to, from);
}

/** @param {Model} model @param {number[]} from @param {number[]} to */
function meeting(model, from, to) {
  const before = model.reach(to, false);
  return new Set([...model.reach(from, true)].filter((place) => before.has(place)));
}

/** These, and everything that they depend on or that depends on them. @param {Model} model @param {number[]} places */
export const relatives = (model, places) => new Set([...model.reach(places, true), ...model.reach(places, false)]);

/** These and what is joined to them directly. @param {Model} model @param {number[]} places */
export function neighbours(model, places) {
  const found = new Set(places);
  for (const place of places) for (const other of [...model.parents[place], ...model.children[place]]) found.add(other);
  return found;
}
