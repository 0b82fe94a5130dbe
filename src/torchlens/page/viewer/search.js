// Search by name, type and fields: `relu`, `shape:768`, `module:layer3`, `params>1e6`, `time>1ms`, `nan:true`.

/**
 * @typedef {import("./model.js").Model} Model
 * @typedef {(place: number) => boolean} Test
 */

const UNITS = /** @type {Record<string, number>} */ ({
  s: 1e9, ms: 1e6, us: 1e3, "µs": 1e3, ns: 1, b: 1, kb: 1024, mb: 1024 ** 2, gb: 1024 ** 3, k: 1e3, m: 1e6, g: 1e9, t: 1e12,
});
export const FIELDS = ["type", "module", "class", "shape", "dtype", "function", "file", "param", "arg", "nan", "time", "memory", "flops", "params", "pass"];

/** The entries that a query finds, in order; null for an empty one. @param {Model} model @param {string} query @returns {number[] | null} */
export function find(model, query) {
  const words = query.trim().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const tests = words.map((word) => testOf(model, word));
  const found = [];
  for (let place = 0; place < model.size; place++) if (tests.every((test) => test(place))) found.push(place);
  return found;
}

/** @param {Model} model @param {string} word @returns {Test} */
function testOf(model, word) {
  const compared = /^(time|memory|flops|params|pass|nan)(>=|<=|>|<|=)(.+)$/i.exec(word);
  if (compared) return comparison(model, compared[1].toLowerCase(), compared[2], compared[3]);
  const named = /^(\w+):(.+)$/.exec(word);
  if (named && FIELDS.includes(named[1].toLowerCase())) return field(model, named[1].toLowerCase(), named[2].toLowerCase());
  return anywhere(model, word.toLowerCase());
}

/** @param {Model} model @param {string} text @returns {Test} */
function anywhere(model, text) {
  const { ops } = model;
  return (place) =>
    ops.label[place].toLowerCase().includes(text) ||
    ops.function[place].toLowerCase().includes(text) ||
    ops.address[place].toLowerCase().includes(text) ||
    model.moduleOf(place).toLowerCase().includes(text) ||
    ops.params[place].some((/** @type {number[]} */ param) => model.strings[param[0]].toLowerCase().includes(text));
}

/** @param {Model} model @param {string} name @param {string} text @returns {Test} */
function field(model, name, text) {
  const { ops } = model;
  if (name === "type") return (place) => ops.type[place].toLowerCase().includes(text);
  if (name === "function") return (place) => ops.function[place].toLowerCase().includes(text);
  if (name === "dtype") return (place) => ops.dtype[place].toLowerCase().includes(text);
  if (name === "module") return (place) => model.moduleOf(place).toLowerCase().includes(text);
  if (name === "class") return (place) => classesOf(model, place).some((each) => each.toLowerCase().includes(text));
  if (name === "shape") return (place) => shapeHas(ops.shape[place], text);
  if (name === "param") return (place) => ops.params[place].some((/** @type {number[]} */ param) => model.strings[param[0]].toLowerCase().includes(text));
  if (name === "arg") return (place) => argumentsOf(model, place).some((each) => each.includes(text));
  if (name === "file") return (place) => fileOf(model, place).toLowerCase().includes(text);
  if (name === "nan") {
    const wanted = text !== "false";
    return (place) => {
      const stats = model.values?.stats[place];
      return stats ? stats.nan + stats.inf > 0 === wanted : false;
    };
  }
  return comparison(model, name, "=", text);
}

/** `768` is one of the sizes, `1x768` a part of the shape. @param {string} shape @param {string} text */
function shapeHas(shape, text) {
  const wanted = text.replaceAll(",", "x").replaceAll("×", "x");
  return wanted.includes("x") ? shape.includes(wanted) : shape.split("x").includes(wanted);
}

/** What an entry was called with, but for tensors, without spaces: `dim=1`, `(2,2)`. @param {Model} model @param {number} place @returns {string[]} */
function argumentsOf(model, place) {
  return model.ops.call[place]
    .filter((/** @type {number[]} */ argument) => argument.length > 2)
    .map((/** @type {number[]} */ [name, , words]) => {
      const text = model.strings[name] ? `${model.strings[name]}=${model.strings[words]}` : model.strings[words];
      return text.replaceAll(" ", "").toLowerCase();
    });
}

/** The classes of the modules around an entry. @param {Model} model @param {number} place */
function classesOf(model, place) {
  const found = [];
  for (let call = model.ops.home[place]; call >= 0; call = model.calls.parent[call]) {
    found.push(model.modules.class[model.calls.module[call]]);
  }
  return found;
}

/** @param {Model} model @param {number} place */
function fileOf(model, place) {
  const site = model.ops.site[place];
  return site < 0 ? "" : model.strings[model.frames[model.stacks[site][0]][0]];
}

/** @param {Model} model @param {string} name @param {string} sign @param {string} text @returns {Test} */
function comparison(model, name, sign, text) {
  const { ops } = model;
  const parts = /^([-+\d.]+(?:e[-+]?\d+)?)\s*([a-zµ]*)$/i.exec(text);
  const limit = parts ? Number(parts[1]) * (UNITS[parts[2].toLowerCase()] ?? 1) : NaN;
  const columns = /** @type {Record<string, any[]>} */ ({ time: ops.time, memory: ops.bytes, flops: ops.flops, params: ops.numel, pass: ops.pass });
  const amount = (/** @type {number} */ place) =>
    name === "nan" ? (model.values?.stats[place]?.nan ?? 0) + (model.values?.stats[place]?.inf ?? 0) : columns[name]?.[place] ?? 0;
  if (sign === ">") return (place) => amount(place) > limit;
  if (sign === "<") return (place) => amount(place) < limit;
  if (sign === ">=") return (place) => amount(place) >= limit;
  if (sign === "<=") return (place) => amount(place) <= limit;
  return (place) => amount(place) === limit;
}
