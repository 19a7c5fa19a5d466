"""Exporter's names as small numbers: the key of a chunk. A series never changes its name; its canonical metric may."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import connection

SCRAPES = 0  # the row of a span that tells what the scrapes were like

# Names are only ever added, so what was read stays true, but for a table that a test or an operator emptied.
_known: dict[str, int] = {}


def name_ids(names: Iterable[str]) -> dict[str, int]:
    """Ids of those names that have one; no query when all are known."""
    wanted = set(names)
    unknown = [name for name in wanted if name not in _known]
    if unknown:
        with connection.cursor() as cursor:
            cursor.execute("SELECT name, id FROM store_name WHERE name = ANY(%s)", [unknown])
            _known.update(cursor.fetchall())
    return {name: _known[name] for name in wanted if name in _known}


def ensure_names(names: Iterable[str]) -> dict[str, int]:
    """Ids of all names; makes those that are new, at once and for good, whatever becomes of the caller's work.

    Inside a transaction only what was committed may be remembered, so the ids are read anew by whoever comes next.
    """
    wanted = sorted(set(names))
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, id FROM store_name WHERE name = ANY(%s)", [wanted])
        found: dict[str, int] = dict(cursor.fetchall())
        missing = [name for name in wanted if name not in found]
        if missing:
            cursor.execute(
                "INSERT INTO store_name (name) SELECT * FROM unnest(%s::text[]) ON CONFLICT DO NOTHING", [missing]
            )
            cursor.execute("SELECT name, id FROM store_name WHERE name = ANY(%s)", [wanted])
            found = dict(cursor.fetchall())
    return found


def forget_names() -> None:
    """Empties the cache: between tests."""
    _known.clear()
