// Elements made with text, never with markup: a name from a model stays text whatever is in it.

/**
 * @param {string} tag
 * @param {{[name: string]: any}} [properties] `on` + event for listeners, `class`, `text`; anything else is an attribute
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {HTMLElement}
 */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") element.textContent = String(value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

/** @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/** A number with thousands apart. @param {number} number */
export const counted = (number) => number.toLocaleString("en-US");

/** @param {number} bytes */
export function humanSize(bytes) {
  for (const unit of ["B", "KB", "MB", "GB", "TB"]) {
    if (bytes < 1024 || unit === "TB") return unit === "B" ? `${bytes} B` : `${bytes.toFixed(1)} ${unit}`;
    bytes /= 1024;
  }
  return "";
}

/** @param {number} nanoseconds */
export function humanTime(nanoseconds) {
  if (nanoseconds === 0) return "0 s";
  if (nanoseconds >= 1e9) return `${(nanoseconds / 1e9).toPrecision(3)} s`;
  if (nanoseconds >= 1e6) return `${(nanoseconds / 1e6).toPrecision(3)} ms`;
  return `${(nanoseconds / 1e3).toPrecision(3)} µs`;
}

/** @param {number} number */
export function humanNumber(number) {
  for (const [size, unit] of /** @type {[number, string][]} */ ([[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]])) {
    if (Math.abs(number) >= size) return (number / size).toPrecision(3) + unit;
  }
  return Number.isInteger(number) ? String(number) : shortNumber(number);
}

/** A value of a tensor. @param {number} number */
export function shortNumber(number) {
  if (!Number.isFinite(number)) return String(number);
  if (number === 0) return "0";
  const size = Math.abs(number);
  return size >= 1e5 || size < 1e-4 ? number.toExponential(2) : String(Number(number.toPrecision(4)));
}
