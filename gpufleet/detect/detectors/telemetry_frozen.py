"""Values that never move: the engine below the exporter hangs, and the exporter serves its cache."""

from __future__ import annotations

import numpy as np

from gpufleet.detect.detectors.saying import about_node
from gpufleet.detect.findings import Evidence, Finding, Status
from gpufleet.detect.rules import Rule, find
from gpufleet.detect.runs import Run, held_seconds, newest, trailing_run
from gpufleet.detect.view import View
from gpufleet.detect.windows import BoolArray, FloatArray, IntArray, node_subject

ENERGY = "gpu_energy_joules_total"
JITTER_SECONDS = 1.0
LEAST_WATTS = 1.0


def telemetry_frozen(view: View) -> tuple[list[Finding], BoolArray]:
    """The findings, one a node, and [G]: the GPUs whose values say nothing now."""
    gpus = view.windows.gpus
    frozen = np.zeros(len(gpus.uuid), dtype=np.bool_)
    findings: list[Finding] = []
    if not len(view.windows.times):
        return findings, frozen
    last = len(view.windows.times)
    for rule, standing in ((find(view.rules, f"telemetry_frozen.{how}"), how) for how in ("energy", "body")):
        if rule is None:
            continue
        judge = _energy if standing == "energy" else _body
        now, run = judge(view, rule, last)
        frozen |= now
        findings.extend(_firing(view, rule, now, run, standing))
    told = {finding.subject for finding in findings}
    findings.extend(_moving_again(view, told))
    return findings, frozen


def _energy(view: View, rule: Rule, rows: int) -> tuple[BoolArray, Run]:
    """[G]: as of row `rows` - 1, the energy counter has stood still long enough while power was drawn."""
    windows = view.windows
    energy = windows.metric(ENERGY)[:rows]
    power = windows.metric("gpu_power_watts")[:rows]
    valid = windows.good_for_gpus()[:rows] & ~np.isnan(energy) & (energy > 0)
    final = _newest_value(energy, valid)
    with np.errstate(invalid="ignore"):
        still = (energy == final) & (power >= (rule.threshold or 0.0))
    run = trailing_run(still, valid)
    held = held_seconds(run, windows.gpu_times()[:rows])
    return _long_enough(rule, run, held) & valid[-1], run


def _newest_value(values: FloatArray, valid: BoolArray) -> FloatArray:
    row = newest(valid)
    picked: FloatArray = values[np.maximum(row, 0), np.arange(values.shape[1])]
    return np.where(row >= 0, picked, np.nan)


def _long_enough(rule: Rule, run: Run, held: FloatArray) -> BoolArray:
    long: BoolArray = (run.length >= rule.hold_samples) & (held >= rule.hold_seconds - JITTER_SECONDS)
    return long


def _body(view: View, rule: Rule, rows: int) -> tuple[BoolArray, Run]:
    """[G]: the GPU has no energy counter, is busy, draws power (which always wavers under load), and the whole body of
    its target has not changed in any number."""
    windows = view.windows
    target = np.maximum(windows.gpus.target, 0)
    signature = windows.targets.signature[:rows][:, target]
    valid = windows.good_for_gpus()[:rows]
    final = signature[np.maximum(newest(valid), 0), np.arange(len(target))]
    run = trailing_run(signature == final, valid)
    held = held_seconds(run, windows.gpu_times()[:rows])
    with np.errstate(invalid="ignore"):
        busy = windows.metric("gpu_utilization_ratio")[rows - 1] > (rule.threshold or 0.0)
        busy &= windows.metric("gpu_power_watts")[rows - 1] >= LEAST_WATTS
    without_energy = ~_target_has_energy(view)[target] & (signature[-1] != 0)
    return _long_enough(rule, run, held) & valid[-1] & busy & without_energy, run


def _target_has_energy(view: View) -> BoolArray:
    """[S]: some GPU of the target has sent an energy counter."""
    has = np.zeros(max(len(view.windows.targets.node), 1), dtype=np.bool_)
    for gpu in np.flatnonzero(~np.isnan(view.windows.metric(ENERGY)).all(axis=0)):
        has[view.windows.gpus.target[gpu]] = True
    return has


def _firing(view: View, rule: Rule, frozen: BoolArray, run: Run, how: str) -> list[Finding]:
    windows = view.windows
    times = windows.gpu_times()
    what = "energy counters stand still while power is drawn" if how == "energy" else "no number has changed"
    findings = []
    for node in np.unique(windows.gpus.node[frozen]):
        members: IntArray = np.flatnonzero(frozen & (windows.gpus.node == node))
        name = windows.nodes[node]
        evidence = tuple(_evidence(view, rule, int(gpu), float(times[run.start[gpu], gpu])) for gpu in members)
        since = min(piece.at for piece in evidence)
        title = f"Telemetry of {name} is frozen: {what} ({len(members)} GPUs)"
        findings.append(about_node(view, rule, int(node), Status.FIRING, title, since, evidence))
    return findings


def _evidence(view: View, rule: Rule, gpu: int, at: float) -> Evidence:
    gpus = view.windows.gpus
    value = float(view.windows.metric(rule.metric)[-1, gpu])
    return Evidence(
        rule.metric,
        view.windows.nodes[gpus.node[gpu]],
        gpus.uuid[gpu],
        at,
        None if np.isnan(value) else value,
        f"a change within {rule.hold_seconds:.0f} s",
    )


def _moving_again(view: View, told: set[str]) -> list[Finding]:
    """CLEAR for open nodes whose two newest good scrapes both show values that move."""
    rule = find(view.rules, "telemetry_frozen.energy")
    windows = view.windows
    waiting = [node for node, name in enumerate(windows.nodes) if _is_open(view, name, told)]
    if rule is None or not waiting or len(windows.times) < 2:
        return []
    before = _frozen_at(view, len(windows.times) - 1)
    good = windows.good_for_gpus()
    findings = []
    for node in waiting:
        members: IntArray = np.flatnonzero(windows.gpus.node == node)
        if len(members) and good[-2:, members].all(axis=0).any() and not before[members].any():
            evidence = (Evidence(ENERGY, windows.nodes[node], None, float(windows.times[-1]), "moves", "moves"),)
            title = f"Telemetry of {windows.nodes[node]} moves again"
            since = float(windows.times[-1])
            findings.append(about_node(view, rule, node, Status.CLEAR, title, since, evidence))
    return findings


def _is_open(view: View, name: str, told: set[str]) -> bool:
    subject = node_subject(name)
    return subject not in told and view.open_key("telemetry_frozen", subject) is not None


def _frozen_at(view: View, rows: int) -> BoolArray:
    """[G]: frozen by any rule as of row `rows` - 1."""
    frozen = np.zeros(len(view.windows.gpus.uuid), dtype=np.bool_)
    for how, judge in (("energy", _energy), ("body", _body)):
        rule = find(view.rules, f"telemetry_frozen.{how}")
        if rule is not None:
            frozen |= judge(view, rule, rows)[0]
    return frozen
