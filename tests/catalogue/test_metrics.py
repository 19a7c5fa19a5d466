"""The tables of the catalogue agree with each other."""

from __future__ import annotations

from collections import Counter

import pytest

from gpufleet.catalogue import meaning
from gpufleet.catalogue.metrics import KINDS, METRICS, rows, yes
from gpufleet.catalogue.values import SENTINEL_CODES

PROMISED = """gpu_utilization_ratio gpu_engine_active_ratio gpu_tensor_active_ratio gpu_sm_active_ratio
gpu_dram_active_ratio gpu_memory_utilization_ratio gpu_memory_used_bytes gpu_memory_free_bytes gpu_memory_reserved_bytes
gpu_memory_total_bytes gpu_temperature_celsius gpu_memory_temperature_celsius gpu_temperature_margin_celsius
gpu_power_watts gpu_power_limit_watts gpu_sm_clock_hertz gpu_memory_clock_hertz gpu_energy_joules_total
gpu_ecc_corrected_total gpu_ecc_uncorrected_total gpu_xid_code gpu_xid_window_count gpu_xid_events_total
gpu_nvlink_bytes_per_second gpu_nvlink_tx_bytes_per_second gpu_nvlink_rx_bytes_per_second gpu_pcie_tx_bytes_per_second
gpu_pcie_rx_bytes_per_second gpu_pcie_replays_total gpu_pcie_link_generation gpu_pcie_link_width gpu_clock_event_reasons
gpu_thermal_violation_seconds_total gpu_power_violation_seconds_total gpu_row_remap_pending gpu_row_remap_failed
gpu_rows_remapped_uncorrectable_total gpu_rows_remapped_corrected_total gpu_nvlink_errors_total gpu_fabric_state
gpu_health_status gpu_recovery_action gpu_fan_ratio"""


@pytest.mark.parametrize("name", PROMISED.split())
def test_the_promised_metrics_are_there(name: str) -> None:
    assert name in METRICS


def test_every_metric_is_well_formed() -> None:
    for metric in METRICS.values():
        assert metric.kind in KINDS
        assert metric.subject in {"gpu", "node"}
        assert metric.low < metric.high
        assert metric.low <= metric.scale_low < metric.scale_high <= metric.high
        assert metric.display_factor > 0
        assert metric.title
        assert metric.meaning
        assert (metric.kind == "counter") is metric.name.endswith("_total")


def test_every_metric_can_be_reached_by_an_alias() -> None:
    assert {row["metric"] for row in rows("aliases.csv")} == set(METRICS)


def test_aliases_are_well_formed_and_none_hides_behind_another() -> None:
    seen: set[tuple[str, str]] = set()
    open_ended: set[str] = set()
    for row in rows("aliases.csv"):
        assert row["sentinels"] in SENTINEL_CODES
        assert float(row["scale"]) > 0
        assert (row["name"], row["filter"]) not in seen
        assert row["name"] not in open_ended, f"{row['name']}: an earlier row takes everything"
        seen.add((row["name"], row["filter"]))
        if not row["filter"]:
            open_ended.add(row["name"])


def test_bounds_are_those_of_the_metric_in_raw_units() -> None:
    for row in rows("aliases.csv"):
        for alias in meaning._ALIASES[row["name"]]:
            metric = METRICS[alias.meaning.metric]
            assert alias.meaning.high is not None
            assert alias.meaning.high * alias.meaning.scale == pytest.approx(metric.high)


def test_dcgm_fields_are_named_once() -> None:
    counted = Counter(row["field"] for row in rows("dcgm_fields.csv"))
    assert max(counted.values()) == 1


def test_yes_or_no_only() -> None:
    assert (yes("yes"), yes("no")) == (True, False)
    with pytest.raises(ValueError, match="yes or no"):
        yes("maybe")
