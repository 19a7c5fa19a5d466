"""The ledger of one subject as a pure list of pieces: gap-free, half-open, in order, the last one open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

NOT_OBSERVED = "not_observed"
PLANNED = frozenset({"maintenance", "out_of_service"})


@dataclass(frozen=True, slots=True)
class Piece:
    """One state during `[starts_at, ends_at)`; None: still going on."""

    starts_at: datetime
    ends_at: datetime | None
    state: str
    reasons: tuple[str, ...]
    incident_id: int | None
    node_id: int | None

    def says(self, other: Piece) -> bool:
        return (self.state, self.reasons, self.incident_id, self.node_id) == (
            other.state,
            other.reasons,
            other.incident_id,
            other.node_id,
        )


def tell(
    pieces: Sequence[Piece], said: Piece, *, told_until: datetime | None, since: datetime | None = None
) -> list[Piece]:
    """The ledger after something was told.

    `said`: the state from `said.starts_at` on. `told_until`: up to when the ledger had been told before; None when
    this follows without a gap. What lies between is unknown: nobody looked. `since`: the state is now known to have
    held since then; it replaces what was said meanwhile, but neither planned time nor time that nobody observed, and
    never reaches before the first piece.
    """
    if not pieces:
        return [said]
    at = max(said.starts_at, pieces[-1].starts_at)
    found = list(pieces)
    if told_until is not None and told_until < at and not _holds_without_data(found[-1], said):
        gap_from = max(told_until, found[-1].starts_at)
        found = _cut(found, gap_from)
        found.append(Piece(gap_from, None, "unknown", (NOT_OBSERVED,), None, said.node_id))
    found = [*_cut(found, at), replace(said, starts_at=at, ends_at=None)]
    if since is not None and since < at:
        found = _rewrite(found, max(since, found[0].starts_at), at, said)
    return _joined(found)


def _holds_without_data(before: Piece, said: Piece) -> bool:
    return before.state in PLANNED and before.state == said.state


def _cut(pieces: Sequence[Piece], at: datetime) -> list[Piece]:
    """What lies before `at`."""
    kept = [piece for piece in pieces if piece.starts_at < at]
    if kept and (kept[-1].ends_at is None or kept[-1].ends_at > at):
        kept[-1] = replace(kept[-1], ends_at=at)
    return kept


def _rewrite(pieces: Sequence[Piece], start: datetime, end: datetime, said: Piece) -> list[Piece]:
    """`[start, end)` says what `said` says, wherever somebody looked and nothing was planned."""
    found: list[Piece] = []
    for piece in pieces:
        piece_end = piece.ends_at
        untouched = piece.state in PLANNED or NOT_OBSERVED in piece.reasons
        if untouched or piece.starts_at >= end or (piece_end is not None and piece_end <= start):
            found.append(piece)
            continue
        left, right = max(piece.starts_at, start), end if piece_end is None else min(piece_end, end)
        if piece.starts_at < left:
            found.append(replace(piece, ends_at=left))
        found.append(replace(said, starts_at=left, ends_at=right))
        if piece_end is None or right < piece_end:
            found.append(replace(piece, starts_at=right))
    return found


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours that say the same are one piece."""
    found: list[Piece] = []
    for piece in pieces:
        if piece.ends_at is not None and piece.ends_at <= piece.starts_at:
            continue
        if found and found[-1].says(piece):
            found[-1] = replace(found[-1], ends_at=piece.ends_at)
        else:
            found.append(piece)
    return found
