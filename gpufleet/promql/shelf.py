"""What was read of the inventory, kept for the next query: panels of a dashboard ask for the same series again."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

from django.db import connection

LASTS_SECONDS = 60.0
MAX_KEPT = 400_000  # rows, about 300 MB

# Rows are only ever added when targets, GPUs or series appear or move; an edit in place is seen after LASTS_SECONDS.
_VERSION = """
SELECT (SELECT max(id) FROM store_series), (SELECT max(id) FROM fleet_target), (SELECT max(id) FROM fleet_placement),
       (SELECT count(*) FROM fleet_target WHERE removed_at IS NULL)
"""


class Shelf:
    """Values by key, dropped together when a row was added since, or after a while. One for a process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = RLock()
        self._kept: dict[Hashable, Any] = {}
        self._version: tuple[Any, ...] = ()
        self._ends_at = 0.0

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Inside the block nothing is older than the inventory as it is now."""
        with connection.cursor() as cursor:
            cursor.execute(_VERSION)
            version = cursor.fetchone()
        with self._lock:
            if version != self._version or self._clock() >= self._ends_at:
                self.forget()
                self._version, self._ends_at = version, self._clock() + LASTS_SECONDS
            yield

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of a key; made when it is not at hand."""
        if key not in self._kept:
            made = make()
            if sum(map(len, self._kept.values())) + len(made) > MAX_KEPT:
                self._kept.clear()
            self._kept[key] = made
        return self._kept[key]

    def forget(self) -> None:
        """Empties the shelf: between tests."""
        with self._lock:
            self._kept.clear()
            self._version = ()
