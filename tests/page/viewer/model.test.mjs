// Searching, depths and ways through a graph, on a small one that is written down here.

import assert from "node:assert/strict";
import { test } from "node:test";

import { boxesAt, depthOf, openAt, readableDepth } from "../../../src/torchlens/page/viewer/depth.js";
import { humanNumber, humanSize, humanTime } from "../../../src/torchlens/page/viewer/dom.js";
import { heatOf, shadeOf } from "../../../src/torchlens/page/viewer/palette.js";
import { neighbours, pathBetween, relatives } from "../../../src/torchlens/page/viewer/reach.js";
import { find } from "../../../src/torchlens/page/viewer/search.js";

// input -> conv -> relu -> add -> output, and input -> add
const children = [[1, 3], [2], [3], [4], []];
const parents = [[], [0], [1], [2, 0], [3]];
const model = {
  size: 5, children, parents,
  reach(places, forward) {
    const found = new Set(places);
    for (const place of found) for (const next of (forward ? children : parents)[place]) found.add(next);
    return found;
  },
  strings: ["layer1.conv.weight", "net.py", "(2, 2)", "alpha", "", "0.5"],
  ops: {
    label: ["input_1", "conv2d_1_1", "relu_1_2", "add_1_3", "output_1"], type: ["input", "conv2d", "relu", "add", "output"],
    function: ["", "conv2d", "relu", "__add__", ""], address: ["x", "", "", "", ""], dtype: Array(5).fill("float32"),
    shape: ["1x3x8x8", "1x16x8x8", "1x16x8x8", "1x16x8x8", "1x16x8x8"], params: [[], [[0]], [], [], []], home: [-1, 1, 0, -1, -1],
    site: [-1, 0, 0, 0, -1], time: [0, 2e6, 5e5, 1e3, 0], bytes: [768, 4096, 4096, 4096, 4096], flops: [0, 55296, 1024, 1024, 0],
    call: [[], [[4, 1], [4, 0, 2]], [[4, 1]], [[4, 1], [3, 0, 5]], []], numel: [0, 448, 0, 0, 0], pass: [1, 1, 1, 1, 1], role: ["input", "op", "op", "op", "output"],
  },
  calls: { parent: [-1, 0], module: [0, 1] }, modules: { class: ["Block", "Conv2d"] },
  frames: [[1, 10]], stacks: [[0]],
  moduleOf: (place) => ["", "layer1.conv", "layer1", "", ""][place],
  values: { stats: [null, { nan: 0, inf: 0 }, { nan: 3, inf: 0 }, { nan: 0, inf: 1 }, null] },
};

test("search by words and fields, joined by and", () => {
  const finds = {
    "relu": [2], "RELU": [2], "layer1": [1, 2], "type:conv2d": [1], "class:block": [1, 2], "class:conv": [1], "shape:16": [1, 2, 3, 4],
    "shape:3x8": [0], "shape:6": [], "param:weight": [1], "arg:(2,2)": [1], "arg:alpha=0.5": [3], "arg:alpha": [3], "arg:=(": [], "arg:nothing": [], "file:net.py": [1, 2, 3], "time>1ms": [1], "time>=500us": [1, 2],
    "memory<1kb": [0], "flops=1024": [2, 3], "params>400": [1], "nan:true": [2, 3], "nan:false": [1], "layer1 type:relu": [2],
    "time>nonsense": [], "strange:field": [],
  };
  for (const [query, places] of Object.entries(finds)) assert.deepEqual(find(model, query), places, query);
  assert.equal(find(model, "  "), null);
});

test("ways through the graph", () => {
  assert.deepEqual([...pathBetween(model, [1], [3])].sort(), [1, 2, 3]);
  assert.deepEqual([...pathBetween(model, [3], [1])].sort(), [1, 2, 3]); // whichever comes first
  assert.equal(pathBetween({ ...model, reach: (places) => new Set(places) }, [1], [3]).size, 0);
  assert.deepEqual([...neighbours(model, [3])].sort(), [0, 2, 3, 4]);
  assert.deepEqual([...relatives(model, [2])].sort(), [0, 1, 2, 3, 4]);
});

test("depths", () => {
  // a module with a module in it; nodes: input, conv (inside both), relu (inside the outer), add, output
  const mode = {
    model, deepest: 2, depth: [1, 2], nodes: { group: [-1, 1, 0, -1, -1], places: [[0], [1], [2], [3], [4]] },
    gathers: [], gatherOf: [-1, -1, -1, -1, -1],
  };
  assert.deepEqual([1, 2, 3].map((depth) => boxesAt(mode, depth)), [4, 5, 5]);
  const gathered = { ...mode, gathers: [{ nodes: [3, 4] }], gatherOf: [-1, -1, -1, 0, 0] };
  assert.deepEqual([1, 2, 3].map((depth) => boxesAt(gathered, depth)), [3, 4, 4]); // what is drawn as one counts once
  assert.equal(readableDepth(mode), 3);
  assert.deepEqual([1, 2, 3].map((depth) => [...openAt(mode, depth)]), [[], [0], [0, 1]]);
  for (const depth of [1, 2, 3]) assert.equal(depthOf(mode, openAt(mode, depth)), depth);
  assert.equal(depthOf(mode, new Set([1])), 1);
});

test("numbers in words", () => {
  assert.deepEqual([humanSize(512), humanSize(1536), humanSize(5 * 1024 ** 3)], ["512 B", "1.5 KB", "5.0 GB"]);
  assert.equal(humanTime(2_500_000), "2.50 ms");
  assert.ok(humanNumber(1_500_000).startsWith("1.5"));
});

test("colours stay colours", () => {
  for (const share of [-1, 0, 0.3, 1, 2]) {
    for (const part of shadeOf(share)) assert.ok(Number.isInteger(part) && part >= 0 && part <= 255);
    for (const dark of [true, false]) assert.match(heatOf(share, dark)[0], /^rgb\(\d+,\d+,\d+\)$/);
  }
});
