"""An exporter of a living node fails: the GPU exporter (nothing is known of the GPUs) or the node exporter."""

from __future__ import annotations

from gpufleet.detect.detectors.node_down import is_down
from gpufleet.detect.detectors.saying import about_node
from gpufleet.detect.findings import Evidence, Finding, Status
from gpufleet.detect.rules import Rule, find
from gpufleet.detect.view import IN_A_ROW_TO_FAIL, IN_A_ROW_TO_RECOVER, View
from gpufleet.detect.windows import KIND_GPU, KIND_NODE, node_subject

NO_GPU_SAMPLES = "no GPU samples"


def exporter_down(view: View) -> list[Finding]:
    """At most one finding a node: the GPU exporter goes before the node exporter."""
    findings: list[Finding] = []
    for node, targets in enumerate(view.targets_of_node):
        if not targets or is_down(view, targets, IN_A_ROW_TO_FAIL):
            continue
        failing = [target for target in targets if _fails_on_living_node(view, target, targets)]
        if failing:
            findings.extend(_firing(view, node, min(failing, key=lambda target: _rank(view, target))))
        elif view.open_key("exporter_down", node_subject(view.windows.nodes[node])) is not None:
            findings.extend(_recovery(view, node, targets))
    return findings


def _rank(view: View, target: int) -> tuple[bool, bool]:
    """GPU exporters first, and among them the one that answers without GPUs."""
    is_node = view.windows.targets.kind[target] == KIND_NODE
    return bool(is_node), view.newest_reason(target) != NO_GPU_SAMPLES


def _fails_on_living_node(view: View, target: int, targets: list[int]) -> bool:
    """Three failures in a row while something on the node answers now: this exporter with an error, or another one."""
    if view.failures.length[target] < IN_A_ROW_TO_FAIL or not view.counted[-1, target]:
        return False
    if not view.is_silent(target):
        return True
    others = [other for other in targets if other != target and view.counted[-1, other]]
    return any(not view.is_silent(other) for other in others)


def _rule(view: View, target: int) -> Rule | None:
    if view.newest_reason(target) == NO_GPU_SAMPLES:
        return find(view.rules, "exporter_down.no_gpu_samples")
    kinds = view.windows.targets.kind
    siblings = view.targets_of_node[view.windows.targets.node[target]]
    other_is_gpu = any(kinds[other] == KIND_GPU for other in siblings if other != target)
    is_node = kinds[target] == KIND_NODE or (kinds[target] != KIND_GPU and other_is_gpu)
    return find(view.rules, "exporter_down.node" if is_node else "exporter_down.gpu")


def _firing(view: View, node: int, target: int) -> list[Finding]:
    rule = _rule(view, target)
    if rule is None:
        return []
    name, reason = view.windows.nodes[node], view.newest_reason(target)
    since = view.at(int(view.failures.start[target]), target)
    if rule.id == "exporter_down.no_gpu_samples":
        title = f"No GPU data from {name}: its exporter answers without any GPU"
    else:
        title = f"{'Node' if rule.id == 'exporter_down.node' else 'GPU'} exporter of {name} fails: {reason}"
    evidence = (Evidence("scrape_failed", name, None, since, reason, "a good scrape"),)
    return [about_node(view, rule, node, Status.FIRING, title, since, evidence)]


def _recovery(view: View, node: int, targets: list[int]) -> list[Finding]:
    rule = find(view.rules, "exporter_down.gpu")
    newly = [target for target in targets if view.counted[-1, target]]
    if rule is None or not newly or any(view.successes.length[target] < IN_A_ROW_TO_RECOVER for target in targets):
        return []
    name = view.windows.nodes[node]
    since = max(view.at(int(view.successes.start[target]), target) for target in targets)
    evidence = (Evidence("scrape_good", name, None, since, "answers", "a good scrape"),)
    return [about_node(view, rule, node, Status.CLEAR, f"Exporters of {name} answer again", since, evidence)]
