// Elements and numbers of the page. Text becomes text nodes only: nothing here or elsewhere parses
// markup.

export const byId = id => document.getElementById(id);

// make("button", { class: "small", onclick: f, "aria-label": "Copy" }, "Copy")
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

export function button(text, onclick, attributes = {}) {
  return make("button", { type: "button", onclick, ...attributes }, text);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

// 12033280: "11.5 MiB"
export function bytesText(bytes) {
  let unit = 0, value = Number(bytes) || 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return (unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)) + " " + UNITS[unit];
}

export const countText = number => (Number(number) || 0).toLocaleString("en");

// Copies without the clipboard API, which browsers have only for HTTPS and this machine.
function copyBySelection(text) {
  const area = make("textarea", { class: "unseen", "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  const before = document.activeElement;
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus();
  return done;
}

// A button that copies what `text` returns, and says so.
export function copyButton(text, what) {
  const copy = button("Copy", async () => {
    let done = true;
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      done = copyBySelection(text());
    }
    copy.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  }, { class: "small", "aria-label": "Copy " + what });
  return copy;
}

// Opens or closes a part of the page with its button.
export function toggle(buttonId, partId, isOpen) {
  byId(partId).hidden = !isOpen;
  byId(buttonId).setAttribute("aria-expanded", String(isOpen));
}
