// The list of conversations that this browser keeps.
import { button, byId, make } from "./dom.js";
import { listTalks } from "./store.js";

// A button that must be pressed twice within four seconds.
function sureButton(text, label, act) {
  let isSure = false;
  const element = button(text, () => {
    if (isSure) {
      act();
      return;
    }
    isSure = true;
    element.textContent = "Sure?";
    element.setAttribute("aria-label", "Sure? " + label);
    setTimeout(() => {
      isSure = false;
      element.textContent = text;
      element.setAttribute("aria-label", label);
    }, 4000);
  }, { class: "small", "aria-label": label });
  return element;
}

let last = "";

// actions: { open(id), remove(id) }
export function showHistory(shown, running, actions) {
  const talks = listTalks();
  const now = JSON.stringify([shown.id, talks.map(({ id, title, isKept }) =>
    [id, title, isKept, running.has(id)])]);
  if (now === last) return; // the focus and a "Sure?" stay
  last = now;
  byId("talks").replaceChildren(...talks.map(talk => {
    const title = talk.title || "Untitled";
    const marks = [running.has(talk.id) ? "answering" : "", talk.isKept ? "on the server" : ""];
    return make("li", {},
      make("button", { type: "button", class: "talk", onclick: () => actions.open(talk.id),
                       "aria-current": talk.id === shown.id ? "true" : null },
        make("span", { class: "title" }, title),
        make("span", { class: "note" }, marks.filter(mark => mark).join(", "))),
      sureButton("Delete", "Delete " + title, () => actions.remove(talk.id)));
  }));
  byId("no-talks").hidden = talks.length > 0;
}
