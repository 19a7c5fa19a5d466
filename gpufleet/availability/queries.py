"""Reads of the ledger: states at a moment, intervals of a subject, and availability over a period."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from django.db.models import Q

from gpufleet.availability.models import LedgerHead, StateInterval
from gpufleet.availability.outage_record import IMPORTED
from gpufleet.availability.spans import Span, announced, planned_first
from gpufleet.fleet.models import Cluster, Gpu
from gpufleet.incidents.models import Incident

SCOPES = ("fleet", "rack", "node", "gpu")
SECONDS_OF = {
    "healthy": "up",
    "degraded": "up",
    "failed": "down",
    "maintenance": "planned",
    "unknown": "unknown",
    "out_of_service": "out_of_service",
}
RATIO_DIGITS = 1e12


@dataclass(slots=True)
class Tally:
    """What one row of a report adds up."""

    subjects: set[int] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(set(SECONDS_OF.values()), 0.0))
    outages: dict[tuple[str, float], tuple[float, float]] = field(default_factory=dict)
    earlier: set[tuple[str, float]] = field(default_factory=set)

    def add(self, span: Span, start: float) -> None:
        self.subjects.add(span.subject)
        self.seconds[SECONDS_OF[span.state]] += span.ends_at - span.starts_at
        if span.state == "failed":
            self._add_outage(span, start)

    def _add_outage(self, span: Span, start: float) -> None:
        """Failed time of one incident is one outage, however many GPUs it took."""
        known = span.incident_id is not None
        key = ("incident", float(span.incident_id or 0)) if known else (f"gpu {span.subject}", span.began_at)
        if span.began_at < start:
            self.earlier.add(key)
        first, last = self.outages.get(key, (span.starts_at, span.ends_at))
        self.outages[key] = (min(first, span.starts_at), max(last, span.ends_at))


def intervals(
    *, node_id: int | None = None, gpu_id: int | None = None, since: datetime, until: datetime
) -> list[StateInterval]:
    """The intervals of a GPU, or of a node itself, that touch `[since, until)`, in order."""
    subject = Q(gpu_id=gpu_id) if gpu_id is not None else Q(node_id=node_id, gpu=None)
    found = StateInterval.objects.filter(subject, Q(ends_at=None) | Q(ends_at__gt=since), starts_at__lt=until)
    return list(found.order_by("starts_at"))


def availability(
    cluster: Cluster, start: datetime, end: datetime, scope: str, *, now: datetime
) -> list[dict[str, Any]]:
    """The rows of a report over `[start, min(end, now))`, by subject in order of its name.

    Seconds are summed over the GPUs of a row; a node without a known GPU counts as one. They add up to `gpu_count`
    times the period: time before the first interval of a GPU is out of service, time after the last word is unknown.
    """
    end = min(end, now)
    return rows_of(cluster, read_spans(cluster, start, end), start, end, scope)


def read_spans(cluster: Cluster, start: datetime, end: datetime) -> list[Span]:
    """Every subject's states over `[start, end)`, gap-free, planned time before whatever was told in it."""
    if end <= start or not cluster.pk:
        return []
    return list(planned_first(_spans(cluster, start, end), announced(cluster, start, end)))


def rows_of(
    cluster: Cluster, spans: Sequence[Span], start: datetime, end: datetime, scope: str
) -> list[dict[str, Any]]:
    """The spans of `[start, end)` added up by subject of the scope."""
    if not spans:
        return []
    tallies: dict[str, Tally] = {}
    name_of = _names(cluster, scope)
    for span in spans:
        name = name_of(span)
        if name is not None:
            tallies.setdefault(name, Tally()).add(span, start.timestamp())
    return [_row(name, tallies[name], (end - start).total_seconds()) for name in sorted(tallies)]


def fleet_ratio(cluster: Cluster, start: datetime, end: datetime, *, now: datetime) -> float | None:
    rows = availability(cluster, start, end, "fleet", now=now)
    return rows[0]["availability_ratio"] if rows else None


def _names(cluster: Cluster, scope: str) -> Any:
    racks: dict[int, str | None] = dict(cluster.nodes.values_list("pk", "rack__name"))
    nodes: dict[int, str] = dict(cluster.nodes.values_list("pk", "name"))
    if scope == "fleet":
        return lambda span: cluster.name
    if scope == "rack":
        return lambda span: racks.get(span.node_id) or "no rack"
    if scope == "node":
        return lambda span: nodes.get(span.node_id)
    uuids = dict(Gpu.objects.filter(cluster=cluster).values_list("pk", "uuid"))
    return lambda span: uuids.get(span.subject)


def _spans(cluster: Cluster, start: datetime, end: datetime) -> Iterable[Span]:
    """Every subject's states over the whole period, gap-free. As many queries for any number of rows."""
    heads = dict(LedgerHead.objects.filter(node__cluster=cluster).values_list("node_id", "told_until"))
    found = (
        StateInterval.objects.filter(Q(ends_at=None) | Q(ends_at__gt=start), cluster=cluster, starts_at__lt=end)
        .order_by("gpu_id", "starts_at", "node_id")
        .values_list("gpu_id", "node_id", "state", "starts_at", "ends_at", "incident_id", "reasons")
    )
    rows = cast("list[tuple[int | None, int, str, datetime, datetime | None, int | None, list[str]]]", list(found))
    cause_of = _causes(cluster)
    with_gpus = {node_id for gpu_id, node_id, *_ in rows if gpu_id is not None}
    seen: set[int] = set()
    for gpu_id, node_id, state, starts_at, ends_at, incident_id, reasons in rows:
        if gpu_id is None and node_id in with_gpus:
            continue
        subject = gpu_id if gpu_id is not None else -node_id
        if subject not in seen:
            seen.add(subject)
            if starts_at > start:
                absent = (start.timestamp(), starts_at.timestamp())
                # A record that was imported says nothing of the time before it; a scraped board was not there yet.
                before = "unknown" if IMPORTED in reasons else "out_of_service"
                yield Span(subject, node_id, before, *absent, None, absent[0])
        cause = cause_of.get(incident_id, incident_id) if incident_id is not None else None
        yield from _told(subject, node_id, state, starts_at, ends_at, cause, start, end, heads)


def _causes(cluster: Cluster) -> dict[int, int]:
    """The incident behind each member: what one cause broke is one outage."""
    members = Incident.objects.filter(cluster=cluster, parent__isnull=False)
    return dict(members.values_list("pk", "parent_id"))


def _told(
    subject: int, node_id: int, state: str, starts_at: datetime, ends_at: datetime | None, incident_id: int | None,
    start: datetime, end: datetime, heads: dict[int, datetime],
) -> Iterable[Span]:  # fmt: skip
    """The part of an interval inside the period; an open one holds as far as it was told, then nobody knows."""
    left = max(starts_at, start)
    told_until = end if ends_at is not None else min(end, max(left, heads.get(node_id, left)))
    right = min(ends_at or told_until, end)
    if right > left:
        cut_to = (left.timestamp(), right.timestamp())
        yield Span(subject, node_id, state, *cut_to, incident_id, starts_at.timestamp())
    if ends_at is None and right < end:
        yield Span(subject, node_id, "unknown", right.timestamp(), end.timestamp(), None, right.timestamp())


def _row(name: str, tally: Tally, period: float) -> dict[str, Any]:
    up, down = tally.seconds["up"], tally.seconds["down"]
    began = [span for key, span in tally.outages.items() if key not in tally.earlier]
    count, gpus = len(began), len(tally.subjects)
    # A board that came or went within the period is out of this row's service for the rest of it.
    elsewhere = max(0.0, round(gpus * period - sum(tally.seconds.values()), 3))
    return {
        "subject": name,
        "gpu_count": gpus,
        "up_seconds": up,
        "down_seconds": down,
        "planned_seconds": tally.seconds["planned"],
        "unknown_seconds": tally.seconds["unknown"],
        "out_of_service_seconds": tally.seconds["out_of_service"] + elsewhere,
        "availability_ratio": cut(up / (up + down)) if up + down else None,
        "incidents": count,
        "mtbf_seconds": up / gpus / count if count else None,
        "mttr_seconds": sum(last - first for first, last in began) / count if count else None,
    }


def cut(ratio: float) -> float:
    """Rounded down: 0.99999999 never becomes 1."""
    return math.floor(ratio * RATIO_DIGITS) / RATIO_DIGITS
