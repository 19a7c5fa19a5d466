// The incident panel: refreshed when something changed, acknowledged with one press, undone within ten seconds.
import {onKey} from "./keys.js";
import {announce, toast} from "./toasts.js";

const UNDO_SECONDS = 10;
let undo = null;
let chosen = null;
let waiting = false;
let focused = null; // the row the reader stood on while the panel was replaced

const panel = () => document.getElementById("open-incidents");

/** Asks for the panel again; not under the reader's pointer, there a chip waits at the top. */
export function refreshIncidents({force = false} = {}) {
  const found = panel();
  if (!found?.hasAttribute("hx-get")) return;
  if (!force && found.matches(":hover") && matchMedia("(hover: hover)").matches) {
    const chip = document.getElementById("new-incidents");
    chip.hidden = false;
    chip.textContent = "Changed: show";
    waiting = true;
    return;
  }
  waiting = false;
  window.htmx?.trigger(found, "refresh");
}

function rows() {
  return [...document.querySelectorAll("#open-incidents [data-incident]:is(li)")];
}

function choose(step) {
  const all = rows();
  if (!all.length) return;
  const place = all.findIndex((row) => row.dataset.incident === chosen);
  const next = all[Math.min(all.length - 1, Math.max(0, place + step))];
  chosen = next.dataset.incident;
  next.querySelector(".ti").focus();
}

function acknowledgeChosen() {
  const row = rows().find((one) => one.dataset.incident === chosen) ?? rows().find((one) => one.querySelector("form.ack"));
  row?.querySelector("form.ack")?.requestSubmit();
}

async function takeBack(form, close) {
  undo = null;
  close();
  const address = form.action.replace(/acknowledge\/?$/, "unacknowledge/");
  const answer = await fetch(address, {method: "POST", body: new FormData(form), headers: {"HX-Request": "true"}});
  toast(answer.ok ? "No longer acknowledged." : "That could not be undone.", {kind: answer.ok ? "" : "bad"});
  refreshIncidents({force: true});
}

function acknowledged(form) {
  const what = form.dataset.what;
  const close = toast(`Acknowledged ${what}.`, {seconds: UNDO_SECONDS, action: {label: "Undo", act: () => undo?.()}});
  const mine = () => takeBack(form, close);
  undo = mine;
  setTimeout(() => { if (undo === mine) undo = null; }, UNDO_SECONDS * 1000);
  announce(`Acknowledged ${what}`);
}

function outline(row, on) {
  const wall = document.getElementById("wall");
  for (const tile of wall?.querySelectorAll("[data-n]") ?? []) {
    const name = tile.querySelector("[title]")?.title;
    if (name === row.dataset.node) tile.classList.toggle("sel", on);
  }
}

function outlineRows(name, on) {
  for (const row of rows()) row.classList.toggle("sel", on && row.dataset.node === name);
}

/** The reader stays on the row and control they were on, though the panel is new. */
function keepFocus() {
  const row = focused && rows().find((one) => one.dataset.incident === focused.incident);
  if (row && !panel().contains(document.activeElement)) (row.querySelector(focused.control) ?? row.querySelector(".ti"))?.focus();
  focused = null;
}

function rememberFocus() {
  const row = document.activeElement?.closest?.("#open-incidents li");
  if (!row) return;
  const control = document.activeElement.closest("form.ack") ? "form.ack button" : ".ti";
  focused = {incident: row.dataset.incident, control};
}

/** The numbers in the bar follow the panel. */
function showCounts() {
  const total = panel()?.querySelector(".pill")?.textContent;
  const open = String(document.querySelectorAll("#open-incidents li.un").length);
  for (const pill of document.querySelectorAll("[data-open-count]")) if (total) pill.textContent = total;
  for (const pill of document.querySelectorAll("[data-unacknowledged-count]")) {
    pill.textContent = open;
    pill.hidden = open === "0";
  }
}

/** Wires keys, pointer links between wall and list, and what happens around an acknowledgement. */
export function watchIncidents() {
  document.addEventListener("htmx:before:request", (event) => {
    const form = event.detail?.ctx?.sourceElement;
    if (form?.matches?.("form.ack")) form.closest("li")?.classList.add("busy");
  });
  document.addEventListener("htmx:after:request", (event) => {
    const {ctx} = event.detail ?? {};
    const form = ctx?.sourceElement;
    if (!form?.matches?.("form.ack")) return;
    const status = ctx.response?.status ?? ctx.response?.raw?.status ?? 0;
    if (status < 400) acknowledged(form);
    else toast(status === 409 ? "Somebody was quicker, or it changed meanwhile." : "It could not be acknowledged.", {kind: "bad"});
    refreshIncidents({force: true});
  });
  document.addEventListener("htmx:before:swap", rememberFocus);
  document.addEventListener("htmx:after:swap", () => { keepFocus(); showCounts(); });
  document.addEventListener("pointerover", (event) => {
    const row = event.target.closest?.("#open-incidents li");
    const tile = event.target.closest?.("#wall [data-n]");
    if (row) outline(row, true);
    if (tile) outlineRows(tile.querySelector("[title]")?.title, true);
  });
  document.addEventListener("pointerout", (event) => {
    const row = event.target.closest?.("#open-incidents li");
    const tile = event.target.closest?.("#wall [data-n]");
    if (row) outline(row, false);
    if (tile) outlineRows("", false);
    if (waiting && panel()?.contains(event.target) && !panel().contains(event.relatedTarget)) refreshIncidents();
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("#new-incidents")) refreshIncidents({force: true});
  });
  onKey("j", () => choose(1));
  onKey("k", () => choose(-1));
  onKey("a", acknowledgeChosen);
  onKey("u", () => undo?.());
}
