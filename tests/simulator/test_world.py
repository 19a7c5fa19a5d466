"""What the simulated fleet says at an instant: text, values that agree, faults that show and go."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gpufleet.catalogue.meaning import resolve
from gpufleet.simulator.dcgm import FIELDS, ROW
from gpufleet.simulator.faults import KINDS, FaultError
from gpufleet.simulator.fleet import make_nodes
from gpufleet.simulator.schedule import read_script, seeded
from gpufleet.simulator.workload import EPOCH, SESSION, Workload
from gpufleet.simulator.world import World

T = EPOCH + 400 * SESSION + 3_000  # inside a session, training
NODE = "gpu-001"
Read = dict[tuple[str, str], float]


def read(world: World, t: float = T, node: str = NODE, exporter: str = "dcgm") -> Read:
    """(name, gpu) -> value by the parser of the Prometheus client."""
    answer = world.answer(node, exporter, t)
    assert not answer.mode
    return {
        (_plain(sample.name), sample.labels.get("gpu", "")): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def _plain(name: str) -> str:
    """The client's parser writes `_total` behind every counter that lacks it."""
    return name if name in ROW else name.removesuffix("_total")


def gpus(values: Read) -> list[str]:
    return [gpu for name, gpu in values if name == "DCGM_FI_DEV_GPU_TEMP"]


def test_a_gpu_body_holds_every_field_for_every_gpu() -> None:
    samples = [
        sample
        for family in text_string_to_metric_families(World().answer(NODE, "dcgm", T).body.decode())
        for sample in family.samples
    ]
    assert len(samples) == (len(FIELDS) + 1) * 8 == 360
    assert set(samples[0].labels) == {
        "gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION",
        "pod", "namespace", "container",
    }  # fmt: skip
    assert len({sample.labels["UUID"] for sample in samples}) == 8


def test_a_node_body_has_about_250_series() -> None:
    text = World().answer(NODE, "node", T).body.decode()
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    assert 230 <= len(samples) <= 300
    assert len({(s.name, *sorted(s.labels.items())) for s in samples}) == len(samples)


def test_every_dcgm_value_is_possible_by_the_catalogue() -> None:
    world = World()
    for t in (T, EPOCH + 400 * SESSION + 10, EPOCH + 401 * SESSION - 5):
        for family in text_string_to_metric_families(world.answer(NODE, "dcgm", t).body.decode()):
            for sample in family.samples:
                meaning = resolve(_plain(sample.name), sample.labels)
                if meaning.metric and meaning.low is not None and meaning.high is not None:
                    assert meaning.low <= sample.value <= meaning.high, sample


def test_the_same_seed_says_the_same_bytes_in_any_order() -> None:
    one, two = World(seed=5), World(seed=5)
    instants = [T, T + 15, T - 9_000, T + 86_400]
    first = [one.answer(NODE, kind, t).body for t in instants for kind in ("dcgm", "node")]
    again = [two.answer(NODE, kind, t).body for t in reversed(instants) for kind in ("node", "dcgm")]
    assert first == again[::-1]
    assert World(seed=6).answer(NODE, "dcgm", T).body != first[0]


def test_the_fleet_is_63_by_8_with_a_target_for_each_exporter() -> None:
    world = World()
    groups = world.targets("127.0.0.1:9")
    assert len(groups) == 126
    assert groups[0] == {
        "targets": ["127.0.0.1:9"],
        "labels": {
            "node": "gpu-001", "rack": "R01", "switch": "leaf-01", "cluster": "sim", "job": "dcgm",
            "instance": "gpu-001:9400", "__metrics_path__": "/nodes/gpu-001/dcgm/metrics",
        },
    }  # fmt: skip
    assert groups[-1]["labels"]["node"] == "gpu-063"
    assert groups[-1]["labels"]["rack"] == "R08"
    assert len({gpu.uuid for node in world.nodes.values() for gpu in node.gpus}) == 504
    assert [node.name for node in world.nodes.values() if node.spare] == ["gpu-061", "gpu-062", "gpu-063"]


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 3e7), st.floats(1, 40_000))
def test_energy_is_the_integral_of_power(start: float, span: float) -> None:
    load = Workload(np.array([False, True]), 3)
    begin = EPOCH + start
    edges = np.linspace(begin, begin + span, 20_001)
    middle = (edges[1:] + edges[:-1]) / 2
    power = np.array([load.power(float(t)) for t in middle[::40]])
    told = load.energy(begin + span) - load.energy(begin)
    assert (told > 0).all()
    assert np.allclose(power.mean(axis=0) * span, told, rtol=0.06)


COUNTERS = [field.name for field in FIELDS if field.kind == "counter"]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(k for k, v in KINDS.items() if v.gpu and k not in ("gpu_lost", "xid"))), st.data())
def test_counters_never_fall_under_a_fault_that_keeps_the_gpu(kind: str, data: st.DataObject) -> None:
    world = World(nodes=2)
    onset, seconds = data.draw(st.floats(0, 9_000)), data.draw(st.floats(1, 5_000))
    world.inject({"node": NODE, "fault": kind, "slot": 2, "at": T + onset, "seconds": seconds}, T)
    before: Read = {}
    for t in np.sort([T, T + onset, T + onset + 1, T + onset + seconds, *np.linspace(T, T + 15_000, 12)]):
        now = read(world, float(t))
        assert all(now[(name, "2")] >= before.get((name, "2"), 0) for name in COUNTERS)
        before = now


def test_a_busy_gpu_is_hot_and_a_spare_is_cool() -> None:
    busy, spare = read(World()), read(World(), node="gpu-063")
    assert 800 < busy[("DCGM_FI_DEV_POWER_USAGE", "0")] < 1000
    assert 45 <= busy[("DCGM_FI_DEV_GPU_TEMP", "0")] <= 75
    assert busy[("DCGM_FI_DEV_MEMORY_TEMP", "0")] > busy[("DCGM_FI_DEV_GPU_TEMP", "0")]
    assert spare[("DCGM_FI_DEV_POWER_USAGE", "0")] < 200
    assert spare[("DCGM_FI_DEV_GPU_UTIL", "0")] == 0


def test_xid_79_takes_the_gpu_away_and_repair_resets_its_counters() -> None:
    world = World(nodes=2)
    fault = world.inject({"node": NODE, "fault": "xid", "xid": 79, "slot": 3}, T)
    assert len(gpus(read(world, T - 1))) == 8
    assert gpus(read(world, T)) == ["0", "1", "2", "4", "5", "6", "7"]
    world.repair(fault.id, T + 600)
    assert len(gpus(read(world, T + 599))) == 7
    back = read(world, T + 660)
    assert len(gpus(back)) == 8
    energy = {gpu: back[("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", gpu)] for gpu in gpus(back)}
    assert 0 < energy["3"] < 80_000_000 < energy["2"]


def test_an_xid_that_keeps_the_gpu_stays_as_the_last_code_and_leaves_the_window() -> None:
    world = World(nodes=2)
    world.inject({"node": NODE, "fault": "xid", "xid": 94, "slot": 1, "seconds": 60}, T)
    assert ("DCGM_FI_DEV_XID_ERRORS", "1") not in read(world, T - 1)
    for after, count in ((0, 1), (299, 1), (301, 0)):
        now = read(world, T + after)
        assert now[("DCGM_FI_DEV_XID_ERRORS", "1")] == 94
        assert now[("DCGM_EXP_XID_ERRORS_COUNT", "1")] == count
    assert b'err_code="94",err_msg="' in world.answer(NODE, "dcgm", T).body


def test_frozen_repeats_its_bytes_and_thaws() -> None:
    world = World(nodes=2)
    fault = world.inject({"node": NODE, "fault": "frozen"}, T)
    body = world.answer(NODE, "dcgm", T).body
    assert world.answer(NODE, "dcgm", T + 900).body == body
    assert world.answer(NODE, "node", T + 900).body != world.answer(NODE, "node", T).body
    world.repair(fault.id, T + 1_000)
    assert world.answer(NODE, "dcgm", T + 1_000).body != body


def test_thermal_heats_to_96_slows_clocks_and_ends() -> None:
    world = World(nodes=2)
    world.inject({"node": NODE, "fault": "thermal", "slot": 0, "seconds": 600}, T)
    hot, other, later = read(world, T + 300), read(world, T + 300), read(world, T + 700)
    assert hot[("DCGM_FI_DEV_GPU_TEMP", "0")] == 96
    assert int(hot[("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "0")]) & 0x48 == 0x48
    assert hot[("DCGM_FI_DEV_SM_CLOCK", "0")] == 1125
    assert other[("DCGM_FI_DEV_GPU_TEMP", "1")] < 75
    assert later[("DCGM_FI_DEV_GPU_TEMP", "0")] < 75
    assert later[("DCGM_FI_DEV_THERMAL_VIOLATION", "0")] == 540e9


@pytest.mark.parametrize("kind", sorted(k for k, v in KINDS.items() if v.gpu))
def test_every_gpu_fault_shows_on_its_gpu_alone(kind: str) -> None:
    world, healthy = World(nodes=2), World(nodes=2)
    world.inject({"node": NODE, "fault": kind, "slot": 4}, T)
    sick, well = read(world, T + 86_400), read(healthy, T + 86_400)
    changed = {gpu for (name, gpu) in sick.keys() | well.keys() if sick.get((name, gpu)) != well.get((name, gpu))}
    assert changed == {"4"}


@pytest.mark.parametrize("mode", ["refused", "hang", "500", "empty", "cut_off"])
def test_exporter_down_takes_one_exporter_and_node_down_both(mode: str) -> None:
    world = World(nodes=2)
    fault = world.inject({"node": NODE, "fault": "exporter_down", "mode": mode}, T)
    assert world.answer(NODE, "dcgm", T).mode == mode
    assert world.answer(NODE, "node", T).mode == ""
    world.repair(fault.id, T + 10)
    assert world.answer(NODE, "dcgm", T + 10).mode == ""
    world.inject({"node": "gpu-002", "fault": "node_down", "mode": mode}, T)
    expected = "hang" if mode == "hang" else "refused"
    assert [world.answer("gpu-002", kind, T).mode for kind in ("dcgm", "node")] == [expected, expected]


@pytest.mark.parametrize(
    "bad",
    [
        {"fault": "nonsense"}, {"fault": "xid", "slot": 8}, {"fault": "xid", "slot": 1.5},
        {"fault": "xid", "xid": "79"},
        {"fault": "xid", "xid": 0}, {"fault": "thermal", "seconds": -1}, {"fault": "thermal", "at": float("nan")},
        {"fault": "exporter_down", "mode": "sulk"}, {"fault": "xid", "vanish": 1}, {"fault": "thermal", "speed": 2},
        {"fault": "frozen", "exporter": "amd"}, {"fault": "xid", "slot": True},
    ],
)  # fmt: skip
def test_an_impossible_fault_is_refused_and_changes_nothing(bad: dict[str, object]) -> None:
    world = World(nodes=2)
    with pytest.raises(FaultError):
        world.inject({"node": NODE, **bad}, T)
    assert world.truth() == []


def test_seeded_faults_depend_on_the_day_alone_and_come_at_the_rate_asked() -> None:
    nodes = make_nodes(63, 8, 1)
    long = seeded(nodes, 7, 2.0, T, 200)
    late = seeded(nodes, 7, 2.0, T + 100 * 86_400, 100)
    assert [f for f in long if f.onset >= late[0].onset] == late
    assert 320 < len(long) < 480
    assert seeded(nodes, 7, 0, T, 50) == []
    with pytest.raises(FaultError):
        seeded(nodes, 7, -1, T, 1)


def test_a_script_is_read_or_refused_with_its_position(tmp_path: Path) -> None:
    nodes, path = make_nodes(2, 8, 1), tmp_path / "script.json"
    row = {"node": NODE, "fault": "thermal", "at": T}
    path.write_text(json.dumps([row]))
    assert [(f.node, f.kind.name, f.onset) for f in read_script(path, nodes)] == [(NODE, "thermal", T)]
    path.write_text(json.dumps([row, {**row, "slot": 9}]))
    with pytest.raises(FaultError, match="fault 1: slot"):
        read_script(path, nodes)
    for text in ("{", "{}", '[{"node": "gpu-001", "fault": "thermal"}]'):
        path.write_text(text)
        with pytest.raises(FaultError):
            read_script(path, nodes)


def test_an_xid_outlives_its_gpu_in_the_exporter_and_a_silent_loss_says_nothing() -> None:
    world = World(nodes=2)
    world.inject({"node": NODE, "fault": "xid", "xid": 79, "slot": 3}, T)
    world.inject({"node": NODE, "fault": "gpu_lost", "slot": 5}, T)
    values = read(world, T + 15)
    assert gpus(values) == ["0", "1", "2", "4", "6", "7"]
    assert {name for name, gpu in values if gpu == "3"} == {"DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT"}
    assert values["DCGM_FI_DEV_XID_ERRORS", "3"] == 79
    assert {name for name, gpu in values if gpu == "5"} == set()
    assert {name for name, gpu in read(world, T + 400) if gpu == "3"} == {"DCGM_FI_DEV_XID_ERRORS"}
