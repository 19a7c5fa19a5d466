// On every page: theme, ticking ages, the search key, menus, and plain words when a request fails.
import {tickAges} from "./ages.js";
import {onKey} from "./keys.js";
import {toast} from "./toasts.js";

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function switchTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  const secure = location.protocol === "https:" ? ";secure" : "";
  document.cookie = `theme=${theme};path=/;max-age=31536000;samesite=lax${secure}`;
  document.dispatchEvent(new CustomEvent("themechange", {detail: {theme}}));
}

document.getElementById("theme")?.addEventListener("click", switchTheme);

onKey("/", () => document.getElementById("find")?.focus());
for (const link of document.querySelectorAll(".nav a")) {
  const key = {Fleet: "f", Incidents: "i", Trends: "t", Availability: "a"}[link.firstChild?.textContent.trim()];
  if (key) onKey(`g ${key}`, () => link.click());
}

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

document.addEventListener("htmx:error", () => toast("The server did not answer. Nothing was changed.", {kind: "bad"}));

setInterval(tickAges, 1000);
document.addEventListener("visibilitychange", () => { if (!document.hidden) tickAges(); });
