"""Acts on the inventory: importing twice changes nothing, refusals change nothing, each act leaves one audit entry."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from gpufleet.accounts.models import AuditEntry
from gpufleet.fleet.actions import Imported, create_windows, end_window, import_targets, set_expected_gpus
from gpufleet.fleet.models import LIVE, Cluster, MaintenanceWindow, Node, Rack, Switch, Target
from gpufleet.fleet.queries import active_targets, inventory, shard_count, windows_between
from gpufleet.fleet.specs import FleetError, TargetSpec, WindowSpec

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
AT = NOW.timestamp()


def spec(n: int, *, rack: str = "r1", cluster: str = LIVE, job: str = "dcgm", **labels: str) -> TargetSpec:
    return TargetSpec(f"http://10.0.0.{n}:9400/metrics", f"gpu-n{n:02}", cluster, rack, "s1", job, labels)


def take(*specs: TargetSpec, source: str = "fleet.json", prune: bool = False, now: datetime = NOW) -> Imported:
    return import_targets(specs, source=source, actor="test", now=now, trusted=True, prune=prune)


def everything() -> list[object]:
    return [
        list(model.objects.order_by("id").values())
        for model in (Cluster, Rack, Switch, Node, Target, MaintenanceWindow, AuditEntry)
    ]


def test_an_import_makes_nodes_racks_and_switches() -> None:
    assert take(spec(1), spec(2, rack="r2"), spec(3, cluster="b")) == Imported(3, 0, 0, 0)
    rows = Node.objects.order_by("name").values_list("name", "cluster__name", "rack__name", "switch__name")
    assert list(rows) == [("gpu-n01", LIVE, "r1", "s1"), ("gpu-n02", LIVE, "r2", "s1"), ("gpu-n03", "b", "r1", "s1")]
    assert set(Node.objects.values_list("commissioned_at", flat=True)) == {NOW}
    assert set(Target.objects.values_list("kind", "trusted", "source")) == {("gpu", True, "fleet.json")}
    (entry,) = AuditEntry.objects.all()
    assert (entry.verb, entry.subject, entry.detail["added"]) == ("import_targets", "fleet.json", 3)


def test_the_same_again_changes_nothing() -> None:
    take(spec(1), spec(2))
    before = everything()
    assert take(spec(1), spec(2), spec(1), now=NOW + timedelta(days=1)) == Imported(0, 0, 2, 0)
    assert everything() == before


def test_other_labels_are_a_change() -> None:
    take(spec(1), spec(2))
    assert take(spec(1, rack="r9", zone="z"), spec(2)) == Imported(0, 1, 1, 0)
    assert Node.objects.filter(name="gpu-n01", rack__name="r9").exists()
    assert Target.objects.get(node__name="gpu-n01").labels == {"zone": "z"}


def test_what_is_no_longer_listed_goes_only_with_prune() -> None:
    take(spec(1), spec(2))
    take(spec(3), source="other.json")
    assert take(spec(1)) == Imported(0, 0, 1, 0)
    assert len(active_targets(Cluster.objects.get().id)) == 3
    assert take(spec(1), prune=True) == Imported(0, 0, 1, 1)
    assert [target.node for target in active_targets(Cluster.objects.get().id)] == ["gpu-n01", "gpu-n03"]
    assert Target.objects.get(node__name="gpu-n02").removed_at == NOW
    assert take(spec(1), spec(2)) == Imported(1, 0, 1, 0)


def test_a_list_that_contradicts_itself_is_refused() -> None:
    before = everything()
    with pytest.raises(FleetError, match="listed twice"):
        take(spec(2), spec(1), spec(1, rack="r2"))
    assert everything() == before


def test_a_replay_is_not_scraped() -> None:
    Cluster.objects.create(name="replay", is_replay=True)
    before = everything()
    with pytest.raises(FleetError, match="holds a replay"):
        take(spec(1), spec(2, cluster="replay"))
    assert everything() == before


@pytest.mark.parametrize(
    ("job", "kind"),
    [
        *(
            ("dcgm", "gpu"),
            ("nvidia-dcgm-exporter", "gpu"),
            ("nvidia_gpu_exporter", "gpu"),
            ("amd-smi-exporter", "gpu"),
        ),
        *(("node", "node"), ("node-exporter", "node"), ("gpu", "unknown"), ("gpu-nodes", "unknown"), ("", "unknown")),
    ],
)
def test_kinds(job: str, kind: str) -> None:
    take(spec(1, job=job))
    assert Target.objects.get().kind == kind


def test_shards() -> None:
    take(*(spec(n) for n in range(1, 11)))
    cluster = Cluster.objects.get()
    assert [shard_count(cluster.id, size) for size in (1, 3, 10, 100)] == [10, 4, 1, 1]
    with pytest.raises(ValueError, match="no shard 2 of 2"):
        active_targets(cluster.id, 2, 2)


def test_expected_gpus_of_a_person() -> None:
    take(spec(1))
    node = Node.objects.get()
    set_expected_gpus(node.id, 8, actor="ann", source="page", now=NOW)
    set_expected_gpus(node.id, 8, actor="ann", source="page", now=NOW)
    node.refresh_from_db()
    assert (node.expected_gpus, node.expected_gpus_by) == (8, "ann")
    entry = AuditEntry.objects.get(verb="set_expected_gpus")
    assert (entry.actor, entry.subject, entry.detail) == ("ann", "node:gpu-n01", {"before": None, "after": 8})
    set_expected_gpus(node.id, None, actor="ann", source="page", now=NOW)
    node.refresh_from_db()
    assert (node.expected_gpus, node.expected_gpus_by) == (None, "")


@pytest.mark.parametrize("count", [-1, 1025])
def test_an_impossible_number_of_gpus(count: int) -> None:
    take(spec(1))
    before = everything()
    with pytest.raises(FleetError):
        set_expected_gpus(Node.objects.get().id, count, actor="ann", source="page", now=NOW)
    with pytest.raises(FleetError):
        set_expected_gpus(0, 8, actor="ann", source="page", now=NOW)
    assert everything() == before


def announce(*specs: WindowSpec) -> list[MaintenanceWindow]:
    return create_windows(Cluster.objects.get(), specs, actor="ann", source="page", now=NOW)


def test_windows_are_announced_once() -> None:
    take(spec(1), spec(2))
    window = WindowSpec("gpu-n01", AT, AT + 3600, "new fans")
    assert len(announce(window, window, WindowSpec("gpu-n02", AT, AT + 60, "x"))) == 2
    before = everything()
    assert announce(window) == []
    assert everything() == before
    assert AuditEntry.objects.filter(verb="maintenance").count() == 1
    node = Node.objects.get(name="gpu-n01")
    assert [w.reason for w in windows_between([node.id], NOW, NOW + timedelta(hours=2))] == ["new fans"]
    assert windows_between([node.id], NOW + timedelta(hours=1), NOW + timedelta(hours=2)) == []


@pytest.mark.parametrize(("node", "length"), [("gpu-n99", 60), ("gpu-n01", 0), ("gpu-n01", -1)])
def test_a_window_that_cannot_be(node: str, length: int) -> None:
    take(spec(1))
    before = everything()
    with pytest.raises(FleetError):
        announce(WindowSpec("gpu-n01", AT, AT + 60, "good"), WindowSpec(node, AT, AT + length, "bad"))
    assert everything() == before


def test_ending_a_window() -> None:
    take(spec(1))
    (running, future) = announce(
        WindowSpec("gpu-n01", AT - 60, AT + 3600, "a"), WindowSpec("gpu-n01", AT + 60, AT + 3600, "b")
    )
    assert end_window(running.id, actor="ann", source="page", now=NOW).ends_at == NOW
    assert end_window(running.id, actor="bob", source="page", now=NOW + timedelta(hours=1)).ends_at == NOW
    assert end_window(future.id, actor="ann", source="page", now=NOW).ends_at == future.starts_at
    assert AuditEntry.objects.filter(verb="end_maintenance").count() == 2
    with pytest.raises(FleetError):
        end_window(0, actor="ann", source="page", now=NOW)


def test_the_inventory_takes_two_queries(django_assert_num_queries: Any) -> None:
    take(*(spec(n) for n in range(1, 6)))
    cluster = Cluster.objects.get()
    with django_assert_num_queries(2):
        found = inventory(cluster)
    assert [(node.name, node.rack, node.switch, node.gpus) for node in found.nodes.values()] == [
        (f"gpu-n0{n}", "r1", "s1", ()) for n in range(1, 6)
    ]


def run(command: str, *arguments: str) -> str:
    out = StringIO()
    call_command(command, *arguments, stdout=out)
    return out.getvalue()


def test_the_commands(tmp_path: Path) -> None:
    targets = tmp_path / "targets.json"
    targets.write_text(json.dumps([{"targets": ["10.0.0.1:9400"], "labels": {"node": "a", "job": "dcgm"}}]))
    assert run("import_targets", str(targets)) == "targets: 1 added, 0 changed, 0 unchanged, 0 removed\n"
    assert run("import_targets", str(targets)) == "targets: 0 added, 0 changed, 1 unchanged, 0 removed\n"
    targets.write_text("[]")
    assert run("import_targets", str(targets), "--prune") == "targets: 0 added, 0 changed, 0 unchanged, 1 removed\n"
    windows = tmp_path / "windows.json"
    row = {"node": "a", "from": "2026-03-10T12:00:00Z", "to": "2026-03-10T15:00:00+01:00", "reason": "fans"}
    windows.write_text(json.dumps([row]))
    assert run("import_maintenance", str(windows)) == "maintenance windows: 1 added, 0 known\n"
    assert run("import_maintenance", str(windows)) == "maintenance windows: 0 added, 1 known\n"
    assert MaintenanceWindow.objects.get().ends_at == NOW + timedelta(hours=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1, column 2"),
        ("{}", "starts with"),
        ('[{"node": "a"}]', "window 1: needs the texts"),
        ('[{"node":"a","from":"2026-03-10T12:00:00","to":"2026-03-11T12:00:00Z","reason":""}]', "needs an offset"),
        ('[{"node":"a","from":"2026-03-10T12:00:00Z","to":"2026-03-10T12:00:00Z","reason":""}]', "before it starts"),
        ('[{"node":"a","from":"2026-03-10T12:00:00Z","to":"2026-03-11T12:00:00Z","reason":""}]', "no node a"),
    ],
)
def test_bad_announcements(tmp_path: Path, text: str, message: str) -> None:
    take(spec(1))
    before = everything()
    path = tmp_path / "windows.json"
    path.write_text(text)
    with pytest.raises(CommandError, match=message):
        run("import_maintenance", str(path))
    assert everything() == before
