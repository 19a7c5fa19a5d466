"""Which tier answers for which part of a window, and what its series did in each step asked for.

A span with a partition of frames is open: samples answer there, whatever the step. Elsewhere the coarsest tier answers
that is no coarser than the step; and where a tier has nothing of a target, the next one does. So every moment of a
target is answered by one tier alone, and the answer is the same whichever it is, up to the length of its steps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpufleet.store.chunks import SPAN_SECONDS
from gpufleet.store.frames import FloatArray, IntArray
from gpufleet.store.names import name_ids
from gpufleet.store.partitions import LIVE
from gpufleet.store.realms import by_realm
from gpufleet.store.rollups import RolledRow, read_rollups
from gpufleet.store.sources import Block, Wanted, blocks, chunk_pieces, open_windows
from gpufleet.store.tiers import TIER_1H, TIER_5M, Reduced, Tier, reduced

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Window:
    """`[start, end)` by steps of `step` seconds, counted from `start`; `columns`: those of Steps that are needed."""

    start: float
    end: float
    step: float
    columns: frozenset[str]

    @property
    def is_coarse(self) -> bool:
        """Whether roll-ups go before samples."""
        return self.step >= TIER_5M.seconds

    @property
    def tiers(self) -> tuple[Tier, Tier]:
        """In the order in which they are asked."""
        return (TIER_1H, TIER_5M) if self.step >= TIER_1H.seconds else (TIER_5M, TIER_1H)


@dataclass(frozen=True, slots=True)
class Part:
    """What `series_ids` (k) of one target did in the steps `cells.steps` (m): arrays (m x k), canonical.

    `last_at` (m x k): Unix seconds of `last`, of a roll-up the start of its step. `newest`: the newest time in it.
    """

    target_id: int
    series_ids: IntArray
    cells: Reduced
    last_at: FloatArray
    newest: float


class _Taken:
    """Which moments of which target are answered already: a grid of targets x slots."""

    def __init__(self, targets: Collection[int], window: Window) -> None:
        self.seconds = window.tiers[0].seconds if window.is_coarse else TIER_5M.seconds
        self.start = window.start // self.seconds * self.seconds
        self.row = {target_id: number for number, target_id in enumerate(targets)}
        slots = math.ceil((window.end - self.start) / self.seconds)
        self.grid: BoolArray = np.zeros((len(self.row), slots), dtype=np.bool_)

    def slots(self, times: FloatArray) -> IntArray:
        return ((np.maximum(times, self.start) - self.start) // self.seconds).astype(np.int64)

    def take(self, target_id: int, times: FloatArray, seconds: int = 0) -> None:
        """Notes that samples at `times`, or steps of `seconds` that begin there, have been answered."""
        first = self.slots(times)
        for more in range(max(1, seconds // self.seconds)):
            self.grid[self.row[target_id], np.minimum(first + more, self.grid.shape[1] - 1)] = True

    def take_spans(self) -> None:
        """Takes every span of which anything is taken: a fine step asks roll-ups only where no scrape is."""
        many = round(SPAN_SECONDS) // self.seconds
        first = round(self.start / self.seconds) % many
        for low in range(-first, self.grid.shape[1], many):
            part = self.grid[:, max(low, 0) : low + many]
            part[part.any(axis=1)] = True

    def left(self) -> list[int]:
        """Targets with a moment that nothing answers yet."""
        return [target_id for target_id, number in self.row.items() if not self.grid[number].all()]


def parts(wanted: Wanted, names: Collection[str], window: Window) -> Iterator[Part]:
    """The wanted series in the window, in no order. `names`: the exporter's names of the series."""
    realms = by_realm(list(wanted))
    live = {target_id: wanted[target_id] for target_id in realms.pop(LIVE, [])}
    replayed = {target_id: wanted[target_id] for ids in realms.values() for target_id in ids}
    taken = _Taken(live, window)
    asked = [(replayed, window.start, window.end)] if replayed else []
    if live:
        spans = open_windows(window.start, window.end) if window.is_coarse else [(window.start, window.end)]
        asked += [(live, low, high) for low, high in spans]
    newest_each = window.step if window.columns == {"last"} else None
    for some, low, high in asked:
        for block in blocks(some, low, high, names, newest_each=newest_each, origin=window.start):
            if block.layout.target_id in live:
                taken.take(block.layout.target_id, block.times)
            yield _of_block(block, window)
    if not window.is_coarse:
        taken.take_spans()
    for tier in window.tiers:
        yield from _of_tier(tier, live, names, window, taken)


def _of_block(block: Block, window: Window) -> Part:
    bucket = np.floor((block.times - window.start) / window.step).astype(np.int64)
    there = (~np.isnan(block.values)).astype(np.int64)
    cells = dict.fromkeys(("sum", "min", "max", "last"), block.values)
    return _part(block.layout.target_id, block.series_ids, bucket, block.times, {"count": there, **cells}, window)


def _of_tier(tier: Tier, live: Wanted, names: Collection[str], window: Window, taken: _Taken) -> Iterator[Part]:
    left = taken.left()
    known = name_ids(names) if left else {}
    before = taken.grid.copy()
    for ids, low, high in chunk_pieces(
        left if known else [], window.start, window.end, len(known) + 1, tier.unit_seconds
    ):
        for row in read_rollups(tier, ids, low, high, known, {"count", *window.columns}):
            picked = np.flatnonzero(np.isin(row.layout.series_ids[row.places], live[row.target_id]))
            times, rows = _steps_of(tier, row, picked, (low, high))
            free = ~before[taken.row[row.target_id], taken.slots(times)]
            times, rows = times[free], rows[free]
            if times.size:
                taken.take(row.target_id, times, tier.seconds)
                yield _of_row(tier, row, picked, times, rows, window)


def _steps_of(tier: Tier, row: RolledRow, picked: IntArray, piece: tuple[float, float]) -> tuple[FloatArray, IntArray]:
    """(starts, places) of the steps with data whose middle lies in the piece.

    A step belongs where its middle lies, so a window that cuts steps is right to half of one at each end.
    """
    times = row.starts_at + tier.seconds * np.arange(tier.steps, dtype=np.float64)
    middle = times + tier.seconds / 2
    there = (row.columns["count"][:, picked] > 0).any(axis=1) & (middle >= piece[0]) & (middle < piece[1])
    return times[there], np.flatnonzero(there)


def _of_row(tier: Tier, row: RolledRow, picked: IntArray, times: FloatArray, rows: IntArray, window: Window) -> Part:
    bucket, again = _buckets(times, tier.seconds, window)
    cells = {name: values[np.ix_(rows, picked)][again] for name, values in row.columns.items()}
    scale = row.layout.scale[row.places[picked]]
    canonical = {name: values if name == "count" else values * scale for name, values in cells.items()}
    series = row.layout.series_ids[row.places[picked]]
    return _part(row.target_id, series, bucket, times[again], canonical, window)


def _buckets(times: FloatArray, seconds: int, window: Window) -> tuple[IntArray, IntArray]:
    """(step, place in `times`) of each value: a roll-up longer than the step stands for all steps that it covers."""
    if seconds <= window.step:
        return np.floor((times + seconds / 2 - window.start) / window.step).astype(np.int64), np.arange(times.size)
    first = np.ceil((np.maximum(times, window.start) - window.start) / window.step).astype(np.int64)
    after = np.ceil((np.minimum(times + seconds, window.end) - window.start) / window.step).astype(np.int64)
    many = np.maximum(after - first, 0)
    places = np.repeat(np.arange(times.size), many)
    offsets = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    return first[places] + offsets, places


def _part(
    target_id: int,
    series_ids: IntArray,
    bucket: IntArray,
    times: FloatArray,
    cells: dict[str, npt.NDArray[np.float64] | IntArray],
    window: Window,
) -> Part:
    found = reduced(bucket, cells, window.columns)
    last_at = np.where(found.last_row < 0, -np.inf, times[np.maximum(found.last_row, 0)])
    return Part(target_id, series_ids, found, last_at, float(times[-1]))
