"""The detectors, each on the smallest windows that show it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpufleet.detect.engine import evaluate
from gpufleet.detect.rules import load_rules

RULES = load_rules()
GPU = "gpu:GPU-0000-1"
NODE = "node:gpu-n01"


def test_a_healthy_fleet_says_nothing(kit: Any) -> None:
    assert kit.judge(kit.healthy(nodes=4)) == []


def test_windows_without_rows_say_nothing(kit: Any) -> None:
    assert evaluate(kit.first_rows(kit.healthy(), 0), RULES, 0.0) == []


@pytest.mark.parametrize(("failures", "expected"), [(2, []), (3, [("node_down", NODE, "firing")])])
def test_a_node_is_down_at_the_third_failed_scrape(kit: Any, failures: int, expected: list[Any]) -> None:
    windows = kit.healthy(nodes=4)
    for target in (0, 1):
        kit.fail(windows, target, slice(8 - failures, None), "timeout")
    assert kit.said(windows) == expected


def test_node_down_begins_when_the_last_of_its_targets_failed(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    kit.fail(windows, 0, slice(2, None))
    kit.fail(windows, 1, slice(4, None))
    (finding,) = kit.judge(windows)
    assert (finding.kind, finding.first_evidence_at, finding.state) == ("node_down", kit.START + 60.0, "failed")
    assert [piece.value for piece in finding.evidence] == ["refused", "refused"]


def test_a_node_is_back_after_two_good_scrapes(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    kit.opened(windows, "node_down", NODE, kit.START)
    for target in (0, 1):
        kit.fail(windows, target, slice(0, 6))
    assert kit.said(kit.first_rows(windows, 7)) == []
    assert kit.said(windows) == [("node_down", NODE, "clear")]


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
    (finding,) = kit.judge(windows)
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
    assert kit.said(windows) == [(kind, NODE, "firing")]


def test_connections_cut_before_the_first_byte_are_silence(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    for target in (0, 1):
        kit.fail(windows, target, slice(5, None), "cut off")
    assert kit.said(windows) == [("exporter_down", NODE, "firing")]
    windows.targets.bytes[5:, :2] = 0
    assert kit.said(windows) == [("node_down", NODE, "firing")]


def test_an_exporter_waits_while_its_neighbour_begins_to_fail_too(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    kit.fail(windows, 0, slice(5, None))
    kit.fail(windows, 1, slice(6, None))
    assert kit.said(windows) == []


def test_a_dead_node_exporter_says_nothing_of_the_gpus(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    kit.fail(windows, 1, slice(5, None))
    (finding,) = kit.judge(windows)
    assert (finding.rule, finding.state, finding.severity, finding.pages) == ("exporter_down.node", "", "info", False)


def test_exporters_are_back_after_two_good_scrapes(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    kit.opened(windows, "exporter_down", NODE, kit.START)
    kit.fail(windows, 0, slice(0, 6), "http status")
    assert kit.said(kit.first_rows(windows, 7)) == []
    assert kit.said(windows) == [("exporter_down", NODE, "clear")]


def test_a_gpu_is_missing_at_the_second_scrape_without_it(kit: Any) -> None:
    windows = kit.healthy()
    kit.vanish(windows, 1, slice(6, None))
    assert kit.said(kit.first_rows(windows, 7)) == []
    (finding,) = kit.judge(windows)
    assert (finding.kind, finding.subject, finding.severity) == ("gpu_missing", GPU, "critical")
    assert (finding.first_evidence_at, finding.slot, finding.state) == (kit.START + 90.0, 1, "failed")


def test_a_failed_scrape_is_no_evidence_of_a_missing_gpu(kit: Any) -> None:
    windows = kit.healthy()
    kit.vanish(windows, 1, slice(6, 7))
    kit.fail(windows, 0, slice(7, None), "cut off")
    assert kit.said(windows) == []


def test_a_missing_gpu_is_back_after_two_good_scrapes(kit: Any) -> None:
    windows = kit.healthy()
    kit.opened(windows, "gpu_missing", GPU, kit.START)
    kit.vanish(windows, 1, slice(0, 6))
    assert kit.said(kit.first_rows(windows, 7)) == []
    assert kit.said(windows) == [("gpu_missing", GPU, "clear")]


def test_gpus_that_never_showed_up(kit: Any) -> None:
    windows = kit.healthy()
    windows.expected_gpus[0] = 8
    (finding,) = kit.judge(windows)
    assert (finding.kind, finding.subject) == ("gpu_missing", NODE)
    assert (finding.evidence[0].value, finding.evidence[0].expected) == (4.0, 8.0)
    windows.expected_gpus[0] = 4
    kit.opened(windows, "gpu_missing", NODE, kit.START)
    assert kit.said(windows) == [("gpu_missing", NODE, "clear")]


def test_no_data_is_unknown_for_every_open_key(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    for kind in ("thermal", "gpu_missing", "xid"):
        kit.opened(windows, kind, GPU, kit.START)
    for target in (0, 1):
        kit.fail(windows, target, slice(7, None))
    assert kit.said(windows) == [(kind, GPU, "unknown") for kind in ("thermal", "gpu_missing", "xid")]


def test_when_all_nodes_fail_at_once_we_cannot_see(kit: Any) -> None:
    windows = kit.healthy(nodes=10)
    kit.opened(windows, "thermal", GPU, kit.START)
    for target in range(20):
        kit.fail(windows, target, slice(5, None), "timeout")
    assert kit.said(windows) == [("telemetry_degraded", "cluster", "firing"), ("thermal", GPU, "unknown")]
    assert kit.said(kit.first_rows(windows, 7)) == [("thermal", GPU, "unknown")]


def test_the_collector_sees_again(kit: Any) -> None:
    windows = kit.healthy(nodes=10)
    kit.opened(windows, "telemetry_degraded", "cluster", kit.START)
    for target in range(20):
        kit.fail(windows, target, slice(0, 6), "timeout")
    assert kit.said(kit.first_rows(windows, 7)) == []
    assert kit.said(windows) == [("telemetry_degraded", "cluster", "clear")]


def test_two_dead_nodes_of_two_are_two_dead_nodes(kit: Any) -> None:
    windows = kit.healthy(nodes=2)
    for target in range(4):
        kit.fail(windows, target, slice(5, None), "timeout")
    assert [each[0] for each in kit.said(windows)] == ["node_down", "node_down"]


def test_planned_time_opens_nothing_and_counts_for_nothing(kit: Any) -> None:
    windows = kit.healthy(nodes=4)
    windows.maintenance[2:6, 0] = True
    for target in (0, 1):
        kit.fail(windows, target, slice(2, None))
    assert kit.said(windows) == []
    windows.maintenance[5, 0] = False
    (finding,) = kit.judge(windows)
    assert (finding.kind, finding.first_evidence_at) == ("node_down", kit.START + 75.0)


def test_frozen_energy_is_one_finding_a_node(kit: Any) -> None:
    windows = kit.healthy(nodes=2)
    windows.gpus.values["gpu_energy_joules_total"][2:, :4] = 5e6
    assert kit.said(kit.first_rows(windows, 6)) == []
    (finding,) = kit.judge(kit.first_rows(windows, 7))
    assert (finding.kind, finding.subject, finding.state) == ("telemetry_frozen", NODE, "unknown")
    assert (finding.first_evidence_at, len(finding.evidence)) == (kit.START + 30.0, 4)


@pytest.mark.parametrize(("power", "energy"), [(0.0, 5e6), (400.0, 0.0), (np.nan, 5e6)])
def test_what_is_not_frozen(kit: Any, power: float, energy: float) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_energy_joules_total"][:] = energy
    windows.gpus.values["gpu_power_watts"][:] = power
    assert kit.said(windows) == []


def test_frozen_values_move_again(kit: Any) -> None:
    windows = kit.healthy(cycles=9)
    kit.opened(windows, "telemetry_frozen", NODE, kit.START)
    windows.gpus.values["gpu_energy_joules_total"][:7] = 5e6
    assert kit.said(kit.first_rows(windows, 8)) == []
    assert kit.said(windows) == [("telemetry_frozen", NODE, "clear")]


def test_a_busy_body_that_never_changes_is_frozen_without_an_energy_counter(kit: Any) -> None:
    windows = kit.healthy(cycles=9)
    windows.gpus.values["gpu_energy_joules_total"][:] = np.nan
    windows.targets.signature[:] = 7
    assert kit.said(windows) == []
    windows.gpus.values["gpu_utilization_ratio"][:] = 0.97
    assert kit.said(windows) == [("telemetry_frozen", NODE, "firing")]


def test_frozen_values_are_not_judged_for_heat(kit: Any) -> None:
    windows = kit.healthy(cycles=12)
    windows.gpus.values["gpu_energy_joules_total"][:] = 5e6
    windows.gpus.values["gpu_temperature_celsius"][:] = 99.0
    assert kit.said(windows) == [("telemetry_frozen", NODE, "firing")]


def test_hardware_slowdown_opens_with_the_second_sample(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_clock_event_reasons"][6:, 1] = 72.0
    assert kit.said(kit.first_rows(windows, 7)) == []
    (finding,) = kit.judge(windows)
    assert (finding.rule, finding.subject, finding.severity) == ("thermal.hw_slowdown", GPU, "critical")
    assert finding.first_evidence_at == kit.START + 90.0


def test_heat_must_hold_and_the_worst_rule_speaks(kit: Any) -> None:
    windows = kit.healthy(cycles=10)
    windows.gpus.values["gpu_temperature_celsius"][:, 1] = 86.0
    assert kit.said(kit.first_rows(windows, 8)) == []
    assert [each.rule for each in kit.judge(windows)] == ["thermal.core_high"]
    windows.gpus.values["gpu_temperature_celsius"][:, 1] = 95.0
    assert [each.rule for each in kit.judge(windows)] == ["thermal.core_slowdown"]


def test_a_missing_number_does_not_break_heat_and_is_not_heat(kit: Any) -> None:
    windows = kit.healthy(cycles=10)
    windows.gpus.values["gpu_temperature_celsius"][:, 1] = 95.0
    windows.gpus.values["gpu_temperature_celsius"][4, 1] = np.nan
    assert len(kit.judge(windows)) == 1
    windows.gpus.values["gpu_temperature_celsius"][-1, 1] = np.nan
    assert kit.judge(windows) == []


def test_thermal_clears_only_on_a_minute_of_cool_data_without_a_gap(kit: Any) -> None:
    windows = kit.healthy(cycles=12)
    kit.opened(windows, "thermal", GPU, kit.START)
    windows.gpus.values["gpu_temperature_celsius"][:6, 1] = 95.0
    assert kit.said(kit.first_rows(windows, 10)) == []
    assert kit.said(kit.first_rows(windows, 11)) == [("thermal", GPU, "clear")]
    kit.fail(windows, 0, slice(8, 9))
    assert kit.said(windows) == []


def test_thermal_limits_differ_by_model(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_temperature_margin_celsius"][:] = -2.0
    windows.gpus.model[1] = "NVIDIA H100 80GB HBM3"
    assert kit.said(windows) == [("thermal", GPU, "firing")]
