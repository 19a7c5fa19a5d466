"""Replay: the whole pipeline over HTTP, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.management import CommandError, call_command

from gpufleet.core.times import from_unix
from gpufleet.fleet.models import Cluster, Node, Target
from gpufleet.incidents.models import Incident
from gpufleet.pipeline.replay import ReplayError, Stretch, drop_cluster, window_specs
from gpufleet.store.queries import read_frames

pytestmark = pytest.mark.django_db(transaction=True)

START = 1_773_144_000  # 2026-03-10T12:00:00Z
Answer = tuple[int, dict[str, str], bytes]
Serve = Callable[[str, float], Answer]


class Exporters:
    """An HTTP server whose answers depend on the path and on `?t=`."""

    def __init__(self) -> None:
        self.serve: Serve = lambda path, at: (404, {}, b"")
        self.asked: list[tuple[str, float]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                at = float(parse_qs(parts.query)["t"][0]) - START
                outer.asked.append((parts.path, at))
                status, headers, body = outer.serve(parts.path, at)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        Thread(target=self.server.serve_forever, daemon=True).start()

    def targets(self, folder: Path, *paths: str) -> Path:
        """A file_sd list of these paths: `/<node>/<job>`."""
        groups = [
            {
                "targets": [f"127.0.0.1:{self.server.server_port}"],
                "labels": {"node": path.split("/")[1], "job": path.split("/")[2], "__metrics_path__": path},
            }
            for path in paths
        ]
        file = folder / "targets.json"
        file.write_text(json.dumps(groups), encoding="utf-8")
        return file


@pytest.fixture
def exporters() -> Iterator[Exporters]:
    server = Exporters()
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture(autouse=True)
def no_replays_left() -> Iterator[None]:
    yield
    for cluster in Cluster.objects.filter(is_replay=True):
        drop_cluster(cluster)


def dcgm(at: float, slots: int = 2) -> bytes:
    lines = []
    for slot in range(1, slots + 1):
        labels = f'gpu="{slot}",UUID="GPU-00000000-0000-0000-0000-{slot:012d}",modelName="NVIDIA B200"'
        lines += [
            f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 55",
            f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 700",
            f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}} {int(700_000 * (at + 1e6))}",
        ]
    return "\n".join(lines).encode() + b"\n"


def run(targets: Path, folder: Path, seconds: int, *more: str) -> list[dict[str, Any]]:
    out = folder / "out.json"
    start, end = (from_unix(START + at).isoformat() for at in (0, seconds))
    call_command(
        "replay", "--targets", str(targets), "--start", start, "--end", end, "--step", "15", "--json", str(out), *more
    )
    found: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))["incidents"]
    return found


def losing_a_gpu(path: str, at: float) -> Answer:
    return 200, {}, dcgm(at, slots=1 if 60 <= at < 120 else 2)


def test_every_target_is_asked_at_every_step_and_all_stamps_are_virtual(exporters: Exporters, tmp_path: Path) -> None:
    exporters.serve = losing_a_gpu
    incidents = run(exporters.targets(tmp_path, "/n01/dcgm"), tmp_path, 900)
    assert sorted(exporters.asked) == [("/n01/dcgm", at) for at in range(0, 900, 15)]
    (incident,) = incidents
    assert (incident["kind"], incident["cluster"], incident["node"]) == ("gpu_missing", "replay", "n01")
    assert (incident["first_evidence_at"], incident["opened_at"]) == ("2026-03-10T12:01:00Z", "2026-03-10T12:01:15Z")
    assert (incident["status"], incident["resolved_at"]) == ("resolved", "2026-03-10T12:12:15Z")
    assert incident["paged"] is True
    target = Target.objects.get(cluster__name="replay")
    frames = read_frames([target.id], START, START + 900)
    assert [frame.scraped_at - START for frame in frames] == list(range(0, 900, 15))


def test_a_replay_starts_clean_and_gives_the_same_again(exporters: Exporters, tmp_path: Path) -> None:
    exporters.serve = losing_a_gpu
    targets = exporters.targets(tmp_path, "/n01/dcgm")
    first, second = run(targets, tmp_path, 300), run(targets, tmp_path, 300)

    def lasting(incidents: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{key: value for key, value in one.items() if key not in ("id", "url")} for one in incidents]

    assert lasting(first) == lasting(second)
    assert Cluster.objects.filter(is_replay=True).count() == 1
    assert Incident.objects.count() == 1


def test_a_virtual_delay_beyond_the_deadline_is_a_time_out(exporters: Exporters, tmp_path: Path) -> None:
    def serve(path: str, at: float) -> Answer:
        delay = {30: "9.5", 45: "10"}.get(int(at), "0.2")
        return 200, {"X-Virtual-Delay": delay}, dcgm(at)

    exporters.serve = serve
    assert run(exporters.targets(tmp_path, "/n01/dcgm"), tmp_path, 60) == []
    target = Target.objects.get(cluster__name="replay")
    frames = read_frames([target.id], START, START + 60)
    assert [(frame.reason, round(frame.duration_seconds, 1)) for frame in frames] == [
        ("", 0.2),
        ("", 0.2),
        ("", 9.5),
        ("timeout", 10.0),
    ]


def test_announced_maintenance_opens_nothing(exporters: Exporters, tmp_path: Path) -> None:
    exporters.serve = lambda path, at: (500, {}, b"") if 60 <= at < 150 else (200, {}, dcgm(at))
    targets = exporters.targets(tmp_path, "/n01/dcgm")
    assert [one["kind"] for one in run(targets, tmp_path, 300)] == ["exporter_down"]
    windows = tmp_path / "windows.json"
    announced = [{"node": "n01", "from": "2026-03-10T12:00:30Z", "to": "2026-03-10T12:03:00Z", "reason": "fans"}]
    windows.write_text(json.dumps(announced), encoding="utf-8")
    assert run(targets, tmp_path, 300, "--maintenance", str(windows)) == []


def test_a_replay_never_touches_a_live_cluster(exporters: Exporters, tmp_path: Path) -> None:
    live = Cluster.objects.create(name="default")
    Node.objects.create(cluster=live, name="n01")
    exporters.serve = losing_a_gpu
    targets = exporters.targets(tmp_path, "/n01/dcgm")
    with pytest.raises(CommandError, match="'default' is live"):
        run(targets, tmp_path, 60, "--cluster", "default")
    assert exporters.asked == []
    run(targets, tmp_path, 300, "--cluster", "study")
    assert set(Incident.objects.values_list("cluster__name", flat=True)) == {"study"}
    assert Node.objects.filter(cluster=live).count() == 1
    with pytest.raises(ReplayError, match="live"):
        drop_cluster(live)
    live.delete()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--start", "2026-03-10T12:00:00"), "needs an offset"),
        (("--end", "2026-03-10T11:00:00Z"), "later than the start"),
        (("--step", "0.5"), "1 to 3600 seconds"),
        (("--targets", "/nowhere.json"), "/nowhere.json"),
        (("--maintenance", "/nowhere.json"), "/nowhere.json"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_one_sentence(
    exporters: Exporters, tmp_path: Path, arguments: tuple[str, str], says: str
) -> None:
    given = {
        "--targets": str(exporters.targets(tmp_path, "/n01/dcgm")),
        "--start": "2026-03-10T12:00:00Z",
        "--end": "2026-03-10T12:01:00Z",
        "--step": "15",
        **dict([arguments]),
    }
    with pytest.raises(CommandError, match=says):
        call_command("replay", *(word for pair in given.items() for word in pair))
    assert not Cluster.objects.filter(is_replay=True).exists()


@pytest.mark.parametrize(
    ("announced", "says"),
    [
        ({}, "a list"),
        (["n01"], "window 1: not a table"),
        ([{"node": "n01", "from": "2026-03-10T12:00:00Z"}], "window 1: 'to' is missing"),
        ([{"node": "n01", "from": "2026-03-10T12:00:00", "to": "2026-03-10T13:00:00Z"}], "no offset"),
        ([{"node": "n01", "from": "2026-03-10T13:00:00Z", "to": "2026-03-10T12:00:00Z"}], "ends before it starts"),
        ([{"node": "n01", "from": "soon", "to": "later"}], "window 1"),
    ],
)
def test_a_bad_window_is_named(announced: object, says: str) -> None:
    with pytest.raises(ReplayError, match=says):
        window_specs(announced)


def test_a_stretch_ends_before_its_end() -> None:
    stretch = Stretch(from_unix(START), from_unix(START + 31), 15)
    assert [stretch.at(step).timestamp() - START for step in range(stretch.steps)] == [0, 15, 30]
