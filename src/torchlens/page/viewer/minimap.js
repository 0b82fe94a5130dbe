// The whole graph small, with the window on it.

/** @typedef {import("./pane.js").Pane} Pane */

const WIDTH = 150;
const HEIGHT = 190;

export class Minimap {
  /** @param {HTMLCanvasElement} canvas @param {() => Pane} paneOf */
  constructor(canvas, paneOf) {
    this.canvas = canvas;
    this.paneOf = paneOf;
    this.back = document.createElement("canvas");
    this.scale = 1;
    const look = (/** @type {PointerEvent} */ event) => {
      if (event.buttons !== 1) return;
      const pane = paneOf();
      const rect = canvas.getBoundingClientRect();
      const { width, height } = pane.size;
      const { k } = pane.camera;
      const x = (event.clientX - rect.left) / this.scale - width / k / 2;
      pane.jumpTo({ k, x, y: (event.clientY - rect.top) / this.scale - height / k / 2 });
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      look(event);
    });
    canvas.addEventListener("pointermove", look);
  }

  /** Paint the graph anew. */
  refresh() {
    const { scene, colours } = this.paneOf();
    const ratio = devicePixelRatio || 1;
    this.scale = Math.min(WIDTH / Math.max(scene.width, 1), HEIGHT / Math.max(scene.height, 1));
    const width = Math.max(24, scene.width * this.scale);
    const height = Math.max(24, scene.height * this.scale);
    for (const canvas of [this.canvas, this.back]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.back.getContext("2d"));
    ctx.fillStyle = colours.canvas;
    ctx.fillRect(0, 0, this.back.width, this.back.height);
    ctx.setTransform(ratio * this.scale, 0, 0, ratio * this.scale, 0, 0);
    scene.layout.groups.forEach((rect, number) => {
      ctx.fillStyle = colours[`group${(scene.depths[number] + 1) % 4}`];
      ctx.fillRect(rect.x, rect.y, rect.width, rect.height);
    });
    const fillOf = this.paneOf().fillOf;
    scene.layout.nodes.forEach((rect, number) => {
      const { fill } = scene.shown.nodes[number];
      ctx.fillStyle = fillOf?.(number)?.[0] ?? (fill === "node" ? colours.border : colours[fill]);
      const least = 1.2 / this.scale;
      ctx.fillRect(rect.x, rect.y, Math.max(rect.width, least), Math.max(rect.height, least));
    });
    this.draw();
  }

  /** The window on it. */
  draw() {
    const { camera, size, colours, scene } = this.paneOf();
    const ratio = devicePixelRatio || 1;
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.drawImage(this.back, 0, 0);
    const s = this.scale * ratio;
    const [x, y] = [Math.max(0, camera.x) * s, Math.max(0, camera.y) * s];
    const right = Math.min(scene.width, camera.x + size.width / camera.k) * s;
    const bottom = Math.min(scene.height, camera.y + size.height / camera.k) * s;
    ctx.strokeStyle = colours.selected;
    ctx.lineWidth = 1.5 * ratio;
    ctx.strokeRect(x + 1, y + 1, Math.max(3, right - x - 2), Math.max(3, bottom - y - 2));
    const all = right - x >= scene.width * s - 1 && bottom - y >= scene.height * s - 1;
    this.canvas.classList.toggle("whole", all);
  }
}
