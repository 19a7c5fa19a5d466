"""Sealed spans: what the scrapes of a target were like, and for each exporter's name the matrix series x good scrapes.

The columns of all matrices are those scrapes that brought values; the rows of one are the series of its name in the
span's layout, the union of the layouts that the scrapes had. NaN where a series was not in the scrape's layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from django.db import connection
from psycopg import sql

from gpufleet.core.times import from_unix
from gpufleet.store.codec import decode_column, encode_column
from gpufleet.store.frames import FloatArray, IntArray, StoreError
from gpufleet.store.names import SCRAPES
from gpufleet.store.partitions import CHUNKS, SPAN
from gpufleet.store.rows import binary_cursor

SPAN_SECONDS = SPAN.total_seconds()
FAILED = -1  # in place of a layout
_VERSION = 1
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Scrapes:
    """The scrapes of a target in one span, in order of time; arrays of one length. `layout`: FAILED without values."""

    micros: IntArray
    layout: IntArray
    reason: npt.NDArray[Any]
    cycle: IntArray
    duration_seconds: FloatArray
    bytes: IntArray
    accepted: IntArray
    rejected: IntArray
    missing: IntArray

    def __len__(self) -> int:
        return len(self.micros)

    @property
    def good(self) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self.layout != FAILED
        return found

    def taken(self, places: npt.NDArray[Any]) -> Scrapes:
        """Those at `places`: numbers or a mask."""
        return Scrapes(*(getattr(self, field.name)[places] for field in fields(self)))

    def with_layout(self, layout: IntArray) -> Scrapes:
        return replace(self, layout=layout)

    @classmethod
    def joined(cls, parts: Sequence[Scrapes]) -> Scrapes:
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


_NUMBERS = {"cycle": "i8", "duration_seconds": "f4", "bytes": "i4", "accepted": "i4", "rejected": "i4", "missing": "i4"}


def encode_scrapes(scrapes: Scrapes, layout_id: int) -> bytes:
    """Bytes of the scrapes; `layout_id` is the span's layout. The times come first: most reads need no more."""
    layouts, layout_places = np.unique(scrapes.layout, return_inverse=True)
    reasons, reason_places = np.unique(scrapes.reason.astype(str), return_inverse=True)
    head = orjson.dumps([layout_id, layouts.tolist(), reasons.tolist()])
    parts = [
        head,
        encode_column(scrapes.micros),
        *(encode_column(places.astype(np.uint16)) for places in (layout_places, reason_places)),
        *(encode_column(getattr(scrapes, name).astype(kind)) for name, kind in _NUMBERS.items()),
    ]
    return bytes((_VERSION,)) + b"".join(_LENGTH.pack(len(part)) + part for part in parts)


@dataclass(frozen=True)
class SealedSpan:
    """One span of one target as it was read. `blobs`: by name id, those that were asked for."""

    target_id: int
    starts_at: float
    parts: list[bytes]
    blobs: dict[int, bytes]

    @cached_property
    def _head(self) -> tuple[int, list[int], list[str]]:
        layout_id, layouts, reasons = orjson.loads(self.parts[0])
        return layout_id, layouts, reasons

    @property
    def layout_id(self) -> int:
        return self._head[0]

    @property
    def layout_ids(self) -> frozenset[int]:
        """The layouts that the scrapes had, FAILED among them when one failed."""
        return frozenset(self._head[1])

    @cached_property
    def micros(self) -> IntArray:
        return decode_column(self.parts[1])

    @cached_property
    def layout(self) -> IntArray:
        found: IntArray = np.array(self._head[1], dtype=np.int64)[decode_column(self.parts[2])]
        return found

    @cached_property
    def good_micros(self) -> IntArray:
        """Times of the columns of every matrix."""
        if FAILED not in self.layout_ids:
            return self.micros
        found: IntArray = self.micros[self.layout != FAILED]
        return found

    @cached_property
    def scrapes(self) -> Scrapes:
        reason = np.array(self._head[2], dtype=object)[decode_column(self.parts[3])]
        numbers = [decode_column(part) for part in self.parts[4:]]
        return Scrapes(self.micros, self.layout, reason, *numbers)

    def matrix(self, name_id: int) -> FloatArray:
        """Raw values (series x good scrapes)."""
        found: FloatArray = decode_column(self.blobs[name_id]).reshape(-1, self.good_micros.size)
        return found


def read_spans(
    target_ids: Sequence[int], start: float, end: float, name_ids: Iterable[int] | None = ()
) -> Iterator[SealedSpan]:
    """Sealed spans that overlap `[start, end)`, in order of (target, time), each with the blobs of these names.

    None brings all names. One statement, so a span that is sealed again meanwhile is read as it was before or after.
    """
    condition = ""
    parameters: list[Any] = [list(target_ids), from_unix(start - SPAN_SECONDS), from_unix(end)]
    if name_ids is not None:
        condition = " AND name_id = ANY(%s::int[])"
        parameters.append(sorted({SCRAPES, *name_ids}))
    with binary_cursor() as cursor:
        cursor.execute(
            'SELECT target_id, extract(epoch FROM span_at)::float8, name_id, "values" FROM store_chunk'  # noqa: S608
            f" WHERE target_id = ANY(%s::bigint[]) AND span_at > %s AND span_at < %s{condition}",
            parameters,
        )
        rows = cursor.fetchall()
    rows.sort(key=lambda row: row[:3])
    for (target_id, starts_at), members in groupby(rows, key=lambda row: row[:2]):
        blobs = {name_id: blob for _, _, name_id, blob in members}
        yield SealedSpan(target_id, starts_at, _parts(blobs.pop(SCRAPES)), blobs)


def sealed_starts(target_ids: Sequence[int], start: float, end: float) -> list[tuple[int, float]]:
    """(target, start) of the sealed spans that overlap `[start, end)`."""
    with binary_cursor() as cursor:
        cursor.execute(
            "SELECT target_id, extract(epoch FROM span_at)::float8 FROM store_chunk"
            " WHERE target_id = ANY(%s::bigint[]) AND name_id = %s AND span_at > %s AND span_at < %s",
            [list(target_ids), SCRAPES, from_unix(start - SPAN_SECONDS), from_unix(end)],
        )
        return [(target_id, starts_at) for target_id, starts_at in cursor.fetchall()]


def write_span(target_id: int, starts_at: datetime, blobs: dict[int, bytes]) -> None:
    """Puts the rows of a span in place of those that are there, inside the caller's transaction."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM store_chunk WHERE target_id = %s AND span_at = %s", [target_id, starts_at])
        statement = sql.SQL('COPY {} (span_at, target_id, name_id, "values") FROM STDIN (FORMAT binary)')
        with connection.wrap_database_errors, cursor.copy(statement.format(sql.Identifier(CHUNKS.parent))) as copy:
            copy.set_types(("timestamptz", "int8", "int4", "bytea"))
            for name_id, blob in sorted(blobs.items()):
                copy.write_row((starts_at, target_id, name_id, blob))


def _parts(blob: bytes) -> list[bytes]:
    if not blob or blob[0] != _VERSION:
        raise StoreError("a span of another version: written by a newer gpufleet")
    found, at = [], 1
    while at < len(blob):
        (length,) = _LENGTH.unpack_from(blob, at)
        at += _LENGTH.size
        found.append(bytes(blob[at : at + length]))
        at += length
    return found
