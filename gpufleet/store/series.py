"""Makes series and layouts. Both are idempotent and may run at the same time anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b

import numpy as np
import orjson
from django.db import connection, transaction

from gpufleet.store.frames import SeriesSpec, StoreError

MAX_NAME = 255
MAX_SERIES = 1_000_000

_UPSERT = """
INSERT INTO store_series
    (target_id, gpu_id, name, metric, labels, fingerprint, kind, unit, scale, low, high, sentinels, created_at)
SELECT %s, gpu_id, name, metric, labels, decode(fingerprint, 'hex'), kind, unit, scale, low, high, sentinels, %s
FROM jsonb_to_recordset(%s) AS spec (gpu_id bigint, name text, metric text, labels jsonb, fingerprint text, kind text,
    unit text, scale float8, low float8, high float8, sentinels text)
ON CONFLICT (target_id, fingerprint) DO UPDATE
    SET (metric, kind, unit, scale, low, high, sentinels) = (EXCLUDED.metric, EXCLUDED.kind, EXCLUDED.unit,
         EXCLUDED.scale, EXCLUDED.low, EXCLUDED.high, EXCLUDED.sentinels)
    WHERE (store_series.metric, store_series.kind, store_series.unit, store_series.scale, store_series.low,
           store_series.high, store_series.sentinels) IS DISTINCT FROM (EXCLUDED.metric, EXCLUDED.kind,
           EXCLUDED.unit, EXCLUDED.scale, EXCLUDED.low, EXCLUDED.high, EXCLUDED.sentinels)
"""

# Before the series, so that whoever knows a series can find its chunks, sealed at whatever moment.
_NAMES = """
INSERT INTO store_name (name)
SELECT DISTINCT name FROM unnest(%s::text[]) AS spec (name)
WHERE NOT EXISTS (SELECT FROM store_name known WHERE known.name = spec.name)
ORDER BY name ON CONFLICT DO NOTHING
"""

_LAYOUT = """
INSERT INTO store_layout (target_id, fingerprint, series_ids, created_at) VALUES (%s, %s, %s, %s)
ON CONFLICT (target_id, fingerprint) DO NOTHING
"""


def fingerprint(spec: SeriesSpec) -> bytes:
    """16 bytes that tell a target's series apart: exporter's name, identity labels, GPU."""
    canonical = orjson.dumps([spec.name, spec.labels, spec.gpu_id], option=orjson.OPT_SORT_KEYS)
    return blake2b(canonical, digest_size=16).digest()


def ensure_series(target_id: int, specs: Sequence[SeriesSpec], now: datetime) -> list[int]:
    """Ids of the series in the order of `specs`; makes those that are new.

    A series whose meaning the catalogue reads differently by now takes the new one: samples are kept as sent, so old
    ones are read right too. Raises StoreError for a name that is empty or too long.
    """
    for spec in specs:
        if not 0 < len(spec.name) <= MAX_NAME or not 0 < len(spec.metric) <= MAX_NAME:
            raise StoreError(f"a series needs a name of 1 to {MAX_NAME} characters: {spec.name[:80]!r}")
    prints = [fingerprint(spec) for spec in specs]
    # Sorted, so that two workers that make the same series wait for each other instead of dead-locking.
    unique = sorted(dict(zip(prints, specs, strict=True)).items(), key=lambda item: item[0])
    if not unique:
        return []
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_NAMES, [sorted({spec.name for _, spec in unique})])
        cursor.execute(_UPSERT, [target_id, now, _rows(unique)])
        cursor.execute(
            "SELECT fingerprint, id FROM store_series WHERE target_id = %s AND fingerprint = ANY(%s)",
            [target_id, [print_ for print_, _ in unique]],
        )
        ids = {bytes(print_): int(series_id) for print_, series_id in cursor.fetchall()}
    return [ids[print_] for print_ in prints]


def _rows(unique: Sequence[tuple[bytes, SeriesSpec]]) -> str:
    """One JSON text: psycopg writes arrays out item by item, orjson all at once."""
    rows = [
        {
            "gpu_id": spec.gpu_id,
            "name": spec.name,
            "metric": spec.metric,
            "labels": spec.labels,
            "fingerprint": print_.hex(),
            "kind": spec.kind,
            "unit": spec.unit,
            "scale": spec.scale,
            "low": spec.low,
            "high": spec.high,
            "sentinels": spec.sentinels,
        }
        for print_, spec in unique
    ]
    return orjson.dumps(rows).decode()


def ensure_layout(target_id: int, series_ids: Sequence[int], now: datetime) -> int:
    """Id of the target's layout with these series in this order.

    Raises StoreError when a series is named twice, is not of this target, or there are none.
    """
    array = np.asarray(series_ids, dtype="<i8")
    if not 0 < array.size <= MAX_SERIES or np.unique(array).size != array.size:
        raise StoreError(f"a layout needs 1 to {MAX_SERIES} series, each once")
    digest = blake2b(array.tobytes(), digest_size=16).digest()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT id FROM store_layout WHERE target_id = %s AND fingerprint = %s", [target_id, digest])
        row = cursor.fetchone()
        if row is None:
            _check_owner(target_id, series_ids)
            cursor.execute(_LAYOUT, [target_id, digest, list(series_ids), now])
            cursor.execute("SELECT id FROM store_layout WHERE target_id = %s AND fingerprint = %s", [target_id, digest])
            row = cursor.fetchone()
    return int(row[0])


def _check_owner(target_id: int, series_ids: Sequence[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM store_series WHERE target_id = %s AND id = ANY(%s)", [target_id, list(series_ids)]
        )
        if cursor.fetchone()[0] != len(series_ids):
            raise StoreError(f"not all of these series are of target {target_id}")
