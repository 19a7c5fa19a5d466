"""XIDs: one incident a GPU, opened by a happening, over only when the GPU was reset and stayed quiet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpufleet.catalogue.xids import Xid
from gpufleet.catalogue.xids import xid as meaning_of
from gpufleet.detect.detectors.saying import about_gpu, gpu_name
from gpufleet.detect.findings import Evidence, Finding, Status
from gpufleet.detect.rules import SEVERITIES, Rule, find
from gpufleet.detect.runs import carried
from gpufleet.detect.view import View
from gpufleet.detect.windows import FloatArray, OpenKey, gpu_subject
from gpufleet.detect.xid_events import XidEvent, xid_events

RESTARTED_BELOW = 0.5  # an energy counter that is less than half of what it was began anew; a slip of 1 J did not
BOOT_JITTER_SECONDS = 60.0


def opens_incident(code: Xid) -> bool:
    """Faults of a job are counted and shown, and so are codes that only inform; both open nothing."""
    return not code.application and code.severity != "info"


def xid(view: View) -> list[Finding]:
    """A finding for each happening that opens or extends an incident, and CLEAR for open ones after a reset."""
    rule = find(view.rules, "xid")
    if rule is None or not len(view.windows.times):
        return []
    events = [event for event in xid_events(view.windows) if opens_incident(meaning_of(event.code))]
    planned = view.in_maintenance[view.windows.gpus.node] if len(view.windows.gpus.node) else np.zeros(0, np.bool_)
    events.sort(key=lambda event: (event.at, -SEVERITIES.index(meaning_of(event.code).severity)))
    findings = [_happened(view, rule, event) for event in events if not planned[event.gpu]]
    findings.extend(_after_reset(view, rule, {event.gpu for event in events}))
    return findings


def _happened(view: View, rule: Rule, event: XidEvent) -> Finding:
    code, gpus = meaning_of(event.code), view.windows.gpus
    uuid = gpus.uuid[event.gpu]
    evidence = Evidence(
        "gpu_xid", view.windows.nodes[gpus.node[event.gpu]], uuid, event.at, float(event.code), "no XID"
    )
    title = f"XID {event.code} on {gpu_name(view, event.gpu)}: {code.summary}"
    finding = about_gpu(view, rule, event.gpu, Status.FIRING, title, event.at, (evidence,))
    return replace(
        finding,
        severity=code.severity,
        recommended_action=code.action,
        first_evidence_at=event.at,
        state="failed" if code.severity == "critical" else "degraded",
        occurrence=event.occurrence(uuid),
        pages=rule.pages and code.action != "none",
    )


def _after_reset(view: View, rule: Rule, struck: set[int]) -> list[Finding]:
    waiting = _waiting(view, struck)
    if not waiting:
        return []
    reset_at = _newest_reset(view, [gpu for gpu, _ in waiting])
    findings = []
    for (gpu, known), at in zip(waiting, reset_at, strict=True):
        quiet_since = max(at, known.last_event_at)
        if np.isnan(at) or at < known.last_event_at or view.windows.times[-1] - quiet_since < rule.clear_seconds:
            findings.extend(_still_stands(view, rule, gpu, known))
            continue
        node = view.windows.nodes[view.windows.gpus.node[gpu]]
        evidence = (Evidence("gpu_reset", node, known.subject.partition(":")[2], float(at), "reset", "reset"),)
        title = f"{gpu_name(view, gpu)} was reset and shows no new code"
        findings.append(about_gpu(view, rule, gpu, Status.CLEAR, title, float(at), evidence))
    return findings


def _still_stands(view: View, rule: Rule, gpu: int, known: OpenKey) -> list[Finding]:
    """There is data and no reset yet: the incident goes on. It names no occurrence, so it counts for nothing new."""
    if known.recovered_at is not None:
        return []
    title = f"{gpu_name(view, gpu)} was not reset since its last XID"
    finding = about_gpu(view, rule, gpu, Status.FIRING, title, known.first_evidence_at, ())
    return [replace(finding, severity="info", recommended_action="none", state="", pages=False)]


def _waiting(view: View, struck: set[int]) -> list[tuple[int, OpenKey]]:
    """The GPUs with an open XID incident, data now, and no new happening."""
    waiting = []
    for gpu, uuid in enumerate(view.windows.gpus.uuid):
        known = view.open_key("xid", gpu_subject(uuid))
        if known is not None and gpu not in struck and view.gpu_has_data[gpu]:
            waiting.append((gpu, known))
    return waiting


def _newest_reset(view: View, gpus: Sequence[int]) -> FloatArray:
    """For each of `gpus`, when the windows last saw it come back from a reset (Unix seconds), NaN for never."""
    windows = view.windows
    columns = np.array(gpus, dtype=np.int64)
    listed, good = windows.gpus.listed[:, columns], windows.good_for_gpus()[:, columns]
    absent = np.where(good, np.where(listed, 0.0, 1.0), np.nan)
    came_back = listed & (carried(absent, np.where(windows.before.seen[columns], 0.0, np.nan)) == 1.0)
    energy = windows.metric("gpu_energy_joules_total")[:, columns]
    boot = windows.boot_at
    with np.errstate(invalid="ignore"):
        began_anew = energy < RESTARTED_BELOW * carried(energy, windows.before.energy_joules[columns])
        booted = boot > carried(boot, windows.before.boot_at) + BOOT_JITTER_SECONDS
    reset = came_back | began_anew | booted[:, windows.gpus.node[columns]]
    times = np.where(reset, windows.gpu_times()[:, columns], np.nan)
    return np.where(reset.any(axis=0), np.nanmax(np.where(reset, times, -np.inf), axis=0), np.nan)
