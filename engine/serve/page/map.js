// The picture of the KV rows: a cell for each layer and KV head of the running sequences, filled by
// where its rows are.
import { byId, countText, make } from "./dom.js";
import { read } from "./server.js";

const STATES = [["own", "in memory"], ["shared", "in memory, shared"], ["cold", "on a lower tier"],
                ["gone", "dropped"]];

// The rows of one KV head in each state. Pages count as whole ones, the last one as the rest.
function rowsOf(layer, head, tokens) {
  const rows = layer.rows[head], pages = layer.pages[head] || 1;
  const cold = Math.round(rows * layer.cold[head] / pages);
  const shared = Math.round(rows * layer.shared[head] / pages);
  return { own: rows - cold - shared, shared, cold, gone: Math.max(0, tokens - rows) };
}

const textOf = rows => STATES.filter(([state]) => rows[state] > 0)
  .map(([state, name]) => `${countText(rows[state])} ${name}`).join(", ") || "no rows";

function cellOf(layer, i, head, tokens) {
  const rows = rowsOf(layer, head, tokens);
  return make("span", { class: "cell", title: `Layer ${i}, KV head ${head}: ${textOf(rows)}` },
    ...STATES.map(([state]) => {
      const part = make("i", { class: state });
      part.style.width = (tokens > 0 ? 100 * rows[state] / tokens : 0) + "%";
      return part;
    }));
}

function sumOf(layer, tokens) {
  const sum = Object.fromEntries(STATES.map(([state]) => [state, 0]));
  layer.rows.forEach((_, head) => {
    for (const [state, rows] of Object.entries(rowsOf(layer, head, tokens))) sum[state] += rows;
  });
  return sum;
}

// The same as numbers.
function tableOf(layers, tokens, name) {
  const head = make("tr", {}, make("th", { scope: "col" }, "Layer"),
    ...STATES.map(([, text]) => make("th", { scope: "col" }, text)));
  const rows = layers.map((layer, i) => {
    const sum = sumOf(layer, tokens);
    return make("tr", {}, make("th", { scope: "row" }, String(i)),
      ...STATES.map(([state]) => make("td", {}, countText(sum[state]))));
  });
  return make("table", { class: "figures-table" }, make("caption", { class: "unseen" },
    `Rows of all KV heads of ${name}`), make("thead", {}, head), make("tbody", {}, ...rows));
}

function sequenceNode({ id, choice, tokens, policy, layers }, openOnes) {
  const name = `sequence ${id}${choice ? ", choice " + choice : ""}`, part = `${id}.${choice}`;
  const all = Object.fromEntries(STATES.map(([state]) =>
    [state, layers.reduce((sum, layer) => sum + sumOf(layer, tokens)[state], 0)]));
  const label = `KV rows of ${name}, ${countText(tokens)} tokens` +
    `${policy ? " with " + policy : ""}: ${textOf(all)}`;
  return make("div", { class: "kv-map" },
    make("div", { class: "grid", role: "img", "aria-label": label },
      ...layers.map((layer, i) => make("div", { class: "line" },
        ...layer.rows.map((_, head) => cellOf(layer, i, head, tokens))))),
    make("p", { class: "note" }, label),
    make("details", { "data-map": part, open: openOnes.has(part) },
      make("summary", {}, `Rows by layer of ${name}`), tableOf(layers, tokens, name)));
}

const keyNode = () => make("p", { class: "note" }, ...STATES.map(([state, text]) =>
  make("span", { class: "map-key" },
    make("i", { class: "key " + state, "aria-hidden": "true" }), text + " ")));

// The last picture stays when nothing runs any more.
export async function showMap() {
  const map = await read("/v1/memory/map"), place = byId("kv-map");
  if (map.sequences.length === 0) return;
  const openOnes = new Set([...place.querySelectorAll("details[open]")].map(
    details => details.dataset.map));
  const focused = document.activeElement?.closest("#kv-map details")?.dataset.map;
  place.replaceChildren(keyNode(), ...map.sequences.map(one => sequenceNode(one, openOnes)),
    map.cut ? make("p", { class: "note" }, "Not all sequences are shown.") : "");
  if (focused) place.querySelector(`[data-map="${CSS.escape(focused)}"] > summary`)?.focus();
}
