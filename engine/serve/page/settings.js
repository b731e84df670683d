// The dialog of a conversation's settings: system prompt, sampling, what KV keeps, tools.
import { byId, make } from "./dom.js";
import { read } from "./server.js";

// Fields of the request. Empty: the server's default, which /props tells under `key`.
const NUMBERS = [
  { name: "temperature", label: "Temperature", least: 0, most: 2, step: 0.05, key: "temperature" },
  { name: "top_p", label: "Top p", least: 0.01, most: 1, step: 0.01, key: "top_p" },
  { name: "top_k", label: "Top k", least: 0, most: 1000000, step: 1, key: "top_k" },
  { name: "min_p", label: "Min p", least: 0, most: 1, step: 0.01, key: "min_p" },
  { name: "repetition_penalty", label: "Repetition penalty", least: 0.01, most: 10, step: 0.01,
    key: "repeat_penalty" },
  { name: "seed", label: "Seed", least: 0, most: 2 ** 53 - 1, step: 1 },
  { name: "max_tokens", label: "Most tokens of an answer", least: 1, most: 2 ** 31 - 1, step: 1 },
];
const CHOICES = [
  { name: "reasoning_effort", label: "Reasoning effort",
    values: ["", "none", "minimal", "low", "medium", "high", "xhigh"] },
];
const KV = [{ name: "kv_budget", label: "KV budget (rows)", least: 1, most: 2 ** 31 - 1, step: 1 }];

let current = null, onChange = null;

function field(label, input) {
  return make("label", { class: "field" }, make("span", {}, label), input);
}

function numberInput({ name, least, most, step }) {
  return make("input", { id: "set-" + name, type: "number", min: String(least), max: String(most),
                         step: step < 1 ? "any" : "1", placeholder: "default" });
}

byId("set-fields").append(
  ...NUMBERS.map(row => field(row.label, numberInput(row))),
  ...CHOICES.map(({ name, label, values }) => field(label, make("select", { id: "set-" + name },
    ...values.map(value => make("option", { value }, value || "default"))))),
  field("KV policy", make("input", { id: "set-kv_policy", placeholder: "default",
                                     spellcheck: "false", autocomplete: "off",
                                     list: "kv-policies" })),
  ...KV.map(row => field(row.label, numberInput(row))));

const NAMES = ["system", "tools", "kv_policy",
               ...[...NUMBERS, ...CHOICES, ...KV].map(row => row.name)];

function toolsOf(text) {
  const tools = JSON.parse(text);
  if (!Array.isArray(tools)) throw new Error("Tools must be a JSON array.");
  return tools;
}

// The fields of a request that these settings stand for.
export function requestFields(settings) {
  const fields = {};
  for (const { name } of [...NUMBERS, ...KV])
    if (settings[name]) fields[name] = Number(settings[name]);
  for (const { name } of CHOICES) if (settings[name]) fields[name] = settings[name];
  if (settings.kv_policy) fields.kv_policy = settings.kv_policy;
  if (settings.tools) fields.tools = toolsOf(settings.tools);
  return fields;
}

// Opens the dialog; change(settings, isKept) is called when it is confirmed.
export function openSettings(talk, change) {
  current = talk;
  onChange = change;
  for (const name of NAMES) byId("set-" + name).value = talk.settings[name] || "";
  byId("set-kept").checked = talk.isKept;
  byId("set-problem").textContent = "";
  byId("settings").showModal();
  byId("set-system").focus();
}

byId("settings-form").addEventListener("submit", event => {
  event.preventDefault();
  const settings = {};
  for (const name of NAMES) {
    const value = byId("set-" + name).value;
    if (value.trim()) settings[name] = value;
  }
  try {
    if (settings.tools) toolsOf(settings.tools);
  } catch (error) {
    byId("set-problem").textContent = "Tools: " + error.message;
    byId("set-tools").focus();
    return;
  }
  current.settings = settings;
  current.isKept = byId("set-kept").checked;
  byId("settings").close();
  onChange(current);
});

byId("set-cancel").addEventListener("click", () => byId("settings").close());

// What the server does by default, and whether it can keep conversations.
export async function learnDefaults() {
  const props = await read("/props"), params = props.default_generation_settings?.params || {};
  for (const { name, key } of NUMBERS)
    if (key && params[key] !== undefined)
      byId("set-" + name).placeholder = String(Math.round(params[key] * 1000) / 1000);
  try {
    await read("/v1/sessions");
    byId("set-kept").disabled = false;
    byId("kept-why").textContent = "";
  } catch (error) {
    byId("kept-why").textContent = error.message;
  }
  return props;
}
