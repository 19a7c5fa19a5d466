"""When targets were scraped, and whether that brought values: what tells a silent series from one that has ended."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
from django.db import connection

from gpufleet.core.times import from_unix
from gpufleet.store.chunks import FAILED, read_spans
from gpufleet.store.frame_rows import AT, read
from gpufleet.store.frames import IntArray
from gpufleet.store.partitions import LIVE
from gpufleet.store.realms import by_realm
from gpufleet.store.sources import Wanted, chunk_pieces

BoolArray = npt.NDArray[np.bool_]


def scrape_times(
    target_ids: Sequence[int], start: float, end: float, leave_out: Collection[int] = ()
) -> dict[int, tuple[IntArray, BoolArray]]:
    """(microseconds, good) of the scrapes of each target in `[start, end)`, in order of time.

    Scrapes of the layouts `leave_out` are left out. A target without a scrape is not in the answer.
    """
    found: dict[int, list[tuple[IntArray, BoolArray]]] = {}
    rows: dict[int, list[tuple[float, bool]]] = {}
    left_out = frozenset(leave_out)
    window = [from_unix(start), from_unix(end), list(leave_out)]
    condition = "scraped_at >= %s AND scraped_at < %s AND (layout_id IS NULL OR layout_id <> ALL(%s::bigint[]))"
    for target_id, at, good in read(target_ids, f"target_id, {AT}, layout_id IS NOT NULL", condition, window):
        rows.setdefault(target_id, []).append((at, good))
    for target_id, mine in rows.items():
        micros = np.rint(np.array([at for at, _ in mine]) * 1e6).astype(np.int64)
        found[target_id] = [(micros, np.array([good for _, good in mine]))]
    for ids, low, high in chunk_pieces(by_realm(target_ids).get(LIVE, []), start, end, 1):
        for span in read_spans(ids, low, high):
            if span.layout_ids <= left_out:
                continue
            inside = (span.micros >= round(low * 1e6)) & (span.micros < round(high * 1e6))
            inside &= ~np.isin(span.layout, list(leave_out))
            if inside.any():
                found.setdefault(span.target_id, []).append((span.micros[inside], span.layout[inside] != FAILED))
    return {target_id: _joined(parts) for target_id, parts in found.items()}


def layouts_with(wanted: Wanted) -> list[int]:
    """Ids of the layouts that list any of these series."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM store_layout WHERE target_id = ANY(%s) AND series_ids && %s::bigint[]",
            [list(wanted), np.concatenate(list(wanted.values())).tolist() if wanted else []],
        )
        return [row[0] for row in cursor.fetchall()]


def _joined(parts: Sequence[tuple[IntArray, BoolArray]]) -> tuple[IntArray, BoolArray]:
    """In order of time; a scrape that is sealed and still lies in its frame counts once."""
    micros = np.concatenate([part[0] for part in parts])
    good = np.concatenate([part[1] for part in parts])
    micros, first = np.unique(micros, return_index=True)
    return micros, good[first]
