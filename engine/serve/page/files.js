// Text files that go with a message. They are read here and sent as part of its text.
import { button, byId, bytesText, make } from "./dom.js";

const MOST_BYTES = 1 << 20, MOST_FILES = 8;

let waiting = []; // [{ name, text }], for the next message

export function takeFiles() {
  const files = waiting;
  waiting = [];
  show();
  return files;
}

export const hasFiles = () => waiting.length > 0;

// The text of a message with its files. A fence is longer than any in the file.
export function withFiles(content, files) {
  const parts = (files || []).map(({ name, text }) => {
    const longest = (text.match(/`+/g) || []).reduce((most, run) => Math.max(most, run.length), 2);
    const fence = "`".repeat(longest + 1);
    return `${name}:\n${fence}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}`;
  });
  return [...parts, content].filter(part => part).join("\n\n");
}

function say(problem) {
  byId("file-problem").textContent = problem;
}

async function textOf(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is larger than 1 MiB`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!text.includes("\0")) return text;
  } catch { /* said below */ }
  throw new Error(`${file.name} is not text in UTF-8`);
}

export async function addFiles(files) {
  say("");
  for (const file of files) {
    try {
      const text = await textOf(file);
      if (waiting.length >= MOST_FILES) throw new Error(`${MOST_FILES} files are the most`);
      waiting.push({ name: file.name, text });
    } catch (error) {
      say(error.message);
    }
  }
  show();
}

function show() {
  byId("attached").replaceChildren(...waiting.map(file =>
    make("li", {}, `${file.name} (${bytesText(new Blob([file.text]).size)}) `,
      button("Remove", () => {
        waiting = waiting.filter(other => other !== file);
        show();
        byId("attach").focus();
      }, { class: "small", "aria-label": "Remove " + file.name }))));
}

byId("attach").addEventListener("click", () => byId("files").click());
byId("files").addEventListener("change", () => {
  addFiles([...byId("files").files]);
  byId("files").value = "";
});
byId("form").addEventListener("dragover", event => event.preventDefault());
byId("form").addEventListener("drop", event => {
  event.preventDefault();
  addFiles([...event.dataTransfer.files]);
});
