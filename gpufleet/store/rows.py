"""Rows as binary: as text, blobs would be twice as long and slow to read."""

from __future__ import annotations

from django.db import connection
from django.db.backends.utils import CursorWrapper
from psycopg import Cursor
from psycopg.pq import Format


def binary_cursor() -> CursorWrapper:
    """A cursor whose rows come as binary and whose parameters stay apart from the statement.

    Django's own cursor puts the parameters into the statement and can bring text only.
    """
    connection.ensure_connection()
    cursor = Cursor(connection.connection)
    cursor.format = Format.BINARY
    wrap = connection.make_debug_cursor if connection.queries_logged else connection.make_cursor
    return wrap(cursor)  # type: ignore[arg-type]  # the stubs mean the wrapper
