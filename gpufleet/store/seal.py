"""Seals spans that are over: frames become chunks and roll-ups, and their partition goes once every frame is covered.

Nothing here depends on having been finished before. A target's span is one transaction: the frames that no chunk holds
yet are merged in, whether that is the first time or for a late one. Frames stay until the partition is dropped, and a
reader that finds a scrape in both takes the chunk's; so a sample is readable exactly once at every moment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

import numpy as np
from django.db import OperationalError, connection, transaction
from psycopg import sql

from gpufleet.core.times import from_unix
from gpufleet.store.chunks import FAILED, SPAN_SECONDS, SealedSpan, encode_scrapes, read_spans, write_span
from gpufleet.store.codec import encode_column
from gpufleet.store.frame_rows import FRAME, frame_of, read
from gpufleet.store.frames import FloatArray, IntArray
from gpufleet.store.layouts import LayoutTable, layout_table, layout_tables
from gpufleet.store.names import SCRAPES, ensure_names, name_ids
from gpufleet.store.partitions import (
    CHUNKS,
    FIVE_MINUTES,
    FRAMES,
    HOURS,
    SPAN,
    drop_table,
    hold_spans,
    make_partitions,
    present,
)
from gpufleet.store.rollups import put_span
from gpufleet.store.rows import binary_cursor
from gpufleet.store.series import ensure_layout
from gpufleet.store.sources import blocks
from gpufleet.store.spans import Span, joined, span_of_frames
from gpufleet.store.target_lock import lock_target
from gpufleet.store.tiers import TIER_5M, grown, rolled

# A span is sealed this long after its end: the slowest scrape that began in it has been written by then.
GRACE = timedelta(minutes=5)
_LATE_TARGETS = 500


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a run did: spans of a target that were written, and partitions of frames that were dropped."""

    spans: int
    dropped: int


def seal(now: datetime, budget_seconds: float = math.inf) -> Sealed:
    """Seals every span that ended GRACE before `now`, the oldest first, and stops when the budget is used up.

    What is left is found again by the next run. Any number of runs may go on beside each other.
    """
    until = time.monotonic() + budget_seconds
    spans = dropped = 0
    for name, (start, end) in present(FRAMES).items():
        if end + GRACE > now:
            break
        for target_id, at in chain(_unsealed(name, start, end), _late(name, start, end)):
            spans += seal_span(target_id, at, now)
            if time.monotonic() > until:
                return Sealed(spans, dropped)
        dropped += _drop_covered(name, start, end)
    return Sealed(spans, dropped)


def seal_span(target_id: int, start: datetime, now: datetime) -> bool:
    """Merges the frames of a target's span into its chunks and roll-ups; False when there was nothing new."""
    make_sealed_partitions(start)
    with transaction.atomic():
        lock_target(target_id)
        sealed, frames = read_parts(target_id, start.timestamp())
        if frames is None:
            return False
        span = frames if sealed is None else joined(sealed, frames)
        if span is sealed:
            return False
        put(target_id, start, span, now)
    return True


def make_sealed_partitions(start: datetime) -> None:
    """Makes what the chunks and roll-ups of a span go into."""
    for ladder in (CHUNKS, FIVE_MINUTES, HOURS):
        make_partitions(ladder, [start])


def read_parts(target_id: int, start: float) -> tuple[Span | None, Span | None]:
    """(what is sealed of a span, its frames), None for nothing. Frames first: see `sources`."""
    end = start + SPAN_SECONDS
    window = [from_unix(start), from_unix(end)]
    rows = read([target_id], FRAME, "scraped_at >= %s AND scraped_at < %s", window, "ORDER BY scraped_at")
    frames = [frame_of(row) for row in rows]
    tables = layout_tables([frame.layout_id for frame in frames if frame.layout_id is not None])
    series = {layout_id: table.series_ids.tolist() for layout_id, table in tables.items()}
    found = [_in_memory(sealed) for sealed in read_spans([target_id], start, end, None) if sealed.starts_at == start]
    return found[0] if found else None, span_of_frames(frames, series) if frames else None


def put(target_id: int, start: datetime, span: Span, now: datetime) -> None:
    """Writes a span, its roll-ups, and those of the next one, whose first growth begins in this one.

    Inside a transaction that holds the target's lock, once the partitions are there.
    """
    blobs = {}
    table = _table(target_id, span, now)
    if table is not None:
        names = ensure_names(table.by_name)
        blobs = {names[name]: encode_column(span.values[:, places].T) for name, places in table.by_name.items()}
    write_span(target_id, start, {SCRAPES: encode_scrapes(span.scrapes, table.id if table else FAILED), **blobs})
    if table is not None:
        _roll(start, span, table, now)
    after, _ = read_parts(target_id, (start + SPAN).timestamp())
    if after is not None and after.series_ids:
        _roll(start + SPAN, after, layout_table(ensure_layout(target_id, after.series_ids, now)), now)


def _in_memory(sealed: SealedSpan) -> Span:
    if sealed.layout_id == FAILED:
        return Span(sealed.scrapes, (), np.empty((0, 0)))
    table = layout_table(sealed.layout_id)
    names = ensure_names(table.by_name)
    values = np.empty((sealed.good_micros.size, len(table)))
    for name, places in table.by_name.items():
        values[:, places] = sealed.matrix(names[name]).T
    return Span(sealed.scrapes, tuple(table.series_ids.tolist()), values)


def _table(target_id: int, span: Span, now: datetime) -> LayoutTable | None:
    return layout_table(ensure_layout(target_id, span.series_ids, now)) if span.series_ids else None


def _roll(start: datetime, span: Span, table: LayoutTable, now: datetime) -> None:
    at = start.timestamp()
    good = span.scrapes.micros[span.scrapes.good]
    bucket = ((good - round(at * 1e6)) // (TIER_5M.seconds * 1_000_000)).astype(np.int64)
    canonical = table.clean(span.values)
    steps = rolled(bucket, np.where(np.isnan(canonical), np.nan, span.values), round(SPAN_SECONDS) // TIER_5M.seconds)
    counters = np.flatnonzero([kind == "counter" for kind in table.kinds])
    if counters.size:
        before = _readings_before(at, table, counters)
        growth = grown(bucket, np.vstack((before, canonical[:, counters])), steps.shape[0], len(before))
        steps.increase[:, counters] = growth / table.scale[counters]
    put_span(table, at, steps, now)


def _readings_before(start: float, table: LayoutTable, counters: IntArray) -> FloatArray:
    """Canonical readings (n x counters) of the span before, in order of time."""
    series = table.series_ids[counters]
    column = {series_id: place for place, series_id in enumerate(series.tolist())}
    times, rows = [np.empty(0)], [np.empty((0, counters.size))]
    names = name_ids({table.names[place] for place in counters.tolist()})
    for block in blocks({table.target_id: np.sort(series)}, start - SPAN_SECONDS, start, names):
        part = np.full((block.times.size, counters.size), np.nan)
        part[:, [column[series_id] for series_id in block.series_ids.tolist()]] = block.values
        times.append(block.times)
        rows.append(part)
    order = np.argsort(np.concatenate(times), kind="stable")
    return np.concatenate(rows)[order]


def _unsealed(name: str, start: datetime, end: datetime) -> list[tuple[int, datetime]]:
    """(target, span) of a partition that have frames and no chunk: a probe of the index each."""
    statement = sql.SQL(
        "SELECT target.id, span.at FROM fleet_target target"
        " CROSS JOIN generate_series(%s::timestamptz, %s::timestamptz, %s::interval) AS span (at)"
        " WHERE EXISTS (SELECT FROM {} frame WHERE target_id = target.id AND scraped_at >= span.at"
        "               AND scraped_at < span.at + %s::interval)"
        " AND NOT EXISTS (SELECT FROM store_chunk WHERE target_id = target.id AND name_id = 0 AND span_at = span.at"
        "                 AND span_at >= %s AND span_at < %s)"
        " ORDER BY span.at, target.id"
    ).format(sql.Identifier(name))
    with connection.cursor() as cursor:
        cursor.execute(statement, [start, end - SPAN, str(SPAN), str(SPAN), start, end])
        return [(target_id, at) for target_id, at in cursor.fetchall()]


def _late(name: str, start: datetime, end: datetime) -> Iterator[tuple[int, datetime]]:
    """(target, span) of a partition with frames that their chunk does not hold."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM fleet_target ORDER BY id")
        target_ids = [target_id for (target_id,) in cursor.fetchall()]
    for first in range(0, len(target_ids), _LATE_TARGETS):
        yield from _late_of(target_ids[first : first + _LATE_TARGETS], name, start, end)


def _late_of(target_ids: list[int], name: str, start: datetime, end: datetime) -> list[tuple[int, datetime]]:
    statement = sql.SQL(
        "SELECT target_id, (extract(epoch FROM scraped_at) * 1000000)::int8 FROM {}"
        " WHERE target_id = ANY(%s::bigint[]) ORDER BY 1, 2"
    ).format(sql.Identifier(name))
    with binary_cursor() as cursor:
        cursor.execute(statement, [target_ids])
        rows = np.array(cursor.fetchall(), dtype=np.int64).reshape(-1, 2)
    covered = {(span.target_id, span.starts_at): span.micros for span in read_spans(target_ids, *_unix(start, end))}
    found = []
    spans = rows[:, 1] // round(SPAN_SECONDS * 1e6)
    for target_id, number in np.unique(np.column_stack((rows[:, 0], spans)), axis=0).tolist():
        mine = rows[(rows[:, 0] == target_id) & (spans == number), 1]
        if not np.isin(mine, covered.get((target_id, number * SPAN_SECONDS), ())).all():
            found.append((target_id, from_unix(number * SPAN_SECONDS)))
    return found


def _drop_covered(name: str, start: datetime, end: datetime) -> bool:
    """Drops a partition of which chunks hold every frame; looks once more when nobody can write to it any longer."""
    try:
        with transaction.atomic():
            hold_spans(start, end)
            if name not in present(FRAMES) or next(_late(name, start, end), None) is not None:
                return False
            drop_table(name)
    except OperationalError:
        return False
    return True


def _unix(start: datetime, end: datetime) -> tuple[float, float]:
    return start.timestamp(), end.timestamp()
