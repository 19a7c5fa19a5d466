// The status strip and the legend, kept in step with the live message.
import {binOf} from "./wall.js";

const SVG = "http://www.w3.org/2000/svg";
const BARS = [["healthy", "f-ok"], ["degraded", "f-risk"], ["failed", "f-fail"], ["unknown", "hx-n"], ["maintenance", "f-maint"]];
const AMBER_INTERVALS = 2;
const RED_INTERVALS = 4;
const STALE_INTERVALS = 3;

function write(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}

function rect(classes, attributes) {
  const element = document.createElementNS(SVG, "rect");
  element.setAttribute("class", classes);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

function showCounts(kind, states) {
  const box = document.querySelector(`[data-strip="${kind}"]`);
  if (!box) return;
  for (const [state] of BARS) write(box.querySelector(`[data-count="${state}"]`), states[state].toLocaleString("en"));
  const total = BARS.reduce((sum, [state]) => sum + states[state], 0);
  write(box.querySelector("[data-total]"), total.toLocaleString("en"));
  showProportion(box.querySelector(".bar"), states, total || 1);
}

function showProportion(svg, states, total) {
  const shown = BARS.filter(([state]) => states[state] > 0);
  const gap = total / 250;
  const room = total - gap * Math.max(0, shown.length - 1);
  const widths = shown.map(([state]) => Math.max(total / 100, (states[state] / total) * room));
  const excess = widths.reduce((sum, width) => sum + width, 0) - room;
  if (excess > 0) widths[widths.indexOf(Math.max(...widths))] -= excess;
  let x = 0;
  const parts = shown.map(([, fill], place) => {
    const part = rect(fill, {x: x.toFixed(2), width: widths[place].toFixed(2), height: 4});
    x += widths[place] + gap;
    return part;
  });
  svg.setAttribute("viewBox", `0 0 ${total} 4`);
  svg.replaceChildren(...parts);
}

function showTargets([up, all]) {
  const box = document.getElementById("last-scrape");
  write(box?.querySelector("[data-targets-up]"), String(up));
  write(box?.querySelector("[data-targets]"), String(all));
  const bar = box?.querySelector("[data-targets-bar]");
  bar?.setAttribute("viewBox", `0 0 ${all || 1} 4`);
  bar?.replaceChildren(rect("f-ok", {width: up, height: 4}), rect("f-fail", {x: up, width: all - up, height: 4}));
}

/** Counts, targets and the age of the last scrape, from a live message. */
export function showStrip(message) {
  showCounts("nodes", message.counts.nodes);
  showCounts("gpus", message.counts.gpus);
  showTargets(message.targets);
  const box = document.getElementById("last-scrape");
  if (!box || !message.last_good_at) return;
  box.dataset.lastGood = message.last_good_at;
  const age = box.querySelector(".ageb");
  if (age) age.dataset.ageOf = message.last_good_at;
}

/** The age turns amber at 2 intervals and red at 4; the red banner comes at 3. Needs no word from the server. */
export function watchAge(now, interval) {
  const box = document.getElementById("last-scrape");
  const banner = document.getElementById("stale");
  const at = Date.parse(box?.dataset.lastGood ?? "") / 1000;
  if (!box || Number.isNaN(at)) return;
  const age = now - at;
  box.classList.toggle("late", age > AMBER_INTERVALS * interval && age <= RED_INTERVALS * interval);
  box.classList.toggle("dead", age > RED_INTERVALS * interval);
  if (!banner) return;
  banner.hidden = age <= STALE_INTERVALS * interval;
  const word = banner.querySelector("[data-age-of]");
  if (word) word.dataset.ageOf = box.dataset.lastGood;
}

function quantile(sorted, share) {
  const place = (sorted.length - 1) * share;
  const low = Math.floor(place);
  return sorted[low] + (sorted[Math.ceil(place)] - sorted[low]) * (place - low);
}

function withUnit(value, scale) {
  const text = value.toLocaleString("en", {minimumFractionDigits: scale.digits, maximumFractionDigits: scale.digits});
  return `${text} ${scale.unit}`.trim();
}

/** Histogram over the ramp, scale ends, and the line with median and percentiles. */
export function showLegend(values, scale) {
  const counts = new Array(16).fill(0);
  for (const value of values) counts[binOf(value, scale)] += 1;
  const most = Math.max(1, ...counts);
  const bars = document.querySelectorAll("#histogram rect");
  counts.forEach((count, bin) => {
    const height = 16 * Math.sqrt(count / most);
    bars[bin].setAttribute("y", (18 - height).toFixed(1));
    bars[bin].setAttribute("height", height.toFixed(1));
  });
  write(document.getElementById("scale-low"), scale.low.toLocaleString("en", {maximumFractionDigits: scale.digits}));
  write(document.getElementById("scale-high"), withUnit(scale.high, scale));
  const sorted = Float64Array.from(values).sort();
  const words = sorted.length
    ? `median ${withUnit(quantile(sorted, 0.5), scale)}, p5 ${withUnit(quantile(sorted, 0.05), scale)}, p95 ${withUnit(quantile(sorted, 0.95), scale)}`
    : "no current value";
  write(document.getElementById("spread"), words);
}
