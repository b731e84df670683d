// Markdown to blocks and nodes: the part of CommonMark and GitHub's tables that models write. What
// looks like HTML is text. Nesting is bounded, so that no text can exhaust the stack.

const MOST_DEPTH = 12;
const LONG_TEXT = 20000; // a longer paragraph is shown as it is
// Each takes a time that grows with the line: no two parts that repeat can have the same text.
const FENCE = /^ {0,3}(`{3,}(?!`)|~{3,}(?!~))([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]([^]*))?$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)([^]*)|)$/;
const QUOTE = /^ {0,3}> ?/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*(?:\|[ \t]*)?$/;

// ---- blocks ----

const isBlank = line => line.trim() === "";
const indentOf = line => line.length - line.trimStart().length;
const isTable = (lines, i) =>
  lines[i].includes("|") && i + 1 < lines.length && lines[i + 1].includes("|") &&
  DELIMITERS.test(lines[i + 1]);

function beginsBlock(lines, i) {
  const line = lines[i];
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) ||
    QUOTE.test(line) || isTable(lines, i);
}

function cellsOf(line) {
  const text = line.trim().replace(/^\|/, "").replace(/([^\\]|^)\|$/, "$1");
  return text.split(/(?<!\\)\|/).map(cell => cell.trim().replaceAll("\\|", "|"));
}

function readCode(lines, i, fence) {
  const [, mark, info] = fence, language = info.trim().split(/\s/, 1)[0], body = [];
  const end = new RegExp("^ {0,3}" + mark[0] + "{" + mark.length + ",}[ \\t]*$");
  let at = i + 1;
  while (at < lines.length && !end.test(lines[at])) body.push(lines[at++]);
  return [{ kind: "code", language, text: body.join("\n") }, Math.min(at + 1, lines.length)];
}

// Without the signs that close it, which follow a space: "C#" keeps its own.
function headingText(text) {
  const all = text.trim();
  let end = all.length;
  while (end > 0 && all[end - 1] === "#") end--;
  return end === 0 || /\s/.test(all[end - 1]) ? all.slice(0, end).trim() : all;
}

function readQuote(lines, i) {
  const body = [];
  let at = i;
  while (at < lines.length && !isBlank(lines[at]) &&
         (QUOTE.test(lines[at]) || !beginsBlock(lines, at)))
    body.push(lines[at++].replace(QUOTE, ""));
  return [{ kind: "quote", text: body.join("\n") }, at];
}

function readTable(lines, i) {
  const align = cellsOf(lines[i + 1]).map(cell =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left");
  const rows = [];
  let at = i + 2;
  while (at < lines.length && !isBlank(lines[at]) && lines[at].includes("|"))
    rows.push(cellsOf(lines[at++]));
  return [{ kind: "table", align, head: cellsOf(lines[i]), rows }, at];
}

// An item goes on with lines that are indented as far as its text, and with the rest of its
// paragraph.
function readItem(lines, i, item) {
  const width = item[1].length + item[2].length + Math.min(item[3]?.length || 1, 4);
  const body = [item[4] || ""];
  let at = i + 1;
  for (; at < lines.length; at++) {
    const line = lines[at];
    if (isBlank(line)) {
      if (at + 1 >= lines.length || isBlank(lines[at + 1]) || indentOf(lines[at + 1]) < width)
        break;
      body.push("");
    } else if (indentOf(line) >= width) {
      body.push(line.slice(width));
    } else if (!isBlank(lines[at - 1]) && !beginsBlock(lines, at)) {
      body.push(line.trimStart());
    } else {
      break;
    }
  }
  return [body.join("\n"), at];
}

function readList(lines, i) {
  const first = ITEM.exec(lines[i]), kind = first[2].at(-1), items = [];
  let at = i;
  for (;;) {
    const item = at < lines.length && !RULE.test(lines[at]) ? ITEM.exec(lines[at]) : null;
    if (!item || item[2].at(-1) !== kind) break;
    const [text, end] = readItem(lines, at, item);
    items.push(text);
    at = end;
    if (at + 1 < lines.length && isBlank(lines[at]) && ITEM.test(lines[at + 1])) at++;
  }
  const isOrdered = kind === "." || kind === ")";
  return [{ kind: "list", isOrdered, start: parseInt(first[2], 10) || 0, items }, at];
}

function readBlock(lines, i) {
  const line = lines[i], fence = FENCE.exec(line), heading = HEADING.exec(line);
  if (fence) return readCode(lines, i, fence);
  if (heading)
    return [{ kind: "heading", level: heading[1].length, text: headingText(heading[2] || "") },
            i + 1];
  if (RULE.test(line)) return [{ kind: "rule" }, i + 1];
  if (QUOTE.test(line)) return readQuote(lines, i);
  if (ITEM.test(line)) return readList(lines, i);
  if (isTable(lines, i)) return readTable(lines, i);
  let at = i + 1;
  while (at < lines.length && !isBlank(lines[at]) && !beginsBlock(lines, at)) at++;
  return [{ kind: "paragraph", text: lines.slice(i, at).join("\n") }, at];
}

// The blocks of a text, each with the number of its first line.
export function blocksOf(text) {
  const lines = text.split(/\r?\n/), blocks = [];
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) {
      i++;
      continue;
    }
    const [block, end] = readBlock(lines, i);
    blocks.push({ ...block, line: i });
    i = end;
  }
  return blocks;
}

// ---- text within a block ----

const SPECIAL = /[\\`*_~[!<]|https?:\/\//g;
const MARKS = ["**", "__", "~~", "*", "_"];
const TAGS = { "**": "strong", "__": "strong", "~~": "del", "*": "em", "_": "em" };

// Only addresses that a click may open; never javascript:, data: or a path of this server.
export function safeLink(address) {
  try {
    const { protocol, href } = new URL(address);
    return ["http:", "https:", "mailto:"].includes(protocol) ? href : null;
  } catch {
    return null;
  }
}

function linkTo(address, label) {
  const href = safeLink(address), link = document.createElement(href ? "a" : "span");
  if (href) {
    link.href = href;
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  link.append(label || address);
  return link;
}

function codeSpan(text, i) {
  const run = /^`+/.exec(text.slice(i, i + 64))[0];
  const end = text.indexOf(run, i + run.length);
  if (end < 0 || text[end + run.length] === "`") return [run, i + run.length];
  const code = document.createElement("code");
  code.textContent = text.slice(i + run.length, end).replace(/^ (.+) $/, "$1");
  return [code, end + run.length];
}

// [label](address "title"), and images, which are links: nothing is ever loaded.
const LINK = new RegExp(String.raw`^!?\[((?:[^[\]\\]|\\.){0,1000})\]` +
  String.raw`\(<?([^\s()<>]{1,1000})>?(?:\s+"[^"]*")?\)`);

function linkSpan(text, i, depth) {
  const link = LINK.exec(text.slice(i, i + 2048));
  if (!link) return null;
  const label = document.createDocumentFragment();
  addSpans(label, link[1], depth + 1);
  return [linkTo(link[2], label.textContent ? label : link[2]), i + link[0].length];
}

function markedSpan(text, i, depth, missing) {
  const mark = MARKS.find(m => text.startsWith(m, i));
  const from = mark ? i + mark.length : 0;
  if (!mark || missing.has(mark) || /\s|^$/.test(text[from] || "")) return null;
  if (mark[0] === "_" && /\w/.test(text[i - 1] || "")) return null;
  for (let end = text.indexOf(mark, from + 1), tries = 0; end > 0 && tries < 50; tries++) {
    const isInner = mark.length === 1 && (text[end + 1] === mark || text[end - 1] === mark);
    const isInWord = mark[0] === "_" && /\w/.test(text[end + mark.length] || "");
    if (!isInner && !isInWord && !/\s/.test(text[end - 1])) {
      const span = document.createElement(TAGS[mark]);
      addSpans(span, text.slice(from, end), depth + 1);
      return [span, end + mark.length];
    }
    end = text.indexOf(mark, end + mark.length);
    if (end < 0) break;
  }
  missing.add(mark); // no need to look again in this text
  return null;
}

function bareLink(text, i) {
  const address = /^https?:\/\/[^\s<>"'`]{1,1000}/.exec(text.slice(i, i + 1100));
  if (!address) return null;
  const trimmed = address[0].replace(/[.,;:!?*_~)\]]+$/, "");
  return safeLink(trimmed) ? [linkTo(trimmed), i + trimmed.length] : null;
}

function spanAt(text, i, depth, missing) {
  switch (text[i]) {
  case "\\": return /[!-/:-@[-`{-~]/.test(text[i + 1] || "") ? [text[i + 1], i + 2] : null;
  case "`": return codeSpan(text, i);
  case "[": case "!": return linkSpan(text, i, depth);
  case "<": {
    const link = /^<((?:https?:|mailto:)[^\s<>]{1,1000})>/.exec(text.slice(i, i + 1100));
    return link && safeLink(link[1]) ? [linkTo(link[1]), i + link[0].length] : null;
  }
  case "h": return bareLink(text, i);
  default: return markedSpan(text, i, depth, missing);
  }
}

// Appends the nodes of a text to an element.
export function addSpans(parent, text, depth = 0) {
  if (depth > MOST_DEPTH || text.length > LONG_TEXT) {
    parent.append(text);
    return;
  }
  const missing = new Set(), special = new RegExp(SPECIAL);
  let done = 0, at;
  while ((at = special.exec(text)) !== null) {
    const span = spanAt(text, at.index, depth, missing);
    if (!span) continue;
    if (at.index > done) parent.append(text.slice(done, at.index));
    parent.append(span[0]);
    done = special.lastIndex = span[1];
  }
  if (done < text.length) parent.append(text.slice(done));
}
