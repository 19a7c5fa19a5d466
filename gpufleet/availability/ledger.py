"""Writes the state ledger: what each cycle told of every node and GPU. Only changes are written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache

from django.db import connection, transaction
from django.db.models import Q, QuerySet

from gpufleet.availability.edges import Row, Subject, at_window_edges
from gpufleet.availability.models import LedgerHead, StateInterval
from gpufleet.availability.timeline import Piece, tell
from gpufleet.fleet.models import Cluster, Placement

NOT_PLACED = "not_placed"


@dataclass(frozen=True, slots=True)
class GpuTold:
    """What a cycle told of a GPU. `since`: it is now known to have been so since then."""

    state: str
    reasons: tuple[str, ...] = ()
    incident_id: int | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class NodeTold:
    """What a cycle told of a node and its GPUs (by key), at `told_at`; it speaks until `valid_until`."""

    node_id: int
    told_at: datetime
    valid_until: datetime
    state: str
    reasons: tuple[str, ...] = ()
    incident_id: int | None = None
    since: datetime | None = None
    gpus: Mapping[int, GpuTold] = field(default_factory=dict)


@transaction.atomic
def record(cluster: Cluster, told: Sequence[NodeTold], now: datetime) -> int:
    """Carries what was told into the ledger; returns how many subjects changed. Telling the same again changes nothing.

    A scrape speaks until the next one was due: time between that and `told_at` that exceeds half an interval is
    unknown. Three queries when nothing changes.
    """
    if not told:
        return 0
    heads = _lock_heads(told)
    node_ids = [one.node_id for one in told]
    placed = [gpu_id for one in told for gpu_id in one.gpus]
    open_rows = _open_rows(cluster, node_ids, placed)
    of_node: dict[int | None, list[Row]] = {}
    for row in open_rows.values():
        of_node.setdefault(row.node_id, []).append(row)
    changes: list[tuple[Subject, Piece, datetime | None, datetime | None]] = []
    for one in told:
        told_until = _gap_from(heads[one.node_id], one)
        for subject, said, since in _sayings(one, of_node.get(one.node_id, ())):
            known = open_rows.get(subject)
            if known is None or told_until is not None or not said.says(_piece(known)):
                changes.append((subject, said, told_until, since))
    _write(cluster, at_window_edges(changes, open_rows), open_rows)
    _move_heads(told)
    return len(changes)


def _lock_heads(told: Sequence[NodeTold]) -> dict[int, datetime | None]:
    """Up to when each node's ledger was told, its row locked. None: it begins now."""
    ids = [one.node_id for one in told]
    heads = LedgerHead.objects.select_for_update().filter(node_id__in=ids).order_by("node_id")
    found: dict[int, datetime | None] = dict(heads.values_list("node_id", "told_until"))
    missing = [one for one in told if one.node_id not in found]
    if missing:
        rows = [LedgerHead(node_id=one.node_id, told_until=one.told_at) for one in missing]
        LedgerHead.objects.bulk_create(rows, ignore_conflicts=True)
        again = LedgerHead.objects.select_for_update().filter(node_id__in=[one.node_id for one in missing])
        found.update(again.order_by("node_id").values_list("node_id", "told_until"))
    return found


def _gap_from(told_until: datetime | None, one: NodeTold) -> datetime | None:
    """Where unobserved time begins; None when this scrape follows the one before it."""
    tolerance = (one.valid_until - one.told_at) / 2
    if told_until is None or one.told_at <= told_until + max(tolerance, timedelta(0)):
        return None
    return told_until


OPEN = """
SELECT id, node_id, gpu_id, state, reasons::text, incident_id, starts_at, ends_at FROM availability_stateinterval
WHERE cluster_id = %s AND ends_at IS NULL AND (node_id = ANY(%s) OR gpu_id = ANY(%s))
"""


def _open_rows(cluster: Cluster, node_ids: Sequence[int], gpu_ids: Sequence[int]) -> dict[Subject, Row]:
    """Read every cycle: two arrays instead of a parameter a subject, and each list of reasons is parsed once."""
    with connection.cursor() as cursor:
        cursor.execute(OPEN, [cluster.pk, list(node_ids), list(gpu_ids)])
        rows = [
            Row(row_id, node_id, gpu_id, state, _reasons(reasons), incident_id, starts_at, ends_at)
            for row_id, node_id, gpu_id, state, reasons, incident_id, starts_at, ends_at in cursor.fetchall()
        ]
    return {_subject(row): row for row in rows}


@lru_cache(maxsize=1024)
def _reasons(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _read(rows: QuerySet[StateInterval]) -> Iterator[Row]:
    return (Row(*row) for row in rows.values_list(*Row._fields).iterator(chunk_size=5000))


def _subject(row: Row) -> Subject:
    return (None, row.gpu_id) if row.gpu_id is not None else (row.node_id, None)


def _sayings(one: NodeTold, rows: Iterable[Row]) -> Iterable[tuple[Subject, Piece, datetime | None]]:
    """What `one` says of each subject; a GPU that sat here and is placed nowhere is out of service."""
    at, node_id = one.told_at, one.node_id
    yield (node_id, None), Piece(at, None, one.state, tuple(one.reasons), one.incident_id, node_id), one.since
    for gpu_id, gpu in one.gpus.items():
        yield (None, gpu_id), Piece(at, None, gpu.state, tuple(gpu.reasons), gpu.incident_id, node_id), gpu.since
    for row in rows:
        if _has_left(row, one):
            yield (None, row.gpu_id), Piece(at, None, "out_of_service", (NOT_PLACED,), None, node_id), None


def _has_left(row: Row, one: NodeTold) -> bool:
    """The row's GPU sat in this node and does no more. One that moved is told of by its new node, maybe elsewhere."""
    if (
        row.gpu_id is None
        or row.node_id != one.node_id
        or row.gpu_id in one.gpus
        or tuple(row.reasons) == (NOT_PLACED,)
    ):
        return False
    return not Placement.objects.filter(gpu_id=row.gpu_id, ends_at=None).exclude(node_id=one.node_id).exists()


def _piece(row: Row) -> Piece:
    return Piece(row.starts_at, row.ends_at, row.state, tuple(row.reasons), row.incident_id, row.node_id)


def _write(
    cluster: Cluster,
    changes: Sequence[tuple[Subject, Piece, datetime | None, datetime | None]],
    open_rows: Mapping[Subject, Row],
) -> None:
    """Replaces the rows of the changed subjects, from the earliest moment that changes on."""
    earlier = _rows_since(cluster, [(subject, since) for subject, _, _, since in changes if since is not None])
    gone: list[int] = []
    new: list[StateInterval] = []
    kept: list[StateInterval] = []
    ended: list[tuple[int, datetime]] = []
    for subject, said, told_until, since in changes:
        open_row = open_rows.get(subject)
        rows = earlier.get(subject) or ([open_row] if open_row is not None else [])
        before = [_piece(row) for row in rows]
        after = tell(before, said, told_until=told_until, since=since)
        by_start = {row.starts_at: row for row in rows}
        for piece in after:
            row = by_start.pop(piece.starts_at, None)
            if row is None:
                new.append(_row(cluster, subject, piece))
            elif _piece(row) == replace(piece, ends_at=row.ends_at) and piece.ends_at is not None:
                ended.append((row.id, piece.ends_at))
            elif _piece(row) != piece:
                kept.append(_row(cluster, subject, piece, row.id))
        gone.extend(row.id for row in by_start.values())
    _store(gone, ended, kept, new)


END = """
UPDATE availability_stateinterval AS row SET ends_at = told.ends_at
FROM unnest(%s::bigint[], %s::timestamptz[]) AS told(id, ends_at) WHERE row.id = told.id
"""


def _store(
    gone: Sequence[int],
    ended: Sequence[tuple[int, datetime]],
    kept: Sequence[StateInterval],
    new: Sequence[StateInterval],
) -> None:
    """Closed rows first: at no moment a subject has two open ones. `ended`: rows of which only the end is new."""
    if gone:
        StateInterval.objects.filter(pk__in=gone).delete()
    if ended:
        with connection.cursor() as cursor:
            cursor.execute(END, [[row_id for row_id, _ in ended], [ends_at for _, ends_at in ended]])
    closed = [row for row in kept if row.ends_at is not None]
    still_open = [row for row in kept if row.ends_at is None]
    fields = ["ends_at", "state", "reasons", "incident_id", "node"]
    for rows in (closed, still_open):
        if rows:
            StateInterval.objects.bulk_update(rows, fields)
    if new:
        StateInterval.objects.bulk_create(new)


def _rows_since(cluster: Cluster, wanted: Sequence[tuple[Subject, datetime]]) -> dict[Subject, list[Row]]:
    """The rows of each subject that reach past the earliest of the moments, in order."""
    if not wanted:
        return {}
    oldest = min(since for _, since in wanted)
    nodes = [node_id for (node_id, _), _ in wanted if node_id is not None]
    gpus = [gpu_id for (_, gpu_id), _ in wanted if gpu_id is not None]
    rows = StateInterval.objects.filter(
        Q(node_id__in=nodes, gpu=None) | Q(gpu_id__in=gpus), Q(ends_at=None) | Q(ends_at__gt=oldest), cluster=cluster
    ).order_by("starts_at")
    found: dict[Subject, list[Row]] = {}
    for row in _read(rows):
        found.setdefault(_subject(row), []).append(row)
    return found


def _row(cluster: Cluster, subject: Subject, piece: Piece, row_id: int | None = None) -> StateInterval:
    return StateInterval(
        pk=row_id,
        cluster=cluster,
        node_id=piece.node_id,
        gpu_id=subject[1],
        state=piece.state,
        reasons=list(piece.reasons),
        incident_id=piece.incident_id,
        starts_at=piece.starts_at,
        ends_at=piece.ends_at,
    )


MOVE = """
UPDATE availability_ledgerhead AS head SET told_until = greatest(head.told_until, told.until)
FROM unnest(%s::bigint[], %s::timestamptz[]) AS told(node_id, until) WHERE head.node_id = told.node_id
"""


def _move_heads(told: Sequence[NodeTold]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(MOVE, [[one.node_id for one in told], [one.valid_until for one in told]])
