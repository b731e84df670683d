// The chat page of this server. Text from the model and the user becomes text nodes only.
"use strict";

const byId = id => document.getElementById(id);
const log = byId("log");

// ---- state that survives a reload of this tab ----

const KEY = "weir.key", TALK = "weir.talk";

function keep(name, value) {
  try {
    sessionStorage.setItem(name, value);
    return true;
  } catch {
    return false; // storage is full or forbidden; the page works without it
  }
}

function kept(name) {
  try {
    return sessionStorage.getItem(name) || "";
  } catch {
    return "";
  }
}

// A conversation. An answer belongs to the one that requested it, even if another is shown now.
let talk = { messages: [], running: null };

function keptMessages() {
  try {
    const messages = JSON.parse(kept(TALK) || "[]");
    return Array.isArray(messages) ? messages.filter(m => m && typeof m.content === "string") : [];
  } catch {
    return [];
  }
}

function save() {
  const { messages, running } = talk;
  const partial = running && (running.answer.content || running.answer.reasoning_content);
  keep(TALK, JSON.stringify(partial ? [...messages, running.answer] : messages));
}

// ---- requests ----

let askedForKey = null;

function askForKey(problem) {
  byId("key-form").hidden = false;
  byId("key-problem").textContent = problem;
  byId("key").focus();
  if (!askedForKey) {
    askedForKey = {};
    askedForKey.promise = new Promise(resolve => { askedForKey.resolve = resolve; });
  }
  return askedForKey.promise;
}

byId("key-form").addEventListener("submit", event => {
  event.preventDefault();
  const key = byId("key").value.trim();
  if (!key) return;
  keep(KEY, key);
  call.key = key;
  byId("key").value = "";
  byId("key-form").hidden = true;
  const { resolve } = askedForKey;
  askedForKey = null;
  resolve();
});

// fetch with the API key. On 401 it prompts for a key and tries again.
async function call(path, options = {}) {
  for (;;) {
    const key = call.key, headers = { ...options.headers };
    if (key) headers.Authorization = "Bearer " + key;
    const reply = await fetch(path, { ...options, headers });
    if (reply.status !== 401) return reply;
    await untilAborted(askForKey(key ? "The server refused this key." : ""), options.signal);
  }
}
call.key = kept(KEY);

function untilAborted(promise, signal) {
  if (!signal) return promise;
  return Promise.race([promise, new Promise((_, reject) => {
    const abort = () => reject(new DOMException("stopped", "AbortError"));
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  })]);
}

async function problemOf(reply) {
  const text = await reply.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `HTTP ${reply.status}`;
  }
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts)
      if (part.startsWith("data: ") && part !== "data: [DONE]") yield JSON.parse(part.slice(6));
  }
}

// ---- display ----

// Keeps the position of a reader who scrolled up.
function atEnd(change) {
  const follow = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  change();
  if (follow) log.scrollTop = log.scrollHeight;
}

function addTurn(kind) {
  const turn = document.createElement("div");
  turn.className = "turn " + kind;
  log.append(turn);
  return turn;
}

function addText(turn, kind, text) {
  atEnd(() => {
    let last = turn.lastElementChild;
    if (!last || last.className !== kind) {
      last = document.createElement("span");
      last.className = kind;
      turn.append(last);
    }
    last.append(text);
  });
}

function showMessage(message) {
  const turn = addTurn(message.role === "user" ? "user" : "assistant");
  if (message.reasoning_content) addText(turn, "thought", message.reasoning_content);
  if (message.content) addText(turn, "content", message.content);
  return turn;
}

function showFigures({ usage, timings }) {
  const cached = usage.prompt_tokens_details?.cached_tokens || 0;
  const parts = [`${usage.prompt_tokens} + ${usage.completion_tokens} tokens`];
  if (cached) parts.push(`${cached} reused`);
  if (usage.kv?.evicted) parts.push(`${usage.kv.evicted} KV rows dropped`);
  if (timings) parts.push(`${timings.predicted_per_second.toFixed(1)} tokens/s`);
  byId("figures").textContent = parts.join(", ");
}

function showRunning() {
  byId("send").hidden = talk.running !== null;
  byId("stop").hidden = talk.running === null;
}

// ---- answers ----

function take(event, mine, turn, answer) {
  if (event.error) throw new Error(event.error.message);
  const choice = event.choices[0], delta = choice ? choice.delta : {};
  const thought = delta.reasoning_content || delta.reasoning || "", content = delta.content || "";
  answer.reasoning_content += thought;
  answer.content += content;
  if (mine !== talk) return;
  if (thought) addText(turn, "thought", thought);
  if (content) addText(turn, "content", content);
  if (choice?.finish_reason === "length") addText(turn, "note", "(cut: no tokens were left)");
  if (event.usage) showFigures(event);
}

async function stream(mine, turn) {
  const { answer, abort } = mine.running;
  const reply = await call("/v1/chat/completions", {
    method: "POST",
    signal: abort.signal,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({
      messages: mine.messages, stream: true, stream_options: { include_usage: true },
    }),
  });
  if (!reply.ok) throw new Error(await problemOf(reply));
  for await (const event of eventsOf(reply.body)) take(event, mine, turn, answer);
}

async function ask(mine) {
  const turn = addTurn("assistant"), question = mine.messages.at(-1);
  const answer = { role: "assistant", content: "", reasoning_content: "" };
  mine.running = { answer, abort: new AbortController() };
  showRunning();
  let problem = "";
  try {
    await stream(mine, turn);
  } catch (error) {
    if (error.name !== "AbortError") problem = error.message;
  }
  mine.running = null;
  if (mine !== talk) return; // "New" was clicked meanwhile: the answer is dropped
  const empty = !answer.content && !answer.reasoning_content;
  if (empty && problem) {
    mine.messages.pop(); // not answered: the user can send it again
    byId("text").value ||= question.content;
  } else {
    mine.messages.push(answer);
  }
  if (problem) addText(turn, "error", problem);
  showRunning();
  save();
}

// ---- input ----

byId("form").addEventListener("submit", event => {
  event.preventDefault();
  const content = byId("text").value;
  if (talk.running || !content.trim()) return;
  byId("text").value = "";
  const message = { role: "user", content };
  talk.messages.push(message);
  showMessage(message);
  log.scrollTop = log.scrollHeight;
  save();
  ask(talk);
});

byId("text").addEventListener("keydown", event => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!talk.running) byId("form").requestSubmit();
});

byId("stop").addEventListener("click", () => talk.running?.abort.abort());

byId("new").addEventListener("click", () => {
  const old = talk;
  talk = { messages: [], running: null };
  old.running?.abort.abort();
  log.replaceChildren();
  byId("figures").textContent = "";
  showRunning();
  save();
  byId("text").focus();
});

addEventListener("pagehide", save);

async function begin() {
  talk.messages = keptMessages();
  talk.messages.forEach(showMessage);
  log.scrollTop = log.scrollHeight;
  try {
    const reply = await call("/v1/models");
    if (reply.ok) byId("model").textContent = (await reply.json()).data[0].id;
  } catch {
    byId("figures").textContent = "The server does not answer.";
  }
}
begin();
