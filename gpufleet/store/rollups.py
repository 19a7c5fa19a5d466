"""Roll-ups in the database: for each target, exporter's name and unit of time one row with the columns of its steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import transaction

from gpufleet.core.times import from_unix
from gpufleet.store.codec import decode_column, encode_column
from gpufleet.store.frames import FloatArray, IntArray, StoreError
from gpufleet.store.layouts import LayoutTable, layout_table, layout_tables
from gpufleet.store.names import ensure_names
from gpufleet.store.partitions import LIVE, make_partitions
from gpufleet.store.realms import by_realm
from gpufleet.store.rows import binary_cursor
from gpufleet.store.series import ensure_layout
from gpufleet.store.spans import columns_of, united
from gpufleet.store.target_lock import lock_target
from gpufleet.store.tiers import TIER_1H, TIER_5M, TIERS, Steps, Tier, coarser, laid_over, nothing

COLUMNS = tuple(field.name for field in fields(Steps))
MAX_CELLS = 5_000_000


@dataclass(frozen=True, slots=True)
class RolledRow:
    """One row as read: `series_ids` (k) of one name, `columns` (steps x k), raw; those that were asked for."""

    target_id: int
    starts_at: float
    layout: LayoutTable
    places: IntArray
    columns: dict[str, npt.NDArray[Any]]


def read_rollups(
    tier: Tier, target_ids: Sequence[int], start: float, end: float, names: Mapping[str, int], columns: Collection[str]
) -> Iterator[RolledRow]:
    """Rows whose units overlap `[start, end)`. `columns`: those of COLUMNS; `names`: exporter's names and their ids."""
    wanted = [column for column in COLUMNS if column in columns]
    select = ", ".join(f'"{column}"' for column in wanted)
    with binary_cursor() as cursor:
        cursor.execute(
            f"SELECT target_id, extract(epoch FROM starts_at)::float8, layout_id, name_id, steps, {select}"  # noqa: S608
            f" FROM {tier.table} WHERE target_id = ANY(%s::bigint[]) AND name_id = ANY(%s::int[])"
            " AND starts_at > %s AND starts_at < %s",
            [list(target_ids), sorted(names.values()), from_unix(start - tier.unit_seconds), from_unix(end)],
        )
        rows = cursor.fetchall()
    tables = layout_tables([row[2] for row in rows])
    name_of = {name_id: name for name, name_id in names.items()}
    for target_id, starts_at, layout_id, name_id, steps, *blobs in rows:
        if layout_id in tables:
            table = tables[layout_id]
            places = table.by_name[name_of[name_id]]
            none = np.full((steps, places.size), np.nan)  # an increase of what is no counter
            decoded = [none if blob is None else _decoded(blob, steps) for blob in blobs]
            yield RolledRow(target_id, starts_at, table, places, dict(zip(wanted, decoded, strict=True)))


def add_rollups(
    tier: str,
    target_id: int,
    series_ids: Sequence[int],
    starts: Sequence[float] | FloatArray,
    *,
    count: npt.ArrayLike,
    mean: npt.ArrayLike,
    min: npt.ArrayLike,
    max: npt.ArrayLike,
    last: npt.ArrayLike,
    increase: npt.ArrayLike | None = None,
    now: datetime,
) -> int:
    """Keeps roll-ups that come without their samples: "5m" or "1h". Returns how many (step, series) cells were new.

    `starts` (n): Unix seconds, on whole steps, each once; the others (n x series) in raw units, as the exporter sends.
    A cell whose count is 0 brings nothing; one that is there already stays (first wins), so repeating changes nothing.
    Sealed samples of the same step go before. Raises StoreError for what cannot be kept.
    """
    kept = _tier(tier)
    times = np.asarray(starts, dtype=np.float64)
    cells = _cells(times, len(series_ids), count, mean, min, max, last, increase)
    if times.size == 0 or not series_ids:
        return 0
    if not np.all(times % kept.seconds == 0) or np.unique(times).size != times.size:
        raise StoreError(f"steps of {tier} begin on whole multiples of {kept.seconds} s, each once")
    if LIVE not in by_realm([target_id]):
        raise StoreError("a replayed cluster has no roll-ups")
    make_partitions(kept.ladder, {from_unix(kept.unit_of(at)) for at in times.tolist()})
    with transaction.atomic():
        lock_target(target_id)
        table = layout_table(ensure_layout(target_id, series_ids, now))
        added = 0
        for unit in np.unique(times // kept.unit_seconds).tolist():
            rows = np.flatnonzero(times // kept.unit_seconds == unit)
            first = unit * kept.unit_seconds
            places = ((times[rows] - first) / kept.seconds).astype(np.int64)
            over = nothing(kept.steps, len(series_ids))
            for name in COLUMNS:
                getattr(over, name)[places] = getattr(cells, name)[rows]
            added += put_unit(kept, table, first, over, first_wins=True, now=now)
    return added


def put_span(table: LayoutTable, start: float, steps: Steps, now: datetime) -> None:
    """Puts the five-minute steps of a sealed span, and the hours they make, over what is there.

    Inside the caller's transaction, who holds the target's lock and made the partitions. `start`: of the span.
    """
    for tier, part in ((TIER_5M, steps), (TIER_1H, coarser(steps, TIER_1H.seconds // TIER_5M.seconds))):
        unit = tier.unit_of(start)
        first = int((start - unit) // tier.seconds)
        over = nothing(tier.steps, len(table))
        for name in COLUMNS:
            getattr(over, name)[first : first + part.shape[0]] = getattr(part, name)
        put_unit(tier, table, unit, over, first_wins=False, now=now)


def put_unit(tier: Tier, table: LayoutTable, start: float, cells: Steps, *, first_wins: bool, now: datetime) -> int:
    """Lays the steps of one unit over or under those that are there. Returns how many cells were not there before."""
    names = ensure_names(table.by_name)
    there = {
        row.layout.names[row.places[0]]: row
        for row in read_rollups(tier, [table.target_id], start, start + 1, names, COLUMNS)
    }
    written, added = [], 0
    packed: dict[bytes, bytes] = {}
    for name, places in table.by_name.items():
        fresh = cells.taken(slice(None), places)
        if not fresh.count.any():
            continue
        layout, before, over = _aligned(table, name, fresh, there.get(name), now)
        added += int(np.count_nonzero((over.count > 0) & (before.count == 0)))
        merged = laid_over(over, before) if first_wins else laid_over(before, over)
        written.append(_record(tier, layout, names[name], start, merged, packed))
    _upsert(tier, written)
    return added


def _aligned(
    table: LayoutTable, name: str, fresh: Steps, row: RolledRow | None, now: datetime
) -> tuple[LayoutTable, Steps, Steps]:
    """(layout, cells that are there, new cells) with equal columns: the series of this name in the layout."""
    if row is None:
        return table, nothing(*fresh.shape), fresh
    old_ids, new_ids = row.layout.series_ids[row.places].tolist(), table.series_ids[table.by_name[name]].tolist()
    layout = table if set(old_ids) <= set(new_ids) else _wider(row.layout, table, now)
    ids = layout.series_ids[layout.by_name[name]].tolist()
    before, over = nothing(fresh.shape[0], len(ids)), nothing(fresh.shape[0], len(ids))
    for column in COLUMNS:
        getattr(before, column)[:, columns_of(old_ids, ids)] = row.columns[column]
        getattr(over, column)[:, columns_of(new_ids, ids)] = getattr(fresh, column)
    return layout, before, over


def _wider(first: LayoutTable, second: LayoutTable, now: datetime) -> LayoutTable:
    ids = united(first.series_ids.tolist(), second.series_ids.tolist())
    return layout_table(ensure_layout(second.target_id, ids, now))


def _record(
    tier: Tier, layout: LayoutTable, name_id: int, start: float, cells: Steps, packed: dict[bytes, bytes]
) -> tuple[Any, ...]:
    blobs = [_encoded(getattr(cells, column), packed) for column in COLUMNS[:-1]]
    growth = None if np.isnan(cells.increase).all() else _encoded(cells.increase, packed)
    return (from_unix(start), layout.target_id, layout.id, name_id, tier.steps, *blobs, growth)


def _encoded(cells: npt.NDArray[Any], packed: dict[bytes, bytes]) -> bytes:
    """Bytes of a column. Most columns of a target are equal to another one: counts, and whatever never moves."""
    column = np.ascontiguousarray((cells.astype(np.int32) if cells.dtype == np.int64 else cells).T)
    key = column.tobytes()
    if key not in packed:
        packed[key] = encode_column(column)
    return packed[key]


def _decoded(blob: bytes, steps: int) -> npt.NDArray[Any]:
    return decode_column(blob).reshape(-1, steps).T


_UPSERT = """
INSERT INTO {table} (starts_at, target_id, layout_id, name_id, steps, "count", "sum", "min", "max", "last", "increase")
SELECT * FROM unnest(%s::timestamptz[], %s::bigint[], %s::bigint[], %s::int[], %s::int[], %s::bytea[], %s::bytea[],
                     %s::bytea[], %s::bytea[], %s::bytea[], %s::bytea[])
ON CONFLICT (target_id, name_id, starts_at) DO UPDATE
SET (layout_id, steps, "count", "sum", "min", "max", "last", "increase") = (EXCLUDED.layout_id, EXCLUDED.steps,
     EXCLUDED."count", EXCLUDED."sum", EXCLUDED."min", EXCLUDED."max", EXCLUDED."last", EXCLUDED."increase")
"""


def _upsert(tier: Tier, records: Sequence[tuple[Any, ...]]) -> None:
    if records:
        with binary_cursor() as cursor:
            columns = [list(column) for column in zip(*records, strict=True)]
            cursor.execute(_UPSERT.format(table=tier.table), columns)


def _tier(name: str) -> Tier:
    if name not in TIERS:
        raise StoreError(f"no tier {name!r}: one of {', '.join(TIERS)}")
    return TIERS[name]


def _cells(
    times: FloatArray,
    series: int,
    count: npt.ArrayLike,
    mean: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    last: npt.ArrayLike,
    growth: npt.ArrayLike | None,
) -> Steps:
    shape = (times.size, series)
    counts = np.asarray(count, dtype=np.int64)
    numbers = [np.asarray(each, dtype=np.float64) for each in (mean, low, high, last)]
    increases = np.full(shape, np.nan) if growth is None else np.asarray(growth, dtype=np.float64)
    if any(each.shape != shape for each in (counts, increases, *numbers)) or times.size * series > MAX_CELLS:
        raise StoreError(f"every array has to be {shape[0]} steps x {shape[1]} series, at most {MAX_CELLS} cells")
    none = counts <= 0
    if not all(np.isfinite(each[~none]).all() for each in numbers) or counts.max(initial=0) > 2**31 - 1:
        raise StoreError("a step with a count needs finite numbers")
    means, lows, highs, lasts, increases = (np.where(none, np.nan, each) for each in (*numbers, increases))
    cells = Steps(np.where(none, 0, counts), means, lows, highs, lasts, increases)
    return replace(cells, sum=cells.sum * cells.count)
