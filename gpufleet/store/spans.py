"""One span of one target in memory: its scrapes and their raw values. Pure arithmetic, no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpufleet.store.chunks import FAILED, Scrapes
from gpufleet.store.frames import FloatArray, Frame, IntArray

NO_SERIES: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """`values` (good scrapes x series), raw, NaN where the scrape's layout lacks the series."""

    scrapes: Scrapes
    series_ids: tuple[int, ...]
    values: FloatArray


def span_of_frames(frames: Sequence[Frame], series_of_layout: Mapping[int, Sequence[int]]) -> Span:
    """The frames of one target in order of time."""
    layouts = [FAILED if frame.layout_id is None else frame.layout_id for frame in frames]
    scrapes = Scrapes(
        micros=np.array([to_micros(frame.scraped_at) for frame in frames], dtype=np.int64),
        layout=np.array(layouts, dtype=np.int64),
        reason=np.array([frame.reason for frame in frames], dtype=object),
        cycle=np.array([frame.cycle for frame in frames], dtype=np.int64),
        duration_seconds=np.array([frame.duration_seconds for frame in frames], dtype=np.float32),
        bytes=np.array([frame.bytes for frame in frames], dtype=np.int32),
        accepted=np.array([frame.accepted for frame in frames], dtype=np.int32),
        rejected=np.array([frame.rejected for frame in frames], dtype=np.int32),
        missing=np.array([frame.missing for frame in frames], dtype=np.int32),
    )
    good = [frame.values for frame in frames if frame.values is not None]
    of_good = scrapes.layout[scrapes.good]
    used = list(dict.fromkeys(of_good.tolist()))
    series_ids = united(*(series_of_layout[layout_id] for layout_id in used))
    values = np.full((len(good), len(series_ids)), np.nan)
    for layout_id in used:
        rows = np.flatnonzero(of_good == layout_id)
        columns = columns_of(series_of_layout[layout_id], series_ids)
        values[np.ix_(rows, columns)] = np.stack([good[row] for row in rows.tolist()])
    return Span(scrapes, series_ids, values)


def joined(first: Span, second: Span) -> Span:
    """All scrapes of both; of two at the same time the one of `first` wins. `first` itself when nothing is new."""
    fresh = ~np.isin(second.scrapes.micros, first.scrapes.micros)
    if not fresh.any():
        return first
    second = _kept(second, fresh)
    series_ids = united(first.series_ids, second.series_ids)
    scrapes = Scrapes.joined([first.scrapes, second.scrapes])
    values = np.full((len(first.values) + len(second.values), len(series_ids)), np.nan)
    values[: len(first.values), columns_of(first.series_ids, series_ids)] = first.values
    values[len(first.values) :, columns_of(second.series_ids, series_ids)] = second.values
    order = np.argsort(scrapes.micros, kind="stable")
    good = scrapes.good
    row_of = np.cumsum(good) - 1
    rows = row_of[order][good[order]]
    return Span(scrapes.taken(order), series_ids, values[rows])


def filled(span: Span, micros: IntArray, series_ids: Sequence[int], values: FloatArray) -> tuple[Span, IntArray]:
    """Puts samples (times x series, NaN for none) into good scrapes of `span` whose layouts lack those series.

    Returns the span and the rows of its good scrapes that took samples: their layouts have to be made anew. What a
    scrape holds already wins; times of `micros` that are no good scrape are left alone.
    """
    good_micros = span.scrapes.micros[span.scrapes.good]
    at = np.searchsorted(good_micros, micros)
    there = np.flatnonzero((at < good_micros.size) & (good_micros[np.minimum(at, good_micros.size - 1)] == micros))
    wider = united(span.series_ids, series_ids)
    grown = np.full((len(span.values), len(wider)), np.nan)
    grown[:, : len(span.series_ids)] = span.values
    cells = np.ix_(at[there], columns_of(series_ids, wider))
    before = grown[cells]
    takes = np.isnan(before) & ~np.isnan(values[there])
    grown[cells] = np.where(takes, values[there], before)
    return replace(span, series_ids=wider, values=grown), at[there][takes.any(axis=1)]


def united(*lists: Sequence[int]) -> tuple[int, ...]:
    """Every id once, in order of first appearance."""
    return tuple(dict.fromkeys(series_id for ids in lists for series_id in ids))


def columns_of(ids: Sequence[int], among: Sequence[int]) -> IntArray:
    """Places of `ids` in `among`."""
    place = {series_id: number for number, series_id in enumerate(among)}
    return np.array([place[series_id] for series_id in ids], dtype=np.int64)


def to_micros(seconds: float) -> int:
    return round(seconds * 1e6)


def _kept(span: Span, mask: IntArray | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Span:
    rows = mask[span.scrapes.good]
    return Span(span.scrapes.taken(mask), span.series_ids, span.values[rows])
