"""Every name of the field's two tables of exporters: it has a canonical metric of one unit, or a reason why not."""

from __future__ import annotations

import csv

from shared import shared

from gpufleet.catalogue.meaning import resolve
from gpufleet.catalogue.metrics import METRICS


def table(name: str) -> list[dict[str, str]]:
    with shared(f"data/{name}").open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


# The tables' word: our metrics, and our unit in terms of theirs.
WORDS: dict[str, tuple[str, float]] = {
    "util_pct": ("gpu_utilization_ratio", 0.01),
    "engine_util_pct": ("gpu_engine_active_ratio", 0.01),
    "tensor_util_pct": ("gpu_tensor_active_ratio", 0.01),
    "mem_util_pct": ("gpu_memory_utilization_ratio gpu_memory_used_ratio", 0.01),
    "mem_used_bytes": ("gpu_memory_used_bytes", 1),
    "mem_free_bytes": ("gpu_memory_free_bytes", 1),
    "mem_reserved_bytes": ("gpu_memory_reserved_bytes", 1),
    "mem_total_bytes": ("gpu_memory_total_bytes", 1),
    "temp_c": ("gpu_temperature_celsius", 1),
    "mem_temp_c": ("gpu_memory_temperature_celsius", 1),
    "temp_margin_c": ("gpu_temperature_margin_celsius", 1),
    "power_w": ("gpu_power_watts", 1),
    "power_limit_w": ("gpu_power_limit_watts", 1),
    "sm_clock_mhz": ("gpu_sm_clock_hertz", 1e6),
    "mem_clock_mhz": ("gpu_memory_clock_hertz", 1e6),
    "energy_j": ("gpu_energy_joules_total", 1),
    "ecc_ce": ("gpu_ecc_corrected_total", 1),
    "ecc_ue": ("gpu_ecc_uncorrected_total", 1),
    "error_code": ("gpu_xid_code gpu_error_code", 1),
    "error_count": ("gpu_xid_events_total gpu_xid_window_count gpu_error_events_total", 1),
    "link_total_bps": ("gpu_nvlink_bytes_per_second", 1),
    "link_tx_bps": ("gpu_nvlink_tx_bytes_per_second", 1),
    "link_rx_bps": ("gpu_nvlink_rx_bytes_per_second", 1),
    "link_tx_bytes": ("gpu_link_tx_bytes_total", 1),
    "link_rx_bytes": ("gpu_link_rx_bytes_total", 1),
    "link_errors": ("gpu_nvlink_errors_total", 1),
    "link_state": ("gpu_link_state", 1),
    "pcie_tx_bps": ("gpu_pcie_tx_bytes_per_second", 1),
    "pcie_rx_bps": ("gpu_pcie_rx_bytes_per_second", 1),
    "pcie_total_bps": ("gpu_pcie_bytes_per_second", 1),
    "pcie_tx_bytes": ("gpu_pcie_tx_bytes_total", 1),
    "pcie_rx_bytes": ("gpu_pcie_rx_bytes_total", 1),
    "pcie_replay": ("gpu_pcie_replays_total", 1),
    "pcie_gen": ("gpu_pcie_link_generation", 1),
    "pcie_width": ("gpu_pcie_link_width", 1),
    "throttle_mask": ("gpu_clock_event_reasons", 1),
    "throttle_s": ("gpu_thermal_violation_seconds_total gpu_power_violation_seconds_total", 1),
    "throttle_flag": ("gpu_clock_limited", 1),
    "row_remap_pending": ("gpu_row_remap_pending", 1),
    "row_remap_failed": ("gpu_row_remap_failed", 1),
    "row_remap_ue": ("gpu_rows_remapped_uncorrectable_total", 1),
    "row_remap_ce": ("gpu_rows_remapped_corrected_total", 1),
    "fabric_state": ("gpu_fabric_state", 1),
    "health": ("gpu_health_status gpu_vendor_healthy", 1),
    "recovery_action": ("gpu_recovery_action", 1),
    "device_info": ("gpu_info", 1),
    "device_count": ("node_gpu_count", 1),
    "resets": ("gpu_resets_total", 1),
    "fan_pct": ("gpu_fan_ratio", 0.01),
    "fan_rpm": ("gpu_fan_rpm", 1),
}
# Labels that rows of an exporter always carry, by the beginning of its name in the table.
ALWAYS = {
    "amd-device": {"gpu_id": "0", "card_model": "MI300X"},
    "intel-xpumd": {"hw_id": "1", "pci_bdf": "0000:4d:00.0"},
    "gke-tpu": {"make": "cloud-tpu", "accelerator_id": "123"},
    "neuron": {"instance_id": "i-1"},
    "dcgm-exporter (>=4.9": {"UUID": "GPU-1", "DCGM_FI_SYSTEM_DRIVER_VERSION": "610.1"},
    "dcgm-exporter (<=4.8": {"UUID": "GPU-1", "DCGM_FI_DRIVER_VERSION": "580.1"},
}
# A bare key of a filter is a dimension; these have values that matter.
VALUES = {"hw_sensor_location": "gpu", "hw_frequency_domain": "gpu", "hw_state": "ok", "xid": "79"}
NOT_MAPPED = {
    "DCGM_FI_DRIVER_VERSION": "text in a label, no number: becomes the GPU's driver",
    "accelerator_nvidia_infiniband_link_downed": "of a port, not of a GPU: kept under its own name",
    "habanalabs_pending_rows_with_single_bit_ecc_errors": "rows that wait for replacement, no count of errors",
    "habanalabs_pending_rows_with_double_bit_ecc_errors": "rows that wait for replacement, no count of errors",
    "habanalabs_pcie_tx": "name and unit differ by release: a wrong scale would be worse than none",
    "habanalabs_pcie_rx": "name and unit differ by release: a wrong scale would be worse than none",
    "habanalabs_pci_link_speed": "a speed in text or GT/s by release, no generation",
    "gpuram_kB": "memory that GPU jobs hold, a part of what `ram_kB` counts: would be a second number for one thing",
}
# Rows where we differ from the table on purpose: our metric.
OTHERWISE = {
    "accelerator_nvidia_remapped_rows_due_to_uncorrectable_errors": "gpu_rows_remapped_corrected_total",
}


def labels_of(row: dict[str, str]) -> dict[str, str]:
    begins = next((known for known in ALWAYS if row["exporter"].startswith(known)), "")
    labels = dict(ALWAYS.get(begins, {}))
    for term in filter(None, (part.strip() for part in row["label_filter"].split(";"))):
        key, _, value = term.partition("=")
        labels[key] = value.strip('"') or VALUES.get(key, "1")
    if row["metric"] == "hw_errors_total":
        labels["error_type"] = {"ecc_ce": "corrected", "ecc_ue": "uncorrected"}[row["canonical"]]
    return labels


def test_every_row_of_the_exporters_table_has_its_canonical_metric() -> None:
    wrong = []
    for row in table("accelerator_mappings.csv"):
        name, meaning = row["metric"], resolve(row["metric"], labels_of(row))
        if row["exporter"].startswith("node_exporter"):
            # Already canonical: of a port of the node.
            right = (meaning.metric, meaning.scale, meaning.known, meaning.subject) == (name, 1.0, True, "node")
            right &= meaning.kind == ("counter" if name.endswith("_total") else "gauge")
        elif name in NOT_MAPPED:
            right = meaning.metric not in METRICS
        else:
            words, factor = WORDS[row["canonical"]]
            right = meaning.metric in (OTHERWISE.get(name) or words).split()
            right &= not row["scale"] or abs(meaning.scale / (float(row["scale"]) * factor) - 1) < 1e-9
        if not right:
            wrong.append(f"{row['exporter']} {name} {row['label_filter']}: {meaning.metric} * {meaning.scale}")
    assert not wrong
    assert NOT_MAPPED.keys() <= {row["metric"] for row in table("accelerator_mappings.csv")}


# DCGM's fields in base units (4.7) whose older twin has another unit, and that stay two metrics.
UNJOINED = {
    **{
        f"DCGM_FI_DEV_NVLINK_THROUGHPUT_L{link}_BYTES_PER_SECOND": "one link of many: the sum over all is joined"
        for link in range(18)
    },
    "DCGM_FI_DEV_C2C_MAX_BANDWIDTH_BYTES_PER_SECOND": "a constant of the board",
    "DCGM_FI_DEV_VGPU_FB_USED_BYTES": "of a virtual GPU, whose exporter names no board",
}


def has_number(row: dict[str, str]) -> bool:
    return row["prom_type"] not in {"label", "not_exportable"}


def test_every_row_of_the_dcgm_table_is_one_metric_under_all_its_names() -> None:
    """A field without a canonical metric keeps the name of its first spelling, for the later ones too."""
    fields = {row["field"]: row for row in table("dcgm_fields.csv")}
    wrong = []
    for name, row in fields.items():
        meaning = resolve(name, {"UUID": "GPU-1"})
        if not has_number(row):
            # Text and structures: labels or nothing, never a sample.
            right = meaning.metric not in METRICS
        else:
            right = meaning.known and meaning.exporter == "dcgm-exporter"
            right &= meaning.metric in METRICS or meaning.metric in fields
            twin = fields.get(row["alias_of"])
            if right and twin is not None:
                other = resolve(twin["field"], {"UUID": "GPU-1"})
                # One name, two units: test_meaning tells them apart by the labels.
                same_unit = row["unit"] == twin["unit"] and "DCGM_FI_DEV_GPU_UTIL_RATIO" not in (name, twin["field"])
                right = (meaning.metric, meaning.kind) == (other.metric, other.kind)
                right &= not same_unit or meaning.scale == other.scale
        if not right:
            wrong.append(f"{name} ({row['unit']}): {meaning.metric} {meaning.kind} {meaning.scale}")
    assert not wrong


def test_base_units_of_dcgm_4_7_are_joined_with_what_came_before() -> None:
    late = [row["field"] for row in table("dcgm_fields.csv") if 1613 <= int(row["dcgm_field_id"] or 0) <= 1649]
    apart = {name for name in late if resolve(name, {"UUID": "GPU-1"}).metric not in METRICS}
    assert apart == UNJOINED.keys()
