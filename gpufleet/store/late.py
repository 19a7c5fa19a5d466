"""Samples from the past: they go straight into sealed spans, whenever they are from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.db import connection, transaction

from gpufleet.core.times import from_unix
from gpufleet.store.chunks import FAILED, SPAN_SECONDS, Scrapes
from gpufleet.store.frames import FloatArray, IntArray, StoreError
from gpufleet.store.layouts import layout_tables
from gpufleet.store.partitions import LIVE, span_start
from gpufleet.store.realms import by_realm
from gpufleet.store.seal import make_sealed_partitions, put, read_parts
from gpufleet.store.series import ensure_layout
from gpufleet.store.spans import Span, filled, joined, united
from gpufleet.store.target_lock import lock_target

MAX_CELLS = 20_000_000
MAX_SCRAPES = 60_000  # of one target and span: 8 a second
_MAX_AT = 253_402_300_799.0  # the last second of the year 9999

_HEAD = """
INSERT INTO store_head (target_id, scraped_at) VALUES (%s, %s)
ON CONFLICT (target_id) DO UPDATE SET scraped_at = EXCLUDED.scraped_at
WHERE store_head.scraped_at < EXCLUDED.scraped_at
"""


def add_samples(
    target_id: int, series_ids: Sequence[int], times: npt.ArrayLike, values: npt.ArrayLike, now: datetime
) -> int:
    """Keeps samples of one target from any time in the past; returns how many were new.

    `times` (n): Unix seconds, in any order; `values` (n x series): as the exporter sends them, NaN for no sample. Each
    span is one transaction and repeating all of it changes nothing: what a scrape at the same time holds already
    wins, series that it lacks are added to it, and nothing is added to a scrape that failed. Raises StoreError for what
    cannot be kept, also for times after `now`.
    """
    micros, raw = _checked(series_ids, times, values, now)
    if LIVE not in by_realm([target_id]):
        raise StoreError("samples from the past cannot go into a replayed cluster")
    added = 0
    spans = micros // round(SPAN_SECONDS * 1e6)
    for number in np.unique(spans).tolist():
        rows = spans == number
        added += _add(target_id, list(series_ids), micros[rows], raw[rows], number, now)
    return added


def _checked(
    series_ids: Sequence[int], times: npt.ArrayLike, values: npt.ArrayLike, now: datetime
) -> tuple[IntArray, FloatArray]:
    """(micros, values) in order of time, without empty rows and with each time once."""
    at, raw = np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if at.ndim != 1 or raw.shape != (at.size, len(series_ids)) or raw.size > MAX_CELLS:
        raise StoreError(f"values have to be times x series, at most {MAX_CELLS}, not {raw.shape}")
    if len(set(series_ids)) != len(series_ids):
        raise StoreError("a series is named twice")
    if not np.all((at > 0) & (at <= min(_MAX_AT, now.timestamp()))):
        raise StoreError("a sample from the past lies between 1970 and now")
    there = ~np.isnan(raw).all(axis=1)
    micros, raw = np.rint(at[there] * 1e6).astype(np.int64), raw[there]
    unique, where = np.unique(micros, return_inverse=True)
    merged = np.full((unique.size, raw.shape[1]), np.nan)
    if unique.size == micros.size:
        merged[where] = raw
    else:  # backwards, so that the first of two stays
        for row in range(micros.size - 1, -1, -1):
            known = ~np.isnan(raw[row])
            merged[where[row], known] = raw[row, known]
    return unique, merged


def _add(target_id: int, series_ids: list[int], micros: IntArray, raw: FloatArray, number: int, now: datetime) -> int:
    start = span_start(from_unix(number * SPAN_SECONDS))
    make_sealed_partitions(start)
    with transaction.atomic():
        lock_target(target_id)
        sealed, frames = read_parts(target_id, start.timestamp())
        before = frames if sealed is None else joined(sealed, frames) if frames else sealed
        span, added = _merged(target_id, before, series_ids, micros, raw, now)
        if len(span.scrapes) > MAX_SCRAPES:
            raise StoreError(f"more than {MAX_SCRAPES} scrapes of target {target_id} in two hours")
        if added or span is not sealed:
            put(target_id, start, span, now)
        if added:
            with connection.cursor() as cursor:
                cursor.execute(_HEAD, [target_id, from_unix(micros[-1] / 1e6)])
    return added


def _merged(
    target_id: int, before: Span | None, series_ids: list[int], micros: IntArray, raw: FloatArray, now: datetime
) -> tuple[Span, int]:
    """The span with the samples in it, and how many of them were new."""
    taken = np.zeros(micros.size, dtype=np.bool_) if before is None else np.isin(micros, before.scrapes.micros)
    fresh = _new_scrapes(target_id, series_ids, micros[~taken], raw[~taken], now)
    added = int(np.count_nonzero(~np.isnan(raw[~taken])))
    if before is None:
        return fresh, added
    if taken.any():
        grown, rows = filled(before, micros[taken], series_ids, raw[taken])
        if rows.size:
            added += int(np.count_nonzero(~np.isnan(grown.values)) - np.count_nonzero(~np.isnan(before.values)))
            before = _laid_out(target_id, before, grown, rows, now)
    return (joined(before, fresh) if micros[~taken].size else before), added


def _new_scrapes(target_id: int, series_ids: list[int], micros: IntArray, raw: FloatArray, now: datetime) -> Span:
    there = ~np.isnan(raw)
    layout = np.full(micros.size, FAILED, dtype=np.int64)
    patterns, which = np.unique(there, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        members = [series_id for series_id, is_there in zip(series_ids, pattern.tolist(), strict=True) if is_there]
        layout[which.reshape(-1) == number] = ensure_layout(target_id, members, now)
    interval = int(settings.ENV["GPUFLEET_INTERVAL_SECONDS"])
    none: IntArray = np.zeros(micros.size, dtype=np.int64)
    scrapes = Scrapes(
        micros=micros,
        layout=layout,
        reason=np.full(micros.size, "", dtype=object),
        cycle=micros // 1_000_000 // interval,
        duration_seconds=none.astype(np.float32),
        bytes=none,
        accepted=np.count_nonzero(there, axis=1).astype(np.int64),
        rejected=none,
        missing=none,
    )
    return Span(scrapes, tuple(series_ids), raw)


def _laid_out(target_id: int, before: Span, grown: Span, rows: IntArray, now: datetime) -> Span:
    """`grown` with the layouts of its good scrapes at `rows` widened by the series that they took."""
    places = np.flatnonzero(grown.scrapes.good)[rows]
    layout = grown.scrapes.layout.copy()
    tables = layout_tables(layout[places].tolist())
    old = np.full(grown.values.shape, np.nan)
    old[:, : before.values.shape[1]] = before.values
    takes = np.isnan(old) & ~np.isnan(grown.values)
    made: dict[tuple[int, bytes], int] = {}
    for place, row in zip(places.tolist(), rows.tolist(), strict=True):
        key = int(layout[place]), takes[row].tobytes()
        if key not in made:
            more = [grown.series_ids[column] for column in np.flatnonzero(takes[row]).tolist()]
            made[key] = ensure_layout(target_id, united(tables[key[0]].series_ids.tolist(), more), now)
        layout[place] = made[key]
    return Span(grown.scrapes.with_layout(layout), grown.series_ids, grown.values)
