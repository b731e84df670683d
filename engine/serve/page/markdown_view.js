// Shows Markdown that grows: a block that has ended is never rendered again.
import { copyButton, make } from "./dom.js";
import { addSpans, blocksOf } from "./markdown.js";

const MOST_DEPTH = 12;

function codeNode(block) {
  const code = make("code", {}, block.text);
  return make("figure", { class: "code" },
    make("figcaption", {}, make("span", {}, block.language || "text"),
      copyButton(() => code.textContent, "the code")),
    make("pre", { tabindex: "0", "aria-label": "Code" }, code));
}

function tableNode(block) {
  const row = (cells, name) => make("tr", {}, ...block.align.map((align, i) => {
    const cell = make(name, { class: "to-" + align, scope: name === "th" ? "col" : null });
    addSpans(cell, cells[i] || "");
    return cell;
  }));
  return make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" },
    make("table", {}, make("thead", {}, row(block.head, "th")),
      make("tbody", {}, ...block.rows.map(cells => row(cells, "td")))));
}

function itemNode(text, depth) {
  const item = make("li"), task = /^\[([ xX])\] /.exec(text);
  if (task) item.append(task[1] === " " ? "\u2610 " : "\u2611 ");
  addBlocks(item, task ? text.slice(4) : text, depth + 1, true);
  return item;
}

function withText(element, text) {
  addSpans(element, text);
  return element;
}

function nodeOf(block, depth) {
  switch (block.kind) {
  case "code": return codeNode(block);
  case "heading": return withText(make("h" + Math.min(block.level + 3, 6)), block.text);
  case "rule": return make("hr");
  case "table": return tableNode(block);
  case "quote": {
    const quote = make("blockquote");
    addBlocks(quote, block.text, depth + 1, false);
    return quote;
  }
  case "list": {
    const start = block.isOrdered && block.start !== 1 ? String(block.start) : null;
    return make(block.isOrdered ? "ol" : "ul", { start },
      ...block.items.map(text => itemNode(text, depth)));
  }
  default: return withText(make("p"), block.text);
  }
}

// A paragraph of a short item needs no element of its own.
function addBlocks(parent, text, depth, isItem) {
  if (depth > MOST_DEPTH) {
    parent.append(text);
    return;
  }
  const blocks = blocksOf(text);
  for (const [i, block] of blocks.entries()) {
    if (isItem && i === 0 && block.kind === "paragraph") addSpans(parent, block.text);
    else parent.append(nodeOf(block, depth));
  }
}

export class MarkdownView {
  constructor(element, text = "") {
    this.element = element;
    this.open = ""; // the source from the first block that may still change
    this.nodes = []; // and the nodes of it
    if (text) this.append(text);
  }

  append(text) {
    this.open += text;
    const blocks = blocksOf(this.open), lines = this.open.split("\n");
    // Code that grows gets its new text only; a reader's selection stays.
    const shown = this.nodes[0]?.querySelector(":scope > pre > code");
    const isGrowing = this.nodes.length === 1 && blocks.length === 1 && shown &&
      blocks[0].kind === "code" && blocks[0].text.startsWith(shown.textContent);
    if (isGrowing) {
      const more = blocks[0].text.slice(shown.textContent.length);
      if (more) shown.append(more);
      return;
    }
    for (const node of this.nodes) node.remove();
    this.nodes = blocks.map(block => nodeOf(block, 0));
    this.element.append(...this.nodes);
    this.settle(blocks, lines);
  }

  // A block has ended where the next one has two whole lines: one is not enough to tell a table, or
  // a line that goes on, from the block's rest.
  settle(blocks, lines) {
    let last = blocks.length - 1;
    while (last > 0 && blocks[last].line + 2 > lines.length - 1) last--;
    if (last <= 0) return;
    this.open = lines.slice(blocks[last].line).join("\n");
    this.nodes = this.nodes.slice(last);
  }
}
