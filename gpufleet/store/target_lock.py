"""Who changes the sealed past of a target holds its lock: two of them run one after the other."""

from __future__ import annotations

from django.db import connection

_CLASS = 0x67706602


def lock_target(target_id: int) -> None:
    """Waits for the lock; it is held to the end of the caller's transaction, however that ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_CLASS, target_id & 0x7FFFFFFF])
