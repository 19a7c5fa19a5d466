"""The trouble cases of detection, through the whole pipeline in virtual time, to the exact numbers."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from scenario import NODE_BODY, Scenario, bodies, seconds_after
from shared import case

from gpufleet.accounts.models import User
from gpufleet.fleet.models import NodeEvent
from gpufleet.incidents.actions import acknowledge, resolve
from gpufleet.incidents.models import Incident, IncidentEvent
from gpufleet.pipeline.detecting import forget_windows, run_detect
from gpufleet.pipeline.windows import SPAN_SECONDS

pytestmark = pytest.mark.django_db


def every(seconds: int, *spans: tuple[int, int]) -> list[int]:
    """Times from each span's start to its end, both included."""
    return [at for start, end in spans for at in range(start, end + 1, seconds)]


def verbs(incident: Incident) -> list[str]:
    return list(IncidentEvent.objects.filter(incident=incident).order_by("id").values_list("verb", flat=True))


def play(fleet: Scenario, folder: Path, node: str, suffix: str = "", interval: int = 15) -> None:
    for seconds, body in bodies(folder, suffix):
        fleet.step(seconds, {(node, "dcgm"): body, (node, "node"): NODE_BODY})


def test_008_an_exporter_that_answers_with_nothing() -> None:
    folder, facts = case("008")
    fleet = Scenario(("gpu-n08", "dcgm"), ("gpu-n08", "node"))
    for seconds, body in bodies(folder):
        assert len(fleet.incidents()) == 0
        fleet.step(seconds, {("gpu-n08", "dcgm"): body, ("gpu-n08", "node"): NODE_BODY})
    (incident,) = fleet.incidents()
    assert len(fleet.incidents()) == facts["numbers"]["incidents"]
    assert (incident.kind, incident.subject, incident.severity) == ("exporter_down", "node:gpu-n08", "critical")
    assert incident.title.startswith("No GPU data from gpu-n08")
    assert seconds_after(incident.opened_at) == 45
    assert seconds_after(incident.first_evidence_at) == 15
    uuids = set(_uuids(fleet))
    assert len(uuids) == 8
    for uuid in uuids:
        assert fleet.ledger(uuid) == [("healthy", 0, 15), ("failed", 15, None)]


def test_008_with_one_target_only() -> None:
    folder, _ = case("008")
    fleet = Scenario(("gpu-n08", "dcgm"))
    for seconds, body in bodies(folder):
        fleet.step(seconds, {("gpu-n08", "dcgm"): body})
    assert [(one.kind, one.rule) for one in fleet.incidents()] == [("exporter_down", "exporter_down.no_gpu_samples")]


def _uuids(fleet: Scenario) -> list[str]:
    return list(fleet.cluster.gpus.order_by("id").values_list("uuid", flat=True))


def test_013_a_lost_board_is_named_though_all_others_have_new_numbers() -> None:
    folder, facts = case("013")
    files = dict(bodies(folder))
    fleet = Scenario(("gpu-n16", "dcgm"), ("gpu-n16", "node"))
    for seconds in every(15, (0, 30), (600, 660), (1200, 1230)):
        body = files[max(at for at in files if at <= seconds)]
        fleet.step(seconds, {("gpu-n16", "dcgm"): body, ("gpu-n16", "node"): NODE_BODY})
    assert len(_uuids(fleet)) == facts["numbers"]["gpu_records"]
    (incident,) = fleet.incidents()
    assert len(fleet.incidents()) == facts["numbers"]["incidents"]
    assert (incident.kind, incident.slot) == ("gpu_missing", 3)
    assert "5f:00" in incident.title
    assert seconds_after(incident.first_evidence_at) == 600
    assert incident.recovered_at is not None
    assert seconds_after(incident.recovered_at) == 1215


def test_020_impossible_numbers_are_no_heat() -> None:
    folder, facts = case("020")
    fleet = Scenario(("gpu-n01", "dcgm"), ("gpu-n01", "node"))
    play(fleet, folder, "gpu-n01")
    assert len(fleet.incidents()) == facts["numbers"]["incidents"]


def test_025_a_gauge_that_sticks_is_one_happening(django_user_model: type[User]) -> None:
    folder, facts = case("025")
    files = dict(bodies(folder))
    oncall = django_user_model.objects.create_user("oncall", password=None, role="responder")
    fleet = Scenario(("gpu-n41", "dcgm"))

    def body(seconds: int) -> bytes:
        return files[max(at for at in files if at <= seconds)]

    # The first minutes, the person's acts, an exporter restart and the reload; hours of the same are left out.
    stretches = every(15, (0, 420), (7140, 7320), (39_900, 40_200), (86_400, 86_520))
    for seconds in stretches:
        restarting = 40_000 <= seconds < 40_090
        fleet.step(seconds, {("gpu-n41", "dcgm"): "refused" if restarting else body(seconds)})
        if seconds == 360:
            acknowledge(fleet.incidents()[0].pk, oncall, now=fleet.at(seconds), source="page")
        if seconds == 7260:
            resolve(fleet.incidents()[0].pk, oncall, now=fleet.at(seconds), source="page", force=True)
    assert fleet.xids() == {48: facts["numbers"]["xid_events"]}
    (incident,) = fleet.incidents("xid")
    assert len(fleet.incidents("xid")) == facts["numbers"]["incidents"]
    assert [one.kind for one in fleet.incidents()] == ["xid", "node_down"]  # the exporter's restart, told for itself
    assert incident.occurrences == 1
    assert seconds_after(incident.first_evidence_at) == 60
    assert incident.resolved_at is not None
    assert seconds_after(incident.resolved_at) == 7260
    assert "recovered" not in verbs(incident)


def test_026_rises_of_a_windowed_count_through_a_restart() -> None:
    folder, facts = case("026")
    fleet = Scenario(("gpu-n42", "dcgm"), interval=60)
    for seconds, body in bodies(folder):
        if seconds == 300:
            forget_windows()
        fleet.step(seconds, {("gpu-n42", "dcgm"): body})
    told = NodeEvent.objects.filter(kind="xid").order_by("at", "xid").values_list("xid", "at", "count")
    assert [(code, seconds_after(at), count) for code, at, count in told] == [
        (31, 60, 1),
        (31, 180, 1),
        (94, 180, 1),
        (31, 420, 1),
    ]
    assert sum(fleet.xids().values()) == facts["numbers"]["xid_events"]
    assert [(one.kind, one.severity, one.occurrences) for one in fleet.incidents()] == [("xid", "warning", 1)]
    assert len(fleet.incidents()) == facts["numbers"]["incidents"]


def test_027_a_gpu_that_vanishes_without_a_word() -> None:
    folder, facts = case("027")
    numbers = facts["numbers"]
    fleet = Scenario(("gpu-n43", "dcgm"), ("gpu-n43", "node"))
    files = dict(bodies(folder))
    for seconds in every(15, (0, 90)):
        body = files[min(seconds, 75)]
        fleet.step(seconds, {("gpu-n43", "dcgm"): body, ("gpu-n43", "node"): NODE_BODY})
        assert len(fleet.incidents()) == (numbers["incidents"] if seconds >= numbers["opens_at_s"] else 0)
    (incident,) = fleet.incidents()
    assert (incident.kind, incident.severity, incident.paged) == ("gpu_missing", "critical", True)
    assert seconds_after(incident.opened_at) == numbers["opens_at_s"]
    assert seconds_after(incident.first_evidence_at) == numbers["start_at_s"]
    assert incident.gpu is not None
    assert fleet.down_seconds(incident.gpu.uuid) == numbers["down_s"]
    assert fleet.ledger(incident.gpu.uuid) == [("healthy", 0, 30), ("failed", 30, 75), ("healthy", 75, None)]
    assert {state for state, _, _ in fleet.ledger(node="gpu-n43")} <= {"healthy", "degraded"}
    assert incident.recovered_at is not None
    assert incident.resolved_at is None
    others = [uuid for uuid in _uuids(fleet) if uuid != incident.gpu.uuid]
    assert [fleet.ledger(uuid) for uuid in others] == [[("healthy", 0, None)]] * 7


def test_028_frozen_values_and_an_idle_neighbour() -> None:
    folder, facts = case("028")
    numbers = facts["numbers"]
    fleet = Scenario(("gpu-n44", "dcgm"), ("gpu-n44", "node"), ("gpu-n45", "dcgm"), ("gpu-n45", "node"))
    idle = dict(bodies(folder, "-n45"))
    for seconds, body in bodies(folder):
        answers = {("gpu-n44", "dcgm"): body, ("gpu-n45", "dcgm"): idle[seconds]}
        fleet.step(seconds, {**answers, ("gpu-n44", "node"): NODE_BODY, ("gpu-n45", "node"): NODE_BODY})
        assert len(fleet.incidents()) == (numbers["incidents"] if seconds >= numbers["opens_at_s"] else 0)
    (incident,) = fleet.incidents()
    assert (incident.kind, incident.subject) == ("telemetry_frozen", "node:gpu-n44")
    assert seconds_after(incident.first_evidence_at) == numbers["start_at_s"]
    for uuid in {piece["gpu_uuid"] for piece in incident.evidence}:
        assert fleet.ledger(uuid) == [("healthy", 0, 30), ("unknown", 30, None)]
    assert len(incident.evidence) == 4


def test_029_a_storm_of_application_codes_hides_nothing() -> None:
    folder, facts = case("029")
    fleet = Scenario(("gpu-n46", "dcgm"), ("gpu-n46", "node"))
    body = (folder / "input.prom").read_bytes()
    for seconds in (0, 15, 30):
        fleet.step(seconds, {("gpu-n46", "dcgm"): body, ("gpu-n46", "node"): NODE_BODY})
    assert fleet.xids() == {int(code): count for code, count in facts["numbers"]["counts"].items()}
    (incident,) = fleet.incidents()
    assert len(fleet.incidents()) == facts["numbers"]["incidents"]
    assert (incident.kind, incident.severity, incident.slot, incident.occurrences) == ("xid", "critical", 6, 1)
    assert "CE:00" in incident.title.upper()


def test_035_no_data_is_not_recovery() -> None:
    folder, facts = case("035")
    files = dict(bodies(folder))
    fleet = Scenario(("gpu-n57", "dcgm"))
    for seconds in every(15, (0, 885)):
        fleet.step(seconds, {("gpu-n57", "dcgm"): files[0] if seconds < 300 else "timeout"})
    thermal, down = fleet.incidents()
    assert len(fleet.incidents()) == facts["numbers"]["incidents"]
    assert (thermal.kind, thermal.subject.partition(":")[0], thermal.severity) == ("thermal", "gpu", "critical")
    assert (seconds_after(thermal.first_evidence_at), seconds_after(thermal.opened_at)) == (0, 15)
    assert thermal.no_data_since is not None
    assert seconds_after(thermal.no_data_since) == 300
    assert (thermal.recovered_at, thermal.resolved_at) == (None, None)
    assert (down.kind, down.subject) == ("node_down", "node:gpu-n57")
    assert (seconds_after(down.first_evidence_at), seconds_after(down.opened_at)) == (300, 330)
    assert verbs(thermal).count("recovered") == facts["numbers"]["resolved_notices_before_s900"]
    for seconds in every(15, (900, 990)):
        fleet.step(seconds, {("gpu-n57", "dcgm"): files[900]})
    thermal, down = fleet.incidents()
    assert down.recovered_at is not None
    assert seconds_after(down.recovered_at) == 915
    assert thermal.recovered_at is not None
    assert seconds_after(thermal.recovered_at) == 960


def test_xid_79_and_the_loss_of_the_gpu_are_one_page_and_end_after_the_repair() -> None:
    fleet = Scenario(("gpu-n01", "dcgm"), ("gpu-n01", "node"))

    def step(seconds: int, slots: range, code: int, uptime: int) -> None:
        fleet.step(seconds, {("gpu-n01", "dcgm"): _body(slots, {3: code}, uptime), ("gpu-n01", "node"): NODE_BODY})

    for seconds in (0, 15, 30):
        step(seconds, range(8), 0, 1000 + seconds)
    step(45, range(8), 79, 1045)
    lost = [slot for slot in range(8) if slot != 3]
    for seconds in every(15, (60, 180)):
        body = _body(lost, {}, 1000 + seconds)
        fleet.step(seconds, {("gpu-n01", "dcgm"): body, ("gpu-n01", "node"): NODE_BODY})
    xid, missing = fleet.incidents()
    assert (xid.kind, xid.paged, xid.parent_id) == ("xid", True, None)
    assert (missing.kind, missing.paged, missing.parent_id) == ("gpu_missing", False, xid.pk)
    assert fleet.ledger("GPU-00000000-0000-0000-0000-000000000003") == [("healthy", 0, 45), ("failed", 45, None)]
    for seconds in every(15, (195, 1000)):
        step(seconds, range(8), 0, seconds - 190)
    xid, missing = fleet.incidents()
    assert xid.recovered_at is not None
    assert seconds_after(xid.recovered_at) == 195 + 120
    assert missing.recovered_at is not None
    assert seconds_after(missing.recovered_at) == 210
    assert xid.resolved_at is not None
    assert xid.resolved_at - xid.recovered_at == timedelta(seconds=600)


def _body(slots: Any, codes: dict[int, int], uptime: int) -> bytes:
    lines = []
    for slot in slots:
        labels = f'gpu="{slot}",UUID="GPU-00000000-0000-0000-0000-{slot:012d}",pci_bus_id="00000000:{slot:02X}:00.0"'
        lines += [
            f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} {50 + uptime % 7}",
            f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 400",
            f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {400_000 * uptime}",
            f"DCGM_FI_DEV_XID_ERRORS{{{labels}}} {codes.get(slot, 0)}",
        ]
    return "\n".join(lines).encode() + b"\n"


def test_a_cycle_is_judged_once_and_an_older_one_never() -> None:
    fleet = Scenario(("gpu-n01", "dcgm"))
    for seconds in (0, 15, 30):
        assert fleet.step(seconds, {("gpu-n01", "dcgm"): _body(range(2), {1: 48 if seconds else 0}, seconds)})
    assert fleet.judge(30) is None
    assert fleet.judge(15) is None
    forget_windows()
    assert fleet.judge(30) is None
    assert fleet.xids() == {48: 1}
    assert [(one.kind, one.occurrences, verbs(one)) for one in fleet.incidents()] == [("xid", 1, ["opened"])]


def test_cycles_that_a_dead_worker_missed_are_judged_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Scenario(("gpu-n01", "dcgm"))
    fleet.step(0, {("gpu-n01", "dcgm"): _body(range(2), {}, 0)})
    with monkeypatch.context() as patched:
        patched.setattr(Scenario, "judge", lambda self, seconds: None)
        for seconds in (15, 30, 45):
            body = _body(range(2), {1: 48}, seconds) if seconds < 45 else _body(range(2), {1: 94}, seconds)
            fleet.step(seconds, {("gpu-n01", "dcgm"): body})
    forget_windows()
    done = fleet.step(60, {("gpu-n01", "dcgm"): _body(range(2), {1: 94}, 60)})
    assert done is not None
    assert done.judged == 4
    assert fleet.xids() == {48: 1, 94: 1}
    (incident,) = fleet.incidents()
    assert (seconds_after(incident.opened_at), incident.occurrences) == (15, 2)
    assert fleet.ledger("GPU-00000000-0000-0000-0000-000000000001") == [("healthy", 0, 15), ("failed", 15, None)]


def test_a_lost_cache_changes_nothing() -> None:
    def run(name: str, lose_every: int) -> list[Any]:
        fleet = Scenario(("gpu-n01", "dcgm"), ("gpu-n01", "node"))
        for number, seconds in enumerate(every(15, (0, 900))):
            slots = range(4) if not 200 < seconds < 300 else range(3)
            answer: bytes | str = _body(slots, {1: 48 if seconds > 100 else 0, 2: 94 if seconds > 600 else 0}, seconds)
            if 400 < seconds < 500:
                answer = "refused"
            if number % lose_every == 0:
                forget_windows()
            fleet.step(seconds, {("gpu-n01", "dcgm"): answer, ("gpu-n01", "node"): NODE_BODY})
        told = [
            (one.kind, one.subject, one.opened_at, one.recovered_at, one.resolved_at, one.occurrences, verbs(one))
            for one in fleet.incidents()
        ]
        ledgers = [fleet.ledger(uuid) for uuid in _uuids(fleet)]
        cluster = fleet.cluster
        cluster.name, cluster.is_replay = name, True
        cluster.save(update_fields=("name",))
        return [told, ledgers, fleet.xids()]

    kept = run("kept", 10_000)
    assert run("lost", 1) == kept
    assert len(kept[0]) >= 3
    assert SPAN_SECONDS < 900


def test_a_failure_below_leaves_no_trace_and_the_cycle_can_be_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Scenario(("gpu-n01", "dcgm"))
    fleet.step(0, {("gpu-n01", "dcgm"): _body(range(2), {}, 0)})

    def broken(*_: Any) -> None:
        raise RuntimeError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("gpufleet.pipeline.detecting.record", broken)
        with pytest.raises(RuntimeError):
            fleet.step(15, {("gpu-n01", "dcgm"): _body(range(2), {1: 48}, 15)})
    assert fleet.xids() == {}
    assert fleet.incidents() == []
    assert fleet.judge(15) is not None
    assert fleet.xids() == {48: 1}
    assert len(fleet.incidents()) == 1


def test_planned_time_opens_nothing_and_is_told_as_such() -> None:
    fleet = Scenario(("gpu-n01", "dcgm"))
    node = fleet.cluster.nodes.get()
    node.maintenance_windows.create(
        starts_at=fleet.at(30), ends_at=fleet.at(120), reason="fans", created_by="m", created_at=fleet.at(0)
    )
    for seconds in every(15, (0, 150)):
        answer: bytes | str = _body(range(2), {}, seconds) if seconds < 30 or seconds >= 120 else "refused"
        fleet.step(seconds, {("gpu-n01", "dcgm"): answer})
    assert fleet.incidents() == []
    expected = [("healthy", 0, 30), ("maintenance", 30, 120), ("healthy", 120, None)]
    assert fleet.ledger("GPU-00000000-0000-0000-0000-000000000001") == expected
    assert fleet.ledger(node="gpu-n01") == expected


def test_when_every_node_is_lost_at_once_no_gpu_is_failed() -> None:
    names = [f"gpu-n{number:02d}" for number in range(1, 6)]
    fleet = Scenario(*((name, "dcgm") for name in names))
    for seconds in every(15, (0, 120)):
        answers: dict[tuple[str, str], bytes | str] = {
            (name, "dcgm"): _numbered(name, seconds) if seconds < 45 or seconds >= 105 else "timeout" for name in names
        }
        fleet.step(seconds, answers)
    assert [(one.kind, one.subject, one.paged) for one in fleet.incidents()] == [
        ("telemetry_degraded", "cluster", True)
    ]
    states = {state for uuid in _uuids(fleet) for state, _, _ in fleet.ledger(uuid)}
    assert states == {"healthy", "unknown"}


def _numbered(node: str, uptime: int) -> bytes:
    return _body(range(2), {}, uptime).replace(b"GPU-00000000", f"GPU-000000{node[-2:]}".encode())


def test_a_live_shard_is_judged_by_its_number(settings: Any) -> None:
    fleet = Scenario(("gpu-n01", "dcgm"))
    body = _body(range(2), {}, 0)
    fleet.step(0, {("gpu-n01", "dcgm"): body})
    forget_windows()
    assert run_detect(fleet.cluster.id, fleet.cycle(0), 0, fleet.at(1)) is None
