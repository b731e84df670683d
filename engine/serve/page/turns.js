// Messages on the page, and what can be done with them.
import { button, copyButton, make } from "./dom.js";
import { withFiles } from "./files.js";
import { MarkdownView } from "./markdown_view.js";
import { branchesOf } from "./store.js";

const NAMES = { user: "You", assistant: "Model", tool: "Tool" };

// "12 + 30 tokens, 8 reused, 21.5 tokens/s"
export function figuresText({ usage, timings }) {
  const cached = usage.prompt_tokens_details?.cached_tokens || 0;
  const parts = [`${usage.prompt_tokens} + ${usage.completion_tokens} tokens`];
  if (cached) parts.push(`${cached} reused`);
  if (usage.kv?.evicted) parts.push(`${usage.kv.evicted} KV rows dropped`);
  if (timings) parts.push(`${timings.predicted_per_second.toFixed(1)} tokens/s`);
  return parts.join(", ");
}

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

export class TurnView {
  // actions: { edit(node, text), again(node), branch(node), results(node, texts) }
  constructor(talk, node, actions) {
    this.talk = talk;
    this.node = node;
    this.actions = actions;
    this.waiting = { thought: "", content: "" };
    this.body = make("div", { class: "body" });
    this.foot = make("div", { class: "foot" });
    this.element = make("article", { class: "turn " + node.role, "aria-label": NAMES[node.role] },
      make("h3", { class: "who" }, NAMES[node.role]), this.body, this.foot);
    if (node.role === "assistant") this.showAnswer();
    else this.showText();
  }

  showText() {
    const { node } = this, parts = [];
    if (node.content) parts.push(make("div", { class: "content plain" }, node.content));
    for (const file of node.files || [])
      parts.push(make("details", { class: "file" }, make("summary", {}, file.name),
        make("pre", { tabindex: "0", "aria-label": file.name }, file.text)));
    this.body.replaceChildren(...parts);
    this.showFoot();
  }

  showAnswer() {
    const { node } = this;
    if (node.reasoning_content) this.addThought(node.reasoning_content);
    if (node.content) this.addContent(node.content);
    this.finish();
  }

  // ---- an answer that grows ----

  begin() {
    this.element.setAttribute("aria-busy", "true");
    this.foot.replaceChildren();
  }

  addThought(text) {
    if (!this.thought) {
      this.thought = make("div", { class: "plain" });
      this.details = make("details", { class: "thought", open: true },
        make("summary", {}, "Reasoning"), this.thought);
      this.body.prepend(this.details);
    }
    this.thought.append(text);
  }

  addContent(text) {
    if (!this.markdown) {
      const content = make("div", { class: "content" });
      if (this.details) this.details.open = false;
      this.body.append(content);
      this.markdown = new MarkdownView(content);
    }
    this.markdown.append(text);
  }

  finish() {
    this.element.removeAttribute("aria-busy");
    this.markdown?.flush();
    this.calls?.remove();
    this.calls = this.callsNode();
    if (this.calls) this.body.append(this.calls);
    this.showFoot();
  }

  // ---- calls of tools ----

  callsNode() {
    const calls = this.node.tool_calls || [];
    if (calls.length === 0) return null;
    const answered = Object.values(this.talk.nodes).some(
      other => other.parent === this.node.id && other.role === "tool");
    const inputs = [];
    const boxes = calls.map(call => {
      const name = call.function.name;
      const box = make("div", { class: "call" }, make("b", {}, name),
        make("pre", { tabindex: "0", "aria-label": "Arguments of " + name },
          prettyJson(call.function.arguments)));
      if (answered) return box;
      const input = make("textarea", { rows: "2", "aria-label": "Result of " + name,
                                       placeholder: "What the tool returns" });
      inputs.push(input);
      box.append(input);
      return box;
    });
    const all = make("div", { class: "calls" }, ...boxes);
    if (!answered)
      all.append(button("Send results", () =>
        this.actions.results(this.node, inputs.map(input => input.value))));
    return all;
  }

  // ---- below a message ----

  showFoot() {
    const { node } = this, parts = [this.branchNode()];
    const text = () => withFiles(node.content, node.files);
    parts.push(copyButton(text, "this message"));
    if (node.role === "user")
      parts.push(button("Edit", () => this.edit(), { class: "small" }));
    if (node.role === "assistant")
      parts.push(button("Regenerate", () => this.actions.again(node), { class: "small" }));
    if (node.note) parts.push(make("span", { class: "note" }, node.note));
    if (node.figures)
      parts.push(make("span", { class: "figures" }, figuresText(node.figures)));
    this.foot.replaceChildren(...parts.filter(part => part));
  }

  branchNode() {
    const branches = branchesOf(this.talk, this.node), at = branches.indexOf(this.node);
    if (branches.length < 2) return null;
    const step = (text, to, label) => button(text, () => this.actions.branch(branches[to]),
      { class: "small", "aria-label": label, disabled: !branches[to] });
    return make("span", { class: "branches", role: "group", "aria-label": "Branches" },
      step("\u2039", at - 1, "Previous branch"),
      make("span", {}, `${at + 1}/${branches.length}`),
      step("\u203a", at + 1, "Next branch"));
  }

  edit() {
    const area = make("textarea", { rows: "4", "aria-label": "Edit the message" });
    area.value = this.node.content;
    const cancel = () => {
      this.showText();
      this.foot.querySelector("button:not(.branches button)")?.focus();
    };
    const send = () => {
      if (area.value.trim()) this.actions.edit(this.node, area.value);
    };
    area.addEventListener("keydown", event => {
      if (event.key === "Escape") {
        event.stopPropagation(); // an answer that comes meanwhile goes on
        cancel();
      }
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
    this.body.replaceChildren(area);
    this.foot.replaceChildren(button("Send as a new branch", send), button("Cancel", cancel));
    area.focus();
  }
}
