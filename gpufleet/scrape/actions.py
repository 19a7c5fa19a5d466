"""Writes of the collector: its cycles, what each shard brought, and how targets stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import orjson
from django.db import connection, transaction
from django.db.models import F, Value
from django.db.models.functions import Coalesce, Least

from gpufleet.fleet.models import Target
from gpufleet.scrape.cycle import CycleResult, Status
from gpufleet.scrape.models import Cycle
from gpufleet.store.append import append_frames

_BEGIN = """
WITH live AS (
    SELECT cluster.id, cluster.name, ceil(count(*) / %(size)s::float8)::int AS shards,
        (SELECT max(number) FROM scrape_cycle WHERE cluster_id = cluster.id AND interval_seconds = %(interval)s)
            AS newest
    FROM fleet_cluster AS cluster
    JOIN fleet_target AS target ON target.cluster_id = cluster.id AND target.removed_at IS NULL
    JOIN fleet_node AS node ON node.id = target.node_id AND node.retired_at IS NULL
    WHERE NOT cluster.is_replay
    GROUP BY cluster.id
), begun AS (
    INSERT INTO scrape_cycle (cluster_id, number, interval_seconds, started_at, shards, shards_scraped, scraped,
                              shards_detected, missed_before)
    SELECT id, %(number)s, %(interval)s, %(now)s, shards, 0, '{}', 0, greatest(0, %(number)s - newest - 1)
    FROM live
    ON CONFLICT DO NOTHING
    RETURNING cluster_id, missed_before
)
SELECT live.id, live.name, live.shards, coalesce(begun.missed_before, 0), live.newest, begun.cluster_id IS NOT NULL
FROM live LEFT JOIN begun ON begun.cluster_id = live.id
ORDER BY live.id
"""

_STATUSES = """
INSERT INTO scrape_targetstatus AS old
    (target_id, last_scrape_at, last_good_at, reason, detail, failures_in_a_row, duration_seconds, bytes,
     samples_accepted, samples_rejected, samples_missing, samples_impossible, samples_disagreeing, first_bad_line)
SELECT target_id, scraped_at, CASE WHEN reason = '' THEN scraped_at END, reason, detail,
       CASE WHEN reason = '' THEN 0 ELSE 1 END, duration_seconds, bytes, accepted, rejected, missing, impossible,
       disagreeing, CASE WHEN first_bad_line IS NOT NULL THEN jsonb_build_object(
           'line', first_bad_line -> 0, 'text', first_bad_line -> 1, 'reason', first_bad_line -> 2) END
FROM jsonb_to_recordset(%s)
    AS told (target_id bigint, scraped_at timestamptz, reason text, detail text, duration_seconds float8, bytes int,
             accepted int, rejected int, missing int, impossible int, disagreeing int, first_bad_line jsonb)
ORDER BY target_id
ON CONFLICT (target_id) DO UPDATE SET
    last_scrape_at = EXCLUDED.last_scrape_at,
    last_good_at = coalesce(EXCLUDED.last_good_at, old.last_good_at),
    failures_in_a_row = CASE WHEN EXCLUDED.reason = '' THEN 0 ELSE old.failures_in_a_row + 1 END,
    (reason, detail, duration_seconds, bytes, samples_accepted, samples_rejected, samples_missing, samples_impossible,
     samples_disagreeing, first_bad_line)
    = (EXCLUDED.reason, EXCLUDED.detail, EXCLUDED.duration_seconds, EXCLUDED.bytes, EXCLUDED.samples_accepted,
       EXCLUDED.samples_rejected, EXCLUDED.samples_missing, EXCLUDED.samples_impossible, EXCLUDED.samples_disagreeing,
       EXCLUDED.first_bad_line)
WHERE old.last_scrape_at <> EXCLUDED.last_scrape_at
"""


@dataclass(frozen=True, slots=True)
class Begun:
    """A cluster at a tick. `is_new`: this tick began the cycle. `newest`: number of the newest cycle before it."""

    cluster_id: int
    cluster: str
    shards: int
    missed: int
    newest: int | None
    is_new: bool


def begin_cycles(number: int, interval_seconds: int, targets_a_shard: int, now: datetime) -> list[Begun]:
    """Begins cycle `number` in every cluster that is scraped; one statement, which two ticks may run at once.

    Counts the slots since the last cycle that nobody used.
    """
    arguments: dict[str, int | datetime] = {
        "number": number,
        "interval": interval_seconds,
        "size": targets_a_shard,
        "now": now,
    }
    with connection.cursor() as cursor:
        cursor.execute(_BEGIN, arguments)
        return [Begun(*row) for row in cursor.fetchall()]


def store_shard(cycle_id: int | None, shard: int, result: CycleResult, now: datetime) -> bool:
    """Keeps what a shard brought, once a cycle. False when the shard of this cycle is stored already.

    One transaction: the frames (one COPY), the statuses (one statement), what targets turned out to be, and the mark
    on the cycle. `cycle_id` is None for a scrape outside the clock, such as a replay's.
    """
    with transaction.atomic():
        if cycle_id is not None and not _mark(cycle_id, shard):
            return False
        append_frames(result.frames, now)
        write_statuses(result.statuses)
        set_kinds(result.kinds)
    return True


def mark_detected(cycle_id: int, now: datetime) -> None:
    """One more shard of the cycle is judged; with the last one the cycle is finished."""
    with transaction.atomic():
        mine = Cycle.objects.filter(id=cycle_id)
        mine.update(shards_detected=Least(F("shards_detected") + 1, F("shards")))
        mine.filter(shards_detected__gte=F("shards")).update(finished_at=Coalesce(F("finished_at"), Value(now)))


def write_statuses(statuses: Sequence[Status]) -> None:
    """How targets stand now; one statement. The same scrape again changes nothing."""
    if not statuses:
        return
    # One JSON text: psycopg writes arrays out item by item, orjson all at once.
    with connection.cursor() as cursor:
        cursor.execute(_STATUSES, [orjson.dumps(statuses).decode()])


def set_kinds(kinds: Mapping[int, str]) -> None:
    """What targets have shown to be; nothing is written when nothing is new."""
    pairs = sorted((kind, target_id) for target_id, kind in kinds.items())
    for kind, group in groupby(pairs, key=lambda pair: pair[0]):
        Target.objects.filter(id__in=[target_id for _, target_id in group]).update(kind=kind)


def _mark(cycle_id: int, shard: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE scrape_cycle SET scraped = array_append(scraped, %s::int), shards_scraped = shards_scraped + 1"
            " WHERE id = %s AND NOT %s = ANY (scraped)",
            [shard, cycle_id, shard],
        )
        return bool(cursor.rowcount == 1)
