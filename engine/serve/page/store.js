// What the browser keeps: conversations, as trees of messages, for this origin; the API key only
// for this tab.
//
// A conversation is { id, title, updated, leaf, next, nodes, settings, isKept }. A node is { id,
// parent, role, content, tag, ... }; nodes with the same parent are branches, and the path from
// `leaf` to the root is what is shown and sent. Two tabs may add nodes to one conversation at the
// same time: these may have the same id, but not the same tag.

const TALK = "weir.talk.", SHOWN = "weir.shown", KEY = "weir.key", SETTINGS = "weir.settings";
const MOST_TALKS = 200;
const ROLES = ["user", "assistant", "tool"];

// Storage may be full or forbidden; the page works without it.
function put(storage, name, value) {
  try {
    storage.setItem(name, value);
    return true;
  } catch {
    return false;
  }
}

function get(storage, name) {
  try {
    return storage.getItem(name) || "";
  } catch {
    return "";
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export const keptKey = () => get(sessionStorage, KEY);
export const keepKey = key => put(sessionStorage, KEY, key);
export const shownTalk = () => get(sessionStorage, SHOWN);
export const keepShownTalk = id => put(sessionStorage, SHOWN, id);

// ---- settings ----

// Strings as they were typed; those of the last conversation are those of the next one.
export function keptSettings() {
  return settingsOf(parsed(get(localStorage, SETTINGS)));
}

export const keepSettings = settings => put(localStorage, SETTINGS, JSON.stringify(settings));

function settingsOf(value) {
  const settings = {};
  if (value && typeof value === "object")
    for (const [name, text] of Object.entries(value))
      if (typeof text === "string") settings[name] = text;
  return settings;
}

// ---- conversations ----

const newName = () => crypto.getRandomValues(new Uint32Array(2)).join("-");

export function newTalk(settings) {
  return { id: newName(), title: "", updated: Date.now(), leaf: 0, next: 1, nodes: {},
           isKept: false, settings: { ...settings } };
}

const listOf = (value, isFine) => Array.isArray(value) && value.every(isFine) ? value : undefined;
const areStrings = (of, ...keys) => keys.every(key => typeof of?.[key] === "string");

// The parts of a message that the page reads; what has another form is left out.
function checkedNode({ id, parent, role, content, ...rest }) {
  const node = { id, parent, role, content };
  for (const key of ["reasoning_content", "tool_call_id", "note", "tag"])
    if (areStrings(rest, key)) node[key] = rest[key];
  node.files = listOf(rest.files, file => areStrings(file, "name", "text"));
  node.tool_calls = listOf(rest.tool_calls,
    call => areStrings(call?.function, "name", "arguments"));
  const { usage, timings } = rest.figures || {};
  if (typeof usage?.prompt_tokens === "number" && typeof usage.completion_tokens === "number")
    node.figures = { usage, timings:
      typeof timings?.predicted_per_second === "number" ? timings : undefined };
  return node;
}

// What was read from storage, if it is a conversation; another page of this origin may have written
// anything.
function checked(talk, id) {
  if (!talk || talk.id !== id || typeof talk.nodes !== "object" || !talk.nodes) return null;
  const nodes = {};
  let last = 0;
  for (const node of Object.values(talk.nodes)) {
    const isNode = node && Number.isInteger(node.id) && node.id > 0 && ROLES.includes(node.role) &&
      typeof node.content === "string" && node.parent >= 0 && node.parent < node.id;
    if (!isNode || (node.parent !== 0 && !nodes[node.parent])) return null;
    nodes[node.id] = checkedNode(node);
    last = Math.max(last, node.id);
  }
  return { id, nodes, title: String(talk.title || ""), updated: Number(talk.updated) || 0,
           leaf: nodes[talk.leaf] ? talk.leaf : 0, next: last + 1, isKept: talk.isKept === true,
           settings: settingsOf(talk.settings) };
}

export const isTalk = (name, id) => name === TALK + id;
export const readTalk = id => checked(parsed(get(localStorage, TALK + id)), id);

function names() {
  try {
    return Object.keys(localStorage).filter(name => name.startsWith(TALK));
  } catch {
    return [];
  }
}

// The newest first.
export function listTalks() {
  const talks = names().map(name => readTalk(name.slice(TALK.length))).filter(talk => talk);
  return talks.sort((a, b) => b.updated - a.updated);
}

export function removeTalk(id) {
  try {
    localStorage.removeItem(TALK + id);
  } catch { /* there is none */ }
}

// ---- other tabs ----

const made = new Set(); // tags of the nodes of this tab, which no other one changes
const tagOf = node => node.tag || String(node.id);
const isEmpty = node => node.role === "assistant" && !node.content && !node.reasoning_content &&
  !node.tool_calls;

// Adds what other tabs have saved of a conversation, but no answers that have not begun. Returns
// the saved leaf, 0 if there is none.
export function mergeTalk(talk) {
  const stored = readTalk(talk.id), ids = new Map([[0, 0]]);
  if (!stored) return 0;
  const own = new Map(Object.values(talk.nodes).map(node => [tagOf(node), node]));
  for (const node of Object.values(stored.nodes)) {
    const held = own.get(tagOf(node));
    const id = held ? held.id : talk.next, parent = ids.get(node.parent);
    if (parent === undefined || (!held && isEmpty(node))) continue;
    ids.set(node.id, id);
    if (held && (made.has(node.tag) || !node.tag)) continue;
    talk.nodes[id] = Object.assign(held || {}, node, { id, parent: held ? held.parent : parent });
    talk.next = Math.max(talk.next, id + 1);
  }
  return ids.get(stored.leaf) || 0;
}

// True if another tab has saved a conversation without all that this one added.
export function hasLost(talk) {
  const stored = new Map(Object.values(readTalk(talk.id)?.nodes || {}).map(
    node => [node.tag, node]));
  return Object.values(talk.nodes).some(node => made.has(node.tag) && !isEmpty(node) &&
    stored.get(node.tag)?.content !== node.content);
}

let tooLong = Infinity; // characters that no place was found for

// Saves a conversation that has messages. The oldest others make room, unless all of them would not
// be enough: then none goes. False: it is not kept.
export function saveTalk(talk) {
  if (Object.keys(talk.nodes).length === 0) return true;
  mergeTalk(talk);
  const text = JSON.stringify(talk), name = TALK + talk.id, gone = [];
  if (text.length >= tooLong) return false;
  const isOneMore = get(localStorage, name) === "" && names().length >= MOST_TALKS;
  if (!isOneMore && put(localStorage, name, text)) return true;
  for (const { id } of listTalks().reverse()) {
    if (id === talk.id) continue;
    gone.push([TALK + id, get(localStorage, TALK + id)]);
    removeTalk(id);
    if (put(localStorage, name, text)) return true;
  }
  if (gone.length === 0 && put(localStorage, name, text)) return true;
  for (const [other, old] of gone) put(localStorage, other, old); // they fitted before
  tooLong = text.length;
  return false;
}

// ---- the tree ----

export function addNode(talk, parent, fields) {
  const node = { ...fields, id: talk.next++, parent, tag: newName() };
  made.add(node.tag);
  talk.nodes[node.id] = node;
  talk.leaf = node.id;
  talk.updated = Date.now();
  if (!talk.title && node.role === "user") talk.title = node.content.trim().slice(0, 60).trim();
  return node;
}

export function removeNode(talk, node) {
  delete talk.nodes[node.id];
  if (talk.leaf === node.id) talk.leaf = node.parent;
}

// From the first message to the leaf.
export function pathOf(talk, leaf = talk.leaf) {
  const path = [];
  for (let node = talk.nodes[leaf]; node; node = talk.nodes[node.parent]) path.push(node);
  return path.reverse();
}

export const branchesOf = (talk, node) =>
  Object.values(talk.nodes).filter(other => other.parent === node.parent);

// Shows the branch of a node, down to its newest message. Ids grow, and a parent has a smaller one.
export function enterBranch(talk, node) {
  const below = new Set([node.id]);
  for (const other of Object.values(talk.nodes))
    if (below.has(other.parent)) below.add(other.id);
  talk.leaf = Math.max(...below);
}
