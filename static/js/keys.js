// Single keys, none inside a field, none with a modifier. Every key has a button too.
const bindings = new Map();
let waiting = "";
let waitingTimer = 0;

/** Calls `act` when `key` is pressed; a two-key binding is written "g f". */
export function onKey(key, act) {
  bindings.set(key, act);
}

function isField(element) {
  return element instanceof HTMLElement && (element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName));
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isField(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const act = bindings.get(waiting ? `${waiting} ${event.key}` : event.key);
  waiting = "";
  clearTimeout(waitingTimer);
  if (act) {
    event.preventDefault();
    act(event);
  } else if (event.key === "g") {
    waiting = "g";
    waitingTimer = setTimeout(() => { waiting = ""; }, 1500);
  }
});
