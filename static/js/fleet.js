// The first screen: follows the live stream, keeps the address in step with what is shown, and answers the keys.
import {learnServerTime, serverNow, tickAges} from "./ages.js";
import {watchCells} from "./card.js";
import {refreshIncidents, watchIncidents} from "./incidents.js";
import {onKey} from "./keys.js";
import {followLive} from "./live.js";
import {showLegend, showStrip, watchAge} from "./strip.js";
import {announce} from "./toasts.js";
import {Wall} from "./wall.js";

const HOUR_MS = 3_600_000;
const body = document.body.dataset;
const past = body.past === "true";
const interval = Number(body.interval);
const data = JSON.parse(document.getElementById("page-data").textContent);
const wall = new Wall(document.getElementById("wall"), data);
const liveButton = document.getElementById("live");
let metric = body.metric;
let live = null;
let paused = false;
let feedStatus = "down";
let newestAt = Date.parse(body.asOf) / 1000;
let pausedMessage = null;

if (!past) learnServerTime(newestAt);

function dimOthers() {
  const wanted = body.states ? body.states.split(",") : [];
  const letter = {healthy: "h", degraded: "d", failed: "f", unknown: "u", maintenance: "m", out_of_service: "o"};
  if (!wanted.length || !wall.message) return;
  const letters = wanted.map((state) => letter[state]);
  let first = 0;
  data.nodes.forEach(([, slots], node) => {
    const own = wall.message.node_states[node] + wall.message.states.slice(first, first + slots.length);
    wall.tiles[node]?.classList.toggle("dim", !letters.some((one) => own.includes(one)));
    first += slots.length;
  });
}

function show(message) {
  if (message.metric !== metric || (message.as_of < newestAt && wall.message?.metric === metric)) return;
  if (paused) { pausedMessage = message; return; }
  const before = wall.message;
  if (message.as_of > newestAt) learnServerTime(Math.max(message.as_of, serverNow() - interval));
  newestAt = message.as_of;
  if (!wall.show(message, serverNow())) { location.reload(); return; }
  showStrip(message);
  showLegend(wall.values(serverNow()), data.metrics[metric]);
  dimOthers();
  if (before?.metric === message.metric) {
    const news = wall.news(before, message);
    if (news) { announce(news); refreshIncidents(); }
  }
  document.getElementById("moment").textContent = new Date(message.as_of * 1000).toISOString().slice(11, 19);
  document.body.dataset.seq = message.seq;
}

function showLiveState() {
  if (!liveButton || past) return;
  const silent = serverNow() - newestAt;
  const late = silent > 2 * interval;
  liveButton.classList.toggle("off", paused);
  liveButton.classList.toggle("late", late && !paused);
  liveButton.setAttribute("aria-pressed", String(!paused));
  const word = paused ? "Paused" : late ? `No update for ${Math.floor(silent)} s` : feedStatus === "polling" ? "Polling" : "Live";
  const label = liveButton.querySelector(".word");
  if (label.textContent !== word) label.textContent = word;
  const words = document.getElementById("live-words");
  if (words && words.textContent !== word) words.textContent = word;
}

function togglePause() {
  if (past) { document.getElementById("return")?.click(); return; }
  paused = !paused;
  if (!paused && pausedMessage) { show(pausedMessage); pausedMessage = null; }
  showLiveState();
}

async function followMetric(name, {push = true} = {}) {
  if (!data.metrics[name] || name === metric) return;
  const address = new URL(location.href);
  address.searchParams.set("metric", name);
  if (past || wall.isMatrix && !live) { location.href = address; return; }
  metric = name;
  if (push) history.pushState({metric: name}, "", address);
  for (const link of document.querySelectorAll("a[data-metric]")) {
    if (link.dataset.metric === name) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  const inMore = document.querySelector(`.more a[data-metric="${name}"]`);
  document.getElementById("more-title").textContent = inMore ? inMore.textContent : "More";
  document.querySelector("details.more").open = false;
  const answer = await fetch(`/fleet/snapshot.json?metric=${name}&cluster=${encodeURIComponent(data.cluster)}`);
  if (answer.redirected) { location.reload(); return; }
  if (answer.ok && metric === name) { newestAt = 0; wall.drawn = []; show(await answer.json()); }
  live?.follow(name);
}

function stepMetric(step) {
  const names = Object.keys(data.metrics);
  followMetric(names[(names.indexOf(metric) + step + names.length) % names.length]);
}

function goToMoment(moment) {
  const address = new URL(location.href);
  if (moment === null || moment >= serverNow() * 1000 - interval * 1000) address.searchParams.delete("at");
  else address.searchParams.set("at", new Date(Math.round(moment / 1000) * 1000).toISOString().replace(".000Z", "Z"));
  location.href = address;
}

function watchScrubber() {
  const box = document.getElementById("scrubber");
  const track = box?.querySelector(".track svg");
  if (!track) return;
  const start = Date.parse(box.dataset.start);
  const end = Date.parse(box.dataset.end);
  const momentAt = (event) => {
    const {left, width} = track.getBoundingClientRect();
    return start + Math.min(1, Math.max(0, (event.clientX - left) / width)) * (end - start);
  };
  const draw = (event) => {
    const moment = momentAt(event);
    const x = String(((moment - start) / (end - start)) * 1000);
    const head = document.getElementById("playhead");
    head.setAttribute("x1", x);
    head.setAttribute("x2", x);
    document.getElementById("moment").textContent = new Date(moment).toISOString().slice(11, 19);
  };
  track.addEventListener("pointerdown", (event) => {
    track.setPointerCapture(event.pointerId);
    paused = true;
    draw(event);
    track.addEventListener("pointermove", draw);
  });
  track.addEventListener("pointerup", (event) => {
    track.removeEventListener("pointermove", draw);
    goToMoment(momentAt(event));
  });
}

function moveHours(hours) {
  const now = past ? Date.parse(body.asOf) : serverNow() * 1000;
  goToMoment(now + hours * HOUR_MS);
}

function switchView() {
  const address = new URL(location.href);
  address.searchParams.set("view", wall.isMatrix ? "racks" : "matrix");
  address.searchParams.set("metric", metric);
  location.href = address;
}

for (const link of document.querySelectorAll("a[data-metric]")) {
  link.addEventListener("click", (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    followMetric(link.dataset.metric);
  });
}
addEventListener("popstate", () => {
  const name = new URL(location.href).searchParams.get("metric") ?? Object.keys(data.metrics)[0];
  followMetric(name, {push: false});
});

watchCells(wall, () => new URLSearchParams({
  metric, cluster: data.cluster, ...(past ? {at: new Date(newestAt * 1000).toISOString()} : {}),
}));
watchIncidents();
watchScrubber();
liveButton?.addEventListener("click", togglePause);
onKey("l", togglePause);
onKey("m", () => stepMetric(1));
onKey("M", () => stepMetric(-1));
onKey("v", switchView);
onKey("[", () => document.getElementById("previous-change")?.click());
onKey("]", () => document.getElementById("next-change")?.click());
onKey("{", () => moveHours(-1));
onKey("}", () => moveHours(1));
const keys = document.getElementById("keys");
onKey("?", () => keys.showModal());
document.getElementById("all-keys")?.addEventListener("click", () => keys.showModal());

if (!past) {
  live = followLive({cluster: data.cluster, metric}, {
    cycle: show,
    incident: () => refreshIncidents(),
    status: (word) => {
      if (word === "live" && feedStatus !== "live") refreshIncidents(); // what happened before the stream was open
      feedStatus = word;
      body.feed = word;
      showLiveState();
    },
  });
  setInterval(() => {
    const now = serverNow();
    tickAges();
    watchAge(now, interval);
    showLiveState();
    wall.paint(now);
  }, 1000);
}
