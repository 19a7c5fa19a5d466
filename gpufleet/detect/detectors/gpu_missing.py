"""A GPU that stands in the node is no longer listed while others are; or was never listed at all."""

from __future__ import annotations

import numpy as np

from gpufleet.detect.detectors.saying import about_gpu, about_node, gpu_name
from gpufleet.detect.findings import Evidence, Finding, Status
from gpufleet.detect.rules import Rule, find
from gpufleet.detect.runs import trailing_run
from gpufleet.detect.view import View
from gpufleet.detect.windows import BoolArray, IntArray, gpu_subject, node_subject


def gpu_missing(view: View) -> list[Finding]:
    """Findings about single GPUs, and about nodes that show fewer GPUs than they were given."""
    if not len(view.windows.times):
        return []
    return [*_lost(view), *_never_seen(view)]


def _lost(view: View) -> list[Finding]:
    rule = find(view.rules, "gpu_missing")
    if rule is None:
        return []
    listed, good = view.windows.gpus.listed, view.windows.good_for_gpus()
    told = good & _others_listed(view)
    gone, there = trailing_run(~listed, told), trailing_run(listed, told)
    times = view.windows.gpu_times()
    findings = []
    for gpu in np.flatnonzero((gone.length >= 1) & told[-1]):
        known = view.open_key("gpu_missing", gpu_subject(view.windows.gpus.uuid[gpu]))
        still = known is not None and known.recovered_at is None
        if gone.length[gpu] < rule.hold_samples and not still:
            continue
        findings.append(_firing(view, rule, int(gpu), float(times[gone.start[gpu], gpu])))
    for gpu in np.flatnonzero((there.length >= rule.clear_samples) & told[-1]):
        if view.open_key("gpu_missing", gpu_subject(view.windows.gpus.uuid[gpu])) is not None:
            findings.append(_back(view, rule, int(gpu), float(times[there.start[gpu], gpu])))
    return findings


def _others_listed(view: View) -> BoolArray:
    """[T, G]: the GPU's target listed at least one GPU."""
    gpus = view.windows.gpus
    counts = np.zeros((len(view.windows.times), len(view.windows.targets.node) + 1), dtype=np.int64)
    for gpu, target in enumerate(gpus.target):
        counts[:, target] += gpus.listed[:, gpu]
    others: BoolArray = counts[:, gpus.target] > 0
    return others


def _firing(view: View, rule: Rule, gpu: int, since: float) -> Finding:
    gpus = view.windows.gpus
    node = view.windows.nodes[gpus.node[gpu]]
    evidence = (Evidence("gpu_listed", node, gpus.uuid[gpu], since, "no longer listed", "listed"),)
    title = f"{gpu_name(view, gpu)} is missing: the exporter no longer lists it"
    return about_gpu(view, rule, gpu, Status.FIRING, title, since, evidence)


def _back(view: View, rule: Rule, gpu: int, since: float) -> Finding:
    gpus = view.windows.gpus
    node = view.windows.nodes[gpus.node[gpu]]
    evidence = (Evidence("gpu_listed", node, gpus.uuid[gpu], since, "listed", "listed"),)
    return about_gpu(view, rule, gpu, Status.CLEAR, f"{gpu_name(view, gpu)} is listed again", since, evidence)


def _never_seen(view: View) -> list[Finding]:
    rule = find(view.rules, "gpu_missing.never_seen")
    if rule is None:
        return []
    windows = view.windows
    placed = np.bincount(windows.gpus.node, minlength=len(windows.nodes))
    findings = []
    for short in np.flatnonzero(windows.expected_gpus > placed):
        findings.extend(_short_node(view, rule, int(short), int(placed[short])))
    for node, name in enumerate(windows.nodes):
        known = view.open_key("gpu_missing", node_subject(name))
        if known is not None and windows.expected_gpus[node] <= placed[node]:
            evidence = (Evidence("gpus_listed", name, None, view.now, float(placed[node]), float(placed[node])),)
            title = f"{name} has shown all of its GPUs"
            findings.append(about_node(view, rule, node, Status.CLEAR, title, view.now, evidence))
    return findings


def _short_node(view: View, rule: Rule, node: int, placed: int) -> list[Finding]:
    """`placed` GPUs are known, more are expected: fires once two good scrapes in a row have listed too few."""
    windows = view.windows
    members: IntArray = np.flatnonzero(windows.gpus.node == node)
    if not len(members):
        return []
    expected = int(windows.expected_gpus[node])
    good: BoolArray = np.any(windows.good_for_gpus()[:, members], axis=1)
    listed: IntArray = np.sum(windows.gpus.listed[:, members], axis=1)
    run = trailing_run((listed < expected)[:, None], good[:, None])
    if run.length[0] < rule.hold_samples or not good[-1]:
        return []
    name, since = windows.nodes[node], float(windows.times[run.start[0]])
    evidence = (Evidence("gpus_listed", name, None, since, float(listed[-1]), float(expected)),)
    title = f"{name} has never shown {expected - placed} of its {expected} GPUs"
    return [about_node(view, rule, node, Status.FIRING, title, since, evidence)]
