// The page's end of the live stream: through the shared worker, or with a stream of its own while the tab is seen.
import {Feed} from "./feed.js";

/**
 * Follows one metric of a cluster. `on` holds `cycle(message)`, `incident(change)`, `status(word)`.
 * Returns `{follow(metric), stop()}`.
 */
export function followLive({cluster, metric}, on) {
  const wish = {
    cluster,
    metric,
    liveUrl: new URL(document.body.dataset.liveUrl, location.href).href,
    snapshotUrl: new URL("/fleet/snapshot.json", location.href).href,
    interval: Number(document.body.dataset.interval),
  };
  const take = (kind, data) => {
    if (kind === "signed-out") location.reload();
    else on[kind]?.(data);
  };
  return typeof SharedWorker === "function" ? throughWorker(wish, take) : onMyOwn(wish, take);
}

function throughWorker(wish, take) {
  const worker = new SharedWorker(document.body.dataset.liveWorker, {type: "module", name: "gpufleet-live"});
  const {port} = worker;
  port.addEventListener("message", ({data}) => take(data.kind, data.data));
  port.start();
  const ask = () => port.postMessage({wish});
  ask();
  const beat = setInterval(() => port.postMessage({here: true}), 30_000);
  const leave = () => port.postMessage({leave: true});
  addEventListener("pagehide", leave);
  addEventListener("pageshow", (event) => { if (event.persisted) ask(); });
  return {
    follow(metric) { wish.metric = metric; ask(); },
    stop() { clearInterval(beat); leave(); },
  };
}

function onMyOwn(wish, take) {
  const feed = new Feed(wish, take);
  const settle = () => feed.want(document.hidden ? [] : [wish.metric]);
  settle();
  document.addEventListener("visibilitychange", settle);
  return {
    follow(metric) { wish.metric = metric; settle(); },
    stop() { document.removeEventListener("visibilitychange", settle); feed.want([]); },
  };
}
