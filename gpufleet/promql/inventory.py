"""Which series the store has, and the labels that a query sees them with.

The labels are those of the target (instance, job, node, rack, cluster and what its file says), those of the GPU where
it sits now (gpu, UUID, modelName, device, Hostname, pci_bus_id), and the exporter's own. An exporter's label with the
name of a target's becomes `exported_..`, as in Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.db import connection
from django.db.models import Q

from gpufleet.core.times import from_unix
from gpufleet.fleet.models import Gpu, Placement, Target
from gpufleet.promql.limits import Budget
from gpufleet.promql.matchers import LabelMatcher
from gpufleet.promql.shelf import Shelf
from gpufleet.promql.vectors import NAME, Labels
from gpufleet.store.models import Series

# Of every scrape itself. Prometheus makes these too.
UP, DURATION, SAMPLES = "up", "scrape_duration_seconds", "scrape_samples_scraped"
SCRAPE_NAMES = (UP, DURATION, SAMPLES)
_COLUMNS = ("id", "target_id", "gpu_id", "name", "metric", "labels")
# Each index is walked from one name to the next: there are few names and many series.
_NAMES = """
WITH RECURSIVE walk (name) AS (
    SELECT min({column}) FROM store_series
    UNION ALL
    SELECT (SELECT min({column}) FROM store_series WHERE {column} > walk.name) FROM walk WHERE walk.name IS NOT NULL
) SELECT name FROM walk WHERE name IS NOT NULL
"""

shelf = Shelf()


@dataclass(frozen=True, slots=True)
class Listed:
    """One series under one of its names. `canonical`: in the canonical unit, missing values left out."""

    series_id: int
    target_id: int
    exporter_name: str
    canonical: bool
    labels: Labels


@dataclass(frozen=True, slots=True)
class ListedTarget:
    """A target and the labels that it gives to its series."""

    labels: Labels
    created_at: datetime
    removed_at: datetime | None
    is_replay: bool


def metric_names() -> list[str]:
    """Every name that a series can be asked by: those of the exporters, the canonical ones, those of scrapes."""
    found = set(SCRAPE_NAMES)
    with connection.cursor() as cursor:
        for column in ("name", "metric"):
            cursor.execute(_NAMES.format(column=column))
            found.update(row[0] for row in cursor.fetchall())
    return sorted(found)


def list_series(matchers: Sequence[LabelMatcher], start: int, end: int, budget: Budget) -> list[Listed]:
    """The series that the matchers pick, under each name that they pick. Raises PromqlError at a limit."""
    with shelf.fresh():
        within = _targets_within(matchers, start, end)
        test = _Test(matchers)
        found = []
        for one in _candidates([matcher for matcher in matchers if matcher.name == NAME], within):
            if one.target_id in within and test.holds(one.labels):
                found.append(one)
                budget.take(len(found), 0)
    return found


def list_scrapes(matchers: Sequence[LabelMatcher], start: int, end: int) -> Iterator[tuple[str, int, Labels]]:
    """(name, target, labels) of SCRAPE_NAMES that the matchers pick."""
    names = [name for name in SCRAPE_NAMES if all(one.holds(name) for one in matchers if one.name == NAME)]
    if not names:
        return
    test = _Test(matchers)
    with shelf.fresh():
        within = _targets_within(matchers, start, end)
    for target_id, target in within.items():
        for name in names:
            named = {**target.labels, NAME: name}
            if test.holds(named):
                yield name, target_id, named


class _Test:
    """Whether labels fulfil matchers. Values repeat from series to series: each is looked at once."""

    def __init__(self, matchers: Sequence[LabelMatcher]) -> None:
        self._matchers: list[tuple[LabelMatcher, dict[str, bool]]] = [(matcher, {}) for matcher in matchers]

    def holds(self, labels: Labels) -> bool:
        for matcher, known in self._matchers:
            value = labels.get(matcher.name, "")
            verdict = known.get(value)
            if verdict is None:
                verdict = known[value] = matcher.holds(value)
            if not verdict:
                return False
        return True


def _targets_within(matchers: Sequence[LabelMatcher], start: int, end: int) -> dict[int, ListedTarget]:
    """Targets that may have been scraped in the window and whose labels fulfil the matchers as far as they go.

    A target's labels hide the exporter's, so what they do not fulfil no series of theirs does. Replayed clusters only
    when a matcher names a cluster.
    """
    low, high = from_unix(_bounded(start)), from_unix(_bounded(end))
    all_clusters = any(matcher.name == "cluster" for matcher in matchers)
    return {
        target_id: target
        for target_id, target in shelf.get("targets", _read_targets).items()
        if target.created_at <= high
        and (target.removed_at is None or target.removed_at >= low)
        and (all_clusters or not target.is_replay)
        and all(matcher.holds(target.labels[matcher.name]) for matcher in matchers if matcher.name in target.labels)
    }


def _candidates(named: Sequence[LabelMatcher], within: Mapping[int, ListedTarget]) -> list[Listed]:
    """Series that may be meant, as the matchers of the name tell."""
    exact = next((one.value for one in named if one.op == "="), None)
    if exact is not None:
        query = Q(name=exact) | Q(metric=exact)
        found: list[Listed] = shelf.get(("named", exact), lambda: _read_series(query))
        return [one for one in found if one.labels[NAME] == exact]
    condition = Q(target_id__in=list(within))
    if named:
        picked = [name for name in metric_names() if all(one.holds(name) for one in named)]
        condition &= Q(name__in=picked) | Q(metric__in=picked)
    return _read_series(condition)


def _read_series(condition: Q) -> list[Listed]:
    targets: dict[int, ListedTarget] = shelf.get("targets", _read_targets)
    gpus: dict[int, Labels] = shelf.get("gpus", _read_gpus)
    found = []
    for series_id, target_id, gpu_id, name, metric, own in (
        Series.objects.filter(condition).order_by("id").values_list(*_COLUMNS)
    ):
        if target_id not in targets:
            continue
        plain = _joined(targets[target_id].labels, gpus.get(gpu_id, {}), own)
        found.append(Listed(series_id, target_id, name, False, {**plain, NAME: name}))
        if metric != name:
            found.append(Listed(series_id, target_id, name, True, {**plain, NAME: metric}))
    return found


def _read_targets() -> dict[int, ListedTarget]:
    rows = Target.objects.order_by("id").values_list(
        *("id", "created_at", "removed_at", "cluster__is_replay"),
        *("url", "job", "labels", "node__name", "node__rack__name", "cluster__name"),
    )
    return {
        target_id: ListedTarget(_target_labels(*about), created_at, removed_at, is_replay)
        for target_id, created_at, removed_at, is_replay, *about in rows
    }


def _read_gpus() -> dict[int, Labels]:
    """Labels of each GPU, with the place where it was put last."""
    rows = Placement.objects.order_by("starts_at", "id").values_list("gpu_id", "slot", "pci_bus_id", "node__name")
    placed: dict[int, list[Any]] = {gpu_id: place for gpu_id, *place in rows}
    nowhere: list[Any] = [None, "", ""]
    return {
        gpu_id: _gpu_labels(uuid, model, vendor, *placed.get(gpu_id, nowhere))
        for gpu_id, uuid, model, vendor in Gpu.objects.values_list("id", "uuid", "model", "vendor")
    }


def _gpu_labels(uuid: str, model: str, vendor: str, slot: int | None, bus: str, node: str) -> Labels:
    index = "" if slot is None else str(slot)
    found = {
        "gpu": index,
        "UUID": uuid,
        "modelName": model,
        "device": f"nvidia{index}" if index and vendor.lower() == "nvidia" else "",
        "Hostname": node,
        "pci_bus_id": bus,
    }
    return {name: value for name, value in found.items() if value}


def _target_labels(url: str, job: str, own: dict[str, str], node: str, rack: str | None, cluster: str) -> Labels:
    """`instance` is the address that is scraped, unless the targets' file gives another."""
    found = {**own, "node": node, "cluster": cluster, "rack": rack or own.get("rack", ""), "job": job}
    found.setdefault("instance", urlsplit(url).netloc)
    return {name: value for name, value in found.items() if value}


def _joined(target: Labels, gpu: Labels, own: dict[str, str]) -> dict[str, Any]:
    kept = {f"exported_{name}" if name in target else name: value for name, value in own.items() if value}
    return {**gpu, **kept, **target}


def _bounded(at: int) -> float:
    """Milliseconds to seconds that a date can hold."""
    return min(max(at / 1000, 0.0), 253_402_300_000.0)
