// The forward pass step by step: what has been computed is lit, the next operation is marked, its line of code is shown.

/** @typedef {import("./pane.js").Pane} Pane */

export class Walk {
  /** @param {() => Pane} paneOf @param {() => void} changed */
  constructor(paneOf, changed) {
    this.paneOf = paneOf;
    this.changed = changed;
    this.step = -1;
    this.timer = 0;
    this.interval = 700;
    /** the entries to stop at: the last of each node that is shown, in order @type {number[]} */
    this.stops = [];
  }

  get isOn() {
    return this.step >= 0;
  }

  get isPlaying() {
    return this.timer !== 0;
  }

  /** What is shown has changed: the same operation stays the current one. */
  refresh() {
    const { shown } = this.paneOf().scene;
    const current = this.stops[this.step];
    const last = new Map();
    shown.shownBy.forEach((node, place) => node >= 0 && last.set(node, place));
    const rolled = this.paneOf().mode.rolled;
    this.stops = rolled
      ? [...shown.shownBy.keys()].filter((place) => shown.shownBy[place] >= 0 && shown.nodes[shown.shownBy[place]].box < 0 || last.get(shown.shownBy[place]) === place)
      : [...last.values()].sort((a, b) => a - b);
    if (this.isOn) {
      this.step = Math.max(0, this.stops.findIndex((place) => place >= current));
      this.mark();
    }
  }

  start() {
    this.step = -1;
    this.refresh();
    this.goTo(0);
  }

  stop() {
    this.pause();
    this.step = -1;
    const pane = this.paneOf();
    pane.walkPlace = -1;
    pane.litPlaces = null;
    pane.remark();
    this.changed();
  }

  /** @param {number} step */
  goTo(step) {
    this.step = Math.min(Math.max(step, 0), this.stops.length - 1);
    const pane = this.paneOf();
    const place = this.stops[this.step];
    const node = pane.scene.shown.nodes[pane.scene.shown.shownBy[place]];
    this.mark();
    pane.select(node.box >= 0 ? { group: node.box } : { place });
    this.follow(place);
    this.changed();
  }

  mark() {
    const pane = this.paneOf();
    const place = this.stops[this.step];
    pane.walkPlace = place;
    pane.litPlaces = new Set(Array.from({ length: place + 1 }, (_, each) => each));
    pane.remark();
  }

  /** Move the window only if the operation is not well inside it. @param {number} place */
  follow(place) {
    const pane = this.paneOf();
    const rect = pane.scene.layout.nodes[pane.scene.shown.shownBy[place]];
    const { camera, free: size } = pane;
    const x = (rect.x + rect.width / 2 - camera.x) * camera.k;
    const y = (rect.y + rect.height / 2 - camera.y) * camera.k;
    if (x < 60 || y < 60 || x > size.width - 60 || y > size.height - 90 || camera.k < 0.4) pane.lookAt(place, true);
  }

  play() {
    if (!this.isOn || this.step >= this.stops.length - 1) this.start();
    this.timer = window.setInterval(() => {
      if (this.step >= this.stops.length - 1) this.pause();
      else this.goTo(this.step + 1);
    }, this.interval);
    this.changed();
  }

  pause() {
    window.clearInterval(this.timer);
    this.timer = 0;
    this.changed();
  }
}
