// The search field, its list of matches, and going from one match to the next.

import { byId, counted, el } from "./dom.js";
import { find } from "./search.js";

/** @typedef {import("./pane.js").Pane} Pane */

const MOST_RESULTS = 200;

export class SearchBox {
  /** @param {() => Pane} paneOf */
  constructor(paneOf) {
    this.paneOf = paneOf;
    /** entries that were found @type {number[]} */
    this.hits = [];
    this.hit = -1;
    this.listen();
  }

  listen() {
    const input = byId("search");
    const results = byId("results");
    input.addEventListener("input", () => this.search(input.value));
    input.addEventListener("focus", () => this.showResults());
    input.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") this.nextHit(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        input.value = "";
        this.search("");
        this.paneOf().canvas.focus();
      } else if (event.key === "ArrowDown") results.querySelector("button")?.focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    document.addEventListener("pointerdown", (event) => {
      if (!byId("search-box").contains(event.target)) results.hidden = true;
    });
    results.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const buttons = [...results.querySelectorAll("button")];
      const at = buttons.indexOf(document.activeElement);
      if (event.key === "ArrowDown") buttons[Math.min(at + 1, buttons.length - 1)]?.focus();
      else if (event.key === "ArrowUp") (at > 0 ? buttons[at - 1] : input).focus();
      else if (event.key === "Escape") input.focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /** @param {string} query */
  search(query) {
    const found = find(this.paneOf().model, query);
    this.hits = found ?? [];
    this.hit = -1;
    this.paneOf().hitPlaces = new Set(this.hits);
    this.paneOf().remark();
    byId("found").textContent = found === null ? "" : found.length === 1 ? "1 match" : `${counted(found.length)} matches`;
    this.showResults();
  }

  showResults() {
    const list = byId("results");
    const { model } = this.paneOf();
    list.hidden = !this.hits.length;
    list.replaceChildren(
      ...this.hits.slice(0, MOST_RESULTS).map((place, index) =>
        el(
          "li",
          {},
          el("button", { onclick: () => this.goToHit(index) }, el("span", { text: model.ops.label[place], dir: "auto" }), el("span", { class: "aside", text: model.moduleOf(place) || model.ops.shape[place], dir: "auto" })),
        ),
      ),
    );
  }

  /** @param {number} by */
  nextHit(by) {
    if (this.hits.length) this.goToHit((this.hit + by + this.hits.length) % this.hits.length);
  }

  /** @param {number} index */
  goToHit(index) {
    this.hit = index;
    byId("found").textContent = `${index + 1} of ${counted(this.hits.length)}`;
    byId("results").hidden = true;
    this.paneOf().reveal(this.hits[index]);
  }
}
