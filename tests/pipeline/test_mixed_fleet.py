"""Machines of all vendors on one map, histories that go on across renames, and jobs that never make a series."""

from __future__ import annotations

import pytest
from scenario import START, Scenario
from shared import case, shared

from gpufleet.fleet.models import Assignment, Gpu, Placement
from gpufleet.pipeline.snapshot import GpuView, fleet_snapshot
from gpufleet.store.models import Layout, Series
from gpufleet.store.queries import read_range

pytestmark = pytest.mark.django_db

JETSON = b"""\
gpu_utilization_percentage_Hz{nvidia_gpu="freq",statistic="gv11b"} 1109250.0
gpu_utilization_percentage_Hz{nvidia_gpu="max_freq",statistic="gv11b"} 1377000.0
ram_kB{statistic="total"} 3.1919572e+07
ram_kB{statistic="used"} 8.123456e+06
gpuram_kB{nvidia_gpu="mem"} 2.5e+06
temperature_C{statistic="gpu"} 47.5
temperature_C{statistic="cpu"} 49.0
temperature_C{statistic="tj"} 49.5
integrated_power_mW{statistic="power"} 15250.0
emc_Hz{statistic="total"} 2133000.0
"""
MACMON = b"""\
macmon_gpu_active_ratio{chip="Apple M4 Max"} 0.62
macmon_gpu_usage_ratio{chip="Apple M4 Max"} 0.62
macmon_gpu_power_watts{chip="Apple M4 Max"} 31.5
macmon_gpu_temp_celsius{chip="Apple M4 Max"} 58.25
macmon_gpu_freq_mhz{chip="Apple M4 Max"} 1398
macmon_memory_ram_used_bytes{chip="Apple M4 Max"} 41000000000
macmon_memory_ram_total_bytes{chip="Apple M4 Max"} 137438953472
macmon_cpu_power_watts{chip="Apple M4 Max"} 9.75
"""
TPU = b"".join(
    b'%s{accelerator_id="4804027%d",make="cloud-tpu",model="tpu-v5-lite-podslice",tpu_topology="2x4",pod="t-0"} %s\n'
    % (name, n, value)
    for n in range(4)
    for name, value in (
        (b"duty_cycle", b"91"),
        (b"memory_used", b"9000000000"),
        (b"memory_total", b"17000000000"),
        (b"tensorcore_utilization", b"55"),
    )
)
NEURON = b"".join(
    b'neuroncore_utilization_ratio{instance_id="i-0a1",neuroncore="%d",runtime_tag="367"} 0.%d\n' % (n, n + 4)
    for n in range(2)
) + (
    b'neuron_runtime_memory_used_bytes{instance_id="i-0a1",memory_location="host",runtime_tag="367"} 6e+08\n'
    b'neuron_runtime_memory_used_bytes{instance_id="i-0a1",memory_location="neuron_device",runtime_tag="367"} 2.5e+10\n'
    b'neuron_hardware_info{instance_id="i-0a1",neuron_device_count="1",neuroncore_per_device_count="2"} 1\n'
)


def body_of(path: str) -> bytes:
    return shared(f"data/real/exporters/{path}").read_bytes()


def test_one_map_shows_training_gpus_edge_boards_and_apple_machines() -> None:
    bodies = {
        "h100": body_of("dcgm/aicr-8xh100-2026-02-19.prom"),
        "mi": body_of("amd/metrics_mini.txt"),
        "smi": body_of("nvidia_gpu_exporter/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__load.metrics"),
        "jetson": JETSON,
        "mac": MACMON,
        "tpu": TPU,
        "neuron": NEURON,
    }
    fleet = Scenario(*((name, "gpu") for name in bodies))
    answers = {(name, "gpu"): body for name, body in bodies.items()}
    for seconds in (0, 15, 30, 45):
        fleet.step(seconds, answers)
    snapshot = fleet_snapshot(fleet.cluster, fleet.at(46), metrics=None)
    found = {node.name: node.gpus for node in snapshot.nodes}
    assert {name: len(gpus) for name, gpus in found.items()} == {
        "h100": 8, "mi": 1, "smi": 1, "jetson": 1, "mac": 1, "tpu": 4, "neuron": 1,
    }  # fmt: skip
    assert {gpu.state for gpus in found.values() for gpu in gpus} == {"healthy"}
    assert fleet.incidents() == []
    assert Gpu.objects.count() == Placement.objects.count() == 17  # four scrapes later nobody has been made twice
    assert told(found["h100"][0], "gpu_temperature_celsius", "gpu_power_watts") == [26, pytest.approx(67.268)]
    assert told(found["mi"][0], "gpu_power_watts", "gpu_utilization_ratio") == [41, 0]
    assert told(found["smi"][0], "gpu_temperature_celsius", "gpu_power_watts", "gpu_utilization_ratio") == [
        59, pytest.approx(631.95), 1,
    ]  # fmt: skip
    assert told(
        found["jetson"][0], "gpu_temperature_celsius", "gpu_power_watts", "gpu_sm_clock_hertz", "gpu_memory_used_bytes"
    ) == [49.5, 15.25, pytest.approx(1.10925e9), 8123456 * 1024]
    assert "gpu_utilization_ratio" not in present(found["jetson"][0])
    assert (found["jetson"][0].uuid, found["mac"][0].uuid) == ("jetson/0", "mac/0")
    assert found["mac"][0].model == "Apple M4 Max"
    assert told(
        found["mac"][0], "gpu_temperature_celsius", "gpu_power_watts", "gpu_utilization_ratio", "gpu_sm_clock_hertz"
    ) == [58.25, 31.5, 0.62, pytest.approx(1.398e9)]
    assert [gpu.uuid for gpu in found["tpu"]] == [f"4804027{n}" for n in range(4)]
    assert {gpu.model for gpu in found["tpu"]} == {"tpu-v5-lite-podslice"}
    assert all(
        told(gpu, "gpu_utilization_ratio", "gpu_tensor_active_ratio", "gpu_memory_used_bytes") == [0.91, 0.55, 9e9]
        for gpu in found["tpu"]
    )
    assert present(found["neuron"][0]) >= {"gpu_utilization_ratio", "gpu_memory_used_bytes"}


def present(gpu: GpuView) -> set[str]:
    return {name for name, value in gpu.metrics.items() if value is not None}


def told(gpu: GpuView, *metrics: str) -> list[float | None]:
    return [gpu.metrics.get(name) for name in metrics]


def test_case_023_one_history_across_the_rename() -> None:
    folder, facts = case("023")
    fleet = Scenario(("gpu-n30", "dcgm"))
    wanted = {
        "gpu_temperature_celsius": [65, 66],
        "gpu_memory_temperature_celsius": [71, 72],
        "gpu_power_watts": [512.5, 513],
        "gpu_utilization_ratio": [percent / 100 for percent in facts["numbers"]["util_percent"]],
        "gpu_xid_code": [0, 0],
    }
    for seconds, path in ((0, "t000.prom"), (15, "t015.prom")):
        fleet.step(seconds, {("gpu-n30", "dcgm"): (folder / path).read_bytes()})
        (gpu,) = fleet_snapshot(fleet.cluster, fleet.at(seconds + 1), metrics=None).nodes[0].gpus
        assert [gpu.metrics.get(name) for name in wanted] == [
            pytest.approx(values[seconds // 15]) for values in wanted.values()
        ]
    assert Gpu.objects.count() == 1
    for metric, values in wanted.items():
        result = read_range(metric, [gpu.id], start=START, end=START + 30, step=15)
        assert [row.mean.tolist() for row in result.rows] == [[pytest.approx(value) for value in values]]
    assert fleet.incidents() == []


def test_case_024_a_code_out_of_nothing_is_one_happening() -> None:
    folder, facts = case("024")
    fleet = Scenario(("gpu-n32", "dcgm"))
    for seconds in (0, 15, 30, 45):
        fleet.step(seconds, {("gpu-n32", "dcgm"): (folder / f"t{seconds:03}.prom").read_bytes()})
        states = [gpu.state for gpu in fleet_snapshot(fleet.cluster, fleet.at(seconds + 1), metrics=None).nodes[0].gpus]
        assert states[0] == "healthy"
        assert "unknown" not in states
    assert fleet.xids() == {94: facts["numbers"]["xid_events"]}
    assert [one.kind for one in fleet.incidents()] == ["xid"]
    assert fleet.incidents()[0].subject.endswith("GPU-ab6ee52c-228e-5f59-be5f-1bf939e77002")


PODS, GPUS, SHARES = 10_000, 8, 25


def test_ten_thousand_pods_are_rows_of_what_ran_and_no_series() -> None:
    """25 pods share each of 8 GPUs and all of them change every scrape, fifty times."""
    fleet = Scenario(("gpu-n01", "dcgm"))
    counts = set()
    for scrape in range(PODS // (GPUS * SHARES)):
        lines = [
            f'DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu}",UUID="GPU-{gpu}",modelName="NVIDIA B200",vgpu="{share}",'
            f'namespace="ml",container="c",pod="p-{(scrape * GPUS + gpu) * SHARES + share}"}} 45'
            for gpu in range(GPUS)
            for share in range(SHARES)
        ]
        fleet.scrape(15 * scrape, {("gpu-n01", "dcgm"): "\n".join(lines).encode() + b"\n"})
        counts.add((Series.objects.count(), Layout.objects.count(), Gpu.objects.count()))
        assert Assignment.objects.filter(ends_at=None).count() == GPUS * SHARES
    assert counts == {(GPUS, 1, GPUS)}
    assert Assignment.objects.count() == PODS
    assert Assignment.objects.values("workload__pod").distinct().count() == PODS
    (memory,) = fleet.reader._targets.values()
    assert len(memory.plans) <= 4
    assert len(memory.series) <= GPUS * SHARES
