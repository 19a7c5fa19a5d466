"""Reads of unsealed frames, in SQL of this room's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from django.db.backends.utils import CursorWrapper

from gpufleet.core.times import from_unix
from gpufleet.store.codec import decode
from gpufleet.store.frames import Frame
from gpufleet.store.partitions import LIVE, table_of
from gpufleet.store.realms import by_realm
from gpufleet.store.rows import binary_cursor

# `scraped_at` in Unix seconds.
AT = "extract(epoch FROM scraped_at)::float8"
GOOD = f"target_id, {AT}, layout_id, values"
FRAME = f"target_id, {AT}, cycle, reason, duration_seconds, bytes, accepted, rejected, missing, layout_id, values"


def read(
    target_ids: Sequence[int], columns: str, condition: str, parameters: Sequence[Any], order: str = ""
) -> list[tuple[Any, ...]]:
    """Rows of the frames of these targets; `columns`, `condition` and `order` are SQL of this room's own."""
    found: list[tuple[Any, ...]] = []
    with binary_cursor() as cursor:
        for table, ids in _tables(cursor, target_ids):
            query = f"SELECT {columns} FROM {table} WHERE target_id = ANY(%s::bigint[]) AND {condition} {order}"  # noqa: S608
            cursor.execute(query, [ids, *parameters])
            found += cursor.fetchall()
    return found


def newest_rows(target_ids: Sequence[int], since: float, until: float, columns: str) -> list[tuple[Any, ...]]:
    """`columns` of the newest good frame of each target in `[since, until]`, in order of target."""
    window = [from_unix(since), from_unix(until)]
    found: list[tuple[Any, ...]] = []
    with binary_cursor() as cursor:
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


def newest_in_steps(
    target_ids: Sequence[int], start: float, end: float, origin: float, step: float
) -> list[tuple[Any, ...]]:
    """GOOD of the newest good frame of each target and step of `[start, end)`; steps are counted from `origin`.

    One probe of the index each, instead of reading all frames.
    """
    first = math.floor((start - origin) / step)
    lows = [max(start, origin + step * number) for number in range(first, math.ceil((end - origin) / step))]
    highs = [*lows[1:], end]
    instants = [[from_unix(at) for at in edge] for edge in (lows, highs)]
    found: list[tuple[Any, ...]] = []
    with binary_cursor() as cursor:
        for table, ids in _tables(cursor, target_ids):
            # The bounds that are plain numbers let the planner leave out partitions.
            query = (
                "SELECT frame.* FROM unnest(%s::bigint[]) AS target (id)"  # noqa: S608
                " CROSS JOIN unnest(%s::timestamptz[], %s::timestamptz[]) AS step (low, high)"
                f" CROSS JOIN LATERAL (SELECT {GOOD} FROM {table} WHERE target_id = target.id AND values IS NOT NULL"
                " AND scraped_at >= step.low AND scraped_at < step.high AND scraped_at >= %s AND scraped_at < %s"
                " ORDER BY scraped_at DESC LIMIT 1) AS frame ORDER BY target.id, step.low"
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


def frame_of(row: Sequence[Any]) -> Frame:
    """The frame of a row of FRAME."""
    *facts, blob = row
    return Frame(*(*facts, None if blob is None else decode(blob)))
