"""A GPU that is too hot, or that has cut its clocks because of heat. Several rules, one finding a GPU: the worst."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpufleet.detect.detectors.saying import about_gpu, gpu_name
from gpufleet.detect.findings import Evidence, Finding, Status
from gpufleet.detect.rules import SEVERITIES, Rule, rules_of
from gpufleet.detect.runs import Run, held_seconds, trailing_run
from gpufleet.detect.view import View
from gpufleet.detect.windows import BoolArray, FloatArray, gpu_subject

JITTER_SECONDS = 1.0
REASONS = "gpu_clock_event_reasons"
MARGIN = "gpu_temperature_margin_celsius"


@dataclass(frozen=True, slots=True)
class Judged:
    """One rule over all GPUs. `hot`: it fires. `hot_now`, `cool`, `has_data`: of the newest row. Arrays are [G]."""

    rule: Rule
    run: Run
    hot: BoolArray
    hot_now: BoolArray
    cool: BoolArray
    in_use: BoolArray


def thermal(view: View, frozen: BoolArray) -> list[Finding]:
    """Findings of all GPUs whose values are alive. `frozen` [G] leaves GPUs out."""
    if not len(view.windows.times):
        return []
    judged = [_judge(view, rule) for rule in rules_of(view.rules, "thermal")]
    judged.sort(key=lambda one: -SEVERITIES.index(one.rule.severity))
    findings: list[Finding] = []
    told: set[int] = set()
    for one in judged:
        for gpu in np.flatnonzero(_firing(view, one) & ~frozen):
            if int(gpu) not in told:
                told.add(int(gpu))
                findings.append(_say_hot(view, one, int(gpu)))
    findings.extend(_recovered(view, judged, told, frozen))
    return findings


def _judge(view: View, rule: Rule) -> Judged:
    values = view.windows.metric(rule.metric)
    good, known = view.windows.good_for_gpus(), ~np.isnan(values)
    times = view.windows.gpu_times()
    limits, clears = _limits(view, rule)
    with np.errstate(invalid="ignore"):
        hot, cool = _hot(rule, values, limits), _cool(rule, values, clears)
    tells = ~(good & ~known)  # a number without sense is skipped, a scrape that failed breaks the run
    run = trailing_run(hot & good, tells)
    still = trailing_run(cool & good & known, np.ones_like(good))
    newest_known = known[-1] & good[-1]
    return Judged(
        rule=rule,
        run=run,
        hot=_held(run, times, rule.hold_samples, rule.hold_seconds) & newest_known,
        hot_now=hot[-1] & newest_known,
        cool=_held(still, times, rule.clear_samples, rule.clear_seconds),
        in_use=(known & good).any(axis=0) & ~np.isnan(limits),
    )


def _held(run: Run, times: FloatArray, samples: int, seconds: float) -> BoolArray:
    held: BoolArray = (run.length >= samples) & (held_seconds(run, times) >= seconds - JITTER_SECONDS)
    return held


def _limits(view: View, rule: Rule) -> tuple[FloatArray, FloatArray]:
    """[G]: what is too hot and what is cool again, by model; NaN where the rule has no limit for the model."""
    by_model = {model: rule.limit(model) for model in set(view.windows.gpus.model)}
    limits = np.array([_or_nan(by_model[model]) for model in view.windows.gpus.model], dtype=np.float64)
    drop = 0.0
    if rule.clear_threshold is not None and rule.threshold is not None:
        drop = rule.threshold - rule.clear_threshold
    return limits, limits - drop


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def _hot(rule: Rule, values: FloatArray, limits: FloatArray) -> BoolArray:
    if rule.metric == REASONS:
        return _bit_set(values, int(rule.threshold or 0))
    hot: BoolArray = values <= limits if rule.metric == MARGIN else values >= limits
    return hot


def _cool(rule: Rule, values: FloatArray, clears: FloatArray) -> BoolArray:
    if rule.metric == REASONS:
        return ~_bit_set(values, int(rule.threshold or 0))
    cool: BoolArray = values > clears if rule.metric == MARGIN else values < clears
    return cool


def _bit_set(values: FloatArray, mask: int) -> BoolArray:
    whole = np.where(np.isfinite(values) & (values >= 0) & (values < 2**53), values, 0).astype(np.int64)
    bits: BoolArray = (whole & mask) != 0
    return bits


def _firing(view: View, one: Judged) -> BoolArray:
    """[G]: it fires, or an incident that has not recovered still sees the condition."""
    firing = one.hot.copy()
    for gpu in np.flatnonzero(one.hot_now & ~one.hot):
        known = view.open_key("thermal", gpu_subject(view.windows.gpus.uuid[gpu]))
        firing[gpu] = known is not None and known.recovered_at is None
    return firing


def _say_hot(view: View, one: Judged, gpu: int) -> Finding:
    gpus = view.windows.gpus
    value = float(view.windows.metric(one.rule.metric)[-1, gpu])
    since = float(view.windows.gpu_times()[one.run.start[gpu], gpu])
    limit = one.rule.limit(gpus.model[gpu])
    if one.rule.metric == REASONS:
        title, expected = f"{gpu_name(view, gpu)} has slowed itself down because of heat", f"bit {limit:.0f} not set"
    elif one.rule.metric == MARGIN:
        title, expected = f"{gpu_name(view, gpu)} has no thermal margin left ({value:.0f} °C)", f"above {limit:.0f}"
    else:
        part = "memory" if "memory" in one.rule.metric else "core"
        title, expected = f"{gpu_name(view, gpu)} is too hot: {part} at {value:.0f} °C", f"below {limit:.0f}"
    node = view.windows.nodes[gpus.node[gpu]]
    evidence = (Evidence(one.rule.metric, node, gpus.uuid[gpu], since, value, expected),)
    return about_gpu(view, one.rule, gpu, Status.FIRING, title, since, evidence)


def _recovered(view: View, judged: list[Judged], told: set[int], frozen: BoolArray) -> list[Finding]:
    """CLEAR for open GPUs: every rule that has had data says cool, for its own time, on data without a gap."""
    findings = []
    has_data = view.gpu_has_data
    for gpu, uuid in enumerate(view.windows.gpus.uuid):
        if gpu in told or frozen[gpu] or not has_data[gpu] or view.open_key("thermal", gpu_subject(uuid)) is None:
            continue
        used = [one for one in judged if one.in_use[gpu]]
        if used and all(one.cool[gpu] for one in used):
            since = float(view.windows.gpu_times()[-1, gpu])
            value = float(view.windows.metric(used[0].rule.metric)[-1, gpu])
            node = view.windows.nodes[view.windows.gpus.node[gpu]]
            evidence = (Evidence(used[0].rule.metric, node, uuid, since, value, used[0].rule.clears_when),)
            title = f"{gpu_name(view, gpu)} has cooled down"
            findings.append(about_gpu(view, used[0].rule, gpu, Status.CLEAR, title, since, evidence))
    return findings
