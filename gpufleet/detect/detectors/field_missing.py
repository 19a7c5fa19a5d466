"""A field that a critical rule needs is gone from a node that sent it steadily, while its exporter sends the rest.

Judged by canonical metrics, so another spelling of the same field is the same field. Only scrapes count in which every
GPU exporter of the node answered and a GPU is listed that had the field: a GPU that vanished or a scrape that failed
says nothing about fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpufleet.catalogue.metrics import METRICS
from gpufleet.detect.detectors.saying import about_node
from gpufleet.detect.fields import blind_rules, critical_fields
from gpufleet.detect.findings import Evidence, Finding, Status, key_text
from gpufleet.detect.rules import Rule, find
from gpufleet.detect.runs import Run, held_seconds, newest, trailing_run
from gpufleet.detect.view import View
from gpufleet.detect.windows import KIND_GPU, BoolArray, FloatArray, OpenKey, node_subject

KIND = "field_missing"
STEADY_ROWS = 4
STEADY_SHARE = 0.9
JITTER_SECONDS = 1.0
SAME_ROLLOUT_SECONDS = 1_800.0


@dataclass(frozen=True, slots=True)
class Judged:
    """One field over the nodes, arrays [N]. `told`: the newest scrape says something of it. `seen_at`: when it was last
    there (Unix seconds)."""

    field: str
    told: BoolArray
    gone: Run
    there: Run
    fires: BoolArray
    seen_at: FloatArray


def field_missing(view: View) -> list[Finding]:
    """At most one finding a node, which names all fields that are gone."""
    rule = find(view.rules, KIND)
    if rule is None or not len(view.windows.times):
        return []
    judged = [one for field in critical_fields(view.rules) if (one := _judge(view, rule, field)) is not None]
    findings: list[Finding] = []
    for node, name in enumerate(view.windows.nodes):
        known = view.open_key(KIND, node_subject(name))
        gone = [one for one in judged if _is_gone(one, node, known)]
        if gone:
            findings.append(_say(view, rule, node, gone, known))
        elif known is not None and _is_back(rule, judged, node):
            title = f"{name} sends again what was gone"
            findings.append(about_node(view, rule, node, Status.CLEAR, title, float(view.windows.times[-1]), ()))
    return _as_one_rollout(view, findings)


def _judge(view: View, rule: Rule, field: str) -> Judged | None:
    """None when no GPU of the shard is known to have had the field."""
    windows = view.windows
    has = ~np.isnan(windows.metric(field))
    before = windows.before.field_at.get(field)
    before_at = np.full(len(windows.gpus.uuid), np.nan) if before is None else before
    had = has.any(axis=0) | ~np.isnan(before_at) | _named_by_incident(view, field)
    if not had.any():
        return None
    counts = view.windows.gpus.listed & windows.good_for_gpus() & _all_answered(view)[:, windows.gpus.node]
    told = _any_of_node(view, counts & had)
    there = _any_of_node(view, counts & has)
    times = np.repeat(windows.times[:, None], len(windows.nodes), axis=1)
    gone = trailing_run(~there, told)
    held = (gone.length >= rule.hold_samples) & (held_seconds(gone, times) >= rule.hold_seconds - JITTER_SECONDS)
    known_at = _newest_of_node(view, before_at)
    fires = held & _was_steady(told, there, gone, ~np.isnan(known_at))
    row = newest(there)
    seen_at = np.where(row >= 0, windows.times[np.maximum(row, 0)], known_at)
    return Judged(field, told[-1], gone, trailing_run(there, told), fires & told[-1], seen_at)


def _was_steady(told: BoolArray, there: BoolArray, gone: Run, known: BoolArray) -> BoolArray:
    """[N]: before it went, the field came with nearly every scrape; of a time before the windows `known` tells."""
    earlier = np.arange(len(told))[:, None] < gone.start[None, :]
    scrapes, with_field = (told & earlier).sum(axis=0), (there & told & earlier).sum(axis=0)
    steady: BoolArray = (with_field >= STEADY_SHARE * scrapes) & ((with_field >= STEADY_ROWS) | known)
    return steady


def _all_answered(view: View) -> BoolArray:
    """[T, N]: no GPU exporter of the node failed or was left out."""
    targets = view.windows.targets
    answered = np.ones((len(view.windows.times), len(view.windows.nodes)), dtype=np.bool_)
    for target in np.flatnonzero((targets.kind == KIND_GPU) & targets.scraped.any(axis=0)):
        answered[:, targets.node[target]] &= targets.good[:, target]
    return answered


def _any_of_node(view: View, of_gpu: BoolArray) -> BoolArray:
    """[T, N] out of [T, G]: any GPU of the node."""
    node = view.windows.gpus.node
    found = np.zeros((len(of_gpu), len(view.windows.nodes)), dtype=np.bool_)
    if len(node):
        order = np.argsort(node, kind="stable")
        nodes, starts = np.unique(node[order], return_index=True)
        found[:, nodes] = np.logical_or.reduceat(of_gpu[:, order], starts, axis=1)
    return found


def _newest_of_node(view: View, at: FloatArray) -> FloatArray:
    """[N] out of [G]: the latest time of the node's GPUs, NaN without one."""
    found = np.full(len(view.windows.nodes), -np.inf)
    np.maximum.at(found, view.windows.gpus.node, np.where(np.isnan(at), -np.inf, at))
    return np.where(np.isneginf(found), np.nan, found)


def _named_by_incident(view: View, field: str) -> BoolArray:
    """[G]: the node's open incident says that the field was there, however long ago."""
    named = [
        (known := view.open_key(KIND, node_subject(name))) is not None and field in known.signals
        for name in view.windows.nodes
    ]
    found: BoolArray = np.array(named, dtype=np.bool_)[view.windows.gpus.node]
    return found


def _is_gone(one: Judged, node: int, known: OpenKey | None) -> bool:
    still = known is not None and known.recovered_at is None and one.field in known.signals
    return bool(one.fires[node] or (still and one.told[node] and one.gone.length[node] > 0))


def _is_back(rule: Rule, judged: Sequence[Judged], node: int) -> bool:
    told = [one for one in judged if one.told[node]]
    return bool(told) and all(one.there.length[node] >= rule.clear_samples for one in told)


def _say(view: View, rule: Rule, node: int, gone: Sequence[Judged], known: OpenKey | None) -> Finding:
    """FIRING, or CLEAR when a person has said that it is meant to be so."""
    name, times = view.windows.nodes[node], view.windows.times
    if known is not None and known.is_known:
        return about_node(view, rule, node, Status.CLEAR, "Marked as known", float(times[-1]), ())
    fields = [one.field for one in gone]
    blind = blind_rules(view.rules, fields)
    evidence = tuple(
        Evidence(one.field, name, None, _seen_at(view, one, node), "no longer sent", _expected(view, one.field))
        for one in gone
    )
    what = " and ".join(METRICS[field].title for field in fields)
    title = f"{name} no longer sends {what}: blind without it are {', '.join(blind)}"
    return about_node(view, rule, node, Status.FIRING, title, min(piece.at for piece in evidence), evidence)


def _seen_at(view: View, one: Judged, node: int) -> float:
    at = float(one.seen_at[node])
    return float(view.windows.times[one.gone.start[node]]) if np.isnan(at) else at


def _expected(view: View, field: str) -> str:
    return f"sent, as {', '.join(blind_rules(view.rules, [field]))} read it"


def _as_one_rollout(view: View, findings: list[Finding]) -> list[Finding]:
    """Nodes that lose fields within half an hour of another share one cause: the first incident takes in the others."""
    roots = [
        (known.first_evidence_at, subject)
        for (kind, subject), known in view.windows.open.items()
        if kind == KIND and known.recovered_at is None
    ]
    joined = []
    for finding in findings:
        if finding.status is Status.FIRING and view.open_key(KIND, finding.subject) is None:
            at = finding.first_evidence_at
            near = min(((seen, root) for seen, root in roots if abs(seen - at) <= SAME_ROLLOUT_SECONDS), default=None)
            if near is None:
                roots.append((at, finding.subject))
            else:
                finding = replace(finding, cause=key_text(KIND, near[1]))
        joined.append(finding)
    return joined
