"""Failures per 1,000 node-days over calendar buckets, each rate with its exact Poisson interval.

A failure is a critical incident that stands on its own and that nobody labelled false, counted when its evidence
began. Node-days are the time that the ledger knows a node for, without the time it was out of service.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Q

from gpufleet.availability.models import LedgerHead, StateInterval
from gpufleet.fleet.models import Cluster, Placement
from gpufleet.incidents.models import Incident

BUCKETS = ("day", "week", "month")
SUBJECTS = ("kind", "node", "rack", "model")
MOST_BUCKETS = 400
CONFIDENCE = 0.95
DAY_SECONDS = 86400.0
PER_NODE_DAYS = 1000.0
NEGLIGIBLE = 1e-17


class TooManyBuckets(ValueError):
    """The range holds more than MOST_BUCKETS buckets."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """`[starts_at, ends_at)` in UTC, cut to the range that was asked for."""

    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Served:
    """A stretch of a node's service."""

    node_id: int
    starts_at: datetime
    ends_at: datetime


def poisson_interval(count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact (Garwood) interval of a Poisson mean after `count` events. Raises ValueError for a negative count."""
    if count < 0 or not 0 < confidence < 1:
        raise ValueError("a count is 0 or more, a confidence between 0 and 1")
    tail = (1 - confidence) / 2
    room = 10 * math.sqrt(count + 1) - 4 * math.log10(tail) + 10
    low = 0.0 if count == 0 else _bisect(lambda mean: at_least(count, mean) > tail, 0.0, float(count))
    return low, _bisect(lambda mean: at_most(count, mean) < tail, float(count), count + room)


def at_most(count: int, mean: float) -> float:
    """P(X <= count) of a Poisson variable."""
    if mean <= 0:
        return 1.0
    if mean < count:
        return 1.0 - at_least(count + 1, mean)
    term, total, place = _probability(count, mean), 0.0, count
    while place >= 0 and term > NEGLIGIBLE * total:
        total += term
        term *= place / mean
        place -= 1
    return total


def at_least(count: int, mean: float) -> float:
    """P(X >= count) of a Poisson variable."""
    if count <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    if mean > count:
        return 1.0 - at_most(count - 1, mean)
    term, total, place = _probability(count, mean), 0.0, count
    while term > NEGLIGIBLE * total:
        total += term
        place += 1
        term *= mean / place
    return total


def _probability(count: int, mean: float) -> float:
    return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))


def _bisect(is_above: Callable[[float], bool], low: float, high: float) -> float:
    """Where `is_above` turns true, to the last bit that halving can tell."""
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        low, high = (low, middle) if is_above(middle) else (middle, high)


def calendar(start: datetime, end: datetime, bucket: str) -> list[Bucket]:
    """The buckets of `[start, end)`; weeks begin on Monday. Raises TooManyBuckets."""
    found: list[Bucket] = []
    at = start.astimezone(UTC)
    while at < end:
        following = _next(at, bucket)
        found.append(Bucket(at, min(following, end.astimezone(UTC))))
        if len(found) > MOST_BUCKETS:
            raise TooManyBuckets(f"that is more than {MOST_BUCKETS} buckets: take longer ones, or a shorter range")
        at = following
    return found


def _next(at: datetime, bucket: str) -> datetime:
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if bucket == "day":
        return day + timedelta(days=1)
    if bucket == "week":
        return day + timedelta(days=7 - day.weekday())
    return day.replace(year=day.year + day.month // 12, month=day.month % 12 + 1, day=1)


def rate(failures: int, node_days: float) -> dict[str, float | None]:
    """The rate and its interval; null where there was no exposure."""
    if node_days <= 0:
        return {"rate_per_1000_node_days": None, "rate_low": None, "rate_high": None}
    low, high = poisson_interval(failures)
    scale = PER_NODE_DAYS / node_days
    return {"rate_per_1000_node_days": failures * scale, "rate_low": low * scale, "rate_high": high * scale}


def trends(
    cluster: Cluster, start: datetime, end: datetime, bucket: str, by: str, *, now: datetime
) -> list[dict[str, Any]]:
    """`[{starts_at, ends_at, rows}]` over `[start, min(end, now))`, instants as datetimes. Five queries at most."""
    buckets = calendar(start, min(end, now), bucket)
    if not buckets or not cluster.pk:
        return []
    served = _service(cluster, buckets[0].starts_at, buckets[-1].ends_at)
    failures = _failures(cluster, buckets[0].starts_at, buckets[-1].ends_at)
    if by == "kind":
        kinds = sorted({kind for _, kind, _ in failures})
        return [_kinds(one, kinds, served, failures) for one in buckets]
    key_of = _keys(cluster, by)
    return [_subjects(one, key_of, served, failures) for one in buckets]


Failure = tuple[datetime, str, int | None]


def _kinds(
    bucket: Bucket, kinds: Sequence[str], served: Iterable[Served], failures: Iterable[Failure]
) -> dict[str, Any]:
    """Every kind is seen against the whole fleet's exposure."""
    node_days = sum(days for _, days in _exposure(bucket, served))
    counts = Counter(kind for at, kind, _ in failures if bucket.starts_at <= at < bucket.ends_at)
    return _bucket(bucket, [(kind, counts[kind], node_days) for kind in kinds])


def _subjects(
    bucket: Bucket, key_of: dict[int, str], served: Iterable[Served], failures: Iterable[Failure]
) -> dict[str, Any]:
    """A failure without a node belongs to none of these, so it is left out."""
    node_days: Counter[str] = Counter()
    for node_id, days in _exposure(bucket, served):
        node_days[key_of[node_id]] += days  # type: ignore[assignment]
    inside = [node_id for at, _, node_id in failures if bucket.starts_at <= at < bucket.ends_at]
    counts = Counter(key_of[node_id] for node_id in inside if node_id in key_of)
    return _bucket(bucket, [(key, counts[key], node_days[key]) for key in sorted(node_days | counts)])


def _bucket(bucket: Bucket, rows: Iterable[tuple[str, int, float]]) -> dict[str, Any]:
    return {
        "starts_at": bucket.starts_at,
        "ends_at": bucket.ends_at,
        "rows": [{"key": key, "failures": n, "node_days": days, **rate(n, days)} for key, n, days in rows],
    }


def _exposure(bucket: Bucket, served: Iterable[Served]) -> Iterable[tuple[int, float]]:
    for stretch in served:
        seconds = (min(stretch.ends_at, bucket.ends_at) - max(stretch.starts_at, bucket.starts_at)).total_seconds()
        if seconds > 0:
            yield stretch.node_id, seconds / DAY_SECONDS


def _service(cluster: Cluster, start: datetime, end: datetime) -> list[Served]:
    """Two queries. An interval that is open holds as far as the ledger was told."""
    heads = dict(LedgerHead.objects.filter(node__cluster=cluster).values_list("node_id", "told_until"))
    rows = StateInterval.objects.filter(
        Q(ends_at=None) | Q(ends_at__gt=start), cluster=cluster, gpu=None, node__isnull=False, starts_at__lt=end
    ).exclude(state="out_of_service")
    return [
        Served(node_id, starts_at, ends_at or max(starts_at, heads.get(node_id, starts_at)))
        for node_id, starts_at, ends_at in rows.values_list("node_id", "starts_at", "ends_at")
    ]


def _failures(cluster: Cluster, start: datetime, end: datetime) -> list[Failure]:
    found = Incident.objects.filter(
        cluster=cluster, severity="critical", parent=None, first_evidence_at__gte=start, first_evidence_at__lt=end
    ).exclude(label="false")
    return list(found.values_list("first_evidence_at", "kind", "node_id"))


def _keys(cluster: Cluster, by: str) -> dict[int, str]:
    """Node id to the name of what it counts for. A node's model is that of the GPU it was given last."""
    if by == "node":
        return dict(cluster.nodes.values_list("pk", "name"))
    if by == "rack":
        return {pk: rack or "no rack" for pk, rack in cluster.nodes.values_list("pk", "rack__name")}
    models = Placement.objects.filter(node__cluster=cluster).order_by("starts_at", "id")
    latest = dict(models.values_list("node_id", "gpu__model"))
    return {pk: latest.get(pk) or "no model" for pk in cluster.nodes.values_list("pk", flat=True)}
