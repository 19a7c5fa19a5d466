"""One cycle of a shard as a row of arrays, out of its frames."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpufleet.detect.windows import BOOT_METRIC, GPU_METRICS, XID_SOURCES, BoolArray, FloatArray, HashArray, IntArray
from gpufleet.pipeline.readings import speaks_of_presence
from gpufleet.pipeline.windows_subjects import Subjects
from gpufleet.scrape.failures import COLLECTOR
from gpufleet.store.frames import Frame
from gpufleet.store.layouts import LayoutTable

# (GPU index, code, source) of a counted XID series
CountKey = tuple[int, int, str]


@dataclass(slots=True)
class Row:
    """Arrays over the targets [S], the nodes [N] and the GPUs [G] of a shard; meaning as in `detect.windows`.

    `lister` [G]: index of the target that listed the GPU, -1 for none. `counts`: counted XIDs that were sent.
    """

    at: float
    scraped: BoolArray
    good: BoolArray
    reason: npt.NDArray[np.object_]
    scraped_at: FloatArray
    duration_seconds: FloatArray
    bytes: IntArray
    signature: HashArray
    boot_at: FloatArray
    lister: IntArray
    values: dict[str, FloatArray]
    counts: dict[CountKey, float] = field(default_factory=dict)

    @property
    def listed(self) -> BoolArray:
        return self.lister >= 0


@dataclass(frozen=True, slots=True)
class Places:
    """Where the values of a layout go: `wanted` places, the `metric` of each with its `column` (GPU index; node index
    for node metrics; place in `counts` for counted XIDs); `gpu_places` and `gpu_columns` for every series of a GPU."""

    wanted: IntArray
    goes_to: list[tuple[str, IntArray, IntArray]]
    counted: list[tuple[int, CountKey]]
    gpu_places: IntArray
    gpu_columns: IntArray


class RowMaker:
    """Turns frames into rows for one set of subjects; remembers per layout where each value goes."""

    def __init__(self, subjects: Subjects) -> None:
        self.subjects = subjects
        self._target = {int(target_id): index for index, target_id in enumerate(subjects.target_ids)}
        self._gpu = {int(gpu_id): index for index, gpu_id in enumerate(subjects.gpu_ids)}
        self._places: dict[int, Places] = {}

    def row(self, at: float, frames: Sequence[Frame], layouts: Mapping[int, LayoutTable]) -> Row:
        """The row of one cycle that began at `at`. Frames of other targets are left out; the first of a target wins."""
        row = self._empty(at)
        for frame in frames:
            target = self._target.get(frame.target_id)
            # A failure on our own side is not the target's: it counts as no scrape at all.
            if target is None or row.scraped[target] or frame.reason == COLLECTOR:
                continue
            self._health(row, target, frame)
            layout = None if frame.layout_id is None else layouts.get(frame.layout_id)
            if frame.values is not None and layout is not None:
                self._fill(row, target, frame.values, layout)
        return row

    def _empty(self, at: float) -> Row:
        targets, nodes, gpus = (len(self.subjects.target_ids), len(self.subjects.node_ids), len(self.subjects.gpu_ids))
        return Row(
            at=at,
            scraped=np.zeros(targets, dtype=np.bool_),
            good=np.zeros(targets, dtype=np.bool_),
            reason=np.full(targets, "", dtype=object),
            scraped_at=np.full(targets, np.nan),
            duration_seconds=np.zeros(targets),
            bytes=np.zeros(targets, dtype=np.int64),
            signature=np.zeros(targets, dtype=np.uint64),
            boot_at=np.full(nodes, np.nan),
            lister=np.full(gpus, -1, dtype=np.int64),
            values={metric: np.full(gpus, np.nan) for metric in GPU_METRICS},
        )

    def _health(self, row: Row, target: int, frame: Frame) -> None:
        row.scraped[target] = True
        row.good[target] = not frame.reason
        row.reason[target] = frame.reason
        row.scraped_at[target] = frame.scraped_at
        row.duration_seconds[target] = frame.duration_seconds
        row.bytes[target] = frame.bytes

    def _fill(self, row: Row, target: int, values: FloatArray, layout: LayoutTable) -> None:
        places = self._places.get(layout.id)
        if places is None:
            places = self._places[layout.id] = self._find(layout)
        row.signature[target] = zlib.crc32(values.tobytes()) + 1
        columns = places.gpu_columns[~np.isnan(values[places.gpu_places])]
        columns = columns[row.lister[columns] < 0]
        row.lister[columns] = target
        if not len(places.wanted):
            return
        clean = np.full(len(values), np.nan)
        clean[places.wanted] = layout.clean_at(places.wanted, values[places.wanted])
        for metric, at, column in places.goes_to:
            into = row.boot_at if metric == BOOT_METRIC else row.values[metric]
            column = np.full(1, self.subjects.target_node[target]) if metric == BOOT_METRIC else column
            into[column] = np.where(np.isnan(into[column]), clean[at], into[column])
        for place, key in places.counted:
            if not np.isnan(clean[place]):
                row.counts[key] = max(float(clean[place]), row.counts.get(key, 0.0))

    def _find(self, layout: LayoutTable) -> Places:
        columns = np.array([self._gpu.get(int(gpu_id), -1) for gpu_id in layout.gpu_ids], dtype=np.int64)
        goes_to = [found for metric in GPU_METRICS if (found := self._metric(layout, metric, columns))]
        boot = layout.places_of(BOOT_METRIC)[:1]
        if len(boot):
            goes_to.append((BOOT_METRIC, boot, boot))
        counted = list(self._counted(layout, columns))
        wanted = np.unique(np.concatenate([at for _, at, _ in goes_to] + [_ints([place for place, _ in counted])]))
        gpu_places = np.flatnonzero((columns >= 0) & speaks_of_presence(layout))
        return Places(wanted.astype(np.int64), goes_to, counted, gpu_places, columns[gpu_places])

    def _metric(self, layout: LayoutTable, metric: str, columns: IntArray) -> tuple[str, IntArray, IntArray] | None:
        """The places of a metric, one for each GPU: the whole board goes before its MIG instances."""
        first: dict[int, int] = {}
        for place in sorted(layout.places_of(metric).tolist(), key=lambda place: _is_instance(layout, place)):
            if columns[place] >= 0:
                first.setdefault(int(columns[place]), place)
        return (metric, _ints(list(first.values())), _ints(list(first))) if first else None

    def _counted(self, layout: LayoutTable, columns: IntArray) -> list[tuple[int, CountKey]]:
        found = []
        for metric, source in XID_SOURCES.items():
            for place in layout.places_of(metric).tolist():
                code = str(layout.labels[place].get("xid", ""))
                if columns[place] >= 0 and code.isdecimal():
                    found.append((place, (int(columns[place]), int(code), source)))
        return found


def _is_instance(layout: LayoutTable, place: int) -> bool:
    labels = layout.labels[place]
    return bool(labels.get("GPU_I_ID") or labels.get("gpu_instance_id") or labels.get("mig"))


def _ints(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
