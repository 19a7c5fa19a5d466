"""Writes frames: one binary COPY a call, first wins."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from django.db import IntegrityError, ProgrammingError, connection, transaction
from psycopg import sql
from psycopg.errors import CheckViolation, UndefinedTable, UniqueViolation

from gpufleet.core.times import from_unix
from gpufleet.store.codec import encode
from gpufleet.store.frames import Frame, StoreError
from gpufleet.store.partitions import LIVE, make_room, share_spans, table_of
from gpufleet.store.realms import by_realm

COLUMNS = (
    "scraped_at",
    "target_id",
    "cycle",
    "duration_seconds",
    "bytes",
    "accepted",
    "rejected",
    "missing",
    "layout_id",
    "reason",
    "values",
)
_TYPES = ("timestamptz", "int8", "int8", "float4", "int4", "int4", "int4", "int4", "int8", "text", "bytea")
_INT32 = 2**31 - 1
_EPOCH = from_unix(0)
_MAX_AT = 253_402_300_799.0  # the last second of the year 9999

_HEADS = """
INSERT INTO store_head (target_id, scraped_at)
SELECT target_id, scraped_at FROM unnest(%s::bigint[], %s::timestamptz[]) AS head (target_id, scraped_at)
ORDER BY target_id
ON CONFLICT (target_id) DO UPDATE SET scraped_at = EXCLUDED.scraped_at
WHERE store_head.scraped_at < EXCLUDED.scraped_at
   OR (store_head.scraped_at > %s AND EXCLUDED.scraped_at <= %s)
"""

Key = tuple[int, int]


def append_frames(frames: Sequence[Frame], now: datetime) -> int:
    """Keeps the frames and moves the heads of their targets; one transaction. Returns how many were new.

    Of two frames with the same target and time the first one wins, whoever wrote it. A head only moves forward in
    time, but for one that lies after `now`: there our clock was set back, and the newest scrape is the one that just
    came. Raises StoreError for a number that no column can hold or a target that does not exist.
    """
    unique: dict[Key, Frame] = {}
    for frame in frames:
        unique.setdefault(_key(frame), frame)
    if not unique:
        return 0
    realms = by_realm([target_id for target_id, _ in unique])
    realm_of = {target_id: realm for realm, target_ids in realms.items() for target_id in target_ids}
    with transaction.atomic():
        stored: list[Key] = []
        if LIVE in realms:
            share_spans(_instant(micros) for target_id, micros in unique if realm_of[target_id] == LIVE)
        for realm in sorted(realms):
            stored += _store(realm, {key: frame for key, frame in unique.items() if realm_of[key[0]] == realm})
        _move_heads([key for key in stored if unique[key].values is not None], now)
    return len(stored)


def _key(frame: Frame) -> Key:
    if not 0 < frame.scraped_at <= _MAX_AT:
        raise StoreError(f"a scrape cannot be at {frame.scraped_at}")
    counts = (frame.bytes, frame.accepted, frame.rejected, frame.missing)
    if not all(0 <= count <= _INT32 for count in counts) or not 0 <= frame.duration_seconds < math.inf:
        raise StoreError(f"a count or duration of a scrape of target {frame.target_id} is out of range")
    if (frame.layout_id is None) != (frame.values is None):
        raise StoreError("values need a layout, and a layout values")
    return frame.target_id, round(frame.scraped_at * 1e6)


def _store(realm: int, frames: dict[Key, Frame]) -> list[Key]:
    """Keys of the frames that were new. Makes the partition that is missing and tries once more."""
    try:
        return _copy_or_insert(table_of(realm), frames)
    except (IntegrityError, ProgrammingError) as error:
        if not isinstance(error.__cause__, CheckViolation | UndefinedTable):
            raise
    make_room(realm, (_instant(micros) for _, micros in frames))
    return _copy_or_insert(table_of(realm), frames)


def _copy_or_insert(table: str, frames: dict[Key, Frame]) -> list[Key]:
    rows = [(key, frame, None if frame.values is None else encode(frame.values)) for key, frame in frames.items()]
    try:
        with transaction.atomic():
            _copy(table, rows)
    except IntegrityError as error:
        if not isinstance(error.__cause__, UniqueViolation):
            raise
        with transaction.atomic():
            return _insert(table, rows)
    return list(frames)


def _copy(table: str, rows: Iterable[tuple[Key, Frame, bytes | None]]) -> None:
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
    )
    # Django leaves the errors of a COPY as the driver raises them; wrapped, both paths fail alike.
    with connection.wrap_database_errors, connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(_TYPES)
        for row in rows:
            copy.write_row(_record(*row))


def _record(key: Key, frame: Frame, blob: bytes | None) -> tuple[object, ...]:
    """The values of a row, in the order of COLUMNS."""
    return (
        *(_instant(key[1]), key[0], frame.cycle, frame.duration_seconds, frame.bytes, frame.accepted, frame.rejected),
        *(frame.missing, frame.layout_id, frame.reason, blob),
    )


def _insert(table: str, rows: Sequence[tuple[Key, Frame, bytes | None]]) -> list[Key]:
    """The careful path, for frames of which some are there already."""
    statement = sql.SQL(
        "INSERT INTO {} ({}) SELECT * FROM unnest(%s::timestamptz[], %s::bigint[], %s::bigint[], %s::real[], %s::int[],"
        " %s::int[], %s::int[], %s::int[], %s::bigint[], %s::text[], %s::bytea[]) ON CONFLICT DO NOTHING"
        " RETURNING target_id, scraped_at"
    ).format(sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, COLUMNS)))
    # In order, so that two writers of the same frames wait for each other instead of dead-locking.
    records = [_record(*row) for row in sorted(rows, key=lambda row: row[0])]
    keys = {(key[0], _instant(key[1])): key for key, _, _ in rows}
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(column) for column in zip(*records, strict=True)])
        return [keys[target_id, instant] for target_id, instant in cursor.fetchall()]


def _move_heads(keys: Iterable[Key], now: datetime) -> None:
    newest: dict[int, int] = {}
    for target_id, micros in keys:
        newest[target_id] = max(micros, newest.get(target_id, micros))
    if newest:
        instants = [_instant(micros) for micros in newest.values()]
        with connection.cursor() as cursor:
            cursor.execute(_HEADS, [list(newest), instants, now, now])


def _instant(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)
