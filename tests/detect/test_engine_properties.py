"""What holds for any windows at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet.detect.engine import evaluate
from gpufleet.detect.findings import Finding, Status
from gpufleet.detect.rules import load_rules
from gpufleet.detect.view import View
from gpufleet.detect.windows import OpenKey, Windows, XidCounts
from gpufleet.detect.xid_events import xid_events

RULES = load_rules()
REASONS = ["timeout", "refused", "unreachable", "no GPU samples", "http status", "cut off"]
ODD = np.array([np.nan, 0.0, -1.0, 48.0, 79.0, 64.0, 96.0, 1e300, np.inf, -np.inf, 400.0])
KINDS = ["xid", "gpu_missing", "node_down", "exporter_down", "telemetry_frozen", "thermal"]


def disorder(windows: Windows, seed: int) -> Windows:
    """Breaks scrapes, GPUs and numbers at random; shapes stay."""
    random = np.random.default_rng(seed)
    targets, gpus = windows.targets, windows.gpus
    targets.scraped[:] = random.random(targets.scraped.shape) > 0.1
    targets.good[:] = targets.scraped & (random.random(targets.good.shape) > random.choice([0.05, 0.5, 0.95]))
    failed = targets.scraped & ~targets.good
    targets.reason[failed] = random.choice(REASONS, size=int(failed.sum()))
    targets.at[~targets.scraped] = np.nan
    targets.kind[:] = random.integers(0, 3, targets.kind.shape)
    gpus.listed[:] = targets.good[:, gpus.target] & (random.random(gpus.listed.shape) > 0.1)
    for values in gpus.values.values():
        odd = random.random(values.shape) < 0.3
        values[odd] = random.choice(ODD, size=int(odd.sum()))
        values[~gpus.listed] = np.nan
    windows.maintenance[:] = random.random(windows.maintenance.shape) < 0.05
    windows.before.seen[:] = random.random(windows.before.seen.shape) < 0.8
    windows.before.xid_code[:] = random.choice(ODD[:5], size=windows.before.xid_code.shape)
    _random_counts(windows, random)
    _random_open(windows, random)
    return windows


def _random_counts(windows: Windows, random: np.random.Generator) -> None:
    columns = 3
    values = random.integers(0, 5, (len(windows.times), columns)).astype(float)
    values[random.random(values.shape) < 0.3] = np.nan
    gpu = random.integers(0, len(windows.gpus.uuid), columns)
    values[~windows.gpus.listed[:, gpu]] = np.nan
    sources = ["window", "total", "window"]
    windows.xids = XidCounts(gpu, np.array([94, 79, 31]), sources, np.array([300.0, np.inf, 300.0]), values)
    windows.before.xid_count = np.array([np.nan, 2.0, 1.0])
    windows.before.xid_count_at = np.array([np.nan, windows.times[0] - 15, windows.times[0] - 15])


def _random_open(windows: Windows, random: np.random.Generator) -> None:
    subjects = [f"gpu:{uuid}" for uuid in windows.gpus.uuid] + [f"node:{name}" for name in windows.nodes] + ["cluster"]
    for _ in range(6):
        kind, subject = str(random.choice(KINDS)), str(random.choice(subjects))
        at = float(windows.times[0])
        recovered = at + 1 if random.random() < 0.3 else None
        windows.open[kind, subject] = OpenKey(kind, subject, at, at, at, recovered)


def brief(findings: list[Finding]) -> set[tuple[str, str, str, str, float, str]]:
    return {(f.kind, f.subject, f.status.value, f.rule, f.first_evidence_at, f.occurrence) for f in findings}


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), cycles=st.integers(0, 30), nodes=st.integers(1, 5), gpus=st.integers(1, 4))
def test_no_windows_make_it_raise_and_every_statement_is_lawful(
    kit: Any, seed: int, cycles: int, nodes: int, gpus: int
) -> None:
    windows = disorder(kit.healthy(cycles=max(cycles, 1), nodes=nodes, gpus=gpus), seed)
    windows = kit.first_rows(windows, cycles)
    now = float(windows.times[-1]) if cycles else kit.START
    findings = evaluate(windows, RULES, now)
    for finding in findings:
        if finding.status is not Status.FIRING:
            assert (finding.kind, finding.subject) in windows.open
            assert finding.state == ""
        assert finding.first_evidence_at <= now or finding.kind == "xid"
    keys = [(f.kind, f.subject, f.occurrence) for f in findings]
    assert len(keys) == len(set(keys))
    firing = {(f.kind, f.subject) for f in findings if f.status is Status.FIRING}
    assert not firing & {(f.kind, f.subject) for f in findings if f.status is not Status.FIRING}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), order=st.permutations(range(8)))
def test_the_order_of_gpus_does_not_matter(kit: Any, seed: int, order: list[int]) -> None:
    windows = disorder(kit.healthy(cycles=20, nodes=2, gpus=4), seed)
    now = float(windows.times[-1])
    expected = brief(evaluate(windows, RULES, now))
    gpus, before, index = windows.gpus, windows.before, np.array(order)
    back = np.argsort(index)
    shuffled = replace(
        windows,
        gpus=replace(
            gpus,
            uuid=[gpus.uuid[i] for i in index],
            model=[gpus.model[i] for i in index],
            pci_bus_id=[gpus.pci_bus_id[i] for i in index],
            slot=gpus.slot[index],
            node=gpus.node[index],
            target=gpus.target[index],
            listed=gpus.listed[:, index],
            values={name: values[:, index] for name, values in gpus.values.items()},
        ),
        xids=replace(windows.xids, gpu=back[windows.xids.gpu]),
        before=replace(
            before,
            seen=before.seen[index],
            xid_code=before.xid_code[index],
            energy_joules=before.energy_joules[index],
        ),
    )
    assert brief(evaluate(shuffled, RULES, now)) == expected


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), cut=st.integers(1, 6))
def test_happenings_do_not_depend_on_where_the_windows_begin(kit: Any, seed: int, cut: int) -> None:
    windows = disorder(kit.healthy(cycles=24, nodes=1, gpus=3), seed)
    windows.tell_from = 20
    told = {event.occurrence("x") for event in xid_events(windows)}
    assert {event.occurrence("x") for event in xid_events(_later(windows, cut))} == told


def _later(windows: Windows, cut: int) -> Windows:
    """The same windows from row `cut` on, with what was known before it."""
    gpus, xids, before = windows.gpus, windows.xids, windows.before
    seen = before.seen | gpus.listed[:cut].any(axis=0)
    counts = np.where(np.isnan(xids.values) & gpus.listed[:, xids.gpu], 0.0, xids.values)
    times = windows.gpu_times()[:, xids.gpu]
    targets = windows.targets
    rows = ("scraped", "good", "reason", "at", "duration_seconds", "bytes", "signature")
    return replace(
        windows,
        times=windows.times[cut:],
        maintenance=windows.maintenance[cut:],
        boot_at=windows.boot_at[cut:],
        targets=replace(targets, **{name: getattr(targets, name)[cut:] for name in rows}),
        gpus=replace(
            gpus, listed=gpus.listed[cut:], values={name: values[cut:] for name, values in gpus.values.items()}
        ),
        xids=replace(xids, values=xids.values[cut:]),
        before=replace(
            before,
            seen=seen,
            xid_code=_last(before.xid_code, gpus.values["gpu_xid_code"][:cut]),
            xid_count=_last(before.xid_count, counts[:cut]),
            xid_count_at=_last(before.xid_count_at, np.where(np.isnan(counts), np.nan, times)[:cut]),
        ),
        tell_from=windows.tell_from - cut,
    )


def _last(before: Any, values: Any) -> Any:
    for row in values:
        before = np.where(np.isnan(row), before, row)
    return before


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_same_windows_give_the_same_findings(kit: Any, seed: int) -> None:
    windows = disorder(kit.healthy(cycles=20, nodes=3, gpus=3), seed)
    now = float(windows.times[-1])
    assert evaluate(windows, RULES, now) == evaluate(windows, RULES, now)
    assert View(windows, RULES, now).failures.length.shape == (6,)
