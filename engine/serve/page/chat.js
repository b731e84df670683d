// The chat: what is shown, what is sent, and the answers that come.
import { button, byId, make, toggle } from "./dom.js";
import { hasFiles, takeFiles, withFiles } from "./files.js";
import { showHistory } from "./history.js";
import { openMemory } from "./memory.js";
import { learnPlan } from "./plan.js";
import { call, eventsOf, post, problemOf, read } from "./server.js";
import { learnDefaults, openSettings, requestFields } from "./settings.js";
import {
  addNode, enterBranch, hasLost, isTalk, keepSettings, keepShownTalk, keptSettings, mergeTalk,
  newTalk, pathOf, readTalk, removeNode, removeTalk, saveTalk, shownTalk,
} from "./store.js";
import { figuresText, TurnView } from "./turns.js";

const log = byId("log");
let talk = newTalk(keptSettings()); // the one that is shown
let isStale = false; // another tab has written it
const views = new Map(); // of its messages, by node
const running = new Map(); // by conversation: { talk, node, abort, model }

// Before a change: what another tab added stays, as branches; what is shown here stays shown.
function refresh() {
  const next = isStale && !running.has(talk.id) ? readTalk(talk.id) : null;
  if (!next) return;
  isStale = false;
  mergeTalk(talk);
  Object.assign(talk, { title: next.title, settings: next.settings, isKept: next.isKept });
  show();
}

function save(which) {
  const isKept = saveTalk(which);
  byId("keep-problem").textContent = isKept ? "" : "The browser has no space for this chat.";
}

// ---- display ----

// Keeps the position of a reader who scrolled up.
function atEnd(change) {
  const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  change();
  if (follow) log.scrollTop = log.scrollHeight;
}

const actions = {
  edit(node, content) {
    if (running.has(talk.id)) return;
    refresh();
    addNode(talk, node.parent, { role: "user", content, files: node.files });
    show();
    ask(talk);
  },
  again(node) {
    if (running.has(talk.id)) return;
    refresh();
    const before = talk.leaf;
    talk.leaf = node.parent;
    show();
    ask(talk, before);
  },
  branch(node) {
    refresh();
    enterBranch(talk, node);
    save(talk);
    show();
    views.get(node.id)?.foot.querySelector("button:not([disabled])")?.focus();
  },
  results(node, texts) {
    if (running.has(talk.id)) return;
    refresh();
    let parent = node.id;
    node.tool_calls.forEach((of, i) => {
      parent = addNode(talk, parent, { role: "tool", content: texts[i], tool_call_id: of.id }).id;
    });
    show();
    ask(talk);
  },
};

function addView(node) {
  const view = new TurnView(talk, node, actions);
  views.set(node.id, view);
  log.append(view.element);
  const run = running.get(talk.id);
  if (run?.node === node) {
    run.waiting = { thought: "", content: "" }; // the view has it already
    view.begin();
  }
  return view;
}

function show() {
  const hadFocus = log.contains(document.activeElement);
  views.clear();
  log.replaceChildren();
  if (hadFocus) log.focus({ preventScroll: true });
  const path = pathOf(talk);
  path.forEach(addView);
  byId("welcome").hidden = path.length > 0;
  log.scrollTop = log.scrollHeight;
  const last = path.filter(node => node.figures).at(-1);
  showFigures(last?.figures);
  showRunning();
  keepShownTalk(talk.id);
}

function showRunning() {
  const isRunning = running.has(talk.id), focused = document.activeElement;
  byId("send").hidden = isRunning;
  byId("stop").hidden = !isRunning;
  if (focused?.hidden) byId("text").focus();
  showHistory(talk, running, { open: openTalk, remove: dropTalk });
}

// Others listen, to show what a turn did to the memory.
function showFigures(figures) {
  byId("figures").textContent = figures ? figuresText(figures) : "";
  document.dispatchEvent(new CustomEvent("weir-turn", { detail: figures || null }));
}

function showProblem(text, node, before) {
  const again = button("Try again", () => {
    if (running.has(talk.id)) return;
    turn.remove();
    log.focus();
    refresh();
    if (before !== node.parent) {
      talk.leaf = node.parent;
      show();
    }
    ask(talk, before);
  });
  const turn = make("div", { class: "turn problem", role: "alert" }, text + " ", again);
  atEnd(() => log.append(turn));
}

// ---- answers ----

function messagesOf(of, leaf) {
  const messages = of.settings.system ? [{ role: "system", content: of.settings.system }] : [];
  for (const node of pathOf(of, leaf)) {
    const message = { role: node.role, content: withFiles(node.content, node.files) };
    for (const name of ["reasoning_content", "tool_calls", "tool_call_id"])
      if (node[name]?.length) message[name] = node[name];
    messages.push(message);
  }
  return messages;
}

const sessionOf = of => "page-" + of.id;

function addCalls(node, pieces) {
  for (const piece of pieces || []) {
    node.tool_calls ||= [];
    const held = node.tool_calls[piece.index] ||= { id: piece.id, type: "function",
                                                    function: { name: "", arguments: "" } };
    held.function.name += piece.function?.name || "";
    held.function.arguments += piece.function?.arguments || "";
  }
}

// Pieces are shown once a frame. Until then they wait.
function paint(run) {
  run.frame = 0;
  const view = run.talk === talk ? views.get(run.node.id) : null;
  const { thought, content } = run.waiting;
  run.waiting = { thought: "", content: "" };
  if (!view) return;
  atEnd(() => {
    if (thought) view.addThought(thought);
    if (content) view.addContent(content);
  });
}

function take(event, run) {
  if (event.error) throw new Error(event.error.message);
  const { node } = run, choice = event.choices[0], delta = choice ? choice.delta : {};
  const thought = delta.reasoning_content || delta.reasoning || "", content = delta.content || "";
  if ((thought || content) && run.talk === talk && !run.frame) {
    run.frame = requestAnimationFrame(() => {
      paint(run);
      if (performance.now() - run.saved > 2000) {
        run.saved = performance.now();
        save(run.talk);
      }
    });
  }
  if (run.talk === talk && views.has(node.id)) {
    run.waiting.thought += thought;
    run.waiting.content += content;
  }
  node.reasoning_content += thought;
  node.content += content;
  addCalls(node, delta.tool_calls);
  if (choice?.finish_reason === "length") node.note = "cut: no tokens were left";
  if (event.usage) node.figures = { usage: event.usage, timings: event.timings };
}

async function stream(run, messages) {
  const body = { messages, stream: true, stream_options: { include_usage: true },
                 ...requestFields(run.talk.settings) };
  if (run.talk.isKept) body.session = sessionOf(run.talk);
  const reply = await post("/v1/chat/completions", body, run.abort.signal);
  if (!reply.ok) throw new Error(await problemOf(reply));
  for await (const event of eventsOf(reply.body)) take(event, run);
}

// Has the answer to the last message, as a new branch below it. Without one, `before` is shown
// again.
async function ask(of, before = of.leaf) {
  const messages = messagesOf(of);
  const node = addNode(of, of.leaf, { role: "assistant", content: "", reasoning_content: "" });
  const run = { talk: of, node, before, abort: new AbortController(), frame: 0,
                saved: performance.now(), waiting: { thought: "", content: "" } };
  running.set(of.id, run);
  if (of === talk) atEnd(() => addView(node));
  save(of);
  showRunning();
  let problem = "";
  try {
    await stream(run, messages);
  } catch (error) {
    if (error.name !== "AbortError") problem = error.message;
  }
  if (run.frame) cancelAnimationFrame(run.frame);
  paint(run);
  running.delete(of.id);
  end(run, problem);
}

function end({ talk: of, node, before }, problem) {
  const isEmpty = !node.content && !node.reasoning_content && !node.tool_calls;
  const view = of === talk ? views.get(node.id) : null;
  if (isEmpty) {
    if (of.leaf === node.id) of.leaf = before;
    removeNode(of, node);
  } else if (problem) {
    node.note = problem;
  }
  if (!of.isRemoved) save(of);
  showRunning();
  if (view && isEmpty && before !== node.parent) show();
  else if (view && isEmpty) view.element.remove();
  else if (view) atEnd(() => view.finish());
  if (of.isKept && !of.isRemoved && !problem && !isEmpty) keepOnServer(of);
  if (of !== talk) return;
  if (isEmpty && problem) showProblem(problem, node, before);
  if (node.figures) showFigures(node.figures);
}

// ---- conversations on the server ----

// Shows why the server did not do it; `fine` is a status that is no problem either.
async function sayProblem(request, what, fine) {
  let problem = "";
  try {
    const reply = await request;
    if (!reply.ok && reply.status !== fine) problem = await problemOf(reply);
  } catch (error) {
    problem = error.message;
  }
  byId("keep-problem").textContent = problem && `${what}: ${problem}`;
}

const keepOnServer = of =>
  sayProblem(post("/v1/sessions", { name: sessionOf(of) }), "Not saved on the server");

const dropFromServer = of =>
  sayProblem(call("/v1/sessions/" + sessionOf(of), { method: "DELETE" }),
    "Still on the server", 404);

// ---- conversations ----

function openTalk(id) {
  if (id === talk.id && isStale && !running.has(id)) talk.leaf = mergeTalk(talk) || talk.leaf;
  const isShown = id === talk.id; // and newer than what was kept, if there is no space
  const next = running.get(id)?.talk || (isShown ? talk : readTalk(id));
  if (!next) return;
  isStale &&= id === talk.id && running.has(id);
  talk = next;
  show();
  if (innerWidth < 1000) toggle("show-history", "history", false);
  byId("text").focus();
}

function dropTalk(id) {
  const dropped = running.get(id)?.talk || readTalk(id);
  if (dropped) dropped.isRemoved = true;
  running.get(id)?.abort.abort();
  removeTalk(id);
  if (dropped?.isKept) dropFromServer(dropped);
  if (talk.id === id) startTalk();
  else showRunning();
  byId("new").focus();
}

function startTalk() {
  isStale = false;
  talk = newTalk(keptSettings());
  show();
}

// ---- input ----

byId("form").addEventListener("submit", event => {
  event.preventDefault();
  const content = byId("text").value;
  if (running.has(talk.id) || (!content.trim() && !hasFiles())) return;
  byId("text").value = "";
  refresh();
  const node = addNode(talk, talk.leaf, { role: "user", content, files: takeFiles() });
  log.querySelector(".problem")?.remove();
  byId("welcome").hidden = true;
  addView(node);
  log.scrollTop = log.scrollHeight;
  ask(talk);
});

byId("text").addEventListener("keydown", event => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running.has(talk.id)) byId("form").requestSubmit();
});

byId("stop").addEventListener("click", () => {
  running.get(talk.id)?.abort.abort();
  byId("text").focus();
});

byId("new").addEventListener("click", () => {
  startTalk();
  if (innerWidth < 1000) toggle("show-history", "history", false);
  byId("text").focus();
});

byId("show-history").addEventListener("click", () =>
  toggle("show-history", "history", byId("history").hidden));

byId("show-settings").addEventListener("click", () => openSettings(talk, ({ settings, isKept }) => {
  refresh();
  Object.assign(talk, { settings, isKept });
  keepSettings(settings);
  save(talk);
  showRunning();
}));

addEventListener("keydown", event => {
  if (event.key === "Escape" && running.has(talk.id) && !byId("settings").open)
    running.get(talk.id).abort.abort();
});

addEventListener("storage", event => { // another tab
  const isShown = isTalk(event.key, talk.id);
  isStale ||= isShown;
  // It wrote while this one did, and had not read that.
  if (isShown && event.newValue && !running.has(talk.id) && hasLost(talk)) save(talk);
  showRunning();
});

addEventListener("pagehide", () => {
  for (const run of running.values()) save(run.talk);
});

async function begin() {
  talk = readTalk(shownTalk()) || talk;
  toggle("show-history", "history", innerWidth >= 1000);
  openMemory(innerWidth >= 1300);
  show();
  try {
    const models = await read("/v1/models");
    byId("model").textContent = models.data[0].id;
    await learnDefaults();
    await learnPlan();
  } catch (error) {
    byId("figures").textContent = error instanceof TypeError ? "The server does not answer."
      : error.message;
  }
}
begin();
