"""Where a window comes from. Every read of samples over time goes through `blocks`, and nothing above it knows more.

Today a window always lies in frames. Once spans are sealed into chunks and roll-ups, `blocks` decides for each part of
a window which tier answers; what it yields stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from django.db import connection
from django.db.backends.utils import CursorWrapper
from psycopg import Cursor
from psycopg.pq import Format

from gpufleet.core.times import from_unix
from gpufleet.store.codec import decode
from gpufleet.store.frames import FloatArray, IntArray
from gpufleet.store.layouts import LayoutTable, layout_tables
from gpufleet.store.partitions import LIVE, table_of
from gpufleet.store.realms import by_realm

# `scraped_at` in Unix seconds.
AT = "extract(epoch FROM scraped_at)::float8"
GOOD = f"target_id, {AT}, layout_id, values"
# A query brings at most this many target-seconds (23,000 frames at 15 s, about 40 MB), however long the window is.
PIECE_SECONDS = 4 * 86400.0


@dataclass(frozen=True, slots=True)
class Block:
    """Frames of one layout in order of time: `times` (n), Unix seconds; `values` (n, k), canonical, at `places` (k)."""

    layout: LayoutTable
    places: IntArray
    times: FloatArray
    values: FloatArray


def blocks(
    target_ids: Sequence[int],
    start: float,
    end: float,
    places: Callable[[LayoutTable], IntArray],
    first_each: float | None = None,
) -> Iterator[Block]:
    """Good samples of `[start, end)` at the places that `places` picks of each layout; layouts without one are skipped.

    With `first_each` only the first good frame of each target and step of so many seconds (counted from `start`).
    A target's blocks come in order of time.
    """
    picks: dict[int, IntArray] = {}
    for rows in _good_rows(target_ids, start, end, first_each):
        tables = layout_tables([layout_id for _, _, layout_id, _ in rows])
        for layout_id, times, blobs in _runs(rows):
            table = tables.get(layout_id)
            if table is None:
                continue
            if layout_id not in picks:
                picks[layout_id] = places(table)
            picked = picks[layout_id]
            if picked.size:
                raw = np.empty((len(blobs), picked.size))
                for row, blob in enumerate(blobs):
                    raw[row] = decode(blob)[picked]
                yield Block(table, picked, np.array(times), table.clean_at(picked, raw))


def read(
    target_ids: Sequence[int], columns: str, condition: str, parameters: Sequence[Any], order: str = ""
) -> list[tuple[Any, ...]]:
    """Rows of the frames of these targets; `columns`, `condition` and `order` are SQL of this room's own."""
    found: list[tuple[Any, ...]] = []
    with _binary_cursor() as cursor:
        for table, ids in _tables(cursor, target_ids):
            query = f"SELECT {columns} FROM {table} WHERE target_id = ANY(%s::bigint[]) AND {condition} {order}"  # noqa: S608
            cursor.execute(query, [ids, *parameters])
            found += cursor.fetchall()
    return found


def newest_rows(target_ids: Sequence[int], since: float, until: float, columns: str) -> list[tuple[Any, ...]]:
    """`columns` of the newest good frame of each target in `[since, until]`, in order of target."""
    window = [from_unix(since), from_unix(until)]
    found: list[tuple[Any, ...]] = []
    with _binary_cursor() as cursor:
        for table, ids in _tables(cursor, target_ids):
            query = (
                "SELECT frame.* FROM unnest(%s::bigint[]) AS target (id)"  # noqa: S608
                f" CROSS JOIN LATERAL (SELECT {columns} FROM {table} WHERE target_id = target.id"
                " AND values IS NOT NULL AND scraped_at >= %s AND scraped_at <= %s"
                " ORDER BY scraped_at DESC LIMIT 1) AS frame ORDER BY target.id"
            )
            cursor.execute(query, [ids, *window])
            found += cursor.fetchall()
    return found


def _first_rows(target_ids: Sequence[int], start: float, end: float, step: float) -> list[tuple[Any, ...]]:
    """The first good frame of each target and step: one probe of the index each, instead of sorting all frames."""
    lows = [start + step * number for number in range(math.ceil((end - start) / step))]
    highs = [min(low + step, end) for low in lows]
    instants = [[from_unix(at) for at in edge] for edge in (lows, highs)]
    found: list[tuple[Any, ...]] = []
    with _binary_cursor() as cursor:
        for table, ids in _tables(cursor, target_ids):
            # The bounds that are plain numbers let the planner leave out partitions.
            query = (
                "SELECT frame.* FROM unnest(%s::bigint[]) AS target (id)"  # noqa: S608
                " CROSS JOIN unnest(%s::timestamptz[], %s::timestamptz[]) AS step (low, high)"
                f" CROSS JOIN LATERAL (SELECT {GOOD} FROM {table} WHERE target_id = target.id AND values IS NOT NULL"
                " AND scraped_at >= step.low AND scraped_at < step.high AND scraped_at >= %s AND scraped_at < %s"
                " ORDER BY scraped_at LIMIT 1) AS frame ORDER BY target.id, step.low"
            )
            cursor.execute(query, [ids, *instants, instants[0][0], instants[1][-1]])
            found += cursor.fetchall()
    return found


def _tables(cursor: CursorWrapper, target_ids: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """Tables that hold frames of these targets; a replay has none before its first frame."""
    for realm, ids in by_realm(target_ids).items():
        if realm != LIVE:
            cursor.execute("SELECT to_regclass(%s) IS NULL", [table_of(realm)])
            if cursor.fetchone()[0]:
                continue
        yield table_of(realm), ids


def _binary_cursor() -> CursorWrapper:
    """A cursor whose rows come as binary: as text, the values would be twice as long and slow to read.

    Django's own cursor puts the parameters into the statement and can bring text only.
    """
    connection.ensure_connection()
    cursor = Cursor(connection.connection)
    cursor.format = Format.BINARY
    wrap = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
    return wrap(cursor)  # type: ignore[arg-type]  # the stubs mean the wrapper


def _pieces(
    target_ids: Sequence[int], start: float, end: float, step: float | None
) -> Iterator[tuple[list[int], float, float]]:
    """The window cut so that no query brings too much; cuts in time lie on whole steps."""
    length = PIECE_SECONDS if step is None else max(step, PIECE_SECONDS // step * step)
    for number in range(math.ceil((end - start) / length)):
        low = start + number * length
        high = min(end, low + length)
        many = max(1, int(PIECE_SECONDS / (high - low)))
        for first in range(0, len(target_ids), many):
            yield list(target_ids[first : first + many]), low, high


def _good_rows(
    target_ids: Sequence[int], start: float, end: float, step: float | None
) -> Iterator[list[tuple[int, float, int, bytes]]]:
    condition = "scraped_at >= %s AND scraped_at < %s AND values IS NOT NULL"
    for ids, low, high in _pieces(target_ids, start, end, step):
        if step is None:
            window = [from_unix(low), from_unix(high)]
            yield read(ids, GOOD, condition, window, "ORDER BY target_id, scraped_at")
        else:
            yield _first_rows(ids, low, high, step)


def _runs(rows: Sequence[tuple[int, float, int, bytes]]) -> Iterator[tuple[int, list[float], list[bytes]]]:
    """Neighbours of one target and layout, together."""
    for (_, layout_id), run in groupby(rows, key=lambda row: (row[0], row[2])):
        members = list(run)
        yield layout_id, [row[1] for row in members], [row[3] for row in members]
