"""Carries a site's own record of outages into the ledger, and into incidents. Never over what scraping told.

An outage that is still going on holds as far as the file could know: until the import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from django.db import connection, transaction
from django.db.models import Min, Q

from gpufleet.accounts import audit
from gpufleet.availability.models import LedgerHead, StateInterval
from gpufleet.availability.outage_file import Outage
from gpufleet.availability.outage_incidents import PastOutage, take_in_outages, withdraw_outages
from gpufleet.availability.outage_record import IMPORTED, Pair, Stays, Told, hull, merge, record_of
from gpufleet.availability.timeline import Piece
from gpufleet.core.times import rfc3339
from gpufleet.fleet.models import Cluster, Gpu, Node, Placement

Subject = tuple[int, int | None]  # node id and None, or 0 and the GPU's
Progress = Callable[[int, int], None]
ALWAYS = datetime.min.replace(tzinfo=UTC)
LOCK = 0x6F757467
BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did. `changed` subjects have another ledger than before; `outages` are the unplanned ones."""

    rows: int
    subjects: int
    changed: int
    outages: int
    withdrawn: int


@dataclass(slots=True)
class _Book:
    """One import on its way: subjects with the rows that bear on them."""

    cluster: Cluster
    nodes: dict[str, Node]
    gpus: dict[str, Gpu]
    stays: dict[Subject, list[tuple[datetime, int]]] = field(default_factory=dict)
    told: dict[Subject, list[Told]] = field(default_factory=dict)
    reach: dict[Subject, list[Told]] = field(default_factory=dict)  # rows that only prove the record's length
    outages: list[PastOutage] = field(default_factory=list)


@transaction.atomic
def import_outages(
    cluster: Cluster, rows: Sequence[Outage], *, cover: Pair | None, source: str, actor: str, now: datetime,
    progress: Progress = lambda done, total: None,
) -> Imported:  # fmt: skip
    """Takes all rows, or none. `cover`: the time for which the record is complete; None: from each subject's first
    start to its last end. The same rows again change nothing. Many queries, but as many for any number of rows,
    but for incidents whose end changed."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
    book = _open_book(cluster, rows, now)
    # With a head for every node, and each one locked, a first scrape waits until the import is through.
    heads = [LedgerHead(node=node, told_until=now) for node in book.nodes.values()]
    LedgerHead.objects.bulk_create(heads, ignore_conflicts=True, batch_size=BATCH)
    list(LedgerHead.objects.select_for_update().filter(node__in=book.nodes.values()).order_by("node_id"))
    _tell_rows(book, rows, cover, now)
    old, live_from = _before(book)
    said = {subject: pieces for subject in book.told if (pieces := _record(book, subject, cover, live_from, now))}
    failed = {piece.incident_id for pieces in said.values() for piece in pieces if piece.state == "failed"}
    places = [place for place in range(len(book.outages)) if place in failed]
    kept = [_until_live(book.outages[place], live_from, cover, now) for place in places]
    incident_of = {places[at]: pk for at, pk in take_in_outages(cluster, kept, actor, now).items()}
    changed = _write(book, said, old, live_from, incident_of, now, progress)
    withdrawn = _withdraw(book, said, actor, now)
    done = Imported(len(rows), len(said), changed, len(kept), withdrawn)
    if changed or withdrawn:
        span = [rfc3339(at) for at in cover] if cover else None
        detail = {"rows": done.rows, "changed": changed, "outages": done.outages, "withdrawn": withdrawn, "cover": span}
        audit.record(at=now, actor=actor, source="import", verb="outages.imported", subject=source, detail=detail)
    return done


def _open_book(cluster: Cluster, rows: Sequence[Outage], now: datetime) -> _Book:
    """Nodes and GPUs of the file; unknown ones are made."""
    names = {row.node for row in rows}
    known = set(cluster.nodes.filter(name__in=names).values_list("name", flat=True))
    Node.objects.bulk_create([Node(cluster=cluster, name=name) for name in sorted(names - known)], batch_size=BATCH)
    nodes = {node.name: node for node in cluster.nodes.filter(name__in=names)}
    seen: dict[str, Pair] = {}
    for row in rows:
        if row.gpu_uuid:
            first, last = seen.get(row.gpu_uuid, (row.starts_at, row.ends_at or now))
            seen[row.gpu_uuid] = (min(first, row.starts_at), max(last, row.ends_at or now))
    had = set(cluster.gpus.filter(uuid__in=seen).values_list("uuid", flat=True))
    Gpu.objects.bulk_create(
        [
            Gpu(cluster=cluster, uuid=uuid, first_seen_at=first, last_seen_at=last)
            for uuid, (first, last) in sorted(seen.items())
            if uuid not in had
        ],
        batch_size=BATCH,
    )
    return _Book(cluster, nodes, {gpu.uuid: gpu for gpu in cluster.gpus.filter(uuid__in=seen)})


def _tell_rows(book: _Book, rows: Sequence[Outage], cover: Pair | None, now: datetime) -> None:
    """Sorts the rows to their subjects: a row of a whole node also bears on every board that sat in it."""
    of_subject: dict[tuple[str, str], list[Outage]] = {}
    for row in sorted(rows, key=lambda one: (one.starts_at, one.ends_at or now, one.reason)):
        of_subject.setdefault((row.node, row.gpu_uuid), []).append(row)
    told = {key: _told(book, *key, of_key, now) for key, of_key in of_subject.items()}
    _seat(book, of_subject)
    for (name, uuid), mine in told.items():
        node = (book.nodes[name].pk, None)
        book.stays[node] = [(ALWAYS, node[0])]
        if uuid:
            book.told.setdefault((0, book.gpus[uuid].pk), []).extend(mine)
            # Not those that still go on: the node's own record would grow with every import of the same file.
            book.reach.setdefault(node, []).extend(row for row in mine if row.ends_at < now)
            book.told.setdefault(node, [])
        else:
            book.told.setdefault(node, []).extend(mine)
    names = {node.pk: name for name, node in book.nodes.items()}
    for subject, stays in book.stays.items():
        for node_id in {seat for _, seat in stays} if subject[1] is not None else ():
            of_node = told.get((names.get(node_id, ""), ""), ())
            book.told.setdefault(subject, []).extend(_while_seated(of_node, stays, node_id))


def _told(book: _Book, name: str, uuid: str, rows: Sequence[Outage], now: datetime) -> list[Told]:
    """The rows of one subject; overlapping unplanned ones are one outage."""
    found: list[Told] = []
    latest: datetime | None = None
    for row in rows:
        ends_at = row.ends_at or now
        if not row.planned:
            if latest is None or row.starts_at > latest:
                book.outages.append(_outage(book, name, uuid, row))
                latest = ends_at
            else:
                last = book.outages[-1]
                open_end = last.ends_at is None or row.ends_at is None
                book.outages[-1] = replace(last, ends_at=None if open_end else max(last.ends_at or now, ends_at))
                latest = max(latest, ends_at)
        cause = None if row.planned else len(book.outages) - 1
        if row.starts_at < ends_at:
            found.append(Told(row.starts_at, ends_at, row.planned, row.reason, not uuid, cause))
    return found


def _outage(book: _Book, name: str, uuid: str, row: Outage) -> PastOutage:
    subject = f"gpu:{uuid}" if uuid else f"node:{name}"
    gpu_id = book.gpus[uuid].pk if uuid else None
    return PastOutage(subject, book.nodes[name].pk, name, gpu_id, uuid, row.starts_at, row.ends_at, row.reason)


def _seat(book: _Book, rows: dict[tuple[str, str], list[Outage]]) -> None:
    """Where each board sat: as its own rows say; for a board without any, as scraping or an earlier file said."""
    for (name, uuid), mine in rows.items():
        if uuid:
            seats = book.stays.setdefault((0, book.gpus[uuid].pk), [])
            seats.extend((row.starts_at, book.nodes[name].pk) for row in mine)
    nodes = [node.pk for node in book.nodes.values()]
    named = [gpu.pk for gpu in book.gpus.values()]
    sources = (Placement.objects.filter(node__in=nodes), StateInterval.objects.filter(node__in=nodes))
    boards = {gpu_id for one in sources for gpu_id in one.exclude(gpu=None).values_list("gpu_id", flat=True).distinct()}
    for model in (Placement, StateInterval):
        seats_of = model.objects.filter(gpu__in=boards).exclude(gpu__in=named)
        for gpu_id, starts_at, node_id in seats_of.values_list("gpu_id", "starts_at", "node_id"):
            book.stays.setdefault((0, gpu_id), []).append((starts_at, node_id))
    for seats in book.stays.values():
        seats.sort()


def _while_seated(rows: Sequence[Told], stays: Stays, node_id: int) -> list[Told]:
    """The rows of a whole node, cut to the time for which the board sat in it."""
    found: list[Told] = []
    for at, (since, seat) in enumerate(stays):
        if seat != node_id:
            continue
        until = stays[at + 1][0] if at + 1 < len(stays) else None
        for row in rows:
            start = row.starts_at if at == 0 else max(row.starts_at, since)
            end = row.ends_at if until is None else min(row.ends_at, until)
            if start < end:
                found.append(replace(row, starts_at=start, ends_at=end))
    return found


def _before(book: _Book) -> tuple[dict[Subject, list[Piece]], dict[Subject, datetime]]:
    """What earlier imports said of each subject, and since when scraping tells of it."""
    nodes = [node for node, gpu in book.told if gpu is None]
    gpus = [gpu for _, gpu in book.told if gpu is not None]
    rows = StateInterval.objects.filter(Q(node_id__in=nodes, gpu=None) | Q(gpu_id__in=gpus), cluster=book.cluster)
    old: dict[Subject, list[Piece]] = {}
    for row in rows.filter(reasons__contains=[IMPORTED]).order_by("starts_at").iterator(chunk_size=5000):
        piece = Piece(row.starts_at, row.ends_at, row.state, tuple(row.reasons), row.incident_id, row.node_id)
        old.setdefault(_subject(row.node_id, row.gpu_id), []).append(piece)
    live = rows.exclude(reasons__contains=[IMPORTED]).values_list("node_id", "gpu_id").annotate(Min("starts_at"))
    since: dict[Subject, datetime] = {}
    for node_id, gpu_id, starts_at in live.order_by():
        subject = _subject(node_id, gpu_id)
        since[subject] = min(since.get(subject, starts_at), starts_at)
    return old, since


def _subject(node_id: int | None, gpu_id: int | None) -> Subject:
    return (0, gpu_id) if gpu_id is not None else (node_id or 0, None)


def _record(
    book: _Book, subject: Subject, cover: Pair | None, live_from: dict[Subject, datetime], now: datetime
) -> list[Piece]:
    rows = book.told[subject]
    span = cover or hull([*rows, *book.reach.get(subject, ())])
    if span is None:
        return []
    end = min(span[1], now, live_from.get(subject, now))
    return record_of(rows, (span[0], end), book.stays[subject]) if span[0] < end else []


def _until_live(one: PastOutage, live_from: dict[Subject, datetime], cover: Pair | None, now: datetime) -> PastOutage:
    """An outage that the file calls open ends, for the import, where scraping took over or where the record ends."""
    subject = _subject(one.node_id, one.gpu_id)
    ends = [at for at in (live_from.get(subject), cover[1] if cover and cover[1] < now else None) if at is not None]
    return replace(one, ends_at=max(one.starts_at, min(ends))) if one.ends_at is None and ends else one


def _write(
    book: _Book, said: dict[Subject, list[Piece]], old: dict[Subject, list[Piece]],
    live_from: dict[Subject, datetime], incident_of: dict[int, int], now: datetime, progress: Progress,
) -> int:  # fmt: skip
    """Replaces the imported rows of every subject that says something else now; returns how many those are."""
    changed: dict[Subject, list[Piece]] = {}
    for at, (subject, pieces) in enumerate(said.items()):
        new = [_settled(book, piece, incident_of, subject not in live_from, now) for piece in pieces]
        after = merge(old.get(subject, ()), new, live_from.get(subject), book.stays[subject])
        if after != old.get(subject):
            changed[subject] = after
        if at % BATCH == 0:
            progress(at, len(said))
    mine = Q(node_id__in=[node for node, gpu in changed if gpu is None], gpu=None)
    mine |= Q(gpu_id__in=[gpu for _, gpu in changed if gpu is not None])
    StateInterval.objects.filter(mine, cluster=book.cluster, reasons__contains=[IMPORTED]).delete()
    rows = [_row(book.cluster, subject, piece) for subject, pieces in changed.items() for piece in pieces]
    for at in range(0, len(rows), BATCH):
        StateInterval.objects.bulk_create(rows[at : at + BATCH])
        progress(at, len(rows))
    return len(changed)


def _settled(book: _Book, piece: Piece, incident_of: dict[int, int], may_stay_open: bool, now: datetime) -> Piece:
    """The piece with its incident; open when its outage still goes on and scraping tells nothing of the subject."""
    if piece.incident_id is None:
        return piece
    outage = book.outages[piece.incident_id]
    still = may_stay_open and outage.ends_at is None and piece.ends_at == now
    return replace(piece, incident_id=incident_of[piece.incident_id], ends_at=None if still else piece.ends_at)


def _withdraw(book: _Book, said: dict[Subject, list[Piece]], actor: str, now: datetime) -> int:
    """Incidents of earlier imports that no interval names any more."""
    uuids = {gpu.pk: uuid for uuid, gpu in book.gpus.items()}
    names = {node.pk: name for name, node in book.nodes.items()}
    subjects = {f"gpu:{uuids[gpu]}" for _, gpu in said if gpu in uuids}
    subjects |= {f"node:{names[node]}" for node, gpu in said if gpu is None}
    rows = StateInterval.objects.filter(cluster=book.cluster, reasons__contains=[IMPORTED])
    named = {pk for pk in rows.values_list("incident_id", flat=True).distinct() if pk is not None}
    return withdraw_outages(book.cluster, subjects, named, actor, now)


def _row(cluster: Cluster, subject: Subject, piece: Piece) -> StateInterval:
    return StateInterval(
        cluster=cluster, node_id=piece.node_id, gpu_id=subject[1], state=piece.state, reasons=list(piece.reasons),
        incident_id=piece.incident_id, starts_at=piece.starts_at, ends_at=piece.ends_at,
    )  # fmt: skip
