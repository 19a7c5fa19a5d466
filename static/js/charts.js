// The one place that makes charts: fixed settings, colours from the tokens, one chart a frame, no pointer boxes.
// showSendToCloud posts a chart to an outside site: it stays false, and a test holds it.
export const CONFIG = Object.freeze({
  displayModeBar: false, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
  doubleClick: false, scrollZoom: false, responsive: false,
});
const LAYOUT = {
  hovermode: false, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
  margin: {l: 36, r: 4, t: 4, b: 18}, dragmode: "zoom",
};
const FONT = "Inter, system-ui, sans-serif";

export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** `{xaxis, yaxis}` ranges in ms and in the shown unit; `marks`: instants in ms that get a dashed line. */
export function layout({from, to, low, high, marks = []}) {
  const axis = {
    color: token("--text3"), gridcolor: token("--border"), zeroline: false, fixedrange: false, ticks: "",
    tickfont: {size: 10.5, family: FONT},
  };
  return {
    ...LAYOUT,
    font: {family: FONT, size: 10.5, color: token("--text3")},
    xaxis: {...axis, type: "date", range: [from, to], nticks: 5, showgrid: false, tickformat: to - from > 2 * 86400000 ? "%d %b" : "%H:%M"},
    yaxis: {...axis, range: [low, high], nticks: 5, fixedrange: true},
    shapes: marks.map((at) => ({
      type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: {color: token("--fail-fill"), width: 1, dash: "dash"},
    })),
  };
}

/** Draws or redraws. A gap stays a gap. */
export function draw(element, traces, plan) {
  return Plotly.react(element, traces, layout(plan), CONFIG);
}

/** Runs the jobs one a frame, so that no long block holds up the page. */
export async function onePerFrame(jobs) {
  for (const job of jobs) {
    await new Promise((resolve) => requestAnimationFrame(resolve));
    await job();
  }
}

export function whenPlotly() {
  if (window.Plotly) return Promise.resolve();
  return new Promise((resolve) => window.addEventListener("load", resolve, {once: true}));
}
