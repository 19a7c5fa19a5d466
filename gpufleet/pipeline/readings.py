"""The newest values of every GPU, and when each GPU and node was last heard of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from gpufleet.catalogue.metrics import METRICS
from gpufleet.catalogue.values import BoolArray
from gpufleet.fleet.models import Cluster, Target
from gpufleet.store.layouts import LayoutTable
from gpufleet.store.queries import Latest, read_at, read_latest


@dataclass(frozen=True, slots=True)
class Readings:
    """`values`: canonical, by GPU id and metric; what is missing is left out. `.._seen_at`: Unix seconds.

    A GPU was heard of when a reading of it (temperature, power, use) had a value: a last XID, a counter of the exporter
    or a flag may outlive its board. A node was heard of when any of its targets answered.
    """

    values: dict[int, dict[str, float | None]] = field(default_factory=dict)
    gpu_seen_at: dict[int, float] = field(default_factory=dict)
    node_seen_at: dict[int, float] = field(default_factory=dict)


def newest_readings(cluster: Cluster, metrics: Sequence[str] | None) -> Readings:
    """From the newest good frame of each target. `metrics`: canonical names; None: all those of GPUs."""
    nodes = _targets(cluster)
    return gather(read_latest(list(nodes)), nodes, metrics)


def past_readings(cluster: Cluster, at: datetime, within_seconds: float, metrics: Sequence[str] | None) -> Readings:
    """From the newest good frame of each target in the `within_seconds` up to `at`."""
    nodes = _targets(cluster, including_removed=True)
    return gather(read_at(list(nodes), at.timestamp(), within_seconds), nodes, metrics)


def _targets(cluster: Cluster, *, including_removed: bool = False) -> dict[int, int]:
    """Node id by target id."""
    rows = Target.objects.filter(cluster=cluster)
    if not including_removed:
        rows = rows.filter(removed_at=None)
    return dict(rows.values_list("id", "node_id"))


def gather(latest: Sequence[Latest], node_of_target: Mapping[int, int], metrics: Sequence[str] | None) -> Readings:
    """Two targets of one GPU: the newer value wins. Of two series of one GPU and metric the first known one counts."""
    found = Readings()
    for item in sorted(latest, key=lambda one: one.scraped_at):
        found.node_seen_at[node_of_target[item.target_id]] = item.scraped_at
        values, gpu_ids = item.values, item.layout.gpu_ids
        tells = speaks_of_presence(item.layout) & ~np.isnan(values)
        for gpu_id in np.unique(gpu_ids[tells]).tolist():
            found.gpu_seen_at[gpu_id] = item.scraped_at
        names = [name for name in item.layout.places if _is_of_gpus(name)] if metrics is None else metrics
        for name in names:
            places = item.layout.places_of(name)
            if places.size:
                _keep(found.values, name, gpu_ids[places].tolist(), values[places].tolist())
    return found


def speaks_of_presence(layout: LayoutTable) -> BoolArray:
    """[series of the layout]: a value shows that its board is there. Readings do; where there are none, all series."""
    of_gpu: BoolArray = layout.gpu_ids >= 0
    told = zip(layout.metrics, layout.kinds, strict=True)
    kinds = [METRICS[name].kind if name in METRICS else kind for name, kind in told]
    readings: BoolArray = of_gpu & np.array([kind == "gauge" for kind in kinds], dtype=np.bool_)
    return readings if readings.any() else of_gpu


def _is_of_gpus(name: str) -> bool:
    return name in METRICS and METRICS[name].subject == "gpu"


def _keep(kept: dict[int, dict[str, float | None]], name: str, gpu_ids: list[int], values: list[float]) -> None:
    """Written from the last series to the first, so that the first known one stays."""
    for gpu_id, value in zip(reversed(gpu_ids), reversed(values), strict=True):
        if gpu_id >= 0 and value == value:  # NaN differs from itself
            kept.setdefault(gpu_id, {})[name] = value
