"""The engine: windows and rules in, findings out. Pure numpy; live, replay and backtest call the same function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from gpufleet.detect.detectors.collector import collector_lost
from gpufleet.detect.detectors.exporter_down import exporter_down
from gpufleet.detect.detectors.field_missing import field_missing
from gpufleet.detect.detectors.gpu_missing import gpu_missing
from gpufleet.detect.detectors.node_down import node_down
from gpufleet.detect.detectors.telemetry_frozen import telemetry_frozen
from gpufleet.detect.detectors.thermal import thermal
from gpufleet.detect.detectors.xid import xid
from gpufleet.detect.findings import Finding, Status, key_text
from gpufleet.detect.rules import Rule
from gpufleet.detect.view import View
from gpufleet.detect.windows import CLUSTER_SUBJECT, OpenKey, Windows, gpu_subject, node_subject

SAME_CAUSE_SECONDS = 600.0


def evaluate(windows: Windows, rules: Sequence[Rule], now: float) -> list[Finding]:
    """What holds at the newest row.

    FIRING for conditions that hold; CLEAR and UNKNOWN for keys of `windows.open` only. `now` is Unix seconds. At most
    one finding a key, except XIDs, which come once a happening. Never raises on windows whose shapes agree.
    """
    view = View(windows, rules, now)
    lost, findings = collector_lost(view)
    if lost:
        return [*findings, *_unknown(view, {(finding.kind, finding.subject) for finding in findings})]
    frozen_findings, frozen = telemetry_frozen(view)
    findings += [*node_down(view), *exporter_down(view), *gpu_missing(view), *frozen_findings]
    findings += [*field_missing(view), *thermal(view, frozen), *xid(view)]
    findings = [finding for finding in findings if not _planned(view, finding)]
    told = {(finding.kind, finding.subject) for finding in findings}
    return [*_with_causes(view, findings), *_unknown(view, told)]


def _planned(view: View, finding: Finding) -> bool:
    """In planned time nothing new opens; what was open before may still go on or end."""
    if finding.node is None or finding.status is not Status.FIRING:
        return False
    planned = bool(view.in_maintenance[view.windows.nodes.index(finding.node)])
    return planned and (finding.kind, finding.subject) not in view.windows.open


def _with_causes(view: View, findings: Iterable[Finding]) -> list[Finding]:
    """A GPU that reports an XID and vanishes is one cause: whichever was seen first is the parent."""
    findings = list(findings)
    firing = [finding for finding in findings if finding.status is Status.FIRING]
    struck = {finding.subject: finding for finding in reversed(firing) if finding.kind == "xid"}
    gone = {finding.subject: finding for finding in firing if finding.kind == "gpu_missing"}
    return [replace(finding, cause=_cause(view, finding, struck, gone)) for finding in findings]


def _cause(view: View, finding: Finding, struck: dict[str, Finding], gone: dict[str, Finding]) -> str:
    if finding.status is not Status.FIRING or finding.gpu_uuid is None:
        return finding.cause
    open_xid = view.open_key("xid", finding.subject)
    open_gone = view.open_key("gpu_missing", finding.subject)
    if finding.kind == "gpu_missing" and open_gone is None:
        other = struck.get(finding.subject)
        if other is not None or (open_xid is not None and _near(open_xid, finding)):
            return key_text("xid", finding.subject)
    # The code of a board that vanished may be told only when it is back: hours later it is still the same cause.
    if finding.kind == "xid" and open_xid is None and open_gone is not None and open_gone.recovered_at is None:
        return key_text("gpu_missing", finding.subject)
    return finding.cause


def _near(known: OpenKey, finding: Finding) -> bool:
    gap = min(abs(at - finding.first_evidence_at) for at in (known.first_evidence_at, known.last_event_at))
    return known.recovered_at is None and gap <= SAME_CAUSE_SECONDS


def _unknown(view: View, told: set[tuple[str, str]]) -> list[Finding]:
    """UNKNOWN for every open key of this shard about which the newest cycle says nothing."""
    windows = view.windows
    silent_gpus = {
        gpu_subject(uuid): windows.nodes[windows.gpus.node[gpu]]
        for gpu, uuid in enumerate(windows.gpus.uuid)
        if not view.gpu_has_data[gpu]
    }
    silent_nodes = {node_subject(name): name for node, name in enumerate(windows.nodes) if _no_scrape(view, node)}
    findings = []
    for (kind, subject), known in windows.open.items():
        node = silent_gpus.get(subject, silent_nodes.get(subject))
        if (kind, subject) not in told and subject != CLUSTER_SUBJECT and node is not None:
            findings.append(_cannot_tell(view, known, node))
    return findings


def _no_scrape(view: View, node: int) -> bool:
    """Nothing of the node was scraped well in the newest cycle."""
    targets = view.windows.targets
    mine = targets.node == node
    return not (len(view.windows.times) and bool(np.any(targets.good[-1] & view.counted[-1] & mine)))


def _cannot_tell(view: View, known: OpenKey, node: str) -> Finding:
    uuid = known.subject.partition(":")[2] if known.subject.startswith("gpu:") else None
    return Finding(
        rule=known.kind,
        kind=known.kind,
        subject=known.subject,
        status=Status.UNKNOWN,
        severity="info",
        title="No data",
        recommended_action="none",
        first_evidence_at=known.first_evidence_at,
        at=view.now,
        node=node,
        gpu_uuid=uuid,
    )
