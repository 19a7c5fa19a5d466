"""The lines of a read: the series of one GPU and equal labels are one, whichever targets they came through."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from gpufleet.store.frames import IntArray, StoreError
from gpufleet.store.layouts import Labels
from gpufleet.store.rows import binary_cursor

_READ = """
SELECT series.id, metric, gpu_id, target_id, node_id, series.name, known.id, series.labels::text, unit, series.kind
FROM store_series series JOIN fleet_target target ON target.id = target_id
JOIN store_name known ON known.name = series.name
WHERE metric = ANY(%s::text[]) AND {scope} = ANY(%s::bigint[]) ORDER BY series.id
"""


@dataclass(slots=True)
class Line:
    number: int
    gpu_id: int | None
    node_id: int
    labels: Labels
    newest: float = -math.inf


@dataclass(slots=True)
class Lines:
    """Of one metric. `wanted`: series by target; `names`: exporter's names with their ids.

    `node_of_series`: where each is from.
    """

    lines: list[Line] = field(default_factory=list)
    of_series: dict[int, Line] = field(default_factory=dict)
    node_of_series: dict[int, int] = field(default_factory=dict)
    targets_of_gpu: dict[int, set[int]] = field(default_factory=dict)
    wanted: dict[int, IntArray] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    unit: str = ""
    kind: str = ""
    _ids: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _numbers: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def numbers(self, series_ids: IntArray) -> IntArray:
        """Numbers of the lines of these series, -1 for one of another metric."""
        if not self._ids.size:
            return np.full(series_ids.shape, -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._ids, series_ids), self._ids.size - 1)
        found: IntArray = np.where(self._ids[at] == series_ids, self._numbers[at], -1)
        return found

    def note(self, series_ids: IntArray, newest: Sequence[float]) -> None:
        """A line is of the node that its newest value is from."""
        for series_id, at in zip(series_ids.tolist(), newest, strict=True):
            line = self.of_series.get(series_id)
            if line is not None and at > line.newest:
                line.newest, line.node_id = at, self.node_of_series[series_id]


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose series: of GPUs, of nodes with all their GPUs, or of a whole cluster."""

    column: str
    ids: tuple[int, ...]

    @classmethod
    def of(cls, gpu_ids: Sequence[int] | None, node_ids: Sequence[int] | None) -> Scope:
        if (gpu_ids is None) == (node_ids is None):
            raise StoreError("give either GPUs or nodes")
        return cls("gpu_id", tuple(gpu_ids)) if gpu_ids is not None else cls("node_id", tuple(node_ids or ()))

    @classmethod
    def cluster(cls, cluster_id: int) -> Scope:
        return cls("cluster_id", (cluster_id,))


def lines_of(metrics: Iterable[str], scope: Scope) -> dict[str, Lines]:
    """The lines of each metric; one query."""
    found = {metric: Lines() for metric in metrics}
    with binary_cursor() as cursor:
        cursor.execute(_READ.format(scope=scope.column), [list(found), list(scope.ids)])
        rows = cursor.fetchall()
    seen: dict[Any, Line] = {}
    of_target: dict[tuple[str, int], list[int]] = {}
    for series_id, metric, gpu_id, target_id, node_id, name, name_id, text, unit, kind in rows:
        lines = found[metric]
        lines.unit, lines.kind = unit, kind
        lines.names[name] = name_id
        of_target.setdefault((metric, target_id), []).append(series_id)
        key = (metric, gpu_id, None if gpu_id else node_id, text)  # jsonb writes equal labels alike
        line = seen.get(key)
        if line is None:
            line = seen[key] = Line(0, gpu_id, node_id, labels_of(text))
            lines.lines.append(line)
        lines.of_series[series_id] = line
        lines.node_of_series[series_id] = node_id
        if gpu_id is not None:
            lines.targets_of_gpu.setdefault(gpu_id, set()).add(target_id)
    for (metric, target_id), ids in of_target.items():
        found[metric].wanted[target_id] = np.array(ids, dtype=np.int64)
    for lines in found.values():
        _number(lines)
    return found


@lru_cache(maxsize=10_000)
def labels_of(text: str) -> Labels:
    """Labels out of JSON. Shared: not to be changed."""
    found: dict[str, str] = orjson.loads(text)
    return found


def all_names(found: Mapping[str, Lines]) -> dict[str, int]:
    """The names of several metrics."""
    return {name: name_id for lines in found.values() for name, name_id in lines.names.items()}


def united(parts: Iterable[Mapping[int, IntArray]]) -> dict[int, IntArray]:
    """The series of several metrics by target."""
    lists: dict[int, list[IntArray]] = {}
    for part in parts:
        for target_id, ids in part.items():
            lists.setdefault(target_id, []).append(ids)
    return {target_id: ids[0] if len(ids) == 1 else np.unique(np.concatenate(ids)) for target_id, ids in lists.items()}


def _number(lines: Lines) -> None:
    lines.lines.sort(
        key=lambda line: (line.gpu_id or 0, line.node_id, sorted(line.labels.items()) if line.labels else [])
    )
    for number, line in enumerate(lines.lines):
        line.number = number
    lines._ids = np.array(list(lines.of_series), dtype=np.int64)  # in order: the rows were
    lines._numbers = np.array([line.number for line in lines.of_series.values()], dtype=np.int64)
