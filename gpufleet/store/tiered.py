"""Which tier answers for which part of a window, and what its series did in each step asked for.

A span with a partition of frames is open: samples answer there, whatever the step. Elsewhere the coarsest tier answers
that is no coarser than the step; and where a tier has nothing of a target, the next one does. So every moment of a
target is answered by one tier alone, and the answer is the same whichever it is, up to the length of its steps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufleet.store.chunks import SPAN_SECONDS, sealed_starts
from gpufleet.store.frames import FloatArray, IntArray
from gpufleet.store.partitions import LIVE
from gpufleet.store.realms import by_realm
from gpufleet.store.rollups import RolledRow, read_rollups
from gpufleet.store.sources import Block, Names, Wanted, blocks, chunk_pieces, open_windows
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
    """What `series_ids` (k) did in the steps `cells.steps` (m): arrays (m x k), canonical.

    `last_at` (m x k): Unix seconds of `last`, of a roll-up the start of its step. `newest` (k): newest time of each.
    """

    series_ids: IntArray
    cells: Reduced
    last_at: FloatArray
    newest: list[float]


class Taken:
    """Which moments of which target are answered already: a grid of targets x slots."""

    def __init__(self, targets: Collection[int], window: Window) -> None:
        self.seconds = window.tiers[0].seconds if window.is_coarse else TIER_5M.seconds
        self.start = window.start // self.seconds * self.seconds
        self.row = {target_id: number for number, target_id in enumerate(targets)}
        slots = math.ceil((window.end - self.start) / self.seconds)
        self.grid: BoolArray = np.zeros((len(self.row), slots), dtype=np.bool_)

    def slots(self, times: FloatArray) -> IntArray:
        return ((np.maximum(times, self.start) - self.start) // self.seconds).astype(np.int64)

    def take(self, block: Block, since: float = 0.0) -> None:
        """Notes that the scrapes of a block have been answered; those of a replay have no roll-ups."""
        row = self.row.get(block.layout.target_id)
        if row is not None:
            self.grid[row, self.slots(block.times[block.times >= since])] = True

    def take_steps(self, owners: IntArray, times: FloatArray, there: BoolArray, seconds: int) -> None:
        """Notes steps of `seconds` that begin at `times`; `there` (steps x owners)."""
        first = self.slots(times)
        for more in range(max(1, seconds // self.seconds)):
            slots = np.minimum(first + more, self.grid.shape[1] - 1)
            self.grid[owners[np.newaxis, :], slots[:, np.newaxis]] |= there

    def take_spans(self, window: Window) -> None:
        """Takes every span of which a target has any scrape: a fine step asks roll-ups only where there is none."""
        many = round(SPAN_SECONDS) // self.seconds
        first = round(self.start / self.seconds) % many
        for low in range(-first, self.grid.shape[1], many):
            part = self.grid[:, max(low, 0) : low + many]
            part[part.any(axis=1)] = True
        left = self.left()
        for target_id, starts_at in sealed_starts(left, window.start, window.end) if left else ():
            low = round((starts_at - self.start) / self.seconds)
            self.grid[self.row[target_id], max(low, 0) : max(low + many, 0)] = True

    def left(self) -> list[int]:
        """Targets with a moment that nothing answers yet."""
        return [target_id for target_id, number in self.row.items() if not self.grid[number].all()]


def parts(wanted: Wanted, names: Names, window: Window) -> Iterator[Part]:
    """The wanted series in the window, in no order."""
    taken = Taken(by_realm(list(wanted)).get(LIVE, []), window)
    newest_each = window.step if window.columns == {"last"} else None
    for some, low, high in sampled(wanted, window):
        for block in blocks(some, low, high, names, newest_each=newest_each, origin=window.start):
            taken.take(block)
            yield _of_block(block, window)
    yield from rolled_parts(wanted, names, window, taken)


def sampled(wanted: Wanted, window: Window) -> list[tuple[Wanted, float, float]]:
    """(series, start, end) of what samples are asked for first."""
    realms = by_realm(list(wanted))
    live = {target_id: wanted[target_id] for target_id in realms.pop(LIVE, [])}
    replayed = {target_id: wanted[target_id] for ids in realms.values() for target_id in ids}
    found: list[tuple[Wanted, float, float]] = [(replayed, window.start, window.end)] if replayed else []
    if live:
        spans = open_windows(window.start, window.end) if window.is_coarse else [(window.start, window.end)]
        found += [(live, low, high) for low, high in spans]
    return found


def rolled_parts(wanted: Wanted, names: Names, window: Window, taken: Taken) -> Iterator[Part]:
    """Roll-ups of all that is not taken."""
    if not window.is_coarse:
        taken.take_spans(window)
    for tier in window.tiers:
        yield from _of_tier(tier, wanted, names, window, taken)


def _of_block(block: Block, window: Window) -> Part:
    bucket = np.floor((block.times - window.start) / window.step).astype(np.int64)
    there = (~np.isnan(block.values)).astype(np.int64)
    cells = dict.fromkeys(("sum", "min", "max", "last"), block.values)
    newest = [float(block.times[-1])] * block.places.size
    return _part(block.series_ids, bucket, block.times, {"count": there, **cells}, newest, window)


def _of_tier(tier: Tier, live: Wanted, names: Names, window: Window, taken: Taken) -> Iterator[Part]:
    left = taken.left()
    before = taken.grid.copy()
    columns = window.columns if window.columns == {"last"} else {"count", *window.columns}
    for ids, low, high in chunk_pieces(
        left if names else [], window.start, window.end, len(names) + 1, tier.unit_seconds
    ):
        units: dict[float, list[RolledRow]] = {}
        for row in read_rollups(tier, ids, low, high, names, columns):
            units.setdefault(row.starts_at, []).append(row)
        for rows in units.values():
            yield from _of_unit(tier, rows, live, (low, high), window, before, taken)


def _of_unit(
    tier: Tier,
    rows: list[RolledRow],
    live: Wanted,
    piece: tuple[float, float],
    window: Window,
    before: BoolArray,
    taken: Taken,
) -> Iterator[Part]:
    """All rows of one unit of time at once, whichever targets they are of.

    A step belongs where its middle lies, so a window that cuts steps is right to half of one at each end.
    """
    times = rows[0].starts_at + tier.seconds * np.arange(tier.steps, dtype=np.float64)
    middle = times + tier.seconds / 2
    inside = np.flatnonzero((middle >= piece[0]) & (middle < piece[1]))
    if not inside.size:
        return
    times = times[inside]
    series, owner, cells = _joined(rows, live, inside, taken.row)
    owners, firsts, of_owner = np.unique(owner, return_index=True, return_inverse=True)
    free = _free(before[owners], taken.slots(times), max(1, tier.seconds // taken.seconds))
    there = (cells["count"] > 0) & free[:, of_owner]
    taken.take_steps(owners, times, np.logical_or.reduceat(there, firsts, axis=1), tier.seconds)
    masked = {name: np.where(there, values, 0 if name == "count" else np.nan) for name, values in cells.items()}
    bucket, again = _buckets(times, tier.seconds, window)
    if again.size:
        newest = np.where(there, times[:, np.newaxis], -np.inf).max(axis=0).tolist()
        spread = {name: values if again.size == times.size else values[again] for name, values in masked.items()}
        yield _part(series, bucket, times[again], spread, newest, window)


def _free(before: BoolArray, first: IntArray, many: int) -> BoolArray:
    """(steps x owners): whether none of the `many` slots of each step, from `first` on, is taken."""
    counts = np.zeros((before.shape[0], before.shape[1] + 1), dtype=np.int64)
    np.cumsum(before, axis=1, out=counts[:, 1:])
    after = np.minimum(first + many, before.shape[1])
    found: BoolArray = (counts[:, after] == counts[:, first]).T
    return found


def _joined(
    rows: list[RolledRow], live: Wanted, inside: IntArray, row_of: dict[int, int]
) -> tuple[IntArray, IntArray, dict[str, npt.NDArray[Any]]]:
    """(series, rows of their targets in the grid, in order, columns (steps x series), canonical)."""
    series: list[IntArray] = []
    owner: list[IntArray] = []
    lists: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in rows[0].columns}
    for row in sorted(rows, key=lambda row: row_of[row.target_id]):
        ids, wanted = row.layout.series_ids[row.places], live[row.target_id]
        at = np.minimum(np.searchsorted(wanted, ids), wanted.size - 1)
        picked = np.flatnonzero(wanted[at] == ids)
        series.append(ids[picked])
        owner.append(np.full(picked.size, row_of[row.target_id]))
        scale = row.layout.scale[row.places[picked]]
        for name, values in row.columns.items():
            part = values[inside[0] : inside[-1] + 1, picked]
            lists[name].append(part if name == "count" else part * scale)
    cells = {name: np.concatenate(parts_, axis=1) for name, parts_ in lists.items()}
    if "count" not in cells:
        cells["count"] = (~np.isnan(cells["last"])).astype(np.int64)
    return np.concatenate(series), np.concatenate(owner), cells


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
    series_ids: IntArray,
    bucket: IntArray,
    times: FloatArray,
    cells: Mapping[str, npt.NDArray[Any]],
    newest: list[float],
    window: Window,
) -> Part:
    found = reduced(bucket, cells, window.columns)
    last_at = np.where(found.last_row < 0, -np.inf, times[np.maximum(found.last_row, 0)])
    return Part(series_ids, found, last_at, newest)
