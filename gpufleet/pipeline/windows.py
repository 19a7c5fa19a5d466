"""Windows out of the store: a rolling cache a process keeps for each shard, and the same again out of nothing.

The cache holds the frames of the last cycles as rows, and what was last known before them. Lost at any moment, it is
rebuilt from the store with the same result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpufleet.detect.windows import (
    Before,
    FloatArray,
    Gpus,
    IntArray,
    OpenKey,
    Targets,
    Windows,
    XidCounts,
)
from gpufleet.pipeline.windows_before import BACK_SECONDS, Known, known_before
from gpufleet.pipeline.windows_rows import CountKey, Row, RowMaker
from gpufleet.pipeline.windows_subjects import Subjects, maintenance_mask, subjects_of
from gpufleet.store.frames import Frame
from gpufleet.store.layouts import layout_tables
from gpufleet.store.queries import read_cycle, read_frames

SPAN_SECONDS = 480.0
LEAST_ROWS = 10
TOLD_AGAIN_ROWS = 4
MOST_ROLLED = 20  # cycles that a cache takes in one after the other; after a longer pause it is made anew
XID_WINDOW_SECONDS = 300.0  # the exporter's own default; the label that tells it is a fact, not an identity


@dataclass(slots=True)
class CycleRow:
    """A cycle with its frames and the row they make."""

    number: int
    frames: list[Frame]
    row: Row


@dataclass(slots=True)
class ShardWindows:
    """The rolling windows of one shard. `known`: what was last known before the first cycle."""

    subjects: Subjects
    maker: RowMaker
    known: Known
    cycles: list[CycleRow] = field(default_factory=list)

    @property
    def newest(self) -> int:
        """Number of the newest cycle, -1 without any."""
        return self.cycles[-1].number if self.cycles else -1

    def add(self, number: int, frames: Sequence[Frame], interval: float) -> None:
        """Takes a cycle in and lets those fall out that are older than the span."""
        self.cycles.append(_cycle(self.maker, number, list(frames)))
        oldest = self.cycles[-1].row.at - span_seconds(interval)
        while len(self.cycles) > 1 and self.cycles[0].row.at < oldest:
            self.known.learn(self.cycles.pop(0).row)

    def follow(self, subjects: Subjects) -> None:
        """Takes the shard as it stands now; when its targets or GPUs are others, the rows are made again."""
        if subjects.axes != self.subjects.axes:
            self.maker = RowMaker(subjects)
            self.known = self.known.for_subjects(self.subjects, subjects)
            for cycle in self.cycles:
                cycle.row = _cycle(self.maker, cycle.number, cycle.frames).row
        self.subjects = self.maker.subjects = subjects

    def windows(self, interval: float, open_keys: dict[tuple[str, str], OpenKey]) -> Windows:
        """The arrays for the engine. One query, for planned time."""
        rows = [cycle.row for cycle in self.cycles]
        times = np.array([row.at for row in rows], dtype=np.float64)
        counts, counts_before = _counts(rows, self.known)
        return Windows(
            times=times,
            interval_seconds=interval,
            nodes=self.subjects.node_names,
            expected_gpus=self.subjects.expected_gpus,
            maintenance=maintenance_mask(self.subjects, times),
            boot_at=np.stack([row.boot_at for row in rows]),
            targets=_targets(self.subjects, rows),
            gpus=_gpus(self.subjects, rows, self.known),
            xids=counts,
            before=Before(
                seen=self.known.listed_at > 0,
                xid_code=self.known.xid_code,
                energy_joules=self.known.energy_joules,
                xid_count=counts_before[0],
                xid_count_at=counts_before[1],
                boot_at=self.known.boot_at,
                field_at={
                    name: np.where(known_at >= times[0] - BACK_SECONDS, known_at, np.nan)
                    for name, known_at in self.known.field_at.items()
                },
            ),
            open=open_keys,
            tell_from=max(0, len(rows) - TOLD_AGAIN_ROWS),
        )


def span_seconds(interval: float) -> float:
    return max(SPAN_SECONDS, LEAST_ROWS * interval)


def rolled(cached: ShardWindows | None, target_ids: Sequence[int], cycle: int, interval: float) -> ShardWindows | None:
    """The windows with `cycle` as the newest: the cache rolled on over the cycles since, else out of the store.

    None when the cycle brought nothing.
    """
    frames = read_cycle(target_ids, cycle)
    if not frames:
        return None
    subjects = subjects_of(target_ids, _began(frames))
    if cached is None or not cached.cycles or not 0 < cycle - cached.newest <= MOST_ROLLED:
        return rebuilt(subjects, cycle, frames, interval)
    cached.follow(subjects)
    for number in range(cached.newest + 1, cycle):
        between = read_cycle(target_ids, number)
        if between:
            cached.add(number, between, interval)
    cached.add(cycle, frames, interval)
    return cached


def rebuilt(subjects: Subjects, cycle: int, frames: Sequence[Frame], interval: float) -> ShardWindows:
    """The same windows out of nothing but the store."""
    at, ids = _began(frames), subjects.target_ids.tolist()
    start = at - span_seconds(interval)
    maker = RowMaker(subjects)
    by_cycle: dict[int, list[Frame]] = {}
    # Scrapes of one cycle start within an interval; the oldest one may begin before the span does.
    for frame in read_frames(ids, start - interval, at + interval):
        by_cycle.setdefault(frame.cycle, []).append(frame)
    by_cycle[cycle] = list(frames)
    older = sorted(number for number in by_cycle if number <= cycle)
    cycles = [_cycle(maker, number, by_cycle[number]) for number in older]
    kept = [one for one in cycles if one.row.at >= start]
    return ShardWindows(subjects, maker, known_before(subjects, maker, kept[0].row.at), kept)


def _cycle(maker: RowMaker, number: int, frames: list[Frame]) -> CycleRow:
    layouts = layout_tables([frame.layout_id for frame in frames if frame.layout_id is not None])
    return CycleRow(number, frames, maker.row(_began(frames), frames, layouts))


def _began(frames: Sequence[Frame]) -> float:
    return min(frame.scraped_at for frame in frames)


def _targets(subjects: Subjects, rows: Sequence[Row]) -> Targets:
    return Targets(
        ids=subjects.target_ids,
        node=subjects.target_node,
        kind=subjects.target_kind,
        scraped=np.stack([row.scraped for row in rows]),
        good=np.stack([row.good for row in rows]),
        reason=np.stack([row.reason for row in rows]),
        at=np.stack([row.scraped_at for row in rows]),
        duration_seconds=np.stack([row.duration_seconds for row in rows]),
        bytes=np.stack([row.bytes for row in rows]),
        signature=np.stack([row.signature for row in rows]),
    )


def _gpus(subjects: Subjects, rows: Sequence[Row], known: Known) -> Gpus:
    return Gpus(
        uuid=subjects.gpu_uuids,
        model=subjects.gpu_models,
        pci_bus_id=subjects.gpu_bus_ids,
        slot=subjects.gpu_slots,
        node=subjects.gpu_node,
        target=_speaker(subjects, rows, known),
        listed=np.stack([row.listed for row in rows]),
        values={metric: np.stack([row.values[metric] for row in rows]) for metric in rows[0].values},
    )


def _speaker(subjects: Subjects, rows: Sequence[Row], known: Known) -> IntArray:
    """[G]: the target that speaks for a GPU: the one that listed it last, else a GPU exporter of its node."""
    speaker = known.lister.copy()
    for row in rows:
        speaker = np.where(row.lister >= 0, row.lister, speaker)
    for gpu in np.flatnonzero(speaker < 0):
        of_node = np.flatnonzero(subjects.target_node == subjects.gpu_node[gpu])
        if len(of_node):
            speaker[gpu] = of_node[np.argmax(subjects.target_kind[of_node] == 1)]
    return speaker


def _counts(rows: Sequence[Row], known: Known) -> tuple[XidCounts, tuple[FloatArray, FloatArray]]:
    keys = sorted({key for row in rows for key in row.counts} | set(known.counts))
    column = {key: index for index, key in enumerate(keys)}
    values = np.full((len(rows), len(keys)), np.nan)
    for index, row in enumerate(rows):
        for key, value in row.counts.items():
            values[index, column[key]] = value
    sources = [source for _, _, source in keys]
    gpu = np.array([gpu for gpu, _, _ in keys], dtype=np.int64)
    counts = XidCounts(
        gpu=gpu,
        code=np.array([code for _, code, _ in keys], dtype=np.int64),
        source=sources,
        window_seconds=np.array([XID_WINDOW_SECONDS if source == "window" else math.inf for source in sources]),
        values=values,
    )
    return counts, _counts_before(keys, known)


def _counts_before(keys: Sequence[CountKey], known: Known) -> tuple[FloatArray, FloatArray]:
    """[K] last count and its time before the first row: 0 for a GPU that was listed without the line."""
    values, times = np.full(len(keys), np.nan), np.full(len(keys), np.nan)
    for index, key in enumerate(keys):
        listed_at = known.listed_at[key[0]]
        if listed_at > 0:
            values[index], times[index] = known.counts.get(key, (0.0, listed_at))
    return values, times
