// Brings the parts of a page that carry `data-part` up to date, without losing what somebody is writing in one.
import {tickAges} from "./ages.js";

let asking = false;
let again = false;

function isInUse(part) {
  const active = document.activeElement;
  const writing = part.contains(active) && active.matches("input, textarea, select");
  return writing || part.querySelector("details[open]") !== null || [...part.querySelectorAll("textarea")].some((field) => field.value !== "");
}

/** Replaces one part; the focus stays on the element with the same id, link or button in the new one. */
function replace(old, fresh) {
  if (old.innerHTML === fresh.innerHTML || isInUse(old)) return;
  const focused = old.contains(document.activeElement) ? [...old.querySelectorAll("a, button")].indexOf(document.activeElement) : -1;
  old.replaceChildren(...fresh.childNodes);
  if (focused >= 0) old.querySelectorAll("a, button")[focused]?.focus();
}

/** Asks for the page again and takes its parts. A request that fails changes nothing: the ages go on counting. */
export async function refreshParts() {
  if (asking) { again = true; return; }
  asking = true;
  try {
    const answer = await fetch(location.href, {headers: {Accept: "text/html"}, cache: "no-store"});
    if (answer.redirected) { location.reload(); return; }
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-part]")) {
      const fresh = page.querySelector(`[data-part="${part.dataset.part}"]`);
      if (fresh) replace(part, fresh);
    }
    tickAges();
  } catch {
    // The next change, or the next cycle, asks again.
  } finally {
    asking = false;
    if (again) { again = false; refreshParts(); }
  }
}
