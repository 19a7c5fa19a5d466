"""Lists that are paged by the key of their rows, newest first: they stay stable while rows are added."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Protocol, TypeVar

from ninja import Schema

from dashboards.api.problems import invalid

MAX_LIMIT = 1000


class Row(Protocol):
    pk: int


T = TypeVar("T", bound=Row)


class PageParameters(Schema):
    cluster: str | None = None
    at: str | None = None
    limit: int = 100
    cursor: str | None = None

    @property
    def before(self) -> int | None:
        """The key that the page ends before; 422 for a cursor that no list gave out."""
        if not self.cursor:
            return None
        try:
            text = base64.urlsafe_b64decode(self.cursor + "=" * (-len(self.cursor) % 4)).decode("ascii")
            key = int(text.removeprefix("before.")) if text.startswith("before.") else 0
        except (ValueError, binascii.Error):
            key = 0
        if not 1 <= key < 2**63:
            raise invalid("cursor", "this cursor is not one that the list gave out")
        return key

    @property
    def size(self) -> int:
        if not 1 <= self.limit <= MAX_LIMIT:
            raise invalid("limit", f"limit is from 1 to {MAX_LIMIT}")
        return self.limit


def cut(rows: Sequence[T], size: int) -> tuple[Sequence[T], str | None]:
    """`rows` holds one more than the page when there is a next one; gives the page and the cursor of the next."""
    if len(rows) <= size:
        return rows, None
    cursor = base64.urlsafe_b64encode(f"before.{rows[size - 1].pk}".encode()).decode().rstrip("=")
    return rows[:size], cursor
