"""A GPU is its UUID. Index, bus, host label, driver and pod are facts about it, and never a new series."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import case

from gpufleet.catalogue.devices import Device, fold_key, identify, pci_bus_id, roll_call
from gpufleet.catalogue.meaning import resolve
from gpufleet.scrape.exposition import SeriesCache, read

UUID = "GPU-1b2c3d4e-5f60-7182-93a4-b5c6d7e8f901"
BARE = UUID.removeprefix("GPU-")
ZERO = "00000000-0000-0000-0000-000000000000"

Row = tuple[str, Device, float]


def rows_of(path: Path, cache: SeriesCache | None = None) -> list[tuple[tuple[str, ...], Device, float]]:
    """(fold key, device, raw value) of every line of a body that speaks of a GPU."""
    cache = SeriesCache() if cache is None else cache
    parsed = read(path.read_bytes(), cache, scraped_at=1e9, max_samples=10_000)
    assert parsed.rejected == parsed.duplicates == 0
    found = []
    for ref, value in zip(parsed.refs.tolist(), parsed.values.tolist(), strict=True):
        name, labels = cache.series(ref)
        device = identify(labels, name)
        assert device is not None
        found.append((fold_key(name, resolve(name, labels), device), device, value))
    return found


def folded(rows: list[tuple[tuple[str, ...], Device, float]]) -> dict[tuple[str, ...], float]:
    values: dict[tuple[str, ...], float] = {}
    for key, _, value in rows:
        values[key] = max(value, values.get(key, value))
    return values


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        (
            "DCGM_FI_DEV_GPU_TEMP",
            {
                "gpu": "0",
                "UUID": UUID.upper().replace("GPU", "GPU"),
                "pci_bus_id": "00000000:1A:00.0",
                "device": "nvidia0",
                "modelName": "NVIDIA B200",
                "Hostname": "node-17",
                "DCGM_FI_DRIVER_VERSION": "580.65.06",
            },
            Device(UUID, "0000:1a:00.0", 0, "NVIDIA B200", "nvidia", driver_version="580.65.06"),
        ),
        (
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            {"gpu": "1", "UUID": UUID, "GPU_I_ID": "7", "GPU_I_PROFILE": "1g.23gb", "pod": "job-0", "namespace": "ml"},
            Device(UUID, index=1, vendor="nvidia", mig="7", workload={"pod": "job-0", "namespace": "ml"}),
        ),
        (
            "dcgm_gpu_temp",
            {"gpu": "2", "uuid": UUID, "pod_name": "a", "container_name": "b"},
            Device(UUID, index=2, vendor="nvidia", workload={"pod": "a", "container": "b"}),
        ),
        (
            "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL",
            {"nvlink": "3", "gpu_uuid": UUID, "model_name": "B200", "hostname": "x"},
            Device(UUID, model="B200", vendor="nvidia", identity_labels={"nvlink": "3"}),
        ),
        (
            "DCGM_EXP_XID_ERRORS_COUNT",
            {"gpu": "3", "UUID": UUID, "window_size_in_ms": "300000", "xid": "79"},
            Device(UUID, index=3, vendor="nvidia", identity_labels={"xid": "79"}),
        ),
        (
            "nvidia_smi_gpu_info",
            {"uuid": BARE, "name": "NVIDIA H200", "index": "4", "pci_bus_id": "00000000:83:00.0", "serial": "165"},
            Device(
                UUID, "0000:83:00.0", 4, "NVIDIA H200", "nvidia", serial="165", identity_labels={"name": "NVIDIA H200"}
            ),
        ),
        ("nvidia_smi_power_draw_watts", {"uuid": BARE}, Device(UUID, vendor="nvidia")),
        ("nvidia_smi_power_draw_watts", {"uuid": ZERO}, Device(vendor="nvidia")),
        ("DCGM_FI_DEV_GPU_TEMP", {"gpu": "5", "UUID": f"GPU-{ZERO}"}, Device(index=5, vendor="nvidia")),
        ("accelerator_nvidia_memory_used_bytes", {"uuid": UUID, "gpud_component": "m"}, Device(UUID, vendor="nvidia")),
        (
            "gpu_gfx_activity",
            {"gpu_id": "6", "gpu_partition_id": "0", "serial_number": "692", "card_model": "MI300X", "hostname": "h"},
            Device(index=6, model="MI300X", vendor="amd", serial="692"),
        ),
        (
            "gpu_gfx_activity",
            {"gpu_id": "6", "gpu_uuid": "6699C0A8-4200", "gpu_partition_id": "3", "job_id": "17"},
            Device("6699c0a8-4200", index=6, vendor="amd", mig="3", workload={"job": "17"}),
        ),
        ("amd_gpu_power", {"gpu_power": "1", "productname": "MI210"}, Device(index=1, vendor="amd")),
        (
            "xpum_power_watts",
            {
                "uuid": "01000000-0000-0000-0000-00000000004d",
                "pci_bdf": "0000:4d:00.0",
                "dev_name": "Max 1550",
                "src": "direct",
            },
            Device("01000000-0000-0000-0000-00000000004d", "0000:4d:00.0", None, "Max 1550", "intel"),
        ),
        (
            "hw_gpu_utilization_ratio",
            {"hw_id": "9", "pci_bdf": "0000:4d:00.0"},
            Device(pci_bus_id="0000:4d:00.0", vendor="intel"),
        ),
        (
            "habanalabs_utilization",
            {"UUID": "01P0-HL2080", "device": "2"},
            Device("01p0-hl2080", index=2, vendor="intel"),
        ),
        ("macmon_gpu_power_watts", {"chip": "Apple M4"}, Device(model="Apple M4", vendor="apple")),
        (
            "integrated_power_mW",
            {"statistic": "power", "machine_part": "x"},
            Device(vendor="nvidia", identity_labels={"statistic": "power", "machine_part": "x"}),
        ),
        (
            "duty_cycle",
            {"make": "cloud-tpu", "accelerator_id": "4804", "model": "tpu-v5e", "pod": "p"},
            Device(
                "4804", model="tpu-v5e", vendor="google", workload={"pod": "p"}, identity_labels={"model": "tpu-v5e"}
            ),
        ),
        ("hardware_ecc_events_total", {"neuron_device_index": "3"}, Device(index=3, vendor="aws")),
    ],
)
def test_what_labels_tell(name: str, labels: dict[str, str], expected: Device) -> None:
    assert identify(labels, name) == expected


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("node_btrfs_info", {"uuid": "0abb23a9-579b-43e6-ad30-227ef47fcb9d", "label": ""}),
        ("node_hwmon_temp_celsius", {"chip": "pci0000:00_0000:00:18_3", "sensor": "temp1"}),
        ("node_infiniband_info", {"device": "mlx5_0"}),
        ("node_load1", {}),
        ("go_goroutines", {}),
        ("disk_info", {"uuid": "0abb23a9-579b-43e6-ad30-227ef47fcb9d"}),
        ("memory_used", {"index": "3"}),
        ("up", {"gpu": "no"}),
        ("DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", {"nvswitch": "0", "Hostname": "h"}),
        ("nvidia_smi_failed_scrapes_total", {}),
        ("macmon_up", {}),
    ],
)
def test_what_speaks_of_no_accelerator(name: str, labels: dict[str, str]) -> None:
    assert identify(labels, name) is None


def test_exported_labels_win_over_those_of_the_exporters_own_pod() -> None:
    labels = {"UUID": UUID, "pod": "dcgm-exporter-x", "namespace": "gpu-operator", "exported_pod": "train-1"}
    device = identify(labels, "DCGM_FI_DEV_GPU_TEMP")
    assert device is not None
    assert device.workload == {"pod": "train-1", "namespace": "gpu-operator"}
    assert device.identity_labels == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:18:00.0", "0000:18:00.0"),
        ("0000:18:00.0", "0000:18:00.0"),
        ("00000000:00:1E.0", "0000:00:1e.0"),
        ("00010000:18:00.0", "10000:18:00.0"),
        ("18:00.0", ""),
        ("nonsense", ""),
        ("", ""),
    ],
)
def test_bus_ids_have_one_form(text: str, expected: str) -> None:
    assert pci_bus_id(text) == expected


def test_the_key_is_the_uuid_then_the_bus_then_the_index() -> None:
    full = Device(UUID, "0000:18:00.0", 3)
    assert [device.key for device in (full, Device("", "0000:18:00.0", 3), Device("", "", 3), Device())] == [
        UUID,
        "0000:18:00.0",
        "3",
        "",
    ]


def test_rows_with_a_hidden_uuid_belong_to_the_only_board() -> None:
    named = identify(
        {"uuid": ZERO, "name": "H200", "index": "0", "pci_bus_id": "00000000:83:00.0"}, "nvidia_smi_gpu_info"
    )
    nameless = identify({"uuid": ZERO}, "nvidia_smi_power_draw_watts")
    assert named is not None
    assert nameless is not None
    for order in ([named, nameless], [nameless, named]):
        boards = roll_call(order)
        assert set(boards) == {"", "0000:83:00.0"}
        assert boards[""] == boards["0000:83:00.0"]
        assert (boards[""].index, boards[""].model) == (0, "H200")


def test_rows_with_a_hidden_uuid_are_nobodys_when_there_are_two_boards() -> None:
    boards = roll_call([Device(pci_bus_id="0000:01:00.0"), Device(), Device(pci_bus_id="0000:02:00.0")])
    assert set(boards) == {"0000:01:00.0", "0000:02:00.0"}


def test_a_lone_nameless_accelerator_is_a_board() -> None:
    assert roll_call([Device(vendor="apple"), Device(model="Apple M4")]) == {
        "": Device(vendor="apple", model="Apple M4")
    }


def test_case_013_the_uuid_stays_when_the_index_moves() -> None:
    folder, told = case("013")
    boards: dict[str, list[int | None]] = {}
    values: dict[str, list[float]] = {}
    for name in ("t000.prom", "t600.prom", "t1200.prom"):
        for key, device, value in rows_of(folder / name):
            boards.setdefault(device.uuid, []).append(device.index)
            if key[0] == "DCGM_FI_DEV_GPU_TEMP":
                values.setdefault(device.uuid, []).append(value)
    assert len(boards) == told["numbers"]["gpu_records"]
    assert told["numbers"]["board5_values"] in values.values()


def test_case_014_two_pods_on_one_gpu_fold_into_one_value() -> None:
    folder, told = case("014")
    rows = rows_of(folder / "input.prom")
    values = folded(rows)
    assert (len(rows), len(values)) == (told["numbers"]["lines"], told["numbers"]["values_stored"])
    assert sum(values.values()) == told["numbers"]["node_power_w"]
    pods: dict[str, set[str]] = {}
    for _, device, _ in rows:
        pods.setdefault(device.uuid, set()).add(device.workload["pod"])
    assert [len(names) for names in pods.values()] == [4, 4]


def test_case_015_mig_instances() -> None:
    folder, told = case("015")
    power, instances, boards, values = 0.0, set(), set(), 0
    for name in ("t000.prom", "t015.prom"):
        rows = rows_of(folder / name)
        boards |= {device.uuid for _, device, _ in rows}
        instances |= {(device.uuid, device.mig) for _, device, _ in rows}
        by_key = folded(rows)
        power = sum(value for key, value in by_key.items() if key[0] == "DCGM_FI_DEV_POWER_USAGE") or power
        values = max(values, sum(key[2] != "" for key in by_key))
    assert (len(boards), len(instances)) == (told["numbers"]["gpu_records"], told["numbers"]["instance_records"])
    assert power == told["numbers"]["node_power_w"]
    assert values == told["numbers"]["instance_values"]


@pytest.mark.parametrize(
    ("number", "series", "values"),
    [("016", 1, 5), ("017", 1, 4), ("018", 2, 8)],
)
def test_labels_that_change_make_no_new_series(number: str, series: int, values: int) -> None:
    folder, told = case(number)
    cache = SeriesCache()
    rows = [row for path in sorted(folder.glob("t*.prom")) for row in rows_of(path, cache)]
    assert told["numbers"].get("series", 1) == series
    assert told["numbers"]["values"] == values == len(rows)
    assert len({key for key, _, _ in rows}) == series
    assert len({device.key for _, device, _ in rows}) == 1


def test_case_018_driver_history_has_two_entries() -> None:
    folder, told = case("018")
    paths = sorted(folder.glob("t*.prom"), key=lambda path: int(path.stem[1:]))
    drivers = [device.driver_version for path in paths for _, device, _ in rows_of(path)]
    assert list(dict.fromkeys(drivers)) == ["550.127.08", "570.86.15"]
    assert told["numbers"]["driver_history"] == 2


@given(
    st.dictionaries(
        st.sampled_from(["UUID", "uuid", "gpu", "pci_bus_id", "pod", "GPU_I_ID", "xid"]), st.text(max_size=20)
    )
)
def test_any_labels_get_an_answer(labels: dict[str, str]) -> None:
    device = identify(labels, "DCGM_FI_DEV_GPU_TEMP")
    if device is not None:
        assert device.uuid == "" or device.uuid.removeprefix("GPU-") == device.uuid.removeprefix("GPU-").lower()
        assert fold_key("x", resolve("DCGM_FI_DEV_GPU_TEMP", labels), device)[0] == "x"
        assert roll_call([device])[device.key].key == device.key
