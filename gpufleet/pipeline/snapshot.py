"""The fleet at one moment: every node and GPU with its state, its values and their age.

Three-valued truth is decided here and nowhere else above the ledger: see `truth`. Pages, API
and live bus read this.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db.models import Q

from gpufleet.fleet.models import Assignment, Cluster, Node, Placement
from gpufleet.pipeline.readings import Readings, newest_readings, past_readings
from gpufleet.pipeline.verdicts import Verdict, verdicts

STATES = ("healthy", "degraded", "failed", "unknown", "maintenance", "out_of_service")
FRESH_INTERVALS = 2
PLANNED = frozenset({"maintenance", "out_of_service"})
NEEDS_DATA = frozenset({"healthy", "degraded"})


@dataclass(frozen=True, slots=True)
class GpuView:
    """A GPU in its slot. `data_age_seconds`: of its newest value; None when it never had one."""

    id: int
    uuid: str
    slot: int
    model: str
    state: str
    reasons: list[str]
    data_age_seconds: float | None
    since: datetime | None
    metrics: dict[str, float | None]
    job: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node. `since`: when its state began, as far as the ledger knows."""

    id: int
    name: str
    cluster: str
    rack: str | None
    switch: str | None
    state: str
    reasons: list[str]
    data_age_seconds: float | None
    since: datetime | None
    gpus: list[GpuView]


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """Nodes in natural order of their names, GPUs in slot order: the place of each in this order is its index."""

    as_of: datetime
    interval_seconds: int
    nodes: list[NodeView]

    @property
    def gpus(self) -> list[GpuView]:
        return [gpu for node in self.nodes for gpu in node.gpus]

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """`{"nodes": {state: n}, "gpus": {state: n}}` over all states."""
        nodes, gpus = Counter(node.state for node in self.nodes), Counter(gpu.state for gpu in self.gpus)
        return {
            "nodes": {state: nodes[state] for state in STATES},
            "gpus": {state: gpus[state] for state in STATES},
        }

    @property
    def fingerprint(self) -> str:
        """Changes when a node or GPU comes, goes or moves, so that a page knows that its places no longer fit."""
        lines = [f"{node.name}\t{node.rack}\t{node.switch}" for node in self.nodes]
        lines += [f"{node.name}\t{gpu.slot}\t{gpu.uuid}" for node in self.nodes for gpu in node.gpus]
        return f"{zlib.crc32('|'.join(lines).encode()):08x}"


def truth(
    verdict: Verdict | None, data_age_seconds: float | None, at: float, interval_seconds: int
) -> tuple[str, list[str]]:
    """State and reasons that may be shown.

    What people planned holds without data. Every other verdict speaks until it is due again; one interval more is
    granted for the work of a cycle. "Up" (healthy, degraded) is claimed only on values younger than two intervals:
    silence is unknown, neither sick nor well.
    """
    if verdict is None:
        return "unknown", ["never_judged"]
    if verdict.state in PLANNED:
        return verdict.state, verdict.reasons
    if at > verdict.told_until + interval_seconds:
        return "unknown", ["not_judged_lately", *verdict.reasons]
    if verdict.state in NEEDS_DATA:
        if data_age_seconds is None:
            return "unknown", ["no_data_yet"]
        if data_age_seconds > FRESH_INTERVALS * interval_seconds:
            return "unknown", ["data_too_old", *verdict.reasons]
    return verdict.state, verdict.reasons


def fleet_snapshot(
    cluster: Cluster, now: datetime, at: datetime | None = None, metrics: Sequence[str] | None = None
) -> FleetSnapshot:
    """The fleet now, or as it was at `at`. `metrics`: canonical names to read; None reads all that GPUs have.

    The number of queries does not depend on the size of the fleet.
    """
    instant = now if at is None else min(at, now)
    interval = int(settings.ENV["GPUFLEET_INTERVAL_SECONDS"])
    if cluster.pk is None:  # nothing was imported yet
        return FleetSnapshot(instant, interval, [])
    if at is None:
        readings = newest_readings(cluster, metrics)
    else:
        readings = past_readings(cluster, instant, FRESH_INTERVALS * interval, metrics)
    moment = _Moment(instant.timestamp(), interval, readings)
    told = verdicts(cluster, None if at is None else instant)
    jobs = _jobs(cluster, instant)
    by_node: dict[int, list[GpuView]] = {}
    for place in _placements(cluster, instant):
        view = _gpu_view(place, told.gpus.get(place.gpu_id), moment, jobs.get(place.gpu_id, ""))
        by_node.setdefault(place.node_id, []).append(view)
    nodes = [
        _node_view(node, cluster.name, told.nodes.get(node.id), by_node.get(node.id, []), moment)
        for node in _nodes(cluster, instant)
    ]
    return FleetSnapshot(instant, interval, nodes)


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts gpu-2 before gpu-10."""
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)


def _nodes(cluster: Cluster, at: datetime) -> list[Node]:
    kept = Node.objects.filter(cluster=cluster).filter(Q(retired_at=None) | Q(retired_at__gt=at))
    return sorted(kept.select_related("rack", "switch"), key=lambda node: natural(node.name))


class _Place(NamedTuple):
    """A GPU in its slot, without the cost of two model instances."""

    node_id: int
    slot: int
    gpu_id: int
    uuid: str
    model: str
    last_seen_at: datetime


def _placements(cluster: Cluster, at: datetime) -> list[_Place]:
    held = Placement.objects.filter(node__cluster=cluster, starts_at__lte=at).filter(
        Q(ends_at=None) | Q(ends_at__gt=at)
    )
    rows = held.order_by("node_id", "slot", "id").values_list(
        "node_id", "slot", "gpu_id", "gpu__uuid", "gpu__model", "gpu__last_seen_at"
    )
    return [_Place(*row) for row in rows]


def _jobs(cluster: Cluster, at: datetime) -> dict[int, str]:
    running = Assignment.objects.filter(gpu__cluster=cluster, starts_at__lte=at).filter(
        Q(ends_at=None) | Q(ends_at__gt=at)
    )
    return dict(running.order_by("starts_at").values_list("gpu_id", "job"))


View = tuple[str, list[str], float | None, datetime | None]


@dataclass(frozen=True, slots=True)
class _Moment:
    """What every view is made from."""

    at: float
    interval_seconds: int
    readings: Readings

    def view(
        self, verdict: Verdict | None, seen_at: float | None
    ) -> tuple[str, list[str], float | None, datetime | None]:
        """State, reasons, age of the data, and since when."""
        age = None if seen_at is None else max(0.0, self.at - seen_at)
        state, reasons = truth(verdict, age, self.at, self.interval_seconds)
        return state, reasons, age, verdict.since if verdict is not None and verdict.state == state else None


def _gpu_view(place: _Place, verdict: Verdict | None, moment: _Moment, job: str) -> GpuView:
    seen_at = moment.readings.gpu_seen_at.get(place.gpu_id)
    if seen_at is None and place.last_seen_at.timestamp() <= moment.at:
        seen_at = place.last_seen_at.timestamp()
    values = moment.readings.values.get(place.gpu_id, {})
    state, reasons, age, since = moment.view(verdict, seen_at)
    return GpuView(place.gpu_id, place.uuid, place.slot, place.model, state, reasons, age, since, values, job)


def _node_view(node: Node, cluster: str, verdict: Verdict | None, gpus: list[GpuView], moment: _Moment) -> NodeView:
    state, reasons, age, since = moment.view(verdict, moment.readings.node_seen_at.get(node.id))
    rack, switch = node.rack.name if node.rack else None, node.switch.name if node.switch else None
    return NodeView(node.id, node.name, cluster, rack, switch, state, reasons, age, since, gpus)
