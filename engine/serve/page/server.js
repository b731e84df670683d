// Requests to this server, with the API key that the user entered.
import { byId } from "./dom.js";
import { keepKey, keptKey } from "./store.js";

let key = keptKey();
let asked = null; // { promise, resolve } while a key is asked for

function askForKey(problem) {
  byId("key-form").hidden = false;
  byId("key-problem").textContent = problem;
  byId("key").focus();
  if (!asked) {
    asked = {};
    asked.promise = new Promise(resolve => { asked.resolve = resolve; });
  }
  return asked.promise;
}

byId("key-form").addEventListener("submit", event => {
  event.preventDefault();
  const entered = byId("key").value.trim();
  if (!entered || !asked) return;
  if (!/^[ -~]+$/.test(entered)) { // fetch() could not send it
    askForKey("A key has ASCII characters only.");
    return;
  }
  key = entered;
  keepKey(key);
  byId("key").value = "";
  byId("key-form").hidden = true;
  const { resolve } = asked;
  asked = null;
  resolve();
});

function untilAborted(promise, signal) {
  if (!signal) return promise;
  return Promise.race([promise, new Promise((_, reject) => {
    const abort = () => reject(new DOMException("stopped", "AbortError"));
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  })]);
}

// fetch with the API key. On 401 it prompts for a key and tries again.
export async function call(path, options = {}) {
  for (;;) {
    const used = key, headers = { ...options.headers };
    if (used) headers.Authorization = "Bearer " + used;
    const reply = await fetch(path, { ...options, headers });
    if (reply.status !== 401) return reply;
    if (used !== key) continue; // entered while this request was on its way
    await untilAborted(askForKey(used ? "The server refused this key." : ""), options.signal);
  }
}

export const post = (path, body, signal) => call(path, {
  method: "POST", signal, headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});

export async function problemOf(reply) {
  const text = await reply.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `HTTP ${reply.status}`;
  }
}

// The JSON of a GET, or an error with the server's message.
export async function read(path, signal) {
  const reply = await call(path, { signal });
  if (!reply.ok) throw new Error(await problemOf(reply));
  return reply.json();
}

// The events of a stream.
export async function* eventsOf(body) {
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
