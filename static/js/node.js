// The charts of a node: one GPU in focus over its siblings and the fleet's band, one crosshair through all of them.
import {onKey} from "./keys.js";
import {draw, onePerFrame, token, whenPlotly} from "./charts.js";
import {followLive} from "./live.js";
import {refreshParts} from "./parts.js";
import {toast} from "./toasts.js";

const root = document.getElementById("panels");
const LEFT = 36, RIGHT = 4;
let focus = root?.dataset.gpu === "" ? null : Number(root?.dataset.gpu);
let pinned = null;
let panels = [];

const seriesUrl = (band) => {
  const query = new URLSearchParams({metrics: root.dataset.metrics, from: root.dataset.from, to: root.dataset.to});
  const here = new URLSearchParams(location.search);
  for (const name of ["tz", "cluster"]) if (here.has(name)) query.set(name, here.get(name));
  if (band) query.set("band", "1");
  return `/nodes/${encodeURIComponent(root.dataset.node)}/series.json?${query}`;
};

async function read(band) {
  const answer = await fetch(seriesUrl(band), {headers: {Accept: "application/json"}});
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.json();
}

function times(data) {
  const count = Math.max(0, ...data.panels.flatMap((panel) => panel.gpus.map((gpu) => gpu.mean.length)));
  return Float64Array.from({length: count}, (_, place) => data.start + place * data.step);
}

const bandTimes = (panel) => Float64Array.from(panel.band.p50, (_, place) => panel.bandFrom + place * panel.bandStep);

const floats = (values) => Float32Array.from(values, (value) => (value === null ? NaN : value));

function traces(panel, x) {
  const line = (y, color, width, more = {}) => ({
    type: "scatter", mode: "lines", x, y: floats(y), connectgaps: false, line: {color, width, ...more}, hoverinfo: "skip",
  });
  const drawn = [];
  if (panel.band) {
    const wide = {x: bandTimes(panel)};
    drawn.push({...line(panel.band.p5, token("--band"), 0), ...wide});
    drawn.push({...line(panel.band.p95, token("--band"), 0), ...wide, fill: "tonexty", fillcolor: token("--band")});
    drawn.push({...line(panel.band.p50, token("--line"), 1, {dash: "dash"}), ...wide});
  }
  for (const gpu of panel.gpus) if (gpu.slot !== focus) drawn.push(line(gpu.mean, token("--line"), 1));
  const chosen = panel.gpus.find((gpu) => gpu.slot === focus);
  if (chosen) {
    const colour = token("--accent");
    drawn.push(line(chosen.min, colour, 0));
    drawn.push({...line(chosen.max, colour, 0), fill: "tonexty", fillcolor: token("--accent-bg")});
    drawn.push(line(chosen.mean, colour, 1.8));
  }
  return drawn;
}

function build(data) {
  const old = new Map(panels.map((panel) => [panel.metric, panel]));
  panels = data.panels.map((panel) => {
    const kept = old.get(panel.metric);
    if (panel.band) Object.assign(panel, {bandFrom: data.start, bandStep: data.band_step});
    return kept ? {...kept, ...panel, band: panel.band ?? kept.band} : {...panel, ...frame(panel)};
  });
  const x = times({...data, panels});
  for (const panel of panels) Object.assign(panel, {x, from: data.start, to: data.end, step: data.step});
}

function frame(panel) {
  const section = document.createElement("section");
  section.className = "panel pan";
  section.setAttribute("aria-label", panel.title);
  const head = document.createElement("div");
  head.className = "pnh";
  const title = document.createElement("h3");
  title.append(panel.title, " ");
  const unit = document.createElement("span");
  unit.className = "t3";
  unit.textContent = panel.unit;
  title.append(unit);
  const readout = document.createElement("span");
  readout.className = "readout";
  head.append(title, readout);
  const chart = document.createElement("div");
  chart.className = "chart";
  const cross = document.createElement("i");
  cross.className = "cross";
  cross.hidden = true;
  const holder = document.createElement("div");
  holder.className = "chartbox";
  holder.append(chart, cross);
  const table = document.createElement("a");
  table.className = "sr";
  table.href = `/api/v1/series?node=${encodeURIComponent(root.dataset.node)}&metric=${panel.metric}`;
  table.textContent = `${panel.title} as numbers`;
  section.append(head, holder, table);
  root.append(section);
  listen(holder, chart);
  return {section, readout, chart, cross, holder};
}

function plan(panel) {
  const values = panel.gpus.flatMap((gpu) => gpu.max).filter((value) => value !== null);
  const marks = root.dataset.mark ? [Date.parse(root.dataset.mark)] : [];
  return {from: panel.from, to: panel.to, low: panel.low, high: Math.max(panel.high, ...values), marks};
}

function paint() {
  return onePerFrame(panels.map((panel) => async () => {
    await draw(panel.chart, traces(panel, panel.x), plan(panel));
    say(panel, pinned);
  }));
}

function placeOf(panel, at) {
  if (at === null || at === undefined) return panel.x.length - 1;
  return Math.min(panel.x.length - 1, Math.max(0, Math.round((at - panel.from) / panel.step)));
}

function middle(values) {
  const known = values.filter((value) => value !== null && value !== undefined).sort((a, b) => a - b);
  return known.length ? known[Math.floor((known.length - 1) / 2)] : null;
}

const words = (value, digits) => (value === null || value === undefined ? "–" : value.toLocaleString("en", {maximumFractionDigits: digits}));

/** Focus GPU, node median and fleet median at a moment; without one, the newest values there are. */
function say(panel, at) {
  let place = placeOf(panel, at);
  if (at === null || at === undefined) while (place > 0 && middle(panel.gpus.map((gpu) => gpu.mean[place])) === null) place -= 1;
  const chosen = panel.gpus.find((gpu) => gpu.slot === focus);
  const parts = [];
  if (chosen) parts.push(`g${focus} ${words(chosen.mean[place], panel.digits)}`);
  parts.push(`node ${words(middle(panel.gpus.map((gpu) => gpu.mean[place])), panel.digits)}`);
  if (panel.band) {
    const wide = Math.floor((panel.from + place * panel.step - panel.bandFrom) / panel.bandStep);
    parts.push(`fleet ${words(panel.band.p50[Math.min(wide, panel.band.p50.length - 1)], panel.digits)}`);
  }
  panel.readout.textContent = parts.join(" · ");
}

function cross(at) {
  const readout = document.getElementById("readout");
  if (readout) readout.textContent = at === null ? "" : `${pinned === null ? "at" : "pinned at"} ${new Date(at).toISOString().slice(11, 19)} UTC`;
  for (const panel of panels) {
    const inside = at !== null && at >= panel.from && at <= panel.to;
    panel.cross.hidden = !inside;
    if (inside) {
      const share = (at - panel.from) / (panel.to - panel.from);
      const left = LEFT + share * (panel.holder.clientWidth - LEFT - RIGHT);
      panel.cross.style.transform = `translateX(${left}px)`;
    }
    say(panel, at);
  }
}

function momentOf(event, holder) {
  const panel = panels.find((one) => one.holder === holder);
  const box = holder.getBoundingClientRect();
  const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
  return panel && share >= 0 && share <= 1 ? panel.from + share * (panel.to - panel.from) : null;
}

function listen(holder, chart) {
  let waiting = false;
  holder.addEventListener("pointermove", (event) => {
    if (pinned !== null || waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; cross(momentOf(event, holder)); });
  });
  holder.addEventListener("pointerleave", () => { if (pinned === null) cross(null); });
  holder.addEventListener("pointerdown", (down) => {
    const pressed = momentOf(down, holder);
    // Plotly lays a cover over the page while a drag lasts: the release is heard on the window only.
    if (pressed !== null) addEventListener("pointerup", (up) => release(pressed, up), {once: true, capture: true});
  }, true);
  const release = (pressed, event) => {
    const released = momentOf(event, holder);
    if (released === null) return;
    const panel = panels.find((one) => one.holder === holder);
    const few = (panel.to - panel.from) / 100;
    if (Math.abs(released - pressed) < few) pin(released);
    else zoom(Math.min(pressed, released), Math.max(pressed, released));
  };
  holder.addEventListener("dblclick", () => history.length > 1 && new URLSearchParams(location.search).has("from") && history.back());
}

function setQuery(change, push) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(change)) {
    if (value === null) url.searchParams.delete(name); else url.searchParams.set(name, value);
  }
  if (push) location.assign(url); else history.replaceState(null, "", url);
}

function pin(at) {
  pinned = at;
  cross(at);
  setQuery({pin: at === null ? null : new Date(at).toISOString()}, false);
}

/** All panels and the ribbon share one axis, so a zoom is a new range in the address. */
function zoom(from, to) {
  if (to - from < 60000) {
    toast("The shortest range is one minute.");
    return;
  }
  setQuery({from: String(Math.round(from)), to: String(Math.round(to))}, true);
}

function setFocus(slot) {
  if (!panels.some((panel) => panel.gpus.some((gpu) => gpu.slot === slot))) return;
  focus = slot;
  for (const button of document.querySelectorAll("[data-focus]")) button.setAttribute("aria-pressed", String(Number(button.dataset.focus) === slot));
  setQuery({gpu: String(slot)}, false);
  paint();
}

function resized() {
  for (const panel of panels) Plotly.Plots.resize(panel.chart);
}

async function refresh() {
  if (document.hidden || pinned !== null) return;
  try {
    build(await read(false));
    await paint();
  } catch (error) {
    document.getElementById("readout")?.replaceChildren(`no update: ${error.message}`);
  }
}

async function start() {
  await whenPlotly();
  try {
    build(await read(false));
    await paint();
    build(await read(true));
    await paint();
  } catch (error) {
    const note = document.createElement("p");
    note.className = "empty";
    note.textContent = `The charts could not be read: ${error.message}. Reload the page to try again.`;
    root.replaceChildren(note);
    return;
  }
  root.dataset.drawn = "1";
  const here = new URLSearchParams(location.search);
  if (here.has("pin") && !Number.isNaN(Date.parse(here.get("pin")))) pin(Date.parse(here.get("pin")));
  if (root.dataset.live) setInterval(refresh, Number(document.body.dataset.interval) * 1000);
  addEventListener("resize", resized);
  document.addEventListener("themechange", paint);
}

if (root) {
  for (const button of document.querySelectorAll("[data-focus]")) button.addEventListener("click", () => setFocus(Number(button.dataset.focus)));
  for (let slot = 0; slot < 8; slot += 1) onKey(String(slot), () => setFocus(slot));
  onKey("Escape", () => pin(null));
  start();
}

if (document.querySelector("[data-live-node]")) {
  followLive({cluster: document.body.dataset.cluster, metric: "gpu_utilization_ratio"}, {
    cycle: () => { if (!document.hidden) refreshParts(); },
    incident: refreshParts,
    status: (word) => { document.body.dataset.feed = word; },
  });
}
