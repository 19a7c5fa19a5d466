// One stream of live messages, with polling as the fall-back. Runs in the shared worker, or in a tab without one.

const RETRY_STREAM_MS = 60_000;
const FAILURES_BEFORE_POLLING = 2;

/**
 * Holds one EventSource for all the metrics that are wanted of a cluster, and polls when the stream cannot be had.
 * `emit(kind, data)`: kind is "cycle" (a message), "incident", or "status" ("live", "polling" or "down").
 */
export class Feed {
  constructor({liveUrl, snapshotUrl, interval, cluster}, emit) {
    this.liveUrl = liveUrl;
    this.snapshotUrl = snapshotUrl;
    this.interval = interval;
    this.cluster = cluster;
    this.emit = emit;
    this.metrics = [];
    this.newest = new Map();
    this.source = null;
    this.failures = 0;
    this.timer = 0;
    this.status = "down";
    this.lastSequence = 0;
  }

  /** Says which metrics are wanted; none closes everything. */
  want(metrics) {
    const wanted = [...new Set(metrics)].sort();
    if (wanted.join() === this.metrics.join() && (this.source || this.timer)) return;
    this.metrics = wanted;
    this.close();
    if (wanted.length) this.open();
  }

  close() {
    this.source?.close();
    this.source = null;
    clearTimeout(this.timer);
    this.timer = 0;
  }

  open() {
    const address = new URL(this.liveUrl);
    address.searchParams.set("metric", this.metrics.join());
    address.searchParams.set("cluster", this.cluster);
    const source = new EventSource(address, {withCredentials: true});
    this.source = source;
    source.addEventListener("open", () => { this.failures = 0; this.say("live"); this.stopPolling(); });
    source.addEventListener("cycle", (event) => this.take(JSON.parse(event.data), true));
    source.addEventListener("incident", (event) => this.emit("incident", JSON.parse(event.data)));
    source.addEventListener("error", () => this.failed(source));
  }

  failed(source) {
    if (source !== this.source) return;
    this.failures += 1;
    if (this.failures < FAILURES_BEFORE_POLLING && source.readyState !== EventSource.CLOSED) return;
    source.close();
    this.source = null;
    if (this.failures < FAILURES_BEFORE_POLLING) {
      this.timer = setTimeout(() => this.open(), 1000);
    } else {
      this.poll();
      setTimeout(() => { if (!this.source && this.metrics.length) this.open(); }, RETRY_STREAM_MS);
    }
  }

  stopPolling() {
    clearTimeout(this.timer);
    this.timer = 0;
  }

  async poll() {
    let reached = false;
    for (const metric of this.metrics) reached = (await this.fetchNewest(metric)) || reached;
    if (this.source?.readyState === EventSource.OPEN || !this.metrics.length) return;
    this.say(reached ? "polling" : "down");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.poll(), this.interval * 1000 * (1 + 0.1 * Math.random()));
  }

  /** Asks for the whole picture of one metric; the browser answers 304 from its own cache. */
  async fetchNewest(metric) {
    const address = new URL(this.snapshotUrl);
    address.searchParams.set("metric", metric);
    address.searchParams.set("cluster", this.cluster);
    try {
      const answer = await fetch(address, {cache: "no-cache", credentials: "same-origin"});
      if (answer.redirected) { this.emit("signed-out", null); return false; }
      if (!answer.ok) return false;
      this.take(await answer.json(), false);
      return true;
    } catch {
      return false;
    }
  }

  take(message, streamed) {
    const before = this.newest.get(message.metric);
    if (before && before.as_of >= message.as_of && before.wall === message.wall) return;
    this.newest.set(message.metric, message);
    this.emit("cycle", message);
    // A message was lost on the way: the picture is whole again with this one, incidents may have changed meanwhile.
    if (streamed && this.lastSequence && message.seq > this.lastSequence + 1) this.emit("incident", {verb: "missed"});
    if (!streamed && before) this.emit("incident", {verb: "polled"});
    this.lastSequence = message.seq || this.lastSequence; // starts again from 1 when the broker lost its memory
  }

  say(status) {
    this.status = status;
    this.emit("status", status);
  }
}
