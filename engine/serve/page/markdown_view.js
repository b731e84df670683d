// Shows Markdown that grows: a block that has ended is never rendered again. One that goes on, such
// as a long list, is rendered less often the longer that takes.
import { copyButton, make } from "./dom.js";
import { addSpans, blocksOf } from "./markdown.js";

const MOST_DEPTH = 12;
const SHORT_MS = 4, SHARE = 5; // a longer rendering takes at most this part of the time

function codeNode(block) {
  const code = make("code", {}, block.text);
  return make("figure", { class: "code" },
    make("figcaption", {}, make("span", {}, block.language || "text"),
      copyButton(() => code.textContent, "the code")),
    make("pre", { tabindex: "0", "aria-label": "Code" }, code));
}

function tableNode(block) {
  const width = block.align.length;
  // What a short row lacks is one cell: a table never has more of them than its text has bars.
  const row = (all, name) => {
    const cells = all.slice(0, width), last = cells.length - 1;
    return make("tr", {}, ...cells.map((text, i) => {
      const cell = make(name, { class: "to-" + block.align[i],
                                scope: name === "th" ? "col" : null });
      addSpans(cell, text);
      return cell;
    }), last < width - 1 ? make(name, { colspan: String(width - 1 - last) }) : null);
  };
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
    this.next = 0; // not rendered before
    this.isBehind = false;
    if (text) this.append(text);
  }

  append(text) {
    this.open += text;
    this.isBehind = true;
    if (performance.now() >= this.next) this.flush();
  }

  // Renders what append() has left for later.
  flush() {
    if (!this.isBehind) return;
    const begin = performance.now();
    this.isBehind = false;
    this.render();
    const took = performance.now() - begin;
    this.next = took > SHORT_MS ? begin + SHARE * took : 0;
  }

  render() {
    const blocks = blocksOf(this.open), lines = this.open.split("\n");
    // Code that grows gets its new text only; a reader's selection stays.
    const shown = this.nodes[0]?.querySelector(":scope > pre > code");
    const label = this.nodes[0]?.querySelector(":scope > figcaption > span");
    const isGrowing = this.nodes.length === 1 && blocks.length === 1 && shown &&
      blocks[0].kind === "code" && (blocks[0].language || "text") === label.textContent &&
      blocks[0].text.startsWith(shown.textContent);
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
