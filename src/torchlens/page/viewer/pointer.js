// Mouse, pen and fingers on a graph.

/**
 * @typedef {import("./pane.js").Pane} Pane
 * @typedef {import("./pane.js").Point} Point
 */

/** Drag, pinch, wheel, click and double-click on a pane. @param {Pane} pane */
export function listenTo(pane) {
  const { canvas } = pane;
  /** @type {Map<number, Point>} */
  const fingers = new Map();
  let travelled = 0;
  const at = (/** @type {MouseEvent} */ event) => {
    const rect = canvas.getBoundingClientRect();
    return { x: event.clientX - rect.left, y: event.clientY - rect.top };
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, at(event));
    if (fingers.size === 1) travelled = 0;
    cancelAnimationFrame(pane.frame);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    const now = at(event);
    if (!before) {
      pane.hover(now);
      return;
    }
    travelled += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
    if (fingers.size === 1 && travelled > 4) pane.pan(now.x - before.x, now.y - before.y);
    else if (fingers.size === 2) pinch(pane, fingers, event.pointerId, now);
    fingers.set(event.pointerId, now);
  });
  const lift = (/** @type {PointerEvent} */ event) => {
    if (fingers.delete(event.pointerId) && !fingers.size && travelled <= 4 && event.type === "pointerup") {
      pane.click(at(event), event.shiftKey);
    }
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => pane.hover(null));
  canvas.addEventListener("dblclick", (event) => pane.open(at(event)));
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const point = at(event);
      const unit = event.deltaMode === 1 ? 30 : 1;
      if (event.shiftKey) pane.pan(-event.deltaY * unit - event.deltaX * unit, 0);
      else pane.zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0016)), point.x, point.y);
    },
    { passive: false },
  );
}

/** @param {Pane} pane @param {Map<number, Point>} fingers @param {number} moved @param {Point} now */
function pinch(pane, fingers, moved, now) {
  const before = /** @type {Point} */ (fingers.get(moved));
  const other = /** @type {Point} */ ([...fingers].find(([id]) => id !== moved)?.[1]);
  const apart = (/** @type {Point} */ point) => Math.hypot(point.x - other.x, point.y - other.y) || 1;
  pane.zoom(apart(now) / apart(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
  pane.pan((now.x - before.x) / 2, (now.y - before.y) / 2);
}
