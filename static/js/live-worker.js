// A SharedWorker: one stream a browser, however many tabs. Over HTTP/1.1 six tabs with a stream each would use up all
// the connections a browser opens to a host, and the seventh page would hang.
import {Feed} from "./feed.js";

const SILENT_MS = 180_000; // a hidden tab's timers may run once a minute only
const feeds = new Map();
const tabs = new Map();

function feedFor(wish) {
  let feed = feeds.get(wish.cluster);
  if (!feed) {
    feed = new Feed(wish, (kind, data) => hand(wish.cluster, kind, data));
    feeds.set(wish.cluster, feed);
  }
  return feed;
}

function hand(cluster, kind, data) {
  for (const [port, tab] of tabs) {
    if (tab.wish.cluster !== cluster) continue;
    if (kind === "cycle" && data.metric !== tab.wish.metric) continue;
    port.postMessage({kind, data});
  }
}

function settle() {
  const now = Date.now();
  for (const [port, tab] of tabs) if (now - tab.seen > SILENT_MS) tabs.delete(port);
  for (const [cluster, feed] of feeds) {
    feed.want([...tabs.values()].filter((tab) => tab.wish.cluster === cluster).map((tab) => tab.wish.metric));
  }
}

self.addEventListener("connect", (event) => {
  const port = event.ports[0];
  port.addEventListener("message", ({data}) => {
    if (data.leave) {
      tabs.delete(port);
    } else if (data.wish) {
      tabs.set(port, {wish: data.wish, seen: Date.now()});
      const feed = feedFor(data.wish);
      port.postMessage({kind: "status", data: feed.status});
      const newest = feed.newest.get(data.wish.metric);
      if (newest) port.postMessage({kind: "cycle", data: newest});
    } else if (tabs.has(port)) {
      tabs.get(port).seen = Date.now();
      return;
    }
    settle();
  });
  port.start();
});
setInterval(settle, 60_000);
