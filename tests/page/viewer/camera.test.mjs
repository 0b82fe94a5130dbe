import assert from "node:assert/strict";
import { test } from "node:test";

import { beginningOf, between, centredOn, filledBy, keptInPlace, toWorld, wholeOf, zoomed } from "../../../src/torchlens/page/viewer/camera.js";

const CANVAS = { width: 800, height: 600 };
const near = (one, other) => assert.ok(Math.abs(one - other) < 1e-9, `${one} is not ${other}`);

/** Is this point of the graph in sight? */
const sees = (camera, { x, y }) => {
  const end = toWorld(camera, CANVAS.width, CANVAS.height);
  return x >= camera.x && y >= camera.y && x <= end.x && y <= end.y;
};

test("the whole graph is in sight, and not larger than it should be", () => {
  for (const [width, height] of [[10, 10], [5000, 30], [30, 90000], [0, 0]]) {
    const camera = wholeOf({ width, height }, CANVAS);
    assert.ok(sees(camera, { x: 0, y: 0 }) && sees(camera, { x: width, y: height }) && camera.k <= 1.25);
  }
});

test("a graph that is too large is shown from its beginning, in every direction", () => {
  const graph = { width: 500, height: 40000 };
  const [first, last] = [{ x: 200, y: 0, width: 100, height: 40 }, { x: 200, y: 39960, width: 100, height: 40 }];
  const down = beginningOf(graph, first, CANVAS, "topdown");
  assert.ok(sees(down, first) && !sees(down, { x: 200, y: 39000 }) && down.k >= 0.7);
  assert.ok(sees(beginningOf(graph, last, CANVAS, "bottomup"), last));
  const right = beginningOf({ width: 40000, height: 500 }, { x: 0, y: 200, width: 100, height: 40 }, CANVAS, "leftright");
  assert.ok(sees(right, { x: 0, y: 200 }));
  assert.deepEqual(beginningOf({ width: 90, height: 90 }, first, CANVAS, "topdown"), wholeOf({ width: 90, height: 90 }, CANVAS));
  assert.deepEqual(beginningOf(graph, undefined, CANVAS, "topdown"), wholeOf(graph, CANVAS)); // no node at all
});

test("a box in the middle, and as large as fits", () => {
  const rect = { x: 100, y: 50, width: 40, height: 20 };
  const middle = toWorld(centredOn(rect, CANVAS, 2), 400, 300);
  near(middle.x, 120);
  near(middle.y, 60);
  assert.equal(filledBy(rect, CANVAS).k, 1.2);
  near(filledBy({ ...rect, width: 7400 }, CANVAS).k, 0.1);
});

test("what is under the pointer stays there while zooming, within limits", () => {
  let camera = { x: 10, y: 20, k: 1 };
  const at = { x: 123, y: 456 };
  const before = toWorld(camera, at.x, at.y);
  for (const factor of [1.3, 0.5, 7]) camera = zoomed(camera, factor, at, { width: 900, height: 900 }, CANVAS);
  const after = toWorld(camera, at.x, at.y);
  near(after.x, before.x);
  near(after.y, before.y);
  assert.equal(zoomed(camera, 1e9, at, { width: 900, height: 900 }, CANVAS).k, 4);
  near(zoomed(camera, 1e-9, at, { width: 3000, height: 900 }, CANVAS).k, 0.1);
});

test("a module that opens stays where it was, and under the pointer", () => {
  const camera = { x: 0, y: 0, k: 2 };
  const [closed, open] = [{ x: 100, y: 100, width: 60, height: 20 }, { x: 300, y: 120, width: 400, height: 500 }];
  const topdown = keptInPlace(camera, closed, open, "topdown");
  assert.deepEqual(topdown, { k: 2, x: 300 + 200 - 130, y: 20 }); // the middle of its upper side
  assert.deepEqual(keptInPlace(camera, closed, open, "leftright"), { k: 2, x: 200, y: 370 - 110 });
  assert.deepEqual(keptInPlace(camera, closed, open, "bottomup"), { k: 2, x: 370, y: 620 - 120 });
  const at = { x: 210, y: 210 }; // in the closed one
  const kept = keptInPlace(camera, open, closed, "topdown", at);
  const point = toWorld(kept, at.x, at.y);
  assert.ok(point.x >= 100 && point.x <= 160 && point.y >= 100 && point.y <= 120);
});

test("a gentle move begins and ends where it should", () => {
  const [from, to] = [{ x: 0, y: 0, k: 1 }, { x: 8, y: -4, k: 3 }];
  assert.deepEqual(between(from, to, 0), from);
  assert.deepEqual(between(from, to, 1), to);
  assert.ok(between(from, to, 0.5).x > 4);
});
