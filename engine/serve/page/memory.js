// The memory map: accounts of each tier, what KV pages hold, running sequences, and what the last
// turn reused. Asked for while it is shown, the rows by layer only while something runs.
import { byId, bytesText, countText, make, toggle } from "./dom.js";
import { showMap } from "./map.js";
import { showPlan } from "./plan.js";
import { read } from "./server.js";

const BUSY_MS = 1000, IDLE_MS = 5000;
const SHADES = 13; // of memory.css

let timer = 0, wasBusy = false, last = "";

const share = (part, whole) => whole > 0 ? Math.min(100, 100 * part / whole) : 0;

// A bar of parts, with a table of the same for readers who cannot see it. parts: [{ name, bytes,
// shade }].
function bar(label, parts, whole) {
  const shown = parts.filter(part => part.bytes > 0);
  return make("div", { class: "bar", role: "img", "aria-label": label },
    ...shown.map(part => {
      const piece = make("span", { class: "shade-" + part.shade,
                                   title: `${part.name}: ${bytesText(part.bytes)}` });
      piece.style.width = share(part.bytes, whole) + "%";
      return piece;
    }));
}

function rowsTable(caption, rows) {
  return make("table", { class: "figures-table" }, make("caption", { class: "unseen" }, caption),
    make("tbody", {}, ...rows.map(({ name, value, shade, title }) =>
      make("tr", { title },
        make("th", { scope: "row" },
          shade === undefined ? null : make("i", { class: "key shade-" + shade,
                                                   "aria-hidden": "true" }), name),
        make("td", {}, value)))));
}

// ---- accounts ----

function tierNode(name, tier, kept) {
  const parts = Object.entries(tier.accounts)
    .map(([account, bytes], i) =>
      ({ name: account.replaceAll("_", " "), bytes, shade: i % SHADES }))
    .filter(part => part.bytes > 0);
  const whole = tier.cap || tier.used;
  const of = tier.cap ? ` of ${bytesText(tier.cap)}` : "";
  const rows = parts.map(part => ({ ...part, value: bytesText(part.bytes) }));
  if (tier.cap) rows.push({ name: "free", value: bytesText(tier.available) });
  rows.push({ name: "peak", value: bytesText(tier.peak) });
  return make("section", { "aria-label": `Memory: ${name}` },
    make("h3", {}, name[0].toUpperCase() + name.slice(1),
      make("span", { class: "note" }, ` ${bytesText(tier.used)}${of}`)),
    bar(`${bytesText(tier.used)}${of} used`, parts, whole),
    make("details", { open: kept.has(name) ? kept.get(name) : name === "host",
                      "data-part": name },
      make("summary", {}, "Accounts"), rowsTable(`Accounts of ${name}`, rows)));
}

// ---- KV ----

function kvNode({ kv, kept, preemptions, evicted_tokens: evicted }) {
  const cached = Math.min(kept.bytes, Math.max(0, kv.bytes - kv.used_bytes));
  const parts = [{ name: "of running sequences", bytes: kv.used_bytes, shade: 2 },
                 { name: "cached, freed when needed", bytes: cached, shade: 5 }];
  const rows = [
    ...parts.map(part => ({ ...part, value: bytesText(part.bytes) })),
    { name: "tokens that still fit", value: countText(kv.free_tokens) },
    { name: "a token takes", value: bytesText(kv.bytes_per_token) },
    { name: "format", value: kv.format + (kv.lossy ? " (lossy)" : "") },
    { name: "cached tokens", value: countText(kept.tokens) },
  ];
  if (kv.host.pages) rows.push({ name: "pages on the host",
                                 value: `${kv.host.used_pages} of ${kv.host.pages}` });
  if (kv.disk.pages) rows.push({ name: "pages on disk",
                                 value: `${kv.disk.used_pages} of ${kv.disk.pages}` });
  if (kept.dropped_tokens) rows.push({ name: "cached tokens dropped so far",
                                       value: countText(kept.dropped_tokens) });
  if (evicted) rows.push({ name: "rows that policies dropped", value: countText(evicted) });
  if (preemptions) rows.push({ name: "preemptions", value: countText(preemptions) });
  return make("section", { "aria-label": "KV pages" },
    make("h3", {}, "KV pages", make("span", { class: "note" },
      ` ${countText(kv.pages - kv.free_pages)} of ${countText(kv.pages)} pages in use`)),
    bar("KV pages in use and cached", parts, kv.bytes), rowsTable("KV pages", rows));
}

function sequenceText({ tokens, bytes, policy }) {
  const text = `${countText(tokens)} tokens, ${bytesText(bytes)}`;
  return policy ? `${text}, ${policy.name}: ${countText(policy.live)} rows kept, ` +
    `${countText(policy.evicted)} dropped` : text;
}

function sequencesNode(sequences) {
  if (sequences.length === 0) return null;
  return make("section", { "aria-label": "Running sequences" }, make("h3", {}, "Running"),
    rowsTable("Running sequences", sequences.map(sequence => ({
      name: sequence.choice ? `${sequence.id}, choice ${sequence.choice}` : String(sequence.id),
      value: sequenceText(sequence) }))));
}

// ---- the last turn ----

function showTurn(figures) {
  const part = byId("turn-memory");
  if (!figures) {
    part.replaceChildren(make("p", { class: "note" }, "No answer yet."));
    return;
  }
  const { usage } = figures, details = usage.prompt_tokens_details || {};
  const cached = details.cached_tokens || 0, computed = usage.prompt_tokens - cached;
  const parts = [{ name: "reused", bytes: cached, shade: 5 },
                 { name: "computed", bytes: computed, shade: 2 },
                 { name: "answer", bytes: usage.completion_tokens, shade: 0 }];
  const rows = parts.map(piece => ({ ...piece, value: countText(piece.bytes) + " tokens" }));
  if (details.reuse) rows.push({ name: "why no more", value: details.reuse });
  const { kv } = usage;
  if (kv) {
    rows.push({ name: "KV format", value: kv.format });
    rows.push({ name: "KV bytes", value: bytesText(kv.bytes) });
    if (kv.policy) rows.push({ name: "policy", value: `${kv.policy}, ${kv.budget} rows` });
    if (kv.evicted !== undefined)
      rows.push({ name: "rows kept and dropped",
                  value: `${countText(kv.live)}, ${countText(kv.evicted)}` });
  }
  part.replaceChildren(
    bar(`${cached} tokens reused, ${computed} computed`, parts.map(piece => ({ ...piece })),
      usage.prompt_tokens + usage.completion_tokens), rowsTable("The last turn", rows));
}

// ---- asking ----

function show(memory) {
  const kept = new Map([...document.querySelectorAll("#accounts details")].map(
    details => [details.dataset.part, details.open]));
  const focused = document.activeElement?.closest("#accounts details")?.dataset.part;
  const tiers = Object.entries(memory.tiers).filter(([, tier]) => tier.cap || tier.used);
  byId("accounts").replaceChildren(...tiers.map(([name, tier]) => tierNode(name, tier, kept)));
  if (focused) document.querySelector(`[data-part="${CSS.escape(focused)}"] > summary`)?.focus();
  byId("kv-memory").replaceChildren(...[kvNode(memory), sequencesNode(memory.sequences)]
    .filter(node => node));
}

async function ask() {
  timer = 0;
  if (byId("memory").hidden) return;
  if (!document.hidden) {
    try {
      const memory = await read("/v1/memory"), text = JSON.stringify(memory);
      wasBusy = memory.sequences.length > 0;
      if (text !== last) { // else it stays as it is
        last = text;
        show(memory);
      }
      if (wasBusy) await showMap();
      byId("memory-problem").textContent = "";
    } catch (error) {
      byId("memory-problem").textContent = error.message;
    }
  }
  if (!timer) timer = setTimeout(ask, wasBusy ? BUSY_MS : IDLE_MS);
}

function askNow() {
  clearTimeout(timer);
  ask();
}

export function openMemory(isOpen) {
  toggle("show-memory", "memory", isOpen);
  if (!isOpen) return;
  askNow();
  showPlan();
}

byId("show-memory").addEventListener("click", () => openMemory(byId("memory").hidden));
document.addEventListener("weir-turn", event => {
  showTurn(event.detail);
  if (!byId("memory").hidden) askNow();
});
