// Short notes at the lower edge, with an optional way back.

/** Shows `text` for `seconds`; `action` is `{label, act}`. Returns a function that takes the note away. */
export function toast(text, {seconds = 6, action = null, kind = ""} = {}) {
  const note = document.createElement("p");
  note.className = `toast ${kind}`;
  note.append(text);
  const close = () => note.remove();
  if (action) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "btn sm";
    button.textContent = action.label;
    button.addEventListener("click", () => { close(); action.act(); });
    note.append(button);
  }
  document.getElementById("toasts").append(note);
  setTimeout(close, seconds * 1000);
  return close;
}

/** One polite sentence for people who cannot see the change. */
export function announce(sentence) {
  document.getElementById("announcements").textContent = sentence;
}
