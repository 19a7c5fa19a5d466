"""Where frames lie: partitions of six hours for live clusters, one table of its own for each replayed cluster.

A replay is dropped as one table and can never touch live data. There is no default partition: it would have to be
searched each time a partition is added. `append` makes what a sample lacks instead, so that none is ever refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg import sql

SPAN = timedelta(hours=6)
AHEAD = 8  # spans: two days without the task that makes them
PARENT = "store_frame"
LIVE = 0

_MAKE_LOCK, _DROP_LOCK = 0x67706600, 0x67706601
# Values of up to half a page stay in the row: one look-up less for a read than beside it.
_INLINE = "WITH (toast_tuple_target = 4064)"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPAN_NAME = f"{PARENT}_%Y%m%d_%H"


def span_start(instant: datetime) -> datetime:
    """Start of the span `[start, start + SPAN)` that holds `instant`."""
    return instant - (instant - _EPOCH) % SPAN


def table_of(realm: int) -> str:
    """Name of the table that holds the frames of a realm: LIVE, or the id of a replayed cluster."""
    return PARENT if realm == LIVE else f"store_replay_{int(realm)}"


def make_room(realm: int, instants: Iterable[datetime]) -> None:
    """Makes the partitions (or the replay's table) that frames of these instants go into. May run at the same time.

    A partition is made beside the parent and then attached: this takes a lock that neither readers nor writers wait
    for, as making it in place would.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_MAKE_LOCK])
        if realm != LIVE:
            _make_replay(table_of(realm))
            return
        present = _present()
        for start in sorted({span_start(instant) for instant in instants}):
            if start.strftime(_SPAN_NAME) not in present:
                _make_span(start)


def keep_partitions(now: datetime) -> tuple[int, int]:
    """Makes partitions ahead of `now` and drops those past the retention. Returns how many were (made, dropped).

    Dropping gives way: when readers hold the table for two seconds, the rest waits for the next run.
    """
    before = _present()
    make_room(LIVE, [now + SPAN * step for step in range(AHEAD + 1)])
    made = len(_present() - before)
    oldest = now - timedelta(days=settings.ENV["GPUFLEET_RAW_RETENTION_DAYS"])
    past = sorted(name for name in before if span_of(name)[1] <= oldest)
    dropped = 0
    for name in past:
        if not _drop(name):
            break
        dropped += 1
    return made, dropped


def drop_replay(cluster_id: int) -> None:
    """Drops every frame of a replayed cluster."""
    if cluster_id <= LIVE:
        raise ValueError("not the id of a cluster")
    with connection.cursor() as cursor:
        cursor.execute(_sql("DROP TABLE IF EXISTS {}", table_of(cluster_id)))


def span_of(partition: str) -> tuple[datetime, datetime]:
    """`[start, end)` of a partition, by its name."""
    start = datetime.strptime(partition, _SPAN_NAME).replace(tzinfo=UTC)
    return start, start + SPAN


def _present() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = %s::regclass",
            [PARENT],
        )
        return {name for (name,) in cursor.fetchall()}


def _make_span(start: datetime) -> None:
    name = start.strftime(_SPAN_NAME)
    with connection.cursor() as cursor:
        cursor.execute(_sql(f"CREATE TABLE {{}} (LIKE {{}} INCLUDING ALL) {_INLINE}", name, PARENT))
        cursor.execute(
            _sql("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM (%s) TO (%s)", PARENT, name),
            [start, start + SPAN],
        )


def _make_replay(name: str) -> None:
    """A replay is read by its cycles, whose length the live interval does not tell: hence the index."""
    with connection.cursor() as cursor:
        cursor.execute(_sql(f"CREATE TABLE IF NOT EXISTS {{}} (LIKE {{}} INCLUDING ALL) {_INLINE}", name, PARENT))
        cursor.execute(_sql("CREATE INDEX IF NOT EXISTS {} ON {} (cycle)", f"{name}_cycle", name))


def _drop(name: str) -> bool:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '2s'")
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_DROP_LOCK])
            cursor.execute(_sql("DROP TABLE IF EXISTS {}", name))
    except OperationalError:
        return False
    return True


def _sql(text: str, *names: str) -> sql.Composed:
    return sql.SQL(text).format(*(sql.Identifier(name) for name in names))
