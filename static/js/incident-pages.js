// The list of incidents and the page of one: brought up to date when something changed, and worked by keys.
import {tickAges} from "./ages.js";
import {onKey} from "./keys.js";
import {followLive} from "./live.js";
import {refreshParts} from "./parts.js";
import {announce, toast} from "./toasts.js";

const UNDO_SECONDS = 10;
let chosen = null;
let undo = null;
let waiting = false;

const list = () => document.getElementById("rows");
const rows = () => [...document.querySelectorAll("#rows [data-incident]")];

/** Asks for what is shown again; a list that the pointer is in waits. */
export function refresh({force = false} = {}) {
  const found = list();
  if (!found) { refreshParts(); return; }
  if (!force && found.matches(":hover") && matchMedia("(hover: hover)").matches) {
    document.getElementById("changed").hidden = false;
    waiting = true;
    return;
  }
  waiting = false;
  document.getElementById("changed").hidden = true;
  window.htmx?.trigger(found, "refresh");
}

function choose(step) {
  const all = rows();
  if (!all.length) return;
  const place = all.findIndex((row) => row.dataset.incident === chosen);
  show(all[Math.min(all.length - 1, Math.max(0, place + step))]);
}

function show(row) {
  chosen = row.dataset.incident;
  for (const one of rows()) one.classList.toggle("sel", one === row);
  row.querySelector("a").focus();
}

function acknowledge() {
  const button = document.getElementById("acknowledge");
  if (button) { button.form.requestSubmit(); return; }
  const row = rows().find((one) => one.dataset.incident === chosen);
  row?.querySelector("form.ack")?.requestSubmit();
}

async function takeBack(form) {
  undo = null;
  const address = form.action.replace(/acknowledge\/$/, "unacknowledge/");
  const answer = await fetch(address, {method: "POST", body: new FormData(form), headers: {"HX-Request": "true"}});
  toast(answer.ok ? "No longer acknowledged." : "That could not be undone.", {kind: answer.ok ? "" : "bad"});
  refresh({force: true});
}

function acknowledged(form) {
  undo = () => takeBack(form);
  const close = toast(`Acknowledged ${form.dataset.what}.`, {
    seconds: UNDO_SECONDS, action: {label: "Undo", act: () => undo?.()},
  });
  setTimeout(() => { undo = null; close(); }, UNDO_SECONDS * 1000);
  announce(`Acknowledged ${form.dataset.what}`);
}

document.addEventListener("htmx:after:request", (event) => {
  const {ctx} = event.detail ?? {};
  const form = ctx?.sourceElement;
  if (!form?.matches?.("form.ack")) return;
  const status = ctx.response?.status ?? ctx.response?.raw?.status ?? 0;
  if (status < 400) acknowledged(form);
  else toast(status === 409 ? "Somebody was quicker, or it changed meanwhile." : "It could not be acknowledged.", {kind: "bad"});
  refresh({force: true});
});
document.addEventListener("htmx:after:swap", () => {
  const row = rows().find((one) => one.dataset.incident === chosen);
  row?.classList.add("sel");
  tickAges();
});
document.getElementById("changed")?.addEventListener("click", () => refresh({force: true}));
list()?.addEventListener("pointerleave", () => { if (waiting) refresh(); });

onKey("j", () => choose(1));
onKey("k", () => choose(-1));
onKey("a", acknowledge);
onKey("u", () => undo?.());

followLive({cluster: document.body.dataset.cluster, metric: "gpu_utilization_ratio"}, {
  incident: (change) => {
    const one = document.getElementById("incident-head")?.dataset.incident;
    if (!one || change.incident_id === undefined || String(change.incident_id) === one) refresh();
  },
  status: (word) => {
    if (word === "live" && document.body.dataset.feed !== "live") refresh(); // what happened before the stream was open
    document.body.dataset.feed = word;
  },
});
