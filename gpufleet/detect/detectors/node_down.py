"""Nothing on the node answers: every target failed three times in a row, and no failure shows a living host."""

from __future__ import annotations

from gpufleet.detect.detectors.saying import about_node
from gpufleet.detect.findings import Evidence, Finding, Status
from gpufleet.detect.rules import Rule, find
from gpufleet.detect.view import IN_A_ROW_TO_RECOVER, View
from gpufleet.detect.windows import node_subject


def node_down(view: View) -> list[Finding]:
    """One finding a node; also for nodes that are open and answer again."""
    rule = find(view.rules, "node_down")
    if rule is None:
        return []
    findings = []
    for node, targets in enumerate(view.targets_of_node):
        if not targets:
            continue
        if is_down(view, targets, rule.hold_samples):
            findings.append(_firing(view, rule, node, targets))
        elif view.open_key("node_down", node_subject(view.windows.nodes[node])) is not None:
            findings.extend(_recovery(view, rule, node, targets))
    return findings


def is_down(view: View, targets: list[int], in_a_row: int) -> bool:
    """Every target fails, none of the newest failures came from a living host, and the newest cycle says so."""
    failing = all(view.failures.length[target] >= in_a_row for target in targets)
    looked = any(view.counted[-1, target] for target in targets)
    return failing and looked and all(view.is_silent(target) for target in targets)


def _firing(view: View, rule: Rule, node: int, targets: list[int]) -> Finding:
    name = view.windows.nodes[node]
    began = [view.at(int(view.failures.start[target]), target) for target in targets]
    evidence = tuple(
        Evidence("scrape_failed", name, None, at, view.newest_reason(target), "a good scrape")
        for target, at in zip(targets, began, strict=True)
    )
    words = " and ".join(sorted({view.newest_reason(target) for target in targets}))
    return about_node(view, rule, node, Status.FIRING, f"Node {name} unreachable ({words})", max(began), evidence)


def _recovery(view: View, rule: Rule, node: int, targets: list[int]) -> list[Finding]:
    back = [target for target in targets if view.successes.length[target] >= IN_A_ROW_TO_RECOVER]
    name = view.windows.nodes[node]
    if not back or not any(view.counted[-1, target] for target in back):
        return []
    since = min(view.at(int(view.successes.start[target]), target) for target in back)
    evidence = (Evidence("scrape_good", name, None, since, "answers", "a good scrape"),)
    return [about_node(view, rule, node, Status.CLEAR, f"Node {name} answers again", since, evidence)]
