"""Tells every open page what a cycle brought: one message a metric, built once, the same bytes for all.

A message is a whole picture, never a difference: whoever missed some is right again with the next one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import orjson
import structlog
from django.conf import settings

from gpufleet.catalogue.metrics import METRICS, Metric
from gpufleet.core.bus import BROKER_ERRORS, broker, channel, next_sequence, publish
from gpufleet.core.times import rfc3339
from gpufleet.fleet.models import Cluster
from gpufleet.pipeline.health import CollectionHealth, collection_health
from gpufleet.pipeline.snapshot import FleetSnapshot, fleet_snapshot

log = structlog.get_logger(__name__)

FIRST_METRICS = (
    "gpu_utilization_ratio",
    "gpu_tensor_active_ratio",
    "gpu_temperature_celsius",
    "gpu_power_watts",
    "gpu_memory_used_bytes",
    "gpu_sm_clock_hertz",
)
MORE_METRICS = (
    "gpu_sm_active_ratio",
    "gpu_dram_active_ratio",
    "gpu_memory_utilization_ratio",
    "gpu_memory_temperature_celsius",
    "gpu_memory_clock_hertz",
    "gpu_fan_ratio",
    "gpu_nvlink_bytes_per_second",
)
LIVE_METRICS = tuple(name for name in FIRST_METRICS + MORE_METRICS if name in METRICS)
STATE_LETTER = {
    "healthy": "h",
    "degraded": "d",
    "failed": "f",
    "unknown": "u",
    "maintenance": "m",
    "out_of_service": "o",
}


class IncidentChange(Protocol):
    """What intake or a person did to an incident."""

    @property
    def incident_id(self) -> int: ...

    @property
    def verb(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Picture:
    """The part of a message that is the same for every metric, ready to be joined with the values of one."""

    head: dict[str, Any]
    snapshot: FleetSnapshot

    def message(self, metric: Metric) -> bytes:
        """The JSON of one metric. `values`: display units, null where unknown, in index order."""
        values = [shown(gpu.metrics.get(metric.name), metric) for gpu in self.snapshot.gpus]
        return orjson.dumps({**self.head, "metric": metric.name, "values": values})


def shown(value: float | None, metric: Metric) -> float | int | None:
    """`value` in display units, rounded to the metric's digits."""
    if value is None:
        return None
    rounded = round(value * metric.display_factor, metric.digits)
    return rounded if metric.digits > 0 else int(rounded)


def picture(snapshot: FleetSnapshot, health: CollectionHealth, cluster: str, sequence: int) -> Picture:
    """`ages`: seconds by index of the GPUs whose values are older than one interval; `since`: Unix seconds by index of
    the nodes that are not healthy."""
    gpus, interval = snapshot.gpus, snapshot.interval_seconds
    ages = {
        str(index): None if gpu.data_age_seconds is None else round(gpu.data_age_seconds)
        for index, gpu in enumerate(gpus)
        if gpu.data_age_seconds is None or gpu.data_age_seconds > interval
    }
    since = {
        str(index): node.since.timestamp()
        for index, node in enumerate(snapshot.nodes)
        if node.state != "healthy" and node.since is not None
    }
    head = {
        "cluster": cluster,
        "seq": sequence,
        "as_of": snapshot.as_of.timestamp(),
        "interval": interval,
        "wall": snapshot.fingerprint,
        "states": letters(gpu.state for gpu in gpus),
        "node_states": letters(node.state for node in snapshot.nodes),
        "since": since,
        "ages": ages,
        "counts": snapshot.counts,
        "targets": [health.targets_up, health.targets],
        "last_good_at": rfc3339(health.last_good_at) if health.last_good_at else None,
    }
    return Picture(head, snapshot)


def letters(states: Any) -> str:
    return "".join(STATE_LETTER[state] for state in states)


def publish_cycle(cluster: Cluster, cycle: int, now: datetime) -> int:
    """Publishes the state after `cycle`. Returns the bytes sent, 0 when the broker is away.

    A lost broker never stops detection: pages notice the silence by themselves.
    """
    started = time.perf_counter()
    snapshot = fleet_snapshot(cluster, now, metrics=LIVE_METRICS)
    health = collection_health(cluster, now)
    try:
        sent = _send(picture(snapshot, health, cluster.name, next_sequence(settings.BROKER_URL, cluster.name)))
    except BROKER_ERRORS as error:
        log.warning("live message not sent", cluster=cluster.name, cycle=cycle, reason=type(error).__name__)
        return 0
    took = round((time.perf_counter() - started) * 1000, 1)
    log.debug("live message sent", cluster=cluster.name, cycle=cycle, bytes=sent, milliseconds=took)
    return sent


def _send(whole: Picture) -> int:
    """One round trip. The newest message also stays under a key for two intervals, for pages that poll."""
    to = channel(settings.BROKER_URL)
    pipe = broker(settings.BROKER_URL).pipeline(transaction=False)
    sent = 0
    for name in LIVE_METRICS:
        body = whole.message(METRICS[name])
        sent += len(body)
        pipe.set(newest_key(whole.head["cluster"], name), body, ex=2 * whole.head["interval"])
        pipe.publish(to, envelope("cycle", whole.head["cluster"], name, whole.head["seq"], body))
    pipe.execute()
    return sent


def publish_incident(change: IncidentChange, cluster: str = "") -> None:
    """Tells open pages that an incident changed; they ask for their own part again. Never raises for a lost broker."""
    body = orjson.dumps({"incident_id": change.incident_id, "verb": change.verb})
    try:
        publish(settings.BROKER_URL, envelope("incident", cluster, "", 0, body))
    except BROKER_ERRORS as error:
        log.warning("incident not announced", incident=change.incident_id, reason=type(error).__name__)


def newest_key(cluster: str, metric: str) -> str:
    return f"gpufleet:live:newest:{cluster}:{metric}"


def newest_message(cluster: str, metric: str) -> bytes | None:
    """The message of the last cycle, unless it is older than two intervals. None also without a broker."""
    try:
        found = broker(settings.BROKER_URL).get(newest_key(cluster, metric))
    except BROKER_ERRORS:
        return None
    return found if isinstance(found, bytes) else None


def envelope(event: str, cluster: str, metric: str, sequence: int, body: bytes) -> bytes:
    """A line of JSON that says who wants the body, then the body."""
    head: Mapping[str, str | int] = {"event": event, "cluster": cluster, "metric": metric, "seq": sequence}
    return orjson.dumps(head) + b"\n" + body


def open_envelope(message: bytes) -> tuple[dict[str, Any], bytes]:
    """The head and the body. Raises ValueError for what is no message of ours."""
    head, separator, body = message.partition(b"\n")
    if not separator:
        raise ValueError("no head line")
    found = orjson.loads(head)
    if not isinstance(found, dict) or not {"event", "cluster", "metric", "seq"} <= set(found):
        raise ValueError("not a head")
    return found, body
