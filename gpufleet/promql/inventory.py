"""Which series the store has, and the labels that a query sees them with.

The labels are those of the target (instance, job, node, rack, cluster and what its file says), those of the GPU where
it sits now (gpu, UUID, modelName, device, Hostname, pci_bus_id), and the exporter's own. An exporter's label with the
name of a target's becomes `exported_..`, as in Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.db import connection
from django.db.models import Q

from gpufleet.core.times import from_unix
from gpufleet.fleet.models import Placement, Target
from gpufleet.promql.limits import Budget
from gpufleet.promql.matchers import LabelMatcher, all_hold
from gpufleet.promql.vectors import NAME, Labels
from gpufleet.store.models import Series

# Of every scrape itself. Prometheus makes these too.
UP, DURATION, SAMPLES = "up", "scrape_duration_seconds", "scrape_samples_scraped"
SCRAPE_NAMES = (UP, DURATION, SAMPLES)
_BY_LABEL = {"node": "node__name", "cluster": "cluster__name", "rack": "rack__name", "job": "job"}
# Each index is walked from one name to the next: there are few names and many series.
_NAMES = """
WITH RECURSIVE walk (name) AS (
    SELECT min({column}) FROM store_series
    UNION ALL
    SELECT (SELECT min({column}) FROM store_series WHERE {column} > walk.name) FROM walk WHERE walk.name IS NOT NULL
) SELECT name FROM walk WHERE name IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """One series under one of its names. `canonical`: in the canonical unit, missing values left out."""

    series_id: int
    target_id: int
    exporter_name: str
    canonical: bool
    labels: Labels


def metric_names() -> list[str]:
    """Every name that a series can be asked by: those of the exporters, the canonical ones, those of scrapes."""
    found = set(SCRAPE_NAMES)
    with connection.cursor() as cursor:
        for column in ("name", "metric"):
            cursor.execute(_NAMES.format(column=column))
            found.update(row[0] for row in cursor.fetchall())
    return sorted(found)


def targets(matchers: Sequence[LabelMatcher], start: int, end: int) -> dict[int, Labels]:
    """Labels of the targets that may have been scraped in the window (milliseconds), by id.

    Replayed clusters only when a matcher names a cluster.
    """
    known = Q(created_at__lte=from_unix(_bounded(end))) & (
        Q(removed_at=None) | Q(removed_at__gte=from_unix(_bounded(start)))
    )
    if not any(matcher.name == "cluster" for matcher in matchers):
        known &= Q(cluster__is_replay=False)
    for matcher in matchers:
        column = _BY_LABEL.get(matcher.name)
        if column and matcher.op == "=" and matcher.value:
            known &= Q(**{column.replace("rack__", "node__rack__"): matcher.value})
    rows = Target.objects.filter(known).values_list(
        "id", "url", "job", "labels", "node__name", "node__rack__name", "cluster__name"
    )
    return {row[0]: _target_labels(*row[1:]) for row in rows}


def list_series(matchers: Sequence[LabelMatcher], start: int, end: int, budget: Budget) -> list[Listed]:
    """The series that the matchers pick, under each name that they pick. Raises PromqlError at a limit."""
    of_target = targets(matchers, start, end)
    named = [matcher for matcher in matchers if matcher.name == NAME]
    others = [matcher for matcher in matchers if matcher.name != NAME]
    found: list[Listed] = []
    rows = _rows(of_target, named, others)
    placed = _places([row[2] for row in rows])
    for series_id, target_id, gpu_id, name, metric, own, uuid, model, vendor in rows:
        of = of_target[target_id]
        gpu = placed.get(gpu_id, (None, "", ""))
        about = _gpu_labels(uuid, model, vendor, *gpu) if gpu_id is not None else {}
        plain = _joined(of, about, own)
        if not all_hold(others, plain):
            continue
        for canonical, asked in ((False, name), (True, metric)):
            if (not canonical or metric != name) and all(matcher.holds(asked) for matcher in named):
                found.append(Listed(series_id, target_id, name, canonical, {**plain, NAME: asked}))
                budget.take(len(found), 0)
    return found


def list_scrapes(matchers: Sequence[LabelMatcher], start: int, end: int) -> Iterator[tuple[str, int, Labels]]:
    """(name, target, labels) of SCRAPE_NAMES that the matchers pick."""
    names = [name for name in SCRAPE_NAMES if all(one.holds(name) for one in matchers if one.name == NAME)]
    if not names:
        return
    for target_id, labels in targets(matchers, start, end).items():
        for name in names:
            named = {**labels, NAME: name}
            if all_hold(matchers, named):
                yield name, target_id, named


def _rows(
    of_target: dict[int, Labels], named: Sequence[LabelMatcher], others: Sequence[LabelMatcher]
) -> list[tuple[Any, ...]]:
    """Rows of the series that may be meant; what SQL cannot say is checked after."""
    if not of_target:
        return []
    query = Series.objects.filter(target_id__in=list(of_target))
    exact = next((one.value for one in named if one.op == "="), None)
    if exact is None and named:
        picked = [name for name in metric_names() if all(one.holds(name) for one in named)]
        query = query.filter(Q(name__in=picked) | Q(metric__in=picked))
    elif exact is not None:
        query = query.filter(Q(name=exact) | Q(metric=exact))
    for matcher in others:
        if matcher.name == "UUID" and matcher.op == "=" and matcher.value:
            query = query.filter(gpu__uuid=matcher.value)
    return list(
        query.order_by("id").values_list(
            "id", "target_id", "gpu_id", "name", "metric", "labels", "gpu__uuid", "gpu__model", "gpu__vendor"
        )
    )


def _places(gpu_ids: Sequence[int | None]) -> dict[int | None, tuple[int, str, str]]:
    """(slot, bus, node) where each GPU was placed last."""
    wanted = {gpu_id for gpu_id in gpu_ids if gpu_id is not None}
    rows = Placement.objects.filter(gpu_id__in=wanted).order_by("starts_at", "id")
    return {
        gpu_id: (slot, bus, node)
        for gpu_id, slot, bus, node in rows.values_list("gpu_id", "slot", "pci_bus_id", "node__name")
    }


def _gpu_labels(uuid: str, model: str, vendor: str, slot: int | None, bus: str, node: str) -> dict[str, str]:
    index = "" if slot is None else str(slot)
    return {
        "gpu": index,
        "UUID": uuid,
        "modelName": model,
        "device": f"nvidia{index}" if index and vendor.lower() == "nvidia" else "",
        "Hostname": node,
        "pci_bus_id": bus,
    }


def _target_labels(
    url: str, job: str, own: dict[str, str], node: str, rack: str | None, cluster: str
) -> dict[str, str]:
    """`instance` is the address that is scraped, unless the targets' file gives another."""
    found = {**own, "node": node, "cluster": cluster, "rack": rack or own.get("rack", ""), "job": job}
    found.setdefault("instance", urlsplit(url).netloc)
    return {name: value for name, value in found.items() if value}


def _joined(target: Labels, gpu: Labels, own: dict[str, str]) -> dict[str, str]:
    found = {name: value for name, value in gpu.items() if value}
    for name, value in own.items():
        if value:
            found[f"exported_{name}" if name in target else name] = value
    return {**found, **target}


def _bounded(at: int) -> float:
    """Milliseconds to seconds that a date can hold."""
    return min(max(at / 1000, 0.0), 253_402_300_000.0)
