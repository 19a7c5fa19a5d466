"""What a file of outages says of one subject: gap-free pieces over the time for which its record is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gpufleet.availability.timeline import NOT_OBSERVED, Piece
from gpufleet.core.intervals import intersect, subtract, union

IMPORTED = "imported"  # the first reason of every interval that came out of a file
OUTSIDE = (IMPORTED, NOT_OBSERVED)
Pair = tuple[datetime, datetime]
Stays = Sequence[tuple[datetime, int]]  # (from, node id), in order: where the board sat


@dataclass(frozen=True, slots=True)
class Told:
    """A row as it bears on one subject. `of_node`: it named the whole node. `cause` names the outage behind it."""

    starts_at: datetime
    ends_at: datetime
    planned: bool
    reason: str
    of_node: bool = False
    cause: int | None = None


def hull(rows: Sequence[Told]) -> Pair | None:
    """From the first start to the last end."""
    return (min(row.starts_at for row in rows), max(row.ends_at for row in rows)) if rows else None


def record_of(rows: Sequence[Told], cover: Pair, stays: Stays) -> list[Piece]:
    """The pieces over `cover`: planned before unplanned, the whole node's outage before the board's own, else up."""
    pieces: list[Piece] = []
    free = [cover]
    for row in sorted(rows, key=lambda one: (not one.planned, not one.of_node, one.starts_at, one.ends_at)):
        mine = intersect(free, union([(row.starts_at, row.ends_at)]))
        state = "maintenance" if row.planned else "failed"
        reasons = (IMPORTED, row.reason) if row.reason else (IMPORTED,)
        cause = None if row.planned else row.cause
        pieces.extend(Piece(start, end, state, reasons, cause, None) for start, end in mine)
        free = subtract(free, mine)
    pieces.extend(Piece(start, end, "healthy", (IMPORTED,), None, None) for start, end in free)
    return join(seated(sorted(pieces, key=lambda piece: piece.starts_at), stays))


def seated(pieces: Sequence[Piece], stays: Stays) -> list[Piece]:
    """Each piece with the node in which the board sat, cut where it moved."""
    found: list[Piece] = []
    for piece in pieces:
        moves = [at for at, _ in stays if piece.starts_at < at and (piece.ends_at is None or at < piece.ends_at)]
        edges = [piece.starts_at, *moves]
        ends = [*moves, piece.ends_at]
        found.extend(
            replace(piece, starts_at=start, ends_at=end, node_id=node_at(stays, start))
            for start, end in zip(edges, ends, strict=True)
        )
    return found


def node_at(stays: Stays, at: datetime) -> int:
    """The first stay reaches back without end."""
    return [node for since, node in stays if since <= at or (since, node) == stays[0]][-1]


def merge(old: Sequence[Piece], new: Sequence[Piece], live_from: datetime | None, stays: Stays) -> list[Piece]:
    """Earlier imports outside the new record, the new record, and unknown time between, up to `live_from`.

    Without live time after it the last piece is open. `old` and `new` are in order.
    """
    start, end = new[0].starts_at, new[-1].ends_at
    kept = [piece for piece in old if piece.reasons != OUTSIDE]
    before = [_clip(piece, None, start) for piece in kept if piece.starts_at < start]
    found: list[Piece] = []
    for piece in [*before, *new, *_after(kept, end)]:
        gap_from = found[-1].ends_at if found else None
        if gap_from is not None and gap_from < piece.starts_at:
            found.extend(_nobody_looked(gap_from, piece.starts_at, stays))
        found.append(piece)
    last = found[-1].ends_at
    if last is not None and (live_from is None or last < live_from):
        found.extend(_nobody_looked(last, live_from, stays))
    return join(found)


def _after(kept: Sequence[Piece], end: datetime | None) -> list[Piece]:
    """Earlier imports after `end`. An outage that was still going on ends where the new record says more."""
    if end is None:
        return []
    later = [piece for piece in kept if piece.starts_at >= end or (piece.ends_at is not None and piece.ends_at > end)]
    return [_clip(piece, end, None) for piece in later]


def _clip(piece: Piece, start: datetime | None, end: datetime | None) -> Piece:
    left = piece.starts_at if start is None else max(start, piece.starts_at)
    right = piece.ends_at if end is None else end if piece.ends_at is None else min(end, piece.ends_at)
    return replace(piece, starts_at=left, ends_at=right)


def _nobody_looked(start: datetime, end: datetime | None, stays: Stays) -> list[Piece]:
    return seated([Piece(start, end, "unknown", OUTSIDE, None, None)], stays)


def join(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbours that say the same are one."""
    found: list[Piece] = []
    for piece in pieces:
        if found and found[-1].says(piece) and found[-1].ends_at == piece.starts_at:
            found[-1] = replace(found[-1], ends_at=piece.ends_at)
        else:
            found.append(piece)
    return found
