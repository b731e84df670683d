// What-if: the bytes that KV would take with another context, number of sequences, format or
// policy. The figures are the server's (GET /v1/memory/plan); here they are only multiplied.
import { byId, bytesText, countText, make } from "./dom.js";
import { read } from "./server.js";

let plan = null;

// Bytes of the KV of `sequences` sequences of `context` tokens. `paged`: those of them in blocks,
// which `kv_bytes` is for; the server has the others for each of its sequences besides.
export function planBytes(of, { context, sequences, format, budget }) {
  const found = of.formats.find(each => each.format === format) || of.formats[0];
  const rows = budget > 0 ? Math.min(context, budget) : context;
  const blocks = Math.ceil(rows / of.block_tokens);
  const one = blocks * found.bytes_per_block + found.open_bytes_per_sequence +
    of.recurrent_bytes_per_sequence + of.window_bytes_per_sequence;
  return { rows, one, all: one * sequences, format: found,
           paged: blocks * found.bytes_per_block * sequences };
}

// Sliders of counts go by powers of two: a step is an eighth of a doubling.
const toStep = value => Math.round(8 * Math.log2(value));
const fromStep = step => Math.min(Math.round(2 ** (step / 8)), longest());
const longest = () => Math.max(plan.window, plan.trained_context, plan.block_tokens);

function chosen() {
  return {
    context: fromStep(Number(byId("if-context").value)),
    sequences: Number(byId("if-sequences").value),
    format: byId("if-format").value,
    budget: byId("if-policy").value === "full" ? 0 : fromStep(Number(byId("if-budget").value)),
  };
}

function showResult() {
  const wish = chosen(), isFull = wish.budget === 0;
  byId("if-budget").disabled = isFull;
  byId("if-context-value").textContent = countText(wish.context);
  byId("if-sequences-value").textContent = countText(wish.sequences);
  byId("if-budget-value").textContent = isFull ? "all" : countText(wish.budget);
  const { rows, one, all, paged, format } = planBytes(plan, wish);
  const problem = paged > plan.kv_bytes
    ? `${bytesText(paged)} in blocks, more than the ${bytesText(plan.kv_bytes)} of this server.`
    : wish.sequences > plan.sequences ? `This server runs ${plan.sequences} sequences at most.`
      : "";
  byId("if-result").replaceChildren(
    make("b", {}, bytesText(all)),
    ` (${bytesText(one)} a sequence, ${countText(rows)} rows of each KV head). `,
    make("span", { class: problem ? "error" : "good" },
      problem || `Fits the ${bytesText(plan.kv_bytes)} of this server's KV.`),
    format.lossy || !isFull ? " Answers may change." : " Answers keep their bits.");
}

function fillChoices(memory) {
  const isThere = plan.formats.some(each => each.format === memory.kv.format);
  byId("if-format").replaceChildren(...plan.formats.map(({ format }) =>
    make("option", { value: format, selected: format === memory.kv.format }, format)));
  if (!isThere) byId("if-format").selectedIndex = 0;
  byId("if-policy").replaceChildren(...plan.policies.map(name =>
    make("option", { value: name }, name)));
  for (const id of ["if-context", "if-budget"]) {
    byId(id).min = String(toStep(plan.block_tokens));
    byId(id).max = String(Math.ceil(8 * Math.log2(longest())));
  }
  byId("if-context").value = String(toStep(Math.max(plan.window, plan.block_tokens)));
  byId("if-budget").value = String(toStep(512));
  byId("if-sequences").max = String(Math.max(4 * plan.sequences, 1));
  byId("if-sequences").value = "1";
}

for (const id of ["if-context", "if-sequences", "if-format", "if-policy", "if-budget"])
  byId(id).addEventListener("input", () => plan && showResult());

// Fills the list of policies in the settings, too.
export async function learnPlan() {
  if (plan) return plan;
  plan = await read("/v1/memory/plan");
  byId("kv-policies").replaceChildren(...plan.policies.map(value => make("option", { value })));
  return plan;
}

export async function showPlan() {
  if (!byId("if-format").hidden && byId("if-format").options.length > 0) return;
  try {
    await learnPlan();
    fillChoices(await read("/v1/memory"));
    byId("if-problem").textContent = "";
    showResult();
  } catch (error) {
    byId("if-problem").textContent = error.message;
  }
}
