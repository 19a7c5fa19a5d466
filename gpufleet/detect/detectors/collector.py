"""Nearly all nodes fail at the same moment: most likely we are the ones who cannot see."""

from __future__ import annotations

import numpy as np

from gpufleet.detect.findings import Evidence, Finding, Status
from gpufleet.detect.rules import Rule, find
from gpufleet.detect.runs import trailing_run
from gpufleet.detect.view import View
from gpufleet.detect.windows import CLUSTER_SUBJECT, BoolArray, FloatArray

KIND = "telemetry_degraded"
LEAST_NODES = 3


def collector_lost(view: View) -> tuple[bool, list[Finding]]:
    """Whether the newest cycle says nothing about any node, and the finding about it."""
    rule = find(view.rules, "telemetry_degraded.collector")
    if rule is None or rule.threshold is None or not len(view.windows.times):
        return False, []
    share, judged = _failed_share(view)
    lost = judged & (share >= rule.threshold)
    run = trailing_run(lost[:, None], judged[:, None])
    well = trailing_run(~lost[:, None], judged[:, None])
    is_open = view.open_key(KIND, CLUSTER_SUBJECT) is not None
    lost_now = bool(lost[-1])
    if lost_now and (is_open or run.length[0] >= rule.hold_samples):
        return True, [_firing(view, rule, int(run.start[0]), float(share[-1]))]
    if is_open and well.length[0] >= rule.clear_samples:
        return lost_now, [_clear(view, rule, float(share[-1]))]
    return lost_now, []


def _failed_share(view: View) -> tuple[FloatArray, BoolArray]:
    """[T]: share of the scraped nodes none of whose targets answered well, and whether enough nodes were scraped."""
    windows = view.windows
    shape = (len(windows.times), len(windows.nodes))
    scraped, good = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
    node = windows.targets.node
    for target in range(len(node)):
        scraped[:, node[target]] |= view.counted[:, target]
        good[:, node[target]] |= view.counted[:, target] & windows.targets.good[:, target]
    nodes = scraped.sum(axis=1)
    failed = (scraped & ~good).sum(axis=1)
    return failed / np.maximum(nodes, 1), nodes >= LEAST_NODES


def _firing(view: View, rule: Rule, start: int, share: float) -> Finding:
    at = float(view.windows.times[start])
    return Finding(
        rule=rule.id,
        kind=KIND,
        subject=CLUSTER_SUBJECT,
        status=Status.FIRING,
        severity=rule.severity,
        title="Nearly all nodes fail at once: check the collector and its network first",
        recommended_action=rule.recommended_action,
        first_evidence_at=at,
        at=view.now,
        state=rule.state,
        evidence=(Evidence("nodes_failed_ratio", None, None, at, round(share, 4), f"below {rule.threshold}"),),
        pages=rule.pages,
        needs_person=rule.needs_person,
    )


def _clear(view: View, rule: Rule, share: float) -> Finding:
    return Finding(
        rule=rule.id,
        kind=KIND,
        subject=CLUSTER_SUBJECT,
        status=Status.CLEAR,
        severity=rule.severity,
        title="Nodes answer again",
        recommended_action=rule.recommended_action,
        first_evidence_at=float(view.windows.times[-1]),
        at=view.now,
        evidence=(
            Evidence(
                "nodes_failed_ratio",
                None,
                None,
                float(view.windows.times[-1]),
                round(share, 4),
                f"below {rule.threshold}",
            ),
        ),
    )
