"""Where samples lie: tables cut by time for live clusters, one table of its own for each replayed cluster.

A replay is dropped as one table and can never touch live data. There is no default partition: it would have to be
searched each time a partition is added. The writers make what a sample lacks instead, so that none is ever refused.

The bounds of a partition are read from the catalogue of PostgreSQL, never from its name: an older release cut frames
by six hours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg import sql

LIVE = 0
SPAN = timedelta(hours=2)  # what is sealed at once, and what a partition of frames holds

_MAKE_LOCK, _DROP_LOCK, _SPAN_LOCKS = 0x67706600, 0x67706601, 0x67706603
# Values of up to half a page stay in the row: one look-up less for a read than beside it.
_INLINE = "WITH (toast_tuple_target = 4064)"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Ladder:
    """A table cut by time. `span`: what one partition holds; `ahead`: how many are made before they are needed."""

    parent: str
    span: timedelta
    ahead: int
    storage: str = ""
    retention: str = ""  # setting with the days after which a partition is dropped; frames go when they are sealed

    def start_of(self, instant: datetime) -> datetime:
        """Start of the span `[start, start + span)` that holds `instant`."""
        return instant - (instant - _EPOCH) % self.span

    def name_of(self, start: datetime) -> str:
        return start.astimezone(UTC).strftime(f"{self.parent}_%Y%m%d_%H")


FRAMES = Ladder("store_frame", SPAN, 24, _INLINE)
CHUNKS = Ladder("store_chunk", timedelta(days=1), 2, _INLINE, retention="GPUFLEET_RAW_RETENTION_DAYS")
FIVE_MINUTES = Ladder("store_rollup_5m", timedelta(days=30), 1, _INLINE, retention="GPUFLEET_ROLLUP_5M_RETENTION_DAYS")
HOURS = Ladder("store_rollup_1h", timedelta(days=180), 1, _INLINE, retention="GPUFLEET_ROLLUP_1H_RETENTION_DAYS")
LADDERS = (FRAMES, CHUNKS, FIVE_MINUTES, HOURS)

Spans = Mapping[str, tuple[datetime, datetime]]


def span_start(instant: datetime) -> datetime:
    """Start of the span `[start, start + SPAN)` that holds `instant`."""
    return FRAMES.start_of(instant)


def table_of(realm: int) -> str:
    """Name of the table that holds the frames of a realm: LIVE, or the id of a replayed cluster."""
    return FRAMES.parent if realm == LIVE else f"store_replay_{int(realm)}"


def make_room(realm: int, instants: Iterable[datetime]) -> None:
    """Makes the partitions (or the replay's table) that frames of these instants go into. May run at the same time."""
    if realm == LIVE:
        make_partitions(FRAMES, instants)
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_MAKE_LOCK])
        _make_replay(table_of(realm))


def make_partitions(ladder: Ladder, instants: Iterable[datetime]) -> int:
    """Makes the partitions that rows of these instants go into; returns how many were new.

    A partition is made beside the parent and then attached: this takes a lock that neither readers nor writers wait
    for, as making it in place would.
    """
    wanted = sorted({ladder.start_of(instant) for instant in instants})
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_MAKE_LOCK])
        bounds = present(ladder).values()
        missing = [start for start in wanted if not any(low <= start < high for low, high in bounds)]
        for start in missing:
            _make_span(ladder, start)
    return len(missing)


def present(ladder: Ladder) -> Spans:
    """`{partition: (start, end)}`, in order of time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, (regexp_match(bound, 'FROM \\(''(.*?)''\\)'))[1]::timestamptz,"
            " (regexp_match(bound, 'TO \\(''(.*?)''\\)'))[1]::timestamptz"
            " FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid"
            " CROSS JOIN LATERAL pg_get_expr(relpartbound, pg_class.oid) AS bound"
            " WHERE inhparent = %s::regclass AND bound IS NOT NULL ORDER BY 2",  # NULL: dropped this very moment
            [ladder.parent],
        )
        return MappingProxyType({name: (start, end) for name, start, end in cursor.fetchall()})


def keep_partitions(now: datetime) -> tuple[int, int]:
    """Makes partitions ahead of `now` and drops those past the retention. Returns how many were (made, dropped).

    Dropping gives way: when readers hold the table for two seconds, the rest waits for the next run.
    """
    made = dropped = 0
    for ladder in LADDERS:
        before = present(ladder)
        made += make_partitions(ladder, [now + ladder.span * step for step in range(ladder.ahead + 1)])
        if ladder.retention:
            oldest = now - timedelta(days=settings.ENV[ladder.retention])
            dropped += _drop_until_held([name for name, (_, end) in before.items() if end <= oldest])
    return made, dropped


def drop_replay(cluster_id: int) -> None:
    """Drops every frame of a replayed cluster."""
    if cluster_id <= LIVE:
        raise ValueError("not the id of a cluster")
    with connection.cursor() as cursor:
        cursor.execute(_sql("DROP TABLE IF EXISTS {}", table_of(cluster_id)))


def share_spans(instants: Iterable[datetime]) -> None:
    """Who writes frames holds the locks of their spans to the end of the transaction, shared with other writers.

    Without them a frame could be written between the last look at a partition and its end.
    """
    _lock_spans("pg_advisory_xact_lock_shared", {_span_number(instant) for instant in instants})


def hold_spans(start: datetime, end: datetime) -> None:
    """Waits until nobody writes frames of `[start, end)`, and keeps writers away to the end of the transaction."""
    _lock_spans("pg_advisory_xact_lock", set(range(_span_number(start), _span_number(end))))


def _lock_spans(function: str, numbers: set[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {function}(%s, number) FROM unnest(%s::int[]) AS number",  # noqa: S608
            [_SPAN_LOCKS, sorted(numbers)],
        )


def _span_number(instant: datetime) -> int:
    return (instant - _EPOCH) // SPAN


def drop_table(name: str) -> None:
    """Drops a partition inside the caller's transaction. Raises OperationalError when it is held for two seconds."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '2s'")
        cursor.execute(_sql("DROP TABLE IF EXISTS {}", name))


def _drop_until_held(names: Iterable[str]) -> int:
    dropped = 0
    for name in names:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '2s'")
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_DROP_LOCK])
                drop_table(name)
        except OperationalError:
            break
        dropped += 1
    return dropped


def _make_span(ladder: Ladder, start: datetime) -> None:
    name = ladder.name_of(start)
    with connection.cursor() as cursor:
        cursor.execute(_sql(f"CREATE TABLE {{}} (LIKE {{}} INCLUDING ALL) {ladder.storage}", name, ladder.parent))
        cursor.execute(
            _sql("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM (%s) TO (%s)", ladder.parent, name),
            [start, start + ladder.span],
        )


def _make_replay(name: str) -> None:
    """A replay is read by its cycles, whose length the live interval does not tell: hence the index."""
    with connection.cursor() as cursor:
        cursor.execute(
            _sql(f"CREATE TABLE IF NOT EXISTS {{}} (LIKE {{}} INCLUDING ALL) {_INLINE}", name, FRAMES.parent)
        )
        cursor.execute(_sql("CREATE INDEX IF NOT EXISTS {} ON {} (cycle)", f"{name}_cycle", name))


def _sql(text: str, *names: str) -> sql.Composed:
    return sql.SQL(text).format(*(sql.Identifier(name) for name in names))
