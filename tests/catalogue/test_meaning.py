"""One metric, one unit, whichever exporter and release sent the number."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import case

from gpufleet.catalogue.meaning import family, is_known, resolve
from gpufleet.catalogue.metrics import METRICS, rows
from gpufleet.catalogue.values import SENTINEL_CODES, clean

DCGM_49 = {"UUID": "GPU-1", "DCGM_FI_SYSTEM_DRIVER_VERSION": "610.1"}
DCGM_46 = {"UUID": "GPU-1", "DCGM_FI_DRIVER_VERSION": "580.1"}
AMD = {"gpu_id": "0", "card_model": "MI300X"}
TPU = {"make": "cloud-tpu", "accelerator_id": "123"}


def canonical(name: str, labels: dict[str, str], raw: float) -> tuple[str, float]:
    meaning = resolve(name, labels)
    value = clean([raw], [meaning.scale], [meaning.low], [meaning.high], [SENTINEL_CODES[meaning.sentinels]])[0]
    return meaning.metric, float(value)


@pytest.mark.parametrize(
    ("name", "labels", "raw", "metric", "value"),
    [
        # DCGM: 1.x, 2.x to 4.8, the names of 4.6 and the units of 4.9
        ("dcgm_gpu_temp", {}, 41, "gpu_temperature_celsius", 41),
        ("DCGM_FI_DEV_GPU_TEMP", {}, 41, "gpu_temperature_celsius", 41),
        ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", {}, 41, "gpu_temperature_celsius", 41),
        ("dcgm_power_usage", {}, 512.5, "gpu_power_watts", 512.5),
        ("DCGM_FI_DEV_BOARD_POWER_WATTS", {}, 512.5, "gpu_power_watts", 512.5),
        ("DCGM_FI_DEV_GPU_UTIL", {}, 88, "gpu_utilization_ratio", 0.88),
        ("dcgm_gpu_utilization", {}, 88, "gpu_utilization_ratio", 0.88),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", DCGM_49, 0.88, "gpu_utilization_ratio", 0.88),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", DCGM_46, 88, "gpu_utilization_ratio", 0.88),
        ("DCGM_FI_DEV_SM_CLOCK", {}, 1965, "gpu_sm_clock_hertz", 1.965e9),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", {}, 1.965e9, "gpu_sm_clock_hertz", 1.965e9),
        ("DCGM_FI_DEV_FB_USED", {}, 1024, "gpu_memory_used_bytes", 2**30),
        ("DCGM_FI_DEV_FB_USED_BYTES", {}, 2**30, "gpu_memory_used_bytes", 2**30),
        ("DCGM_FI_DEV_FB_CAPACITY_BYTES", {}, 85520809984, "gpu_memory_total_bytes", 85520809984),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", {}, 5_000_000_000, "gpu_energy_joules_total", 5_000_000),
        ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", {}, 5_000_000, "gpu_energy_joules_total", 5_000_000),
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", {}, 57, "gpu_nvlink_bytes_per_second", 58_368_000),
        ("DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL", {}, 57, "gpu_nvlink_bytes_per_second", 58_368_000),
        ("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", {}, 58_368_000, "gpu_nvlink_bytes_per_second", 58_368_000),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", {}, 3e9, "gpu_thermal_violation_seconds_total", 3),
        ("DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", {}, 3, "gpu_thermal_violation_seconds_total", 3),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", {}, 64, "gpu_clock_event_reasons", 64),
        ("DCGM_FI_DEV_XID_ERROR", {}, 79, "gpu_xid_code", 79),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", {}, 0.5, "gpu_tensor_active_ratio", 0.5),
        ("DCGM_FI_DEV_FAN_SPEED", {}, 103, "gpu_fan_ratio", 1.03),
        # Others
        ("nvidia_smi_utilization_gpu_ratio", {"uuid": "x"}, 0.88, "gpu_utilization_ratio", 0.88),
        ("nvidia_smi_clocks_current_sm_clock_hz", {"uuid": "x"}, 1.965e9, "gpu_sm_clock_hertz", 1.965e9),
        ("accelerator_nvidia_power_current_usage_milli_watts", {"uuid": "x"}, 512500, "gpu_power_watts", 512.5),
        ("accelerator_nvidia_clock_speed_memory_mhz", {"uuid": "x"}, 3996, "gpu_memory_clock_hertz", 3.996e9),
        ("gpu_gfx_activity", AMD, 88, "gpu_utilization_ratio", 0.88),
        ("site_gpu_gfx_activity", AMD, 88, "gpu_utilization_ratio", 0.88),
        ("gpu_clock", {**AMD, "clock_type": "system"}, 132, "gpu_sm_clock_hertz", 1.32e8),
        ("gpu_clock", {**AMD, "clock_type": "memory"}, 900, "gpu_memory_clock_hertz", 9e8),
        ("gpu_energy_consumed", AMD, 5e12, "gpu_energy_joules_total", 5_000_000),
        ("pcie_bandwidth", AMD, 8, "gpu_pcie_bytes_per_second", 1e6),
        ("amd_gpu_power", {"gpu_power": "0"}, 41e6, "gpu_power_watts", 41),
        ("xpum_engine_ratio", {"uuid": "x"}, 0.88, "gpu_utilization_ratio", 0.88),
        ("xpum_temperature_celsius", {"uuid": "x", "location": "mem"}, 61, "gpu_memory_temperature_celsius", 61),
        ("xpum_frequency_mhz", {"location": "gpu", "type": "actual"}, 1600, "gpu_sm_clock_hertz", 1.6e9),
        ("hw_frequency_hertz", {"hw_id": "1", "aggregation": "avg"}, 1.6e9, "gpu_sm_clock_hertz", 1.6e9),
        ("habanalabs_power_mW", {"UUID": "x"}, 350_000, "gpu_power_watts", 350),
        ("accelerator_power_usage_watts", {"UUID": "x"}, 350_000, "gpu_power_watts", 350),
        ("integrated_power_mW", {"statistic": "power"}, 15_000, "gpu_power_watts", 15),
        ("ram_kB", {"statistic": "used"}, 1024, "gpu_memory_used_bytes", 2**20),
        ("macmon_gpu_freq_mhz", {"chip": "Apple M4"}, 1578, "gpu_sm_clock_hertz", 1.578e9),
        ("duty_cycle", TPU, 88, "gpu_utilization_ratio", 0.88),
        ("neuroncore_utilization_ratio", {"neuroncore": "0"}, 0.88, "gpu_utilization_ratio", 0.88),
    ],
)
def test_every_spelling_gives_one_number(
    name: str, labels: dict[str, str], raw: float, metric: str, value: float
) -> None:
    found, number = canonical(name, labels, raw)
    assert found == metric
    assert number == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("duty_cycle", {}),
        ("memory_used", {"app": "shop"}),
        ("gpu_utilization_percentage_Hz", {"nvidia_gpu": "max_freq"}),
        ("xpum_engine_ratio", {"uuid": "x", "sub_dev": "0"}),
        ("xpum_power_watts", {"uuid": "x", "card": "1"}),
        ("gpu_package_power", {**AMD, "gpu_partition_id": "2"}),
        ("gpu_clock", {**AMD, "clock_type": "video"}),
        ("hardware_ecc_events_total", {}),
        ("execution_errors_total", {"error_type": "timeout"}),
        ("gpu_usage", {"user": "ann"}),
        ("site_gpu_gfx_activity", {}),
        ("DCGM_FI_DEV_POWER_USAGE_INSTANT", {}),
    ],
)
def test_what_looks_alike_is_not_taken_for_it(name: str, labels: dict[str, str]) -> None:
    assert resolve(name, labels).metric not in METRICS


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gauge"),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge"),
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter"),
        ("DCGM_EXP_XID_ERRORS_COUNT", "window"),
        ("DCGM_EXP_XID_ERRORS_TOTAL", "counter"),
        ("DCGM_EXP_CLOCK_EVENTS_COUNT", "window"),
        ("DCGM_FI_DEV_XID_ERRORS", "code"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "mask"),
        ("DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "enum"),
        ("nvidia_smi_ecc_errors_corrected_volatile_total", "counter"),
        ("amd_gpu_power", "gauge"),
        ("node_cpu_seconds_total", "counter"),
        ("node_load1", "gauge"),
        ("node_netstat_Tcp_RetransSegs", "counter"),
        ("node_netstat_Tcp_CurrEstab", "gauge"),
        ("node_vmstat_pgpgout", "counter"),
        ("node_vmstat_nr_dirty", "gauge"),
        ("node_mountstats_nfs_operations_request_time_seconds_total", "counter"),
    ],
)
@pytest.mark.parametrize("declared", ["", "counter", "gauge"])
def test_the_kind_is_ours_whatever_type_says(name: str, kind: str, declared: str) -> None:
    expected = "counter" if name.startswith("node_") and declared == "counter" else kind
    assert resolve(name, {"gpu": "0"}, declared).kind == expected


def test_type_speaks_for_names_nobody_knows() -> None:
    assert [resolve("shop_orders", {}, declared).kind for declared in ("counter", "gauge", "")] == [
        "counter",
        "gauge",
        "gauge",
    ]
    assert resolve("shop_orders", {}).known is False
    assert resolve("shop_orders", {}).metric == "shop_orders"


def test_a_number_in_the_wrong_unit_is_missing_not_small() -> None:
    """The raw unit of these is inferred: a temperature that came in degrees must not read as 0.045 degrees."""
    metric, value = canonical("amd_gpu_current_temperature", {"gpu_current_temperature": "0"}, 45)
    assert metric == "gpu_temperature_celsius"
    assert math.isnan(value)
    assert canonical("amd_gpu_current_temperature", {}, 45000) == ("gpu_temperature_celsius", 45)


def test_node_exporter_names_are_canonical_already() -> None:
    meaning = resolve("node_memory_MemAvailable_bytes", {})
    assert (meaning.metric, meaning.unit, meaning.subject, meaning.scale) == (
        "node_memory_MemAvailable_bytes",
        "bytes",
        "node",
        1.0,
    )


def test_every_dcgm_field_is_known_and_hides_its_blanks() -> None:
    for row in rows("dcgm_fields.csv"):
        meaning = resolve(row["field"], {})
        assert meaning.known
        assert meaning.sentinels in {"dcgm", "dcgm_int32"}
        if row["prom_type"] == "gauge":
            assert meaning.kind != "counter" or meaning.metric in METRICS


def test_bytes_and_energy_may_pass_through_the_int32_band() -> None:
    assert canonical("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", {}, 2147483632)[1] == pytest.approx(2147483.632)
    assert canonical("DCGM_FI_DEV_FB_USED_BYTES", {}, 2147483632) == ("gpu_memory_used_bytes", 2147483632)


def test_case_023_renamed_metrics_new_units() -> None:
    folder, told = case("023")
    found: dict[str, list[float]] = {}
    for path in ("t000.prom", "t015.prom"):
        for line in (folder / path).read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                labels = {"DCGM_FI_SYSTEM_DRIVER_VERSION": "1"} if "DCGM_FI_SYSTEM_DRIVER" in line else {}
                metric, value = canonical(line.partition("{")[0], labels, float(line.rpartition(" ")[2]))
                found.setdefault(metric, []).append(value)
    assert found.pop("gpu_memory_total_bytes") == [told["numbers"]["fb_mib"] * 2**20]
    assert len(found) == told["numbers"]["series"]
    assert found == {
        "gpu_temperature_celsius": [65, 66],
        "gpu_memory_temperature_celsius": [71, 72],
        "gpu_power_watts": [512.5, 513],
        "gpu_utilization_ratio": pytest.approx([percent / 100 for percent in told["numbers"]["util_percent"]]),
        "gpu_xid_code": [0, 0],
    }


@pytest.mark.parametrize(
    ("name", "exporter"),
    [
        ("DCGM_FI_DEV_NEW_FIELD", "dcgm-exporter"),
        ("nvidia_smi_pstate", "nvidia_gpu_exporter"),
        ("gpu_gfx_activity", "amd-device-metrics-exporter"),
        ("amd_gpu_power", "amd_smi_exporter"),
        ("xpum_power_watts", "intel-xpum"),
        ("habanalabs_energy", "gaudi"),
        ("macmon_cpu_power_watts", "macmon"),
        ("node_load1", "node_exporter"),
        ("up", ""),
    ],
)
def test_the_exporter_is_told_by_its_names(name: str, exporter: str) -> None:
    assert family(name) == exporter
    assert is_known(name) is bool(exporter)


@given(st.text(max_size=40), st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=4))
def test_any_name_and_labels_get_an_answer(name: str, labels: dict[str, str]) -> None:
    meaning = resolve(name, labels)
    assert meaning.scale > 0
    assert meaning.metric == name or meaning.metric in METRICS
    assert meaning.kind in {"gauge", "counter", "code", "mask", "enum", "window"}
