// The keyboard: everything that the mouse can do.

import { byId } from "./dom.js";
import { THEMES } from "./palette.js";

/** @typedef {import("./app.js").App} App */

/** @param {App} app @param {KeyboardEvent} event */
export function pressed(app, event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || byId("help").open) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
  if ((event.key === "Enter" || event.key === " ") && target.tagName === "BUTTON") return;
  const action = actions(app)[event.key];
  if (!action) return;
  action();
  event.preventDefault();
}

/** What each key does. @param {App} app @returns {Record<string, () => void>} */
function actions(app) {
  const { pane, walk } = app;
  return {
    "/": () => byId("search").focus(),
    f: () => pane.fit(),
    "+": () => pane.zoom(1.3),
    "=": () => pane.zoom(1.3),
    "-": () => pane.zoom(1 / 1.3),
    "]": () => app.changeDepth(1),
    "[": () => app.changeDepth(-1),
    u: () => pane.lightReach(false),
    d: () => pane.lightReach(true),
    p: () => path(app),
    i: () => { pane.isolate(); app.refresh(); },
    n: () => app.searchBox.nextHit(1),
    N: () => app.searchBox.nextHit(-1),
    Enter: () => openSelected(app),
    Escape: () => escape(app),
    ArrowDown: () => step(app, pane.state.direction === "bottomup" ? "parents" : pane.state.direction === "leftright" ? "next" : "children"),
    ArrowUp: () => step(app, pane.state.direction === "bottomup" ? "children" : pane.state.direction === "leftright" ? "previous" : "parents"),
    ArrowRight: () => step(app, pane.state.direction === "leftright" ? "children" : "next"),
    ArrowLeft: () => step(app, pane.state.direction === "leftright" ? "parents" : "previous"),
    " ": () => (walk.isPlaying ? walk.pause() : walk.play()),
    ".": () => (walk.isOn ? walk.goTo(walk.step + 1) : walk.start()),
    ",": () => walk.isOn && walk.goTo(walk.step - 1),
    r: () => pane.model.hasRolled && app.each((each) => each.setMode(each.modeName === "rolled" ? "unrolled" : "rolled")),
    x: () => app.each((each) => each.setFolded(each.state.folded.size === 0)),
    t: () => app.setTheme(app.colours === THEMES.dark ? "light" : "dark"),
    o: () => app.togglePanel("outline"),
    e: () => app.saveSvg(),
    "?": () => byId("help").showModal(),
  };
}

/** @param {App} app */
function openSelected({ pane }) {
  const { selection } = pane;
  if (selection && "group" in selection) pane.toggle(selection.group);
  else if (selection) pane.toggleGather(selection.place);
}

/** The way between two: from what is selected the first time to what is selected the second time. @param {App} app */
function path(app) {
  const { pane } = app;
  const { selectedPlaces } = pane;
  if (!selectedPlaces.length) return;
  if (app.pathFrom.length) {
    pane.lightPath(app.pathFrom, selectedPlaces);
    app.pathFrom = [];
  } else app.pathFrom = selectedPlaces;
  byId("said").textContent = app.pathFrom.length ? "the way from here: select the other end, then press p" : `${pane.litPlaces?.size ?? 0} on the way`;
  byId("found").textContent = byId("said").textContent;
}

/** @param {App} app */
function escape(app) {
  const { pane } = app;
  app.pathFrom = [];
  if (app.walk.isOn) app.walk.stop();
  pane.litPlaces = null;
  pane.hitPlaces = new Set();
  pane.select(null);
  if (pane.state.only) app.change({ only: null });
}

/** Along an edge, or to the neighbour in the order of execution. @param {App} app @param {"parents" | "children" | "next" | "previous"} way */
function step({ pane }, way) {
  const { scene } = pane;
  let node = pane.marks.selectedNode;
  if (node < 0) {
    if (scene.shown.nodes.length) pane.selectNode(0);
    node = pane.marks.selectedNode;
  } else if (way === "children" || way === "parents") {
    const edges = way === "children" ? scene.leaving[node] : scene.arriving[node];
    const ends = edges.map((edge) => (way === "children" ? scene.shown.edges[edge].target : scene.shown.edges[edge].source)).filter((end) => end !== node);
    if (!ends.length) return;
    node = way === "children" ? Math.min(...ends) : Math.max(...ends);
  } else node = Math.min(Math.max(node + (way === "next" ? 1 : -1), 0), scene.shown.nodes.length - 1);
  pane.selectNode(node);
  const place = scene.shown.nodes[node].places[0];
  const rect = scene.layout.nodes[node];
  const { camera, free: size } = pane;
  const [x, y] = [(rect.x + rect.width / 2 - camera.x) * camera.k, (rect.y + rect.height / 2 - camera.y) * camera.k];
  if (x < 40 || y < 40 || x > size.width - 40 || y > size.height - 40) pane.lookAt(place);
}
