"""Planned time begins and ends with its window, not with the scrape that first noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from gpufleet.availability.timeline import Piece
from gpufleet.fleet.models import MaintenanceWindow

PLANNED = "maintenance"
Subject = tuple[int | None, int | None]  # (node, None) or (None, GPU)
Change = tuple[Subject, Piece, datetime | None, datetime | None]  # subject, what was said, told until, since
Window = tuple[datetime, datetime]


class Row(NamedTuple):
    """A stored interval as it is read."""

    id: int
    node_id: int | None
    gpu_id: int | None
    state: str
    reasons: Sequence[str]
    incident_id: int | None
    starts_at: datetime
    ends_at: datetime | None


def at_window_edges(changes: Sequence[Change], open_rows: Mapping[Subject, Row]) -> list[Change]:
    """The changes into and out of planned time, moved to the edge of the window behind them. At most one query."""
    turned = [
        (subject, said)
        for subject, said, _, _ in changes
        if (row := open_rows.get(subject)) is not None and (row.state == PLANNED) != (said.state == PLANNED)
    ]
    if not turned:
        return list(changes)
    windows = _windows(turned, open_rows)
    subjects = {subject for subject, _ in turned}
    return [
        _moved(change, windows.get(change[1].node_id or 0, ())) if change[0] in subjects else change
        for change in changes
    ]


def _windows(turned: Sequence[tuple[Subject, Piece]], open_rows: Mapping[Subject, Row]) -> dict[int, list[Window]]:
    nodes = {said.node_id for _, said in turned if said.node_id is not None}
    first = min(open_rows[subject].starts_at for subject, _ in turned)
    last = max(said.starts_at for _, said in turned)
    rows = MaintenanceWindow.objects.filter(node_id__in=nodes, ends_at__gt=first, starts_at__lte=last)
    found: dict[int, list[Window]] = {}
    for node_id, starts_at, ends_at in rows.values_list("node_id", "starts_at", "ends_at"):
        found.setdefault(node_id, []).append((starts_at, ends_at))
    return found


def _moved(change: Change, windows: Sequence[Window]) -> Change:
    subject, said, told_until, since = change
    at = said.starts_at
    if said.state == PLANNED:
        begun = [start for start, end in windows if start <= at < end]
        return (subject, replace(said, starts_at=min(begun, default=at)), told_until, since)
    ended = max((end for _, end in windows if end <= at), default=None)
    if ended is None:
        return change
    if told_until is not None:  # nobody looked after the window's end
        return (subject, said, max(told_until, ended), since)
    return (subject, replace(said, starts_at=ended), told_until, since)
