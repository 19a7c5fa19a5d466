"""How a detector says what it found: the fields of a Finding that rule and subject already fix."""

from __future__ import annotations

from gpufleet.detect.findings import Evidence, Finding, Status
from gpufleet.detect.rules import Rule
from gpufleet.detect.view import View
from gpufleet.detect.windows import gpu_subject, node_subject

TITLE_LIMIT = 255


def about_node(
    view: View,
    rule: Rule,
    node: int,
    status: Status,
    title: str,
    since: float,
    evidence: tuple[Evidence, ...],
    state: str | None = None,
) -> Finding:
    """A finding about node `node` (index). An open incident keeps the time of its first evidence."""
    name = view.windows.nodes[node]
    return Finding(
        rule=rule.id,
        kind=rule.kind,
        subject=node_subject(name),
        status=status,
        severity=rule.severity,
        title=title[:TITLE_LIMIT],
        recommended_action=rule.recommended_action,
        first_evidence_at=_first(view, rule.kind, node_subject(name), since),
        at=view.now,
        node=name,
        state=(rule.state if state is None else state) if status is Status.FIRING else "",
        evidence=evidence,
        pages=rule.pages,
        needs_person=rule.needs_person,
    )


def about_gpu(
    view: View, rule: Rule, gpu: int, status: Status, title: str, since: float, evidence: tuple[Evidence, ...]
) -> Finding:
    """A finding about GPU `gpu` (index)."""
    gpus = view.windows.gpus
    uuid = gpus.uuid[gpu]
    return Finding(
        rule=rule.id,
        kind=rule.kind,
        subject=gpu_subject(uuid),
        status=status,
        severity=rule.severity,
        title=title[:TITLE_LIMIT],
        recommended_action=rule.recommended_action,
        first_evidence_at=_first(view, rule.kind, gpu_subject(uuid), since),
        at=view.now,
        node=view.windows.nodes[gpus.node[gpu]],
        gpu_uuid=uuid,
        slot=int(gpus.slot[gpu]),
        state=rule.state if status is Status.FIRING else "",
        evidence=evidence,
        pages=rule.pages,
        needs_person=rule.needs_person,
    )


def gpu_name(view: View, gpu: int) -> str:
    """`node GPU slot (bus)` as people say it."""
    gpus = view.windows.gpus
    bus = f" ({gpus.pci_bus_id[gpu]})" if gpus.pci_bus_id[gpu] else ""
    return f"{view.windows.nodes[gpus.node[gpu]]} GPU {gpus.slot[gpu]}{bus}"


def _first(view: View, kind: str, subject: str, since: float) -> float:
    known = view.open_key(kind, subject)
    return since if known is None or known.recovered_at is not None else min(known.first_evidence_at, since)
