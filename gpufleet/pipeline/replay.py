"""The whole pipeline in virtual time: what a stretch of the past would have looked like, live.

Each step asks every target with `?t=`, stores the answers as scraped at that time, and runs the same detection, intake
and ledger as the live cycle does, with every time stamp virtual. A replay has its own cluster and its own frames.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from gpufleet.core.times import from_unix
from gpufleet.fleet.actions import create_windows, import_targets
from gpufleet.fleet.models import Cluster
from gpufleet.fleet.queries import active_targets
from gpufleet.fleet.specs import TargetSpec, WindowSpec
from gpufleet.incidents.intake import sweep
from gpufleet.incidents.models import Incident
from gpufleet.incidents.serialize import incident_json
from gpufleet.pipeline.detecting import Shard, detect, forget_windows
from gpufleet.scrape.actions import store_shard
from gpufleet.scrape.collector import Collector
from gpufleet.store.partitions import drop_replay

MOST_STEPS = 10_000_000
WHOLE = 0  # a replay judges its cluster as one shard

Progress = Callable[[int, int, datetime], None]


class ReplayError(ValueError):
    """A replay that cannot be run; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Virtual time `[start, end)` in steps of `step_seconds`."""

    start: datetime
    end: datetime
    step_seconds: float

    def __post_init__(self) -> None:
        if not self.start < self.end:
            raise ReplayError("the end must be later than the start")
        if not 1 <= self.step_seconds <= 3600:
            raise ReplayError("a step is 1 to 3600 seconds long")
        if self.steps > MOST_STEPS:
            raise ReplayError(f"{self.steps} steps are more than {MOST_STEPS}")

    @property
    def steps(self) -> int:
        seconds = (self.end - self.start).total_seconds()
        return int(-(-seconds // self.step_seconds))

    def at(self, step: int) -> datetime:
        return self.start + timedelta(seconds=step * self.step_seconds)

    def cycle(self, step: int) -> int:
        """Cycles of a replay count on one by one, whatever its step."""
        return int(self.start.timestamp() // self.step_seconds) + step


@dataclass(frozen=True, slots=True)
class Replayed:
    cluster: Cluster
    steps: int
    judged: int
    incidents: int


def replay(
    specs: Sequence[TargetSpec],
    stretch: Stretch,
    *,
    cluster_name: str,
    windows: Sequence[WindowSpec] = (),
    actor: str = "replay",
    progress: Progress = lambda step, steps, at: None,
) -> Replayed:
    """Runs a stretch over targets in the cluster `cluster_name`, which starts empty. Raises ReplayError, FleetError."""
    cluster = fresh_cluster(cluster_name)
    specs = [replace(spec, cluster=cluster.name) for spec in specs]
    import_targets(specs, source="replay", actor=actor, now=stretch.start, trusted=True, cluster=cluster)
    create_windows(cluster, windows, actor=actor, source="import", now=stretch.start)
    collector = Collector(
        interval_seconds=stretch.step_seconds,
        max_bytes=settings.ENV["GPUFLEET_SCRAPE_MAX_BYTES"],
        max_samples=settings.ENV["GPUFLEET_SCRAPE_MAX_SAMPLES"],
    )
    try:
        judged = _run(cluster, stretch, collector, progress)
    finally:
        collector.close()
        forget_windows()
    return Replayed(cluster, stretch.steps, judged, Incident.objects.filter(cluster=cluster).count())


def _run(cluster: Cluster, stretch: Stretch, collector: Collector, progress: Progress) -> int:
    """While a step is judged, the answers of the next one are fetched. Returns how many cycles were judged."""
    targets = active_targets(cluster.id)
    place = Shard(cluster, [target.id for target in targets], stretch.step_seconds)
    judged = 0
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="fetch") as fetching:
        waiting = fetching.submit(collector.fetch_at, targets, stretch.at(0))
        for step in range(stretch.steps):
            now, cycle = stretch.at(step), stretch.cycle(step)
            fetched = waiting.result()
            if step + 1 < stretch.steps:
                waiting = fetching.submit(collector.fetch_at, targets, stretch.at(step + 1))
            result = collector.take(cluster, targets, fetched, cycle, now)
            store_shard(None, WHOLE, result, now)
            if result.kinds:
                targets = active_targets(cluster.id)
            judged += detect(place, WHOLE, cycle, now) is not None
            sweep(now, cluster)
            progress(step + 1, stretch.steps, now)
    sweep(stretch.end, cluster)
    return judged


def fresh_cluster(name: str) -> Cluster:
    """An empty cluster for a replay; what an earlier one of this name left is dropped. Raises ReplayError."""
    old = Cluster.objects.filter(name=name).first()
    if old is not None:
        if not old.is_replay:
            raise ReplayError(f"the cluster {name!r} is live; a replay needs a name of its own")
        drop_cluster(old)
    return Cluster.objects.create(name=name, is_replay=True)


def drop_cluster(cluster: Cluster) -> None:
    """Removes a replayed cluster with everything in it. Raises ReplayError for a live one."""
    if not cluster.is_replay:
        raise ReplayError(f"the cluster {cluster.name!r} is live")
    drop_replay(cluster.id)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL gpufleet.dropping_replay = 'on'")
        cluster.delete()
    forget_windows()


def incidents_json(cluster: Cluster) -> list[dict[str, Any]]:
    """All incidents of a replayed cluster in the API's form, oldest first."""
    rows = (
        Incident.objects.filter(cluster=cluster)
        .select_related("cluster", "node", "gpu")
        .prefetch_related("children__node", "children__gpu")
        .order_by("opened_at", "id")
    )
    return [incident_json(row) for row in rows]


def window_specs(announced: object) -> list[WindowSpec]:
    """Maintenance windows of the form `[{node, from, to, reason}]`. Raises ReplayError with the place of a bad one."""
    if not isinstance(announced, list):
        raise ReplayError("maintenance windows are a list of {node, from, to, reason}")
    return [_window(window, number) for number, window in enumerate(announced, 1)]


def _window(window: object, number: int) -> WindowSpec:
    try:
        if not isinstance(window, dict):
            raise ValueError("not a table")
        starts_at, ends_at = (_instant(window[name]) for name in ("from", "to"))
        if not starts_at < ends_at:
            raise ValueError("it ends before it starts")
        return WindowSpec(str(window["node"]), starts_at, ends_at, str(window.get("reason", ""))[:255])
    except KeyError as error:
        raise ReplayError(f"maintenance window {number}: {error.args[0]!r} is missing") from error
    except ValueError as error:
        raise ReplayError(f"maintenance window {number}: {error}") from error


def _instant(value: object) -> float:
    """Unix seconds of a number or of an ISO time with an offset."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return from_unix(float(value)).timestamp()
    at = datetime.fromisoformat(str(value))
    if at.tzinfo is None:
        raise ValueError(f"{value!r} has no offset")
    return at.timestamp()
