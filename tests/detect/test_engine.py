"""The detectors, each on the smallest windows that show it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpufleet.detect.engine import evaluate, key_text
from gpufleet.detect.findings import Finding, Status
from gpufleet.detect.rules import load_rules
from gpufleet.detect.windows import OpenKey, Windows, XidCounts

RULES = load_rules()
GPU = "gpu:GPU-0000-1"
NODE = "node:gpu-n01"


def judge(windows: Windows) -> list[Finding]:
    return evaluate(windows, RULES, float(windows.times[-1]) + 1.0)


def said(windows: Windows) -> list[tuple[str, str, str]]:
    return [(finding.kind, finding.subject, finding.status.value) for finding in judge(windows)]


def opened(windows: Windows, kind: str, subject: str, at: float, recovered_at: float | None = None) -> None:
    windows.open[kind, subject] = OpenKey(kind, subject, at, at, at, recovered_at)


def test_a_healthy_fleet_says_nothing(kit: Any) -> None:
    assert judge(kit.healthy(nodes=4)) == []


def test_windows_without_rows_say_nothing(kit: Any) -> None:
    assert evaluate(kit.first_rows(kit.healthy(), 0), RULES, 0.0) == []


@pytest.mark.parametrize(("failures", "expected"), [(2, []), (3, [("node_down", NODE, "firing")])])
def test_a_node_is_down_at_the_third_failed_scrape(kit: Any, failures: int, expected: list[Any]) -> None:
    windows = kit.healthy(nodes=4)
    for target in (0, 1):
        kit.fail(windows, target, slice(8 - failures, None), "timeout")
    assert said(windows) == expected


def test_node_down_begins_when_the_last_of_its_targets_failed(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    kit.fail(windows, 0, slice(2, None))
    kit.fail(windows, 1, slice(4, None))
    (finding,) = judge(windows)
    assert (finding.kind, finding.first_evidence_at, finding.state) == ("node_down", kit.START + 60.0, "failed")
    assert [piece.value for piece in finding.evidence] == ["refused", "refused"]


def test_a_node_is_back_after_two_good_scrapes(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    opened(windows, "node_down", NODE, kit.START)
    for target in (0, 1):
        kit.fail(windows, target, slice(0, 6))
    assert said(kit.first_rows(windows, 7)) == []
    assert said(windows) == [("node_down", NODE, "clear")]


@pytest.mark.parametrize(
    ("reason", "rule", "state", "severity"),
    [
        ("refused", "exporter_down.gpu", "unknown", "warning"),
        ("timeout", "exporter_down.gpu", "unknown", "warning"),
        ("http status", "exporter_down.gpu", "unknown", "warning"),
        ("no GPU samples", "exporter_down.no_gpu_samples", "failed", "critical"),
    ],
)
def test_a_dead_exporter_on_a_living_node(kit: Any, reason: str, rule: str, state: str, severity: str) -> None:
    windows = kit.healthy(nodes=4)
    kit.fail(windows, 0, slice(5, None), reason)
    (finding,) = judge(windows)
    assert (finding.kind, finding.subject, finding.rule) == ("exporter_down", NODE, rule)
    assert (finding.state, finding.severity) == (state, severity)
    assert finding.first_evidence_at == kit.START + 75.0


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("unreachable", "node_down"),
        ("refused", "node_down"),
        ("timeout", "node_down"),
        ("http status", "exporter_down"),
        ("no GPU samples", "exporter_down"),
        ("cut off", "exporter_down"),
    ],
)
def test_with_one_target_the_words_of_the_failure_decide(kit: Any, reason: str, kind: str) -> None:
    windows = kit.healthy(nodes=4, exporters=1)
    kit.fail(windows, 0, slice(5, None), reason)
    assert said(windows) == [(kind, NODE, "firing")]


def test_an_exporter_waits_while_its_neighbour_begins_to_fail_too(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    kit.fail(windows, 0, slice(5, None))
    kit.fail(windows, 1, slice(6, None))
    assert said(windows) == []


def test_a_dead_node_exporter_says_nothing_of_the_gpus(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    kit.fail(windows, 1, slice(5, None))
    (finding,) = judge(windows)
    assert (finding.rule, finding.state, finding.severity, finding.pages) == ("exporter_down.node", "", "info", False)


def test_exporters_are_back_after_two_good_scrapes(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    opened(windows, "exporter_down", NODE, kit.START)
    kit.fail(windows, 0, slice(0, 6), "http status")
    assert said(kit.first_rows(windows, 7)) == []
    assert said(windows) == [("exporter_down", NODE, "clear")]


def test_a_gpu_is_missing_at_the_second_scrape_without_it(kit: Any) -> None:
    windows = kit.healthy()
    kit.vanish(windows, 1, slice(6, None))
    assert said(kit.first_rows(windows, 7)) == []
    (finding,) = judge(windows)
    assert (finding.kind, finding.subject, finding.severity) == ("gpu_missing", GPU, "critical")
    assert (finding.first_evidence_at, finding.slot, finding.state) == (kit.START + 90.0, 1, "failed")


def test_a_failed_scrape_is_no_evidence_of_a_missing_gpu(kit: Any) -> None:
    windows = kit.healthy()
    kit.vanish(windows, 1, slice(6, 7))
    kit.fail(windows, 0, slice(7, None), "cut off")
    assert said(windows) == []


def test_a_missing_gpu_is_back_after_two_good_scrapes(kit: Any) -> None:
    windows = kit.healthy()
    opened(windows, "gpu_missing", GPU, kit.START)
    kit.vanish(windows, 1, slice(0, 6))
    assert said(kit.first_rows(windows, 7)) == []
    assert said(windows) == [("gpu_missing", GPU, "clear")]


def test_gpus_that_never_showed_up(kit: Any) -> None:
    windows = kit.healthy()
    windows.expected_gpus[0] = 8
    (finding,) = judge(windows)
    assert (finding.kind, finding.subject) == ("gpu_missing", NODE)
    assert (finding.evidence[0].value, finding.evidence[0].expected) == (4.0, 8.0)
    windows.expected_gpus[0] = 4
    opened(windows, "gpu_missing", NODE, kit.START)
    assert said(windows) == [("gpu_missing", NODE, "clear")]


def test_no_data_is_unknown_for_every_open_key(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    for kind in ("thermal", "gpu_missing", "xid"):
        opened(windows, kind, GPU, kit.START)
    for target in (0, 1):
        kit.fail(windows, target, slice(7, None))
    assert said(windows) == [(kind, GPU, "unknown") for kind in ("thermal", "gpu_missing", "xid")]


def test_when_all_nodes_fail_at_once_we_cannot_see(kit: Any) -> None:
    windows = kit.healthy(nodes=10)
    opened(windows, "thermal", GPU, kit.START)
    for target in range(20):
        kit.fail(windows, target, slice(5, None), "timeout")
    assert said(windows) == [("telemetry_degraded", "cluster", "firing"), ("thermal", GPU, "unknown")]
    assert said(kit.first_rows(windows, 7)) == [("thermal", GPU, "unknown")]


def test_the_collector_sees_again(kit: Any) -> None:
    windows = kit.healthy(nodes=10)
    opened(windows, "telemetry_degraded", "cluster", kit.START)
    for target in range(20):
        kit.fail(windows, target, slice(0, 6), "timeout")
    assert said(kit.first_rows(windows, 7)) == []
    assert said(windows) == [("telemetry_degraded", "cluster", "clear")]


def test_two_dead_nodes_of_two_are_two_dead_nodes(kit: Any) -> None:
    windows = kit.healthy(nodes=2)
    for target in range(4):
        kit.fail(windows, target, slice(5, None), "timeout")
    assert [each[0] for each in said(windows)] == ["node_down", "node_down"]


def test_planned_time_opens_nothing_and_counts_for_nothing(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    windows.maintenance[2:6, 0] = True
    for target in (0, 1):
        kit.fail(windows, target, slice(2, None))
    assert said(windows) == []
    windows.maintenance[5, 0] = False
    (finding,) = judge(windows)
    assert (finding.kind, finding.first_evidence_at) == ("node_down", kit.START + 75.0)


def test_frozen_energy_is_one_finding_a_node(kit: Any) -> None:
    windows = kit.healthy(nodes=2)
    windows.gpus.values["gpu_energy_joules_total"][2:, :4] = 5e6
    assert said(kit.first_rows(windows, 6)) == []
    (finding,) = judge(kit.first_rows(windows, 7))
    assert (finding.kind, finding.subject, finding.state) == ("telemetry_frozen", NODE, "unknown")
    assert (finding.first_evidence_at, len(finding.evidence)) == (kit.START + 30.0, 4)


@pytest.mark.parametrize(("power", "energy"), [(0.0, 5e6), (400.0, 0.0), (np.nan, 5e6)])
def test_what_is_not_frozen(kit: Any, power: float, energy: float) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_energy_joules_total"][:] = energy
    windows.gpus.values["gpu_power_watts"][:] = power
    assert said(windows) == []


def test_frozen_values_move_again(kit: Any) -> None:
    windows = kit.healthy(cycles=9)
    opened(windows, "telemetry_frozen", NODE, kit.START)
    windows.gpus.values["gpu_energy_joules_total"][:7] = 5e6
    assert said(kit.first_rows(windows, 8)) == []
    assert said(windows) == [("telemetry_frozen", NODE, "clear")]


def test_a_busy_body_that_never_changes_is_frozen_without_an_energy_counter(kit: Any) -> None:
    windows = kit.healthy(cycles=9)
    windows.gpus.values["gpu_energy_joules_total"][:] = np.nan
    windows.targets.signature[:] = 7
    assert said(windows) == []
    windows.gpus.values["gpu_utilization_ratio"][:] = 0.97
    assert said(windows) == [("telemetry_frozen", NODE, "firing")]


def test_frozen_values_are_not_judged_for_heat(kit: Any) -> None:
    windows = kit.healthy(cycles=12)
    windows.gpus.values["gpu_energy_joules_total"][:] = 5e6
    windows.gpus.values["gpu_temperature_celsius"][:] = 99.0
    assert said(windows) == [("telemetry_frozen", NODE, "firing")]


def test_hardware_slowdown_opens_with_the_second_sample(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_clock_event_reasons"][6:, 1] = 72.0
    assert said(kit.first_rows(windows, 7)) == []
    (finding,) = judge(windows)
    assert (finding.rule, finding.subject, finding.severity) == ("thermal.hw_slowdown", GPU, "critical")
    assert finding.first_evidence_at == kit.START + 90.0


def test_heat_must_hold_and_the_worst_rule_speaks(kit: Any) -> None:
    windows = kit.healthy(cycles=10)
    windows.gpus.values["gpu_temperature_celsius"][:, 1] = 86.0
    assert said(kit.first_rows(windows, 8)) == []
    assert [each.rule for each in judge(windows)] == ["thermal.core_high"]
    windows.gpus.values["gpu_temperature_celsius"][:, 1] = 95.0
    assert [each.rule for each in judge(windows)] == ["thermal.core_slowdown"]


def test_a_missing_number_does_not_break_heat_and_is_not_heat(kit: Any) -> None:
    windows = kit.healthy(cycles=10)
    windows.gpus.values["gpu_temperature_celsius"][:, 1] = 95.0
    windows.gpus.values["gpu_temperature_celsius"][4, 1] = np.nan
    assert len(judge(windows)) == 1
    windows.gpus.values["gpu_temperature_celsius"][-1, 1] = np.nan
    assert judge(windows) == []


def test_thermal_clears_only_on_a_minute_of_cool_data_without_a_gap(kit: Any) -> None:
    windows = kit.healthy(cycles=12)
    opened(windows, "thermal", GPU, kit.START)
    windows.gpus.values["gpu_temperature_celsius"][:6, 1] = 95.0
    assert said(kit.first_rows(windows, 10)) == []
    assert said(kit.first_rows(windows, 11)) == [("thermal", GPU, "clear")]
    kit.fail(windows, 0, slice(8, 9))
    assert said(windows) == []


def test_thermal_limits_differ_by_model(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_temperature_margin_celsius"][:] = -2.0
    windows.gpus.model[1] = "NVIDIA H100 80GB HBM3"
    assert said(windows) == [("thermal", GPU, "firing")]


def counts(windows: Windows, gpu: int, code: int, source: str, values: list[float]) -> None:
    columns = (np.array([gpu]), np.array([code]), [source], np.array([300.0 if source == "window" else np.inf]))
    windows.xids = XidCounts(*columns, np.array(values)[:, None])
    windows.before.xid_count = np.array([np.nan])
    windows.before.xid_count_at = np.array([np.nan])


def occurrences(windows: Windows) -> list[tuple[str, str, float]]:
    return [(each.occurrence, each.severity, each.first_evidence_at) for each in judge(windows) if each.kind == "xid"]


def test_an_edge_of_the_gauge_is_one_happening(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_xid_code"][4:, 1] = 48.0
    windows.gpus.values["gpu_xid_code"][6:, 1] = 0.0
    at = kit.START + 60.0
    assert occurrences(windows) == [(f"xid:GPU-0000-1:48:{round(at * 1000)}", "critical", at)]


@pytest.mark.parametrize(("before", "seen", "happenings"), [(48.0, True, 0), (0.0, True, 1), (np.nan, False, 0)])
def test_a_code_at_the_first_row(kit: Any, before: float, seen: bool, happenings: int) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_xid_code"][:, 1] = 48.0
    windows.before.xid_code[1] = before
    windows.before.seen[1] = seen
    assert len(occurrences(windows)) == happenings


def test_a_first_code_after_no_line_at_all_is_a_happening(kit: Any) -> None:
    windows = kit.healthy()
    windows.before.xid_code[1] = np.nan
    windows.gpus.values["gpu_xid_code"][:5, 1] = np.nan
    windows.gpus.values["gpu_xid_code"][5:, 1] = 79.0
    assert len(occurrences(windows)) == 1


def test_the_same_code_after_a_gap_is_no_happening(kit: Any) -> None:
    windows = kit.healthy()
    windows.before.xid_code[1] = 48.0
    windows.gpus.values["gpu_xid_code"][:, 1] = 48.0
    kit.fail(windows, 0, slice(2, 5), "refused")
    assert occurrences(windows) == []


def test_application_codes_open_nothing(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_xid_code"][4:, 0] = 13.0
    windows.gpus.values["gpu_xid_code"][4:, 1] = 31.0
    windows.gpus.values["gpu_xid_code"][4:, 2] = 43.0
    windows.gpus.values["gpu_xid_code"][4:, 3] = 45.0
    assert judge(windows) == []


def test_rises_of_a_windowed_count(kit: Any) -> None:
    windows = kit.healthy()
    counts(windows, 1, 94, "window", [np.nan, 1, 1, 2, 1, 1, 2, np.nan])
    assert [round(at - kit.START) for _, _, at in occurrences(windows)] == [15, 45, 90]


def test_rises_of_a_total_that_begins_anew(kit: Any) -> None:
    windows = kit.healthy()
    counts(windows, 1, 94, "total", [3, 3, 4, 4, 1, 1, 1, 1])
    windows.before.xid_count[0] = 3.0
    assert [round(at - kit.START) for _, _, at in occurrences(windows)] == [30, 60]


def test_a_total_seen_for_the_first_time_tells_nothing_new(kit: Any) -> None:
    windows = kit.healthy()
    windows.before.seen[:] = False
    counts(windows, 1, 94, "total", [3] * 8)
    assert occurrences(windows) == []


def test_gauge_and_count_of_one_error_are_one_happening(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_xid_code"][4:, 1] = 94.0
    counts(windows, 1, 94, "window", [np.nan] * 5 + [1.0, 1.0, 1.0])
    assert len(occurrences(windows)) == 1


def test_a_vanished_gpu_with_an_xid_is_one_cause(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_xid_code"][5, 1] = 79.0
    kit.vanish(windows, 1, slice(6, None))
    by_kind = {finding.kind: finding for finding in judge(windows)}
    assert set(by_kind) == {"xid", "gpu_missing"}
    assert (by_kind["gpu_missing"].cause, by_kind["xid"].cause) == (key_text("xid", GPU), "")


def test_an_xid_that_comes_after_the_loss_joins_it(kit: Any) -> None:
    windows = kit.healthy()
    opened(windows, "gpu_missing", GPU, kit.START)
    windows.gpus.values["gpu_xid_code"][7, 1] = 79.0
    (finding,) = [each for each in judge(windows) if each.kind == "xid"]
    assert finding.cause == key_text("gpu_missing", GPU)


@pytest.mark.parametrize("reset", ["came back", "energy", "boot"])
def test_an_xid_clears_after_a_reset_and_two_quiet_minutes(kit: Any, reset: str) -> None:
    windows = kit.healthy(cycles=16)
    opened(windows, "xid", GPU, kit.START)
    windows.gpus.values["gpu_xid_code"][:, 1] = 48.0
    windows.before.xid_code[1] = 48.0
    if reset == "came back":
        kit.vanish(windows, 1, slice(2, 5))
    elif reset == "energy":
        windows.gpus.values["gpu_energy_joules_total"][5:, 1] = np.arange(11) * 6000.0 + 1.0
    else:
        windows.boot_at[5:] = kit.START + 60.0
    assert said(kit.first_rows(windows, 13)) == [("xid", GPU, "firing")]
    assert said(kit.first_rows(windows, 14)) == [("xid", GPU, "clear")]


def test_an_xid_never_clears_without_a_reset(kit: Any) -> None:
    windows = kit.healthy(cycles=40)
    opened(windows, "xid", GPU, kit.START)
    windows.before.xid_code[1] = 48.0
    windows.gpus.values["gpu_xid_code"][:20, 1] = 48.0
    windows.gpus.values["gpu_energy_joules_total"][20:, 1] -= 1.0
    (finding,) = judge(windows)
    assert (finding.kind, finding.status, finding.occurrence, finding.state) == ("xid", Status.FIRING, "", "")
