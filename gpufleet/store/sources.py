"""Where a window of samples comes from. Every read of samples over time goes through `blocks`.

A scrape lies in a frame, in a chunk, or for a while in both. Frames are read before chunks and a chunk's scrape goes
before a frame at the same time: so whatever is sealed or dropped between the two reads, every scrape is seen once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from gpufleet.catalogue.values import clean as clean_values
from gpufleet.core.times import from_unix
from gpufleet.store.chunks import FAILED, SPAN_SECONDS, SealedSpan, read_spans
from gpufleet.store.codec import decode
from gpufleet.store.frame_rows import GOOD, newest_in_steps, read
from gpufleet.store.frames import FloatArray, IntArray
from gpufleet.store.layouts import LayoutTable, layout_tables
from gpufleet.store.partitions import FRAMES, LIVE, present
from gpufleet.store.realms import by_realm

# A query brings at most this many target-seconds of frames (23,000 at 15 s, about 40 MB), however long the window is,
PIECE_SECONDS = 4 * 86400.0
# and at most this many chunks (about 50 MB).
PIECE_CHUNKS = 12_000


BoolArray = npt.NDArray[np.bool_]
Wanted = Mapping[int, IntArray]  # sorted ids of series by target
Names = Mapping[str, int]  # the exporter's names of the series, with their ids


@dataclass(frozen=True, slots=True)
class Block:
    """Scrapes of one layout in order of time: `times` (n), Unix seconds; `values` (n, k) of the series at `places`.

    `listed` (n, k): whether the scrape listed the series; None: all did. Where it did not, the value is NaN.
    """

    layout: LayoutTable
    places: IntArray
    times: FloatArray
    values: FloatArray
    listed: BoolArray | None = None

    @property
    def series_ids(self) -> IntArray:
        found: IntArray = self.layout.series_ids[self.places]
        return found


def blocks(
    wanted: Wanted,
    start: float,
    end: float,
    names: Names,
    *,
    clean: bool = True,
    newest_each: float | None = None,
    origin: float | None = None,
) -> Iterator[Block]:
    """Good scrapes of `[start, end)` with the values of the wanted series, NaN where there was none.

    Values are canonical, or as sent without `clean`. Blocks come in no
    order; no scrape is in two of them. With `newest_each` some scrapes may be left out that bring nothing to the newest
    value of each series and step of so many seconds, counted from `origin` (or `start`).
    """
    steps = None if newest_each is None else (start if origin is None else origin, newest_each)
    waiting: dict[int, list[_Run]] = {}
    live: list[int] = []
    for realm, ids in by_realm(list(wanted)).items():
        windows = [(start, end)]
        if realm == LIVE and (end - start) * len(ids) > PIECE_SECONDS:
            windows = open_windows(start, end)
        live += ids if realm == LIVE else []
        for low, high in windows:
            for run in _runs({one: wanted[one] for one in ids}, low, high, steps):
                waiting.setdefault(run.table.target_id, []).append(run)
    picks: dict[int, _Pick | None] = {}
    known = sorted(names.values())
    for ids, low, high in chunk_pieces(live if known else [], start, end, len(known) + 1):
        for span in read_spans(ids, low, high, known):
            block = _sealed_block(span, low, high, wanted[span.target_id], names, clean, picks)
            if block is not None:
                yield block
            waiting[span.target_id] = [run.without(span.micros) for run in waiting.get(span.target_id, ())]
    for runs in waiting.values():
        yield from (run.block(clean) for run in runs if run.micros.size)


def open_windows(start: float, end: float) -> list[tuple[float, float]]:
    """The parts of `[start, end)` that frames may lie in: where a partition of frames is."""
    found: list[tuple[float, float]] = []
    for low, high in ((low.timestamp(), high.timestamp()) for low, high in present(FRAMES).values()):
        if low < end and high > start:
            joins = found and found[-1][1] == low
            found[-1 if joins else len(found) :] = [(found[-1][0] if joins else max(low, start), min(high, end))]
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring frames of one layout; `cleaned`: canonical values."""

    table: LayoutTable
    places: IntArray
    micros: IntArray
    raw: FloatArray
    cleaned: FloatArray

    def without(self, micros: IntArray) -> _Run:
        left = ~np.isin(self.micros, micros)
        if left.all():
            return self
        return _Run(self.table, self.places, self.micros[left], self.raw[left], self.cleaned[left])

    def block(self, clean: bool) -> Block:
        return Block(self.table, self.places, self.micros / 1e6, self.cleaned if clean else self.raw)


def _block(table: LayoutTable, places: IntArray, micros: IntArray, raw: FloatArray, clean: bool) -> Block:
    return Block(table, places, micros / 1e6, table.clean_at(places, raw) if clean else raw)


def _runs(wanted: Wanted, start: float, end: float, steps: tuple[float, float] | None) -> Iterator[_Run]:
    """Frames of the window; with `steps` (origin, seconds) the newest good one of each step, or all where it lacks one
    of the values."""
    if steps is None:
        for ids, low, high in _frame_pieces(list(wanted), start, end):
            window = [from_unix(low), from_unix(high)]
            condition = "scraped_at >= %s AND scraped_at < %s AND values IS NOT NULL"
            yield from _run(read(ids, GOOD, condition, window, "ORDER BY target_id, scraped_at"), wanted)
        return
    rows = newest_in_steps(list(wanted), start, end, *steps)
    whole = Counter[int]()
    for run in _run(rows, wanted):
        target_id = run.table.target_id
        if run.places.size == wanted[target_id].size and not np.isnan(run.cleaned).any():
            whole[target_id] += run.micros.size
        yield run
    lacking = [target_id for target_id, many in Counter(row[0] for row in rows).items() if many > whole[target_id]]
    if lacking:
        yield from _runs({target_id: wanted[target_id] for target_id in lacking}, start, end, None)


def _run(rows: Sequence[tuple[int, float, int, bytes]], wanted: Wanted) -> Iterator[_Run]:
    tables = layout_tables([layout_id for _, _, layout_id, _ in rows])
    picks = {
        layout_id: np.flatnonzero(np.isin(table.series_ids, wanted[table.target_id]))
        for layout_id, table in tables.items()
    }
    found: list[tuple[LayoutTable, IntArray, IntArray, FloatArray]] = []
    for (_, layout_id), members in groupby(rows, key=lambda row: (row[0], row[2])):
        if layout_id not in tables or not picks[layout_id].size:
            continue
        run = list(members)
        raw = np.empty((len(run), picks[layout_id].size))
        for number, row in enumerate(run):
            raw[number] = decode(row[3])[picks[layout_id]]
        micros = np.rint(np.array([row[1] for row in run]) * 1e6).astype(np.int64)
        found.append((tables[layout_id], picks[layout_id], micros, raw))
    for (table, places, micros, raw), cleaned in zip(found, _cleaned(found), strict=True):
        yield _Run(table, places, micros, raw, cleaned)


def _cleaned(runs: Sequence[tuple[LayoutTable, IntArray, IntArray, FloatArray]]) -> list[FloatArray]:
    """Canonical values of all runs, in one pass: most are so small that each call would cost more than its work."""
    if not runs:
        return []
    meaning = [
        np.concatenate([np.tile(getattr(table, name)[places], len(raw)) for table, places, _, raw in runs])
        for name in ("scale", "low", "high", "sentinels")
    ]
    flat = clean_values(np.concatenate([raw.reshape(-1) for *_, raw in runs]), *meaning)
    ends = np.cumsum([raw.size for *_, raw in runs])
    return [part.reshape(raw.shape) for part, (*_, raw) in zip(np.split(flat, ends[:-1]), runs, strict=True)]


@dataclass(frozen=True, slots=True)
class _Pick:
    """Where the wanted series of a target stand in a layout, and for each name's id in its matrix: (columns, rows)."""

    table: LayoutTable
    places: IntArray
    by_name: dict[int, tuple[IntArray, IntArray]]

    @classmethod
    def of(cls, layout_id: int, series: IntArray, names: Names) -> _Pick | None:
        table = layout_tables([layout_id]).get(layout_id) if layout_id != FAILED else None
        if table is None:
            return None
        places = np.flatnonzero(np.isin(table.series_ids, series))
        by_name = {}
        for name in {table.names[place] for place in places.tolist()} & names.keys():
            of_name = table.by_name[name]
            columns = np.flatnonzero(np.isin(places, of_name))
            by_name[names[name]] = columns, np.searchsorted(of_name, places[columns])
        return cls(table, places, by_name)


def _sealed_block(
    span: SealedSpan,
    start: float,
    end: float,
    series: IntArray,
    names: Names,
    clean: bool,
    picks: dict[int, _Pick | None],
) -> Block | None:
    """`picks`: those that were made before, by layout."""
    if span.layout_id not in picks:
        picks[span.layout_id] = _Pick.of(span.layout_id, series, names)
    pick = picks[span.layout_id]
    if pick is None or not pick.places.size or not span.blobs:
        return None
    micros = span.good_micros
    first, after = np.searchsorted(micros, [round(start * 1e6), round(end * 1e6)])
    if first == after:
        return None
    raw = np.full((after - first, pick.places.size), np.nan)
    for name_id, (columns, rows) in pick.by_name.items():
        if name_id in span.blobs:
            raw[:, columns] = span.matrix(name_id)[rows, first:after].T
    block = _block(pick.table, pick.places, micros[first:after], raw, clean)
    return replace(block, listed=_listed(span, block.series_ids, slice(first, after)))


def _listed(span: SealedSpan, series: IntArray, columns: slice) -> BoolArray | None:
    """Which of the good scrapes at `columns` listed which of the series; None when all did."""
    if span.layout_ids <= {span.layout_id, FAILED}:
        return None
    layouts, which = np.unique(span.layout[span.layout != FAILED][columns], return_inverse=True)
    tables = layout_tables(layouts.tolist())
    rows = [
        np.isin(series, tables[one].series_ids) if one in tables else np.zeros(series.size, dtype=np.bool_)
        for one in layouts.tolist()
    ]
    found: BoolArray = np.array(rows)[which]
    return found


def _frame_pieces(target_ids: Sequence[int], start: float, end: float) -> Iterator[tuple[list[int], float, float]]:
    """The window cut so that no query brings too much."""
    for number in range(math.ceil((end - start) / PIECE_SECONDS)):
        low = start + number * PIECE_SECONDS
        high = min(end, low + PIECE_SECONDS)
        many = max(1, int(PIECE_SECONDS / (high - low)))
        for first in range(0, len(target_ids), many):
            yield list(target_ids[first : first + many]), low, high


def chunk_pieces(
    target_ids: Sequence[int], start: float, end: float, names: int, unit_seconds: float = SPAN_SECONDS
) -> Iterator[tuple[list[int], float, float]]:
    """As many targets and as long a window at once as PIECE_CHUNKS rows allow, each of a target, name and unit of time.

    Cuts in time lie between units.
    """
    units = max(1, PIECE_CHUNKS // names)
    low = start
    while low < end and target_ids:
        high = min(end, (low // unit_seconds + units) * unit_seconds)
        many = max(1, int(units / math.ceil((high - low) / unit_seconds + 1)))
        for first in range(0, len(target_ids), many):
            yield list(target_ids[first : first + many]), low, high
        low = high
