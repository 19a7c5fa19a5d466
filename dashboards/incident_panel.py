"""The open incidents beside the wall: unacknowledged first, each by severity and age."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q

from gpufleet.catalogue.metrics import METRICS
from gpufleet.fleet.models import Cluster
from gpufleet.incidents.models import Incident

SEVERITIES = ("critical", "warning", "info")
PLAIN = {
    "gpu_listed": "{} by its exporter",
    "scrape_failed": "scrapes fail: {}",
    "gpu_xid": "XID {}",
    "gpu_clock_event_reasons": "clocks cut by the board, event mask {}",
}
MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class Row:
    """One incident. `subject` is what is broken, `what` its title without the subject, `evidence` one line."""

    id: int
    version: int
    severity: str
    node: str
    slot: int | None
    subject: str
    what: str
    evidence: str
    opened_at: datetime
    acknowledged_at: datetime | None
    acknowledged_by: str
    recovered: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """`by_severity` counts all open incidents; `more` is how many are not listed."""

    unacknowledged: list[Row]
    acknowledged: list[Row]
    by_severity: dict[str, int]
    more: int

    @property
    def total(self) -> int:
        return sum(self.by_severity.values())

    @property
    def worst(self) -> Row | None:
        return self.unacknowledged[0] if self.unacknowledged else None


def read_panel(cluster: Cluster, at: datetime | None = None) -> Panel:
    """The incidents open now, or open at the past moment `at` as they stood then. One query."""
    if at is None:
        found = Incident.objects.filter(resolved_at=None)
    else:
        found = Incident.objects.filter(Q(resolved_at=None) | Q(resolved_at__gt=at), opened_at__lte=at)
    rows = [_row(incident, at) for incident in found.filter(cluster=cluster, parent=None).select_related("node")]
    rows.sort(key=lambda row: (row.acknowledged_at is not None, SEVERITIES.index(row.severity), row.opened_at, row.id))
    listed = rows[:MOST_ROWS]
    counts = Counter(row.severity for row in rows)
    return Panel(
        [row for row in listed if row.acknowledged_at is None],
        [row for row in listed if row.acknowledged_at is not None],
        {severity: counts[severity] for severity in SEVERITIES},
        len(rows) - len(listed),
    )


def _row(incident: Incident, at: datetime | None) -> Row:
    node = incident.node.name if incident.node else ""
    subject = subject_of(incident.subject, node, incident.slot)
    acknowledged_at = incident.acknowledged_at
    if at is not None and acknowledged_at is not None and acknowledged_at > at:
        acknowledged_at = None
    return Row(
        incident.id,
        incident.version,
        incident.severity,
        node,
        incident.slot,
        subject,
        short_title(incident.title, subject, node),
        evidence_line(incident.evidence),
        incident.opened_at,
        acknowledged_at,
        incident.acknowledged_by if acknowledged_at else "",
        incident.recovered_at is not None and (at is None or incident.recovered_at <= at),
    )


def subject_of(subject: str, node: str, slot: int | None) -> str:
    """`gpu-045`, `gpu-027 g5`, or the subject's own name where no node is known."""
    if node:
        return node if slot is None else f"{node} g{slot}"
    return subject.partition(":")[2] or subject


def short_title(title: str, subject: str, node: str) -> str:
    """The title without the subject that stands before it anyway: `XID 79: ...`, `is missing: ...`."""
    short = title
    if node:
        here = rf"{re.escape(node)}(?![\w-])"
        short = re.sub(rf"^(?:Node )?{here}(?: GPU \d+(?: \([^)]*\))?)?[ :,·-]*", "", short)
        short = re.sub(rf" (?:on|of) {here}(?: GPU \d+(?: \([^)]*\))?)?", "", short)
    elif title.startswith(subject):
        short = title[len(subject) :].lstrip(" :,-·")
    return short or title


def evidence_line(evidence: list[dict[str, Any]]) -> str:
    """The first observation, in words: what was seen, and what was expected where that is not plain."""
    if not evidence:
        return ""
    first = evidence[0]
    signal, value, expected = str(first.get("signal", "")), first.get("value"), first.get("expected")
    if signal in PLAIN:
        return PLAIN[signal].format(_observed(signal, value))
    metric = METRICS.get(signal)
    text = f"{metric.short_title if metric else signal.replace('_', ' ')} {_observed(signal, value)}".strip()
    return text if expected in (None, "") else f"{text}, expected {_observed(signal, expected)}"


def _observed(signal: str, value: object) -> str:
    metric = METRICS.get(signal)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    if metric is None:
        return f"{value:,.3g}" if isinstance(value, float) else f"{value:,}"
    return f"{value * metric.display_factor:,.{metric.digits}f} {metric.display_unit}".strip()
