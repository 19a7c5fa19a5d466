"""The simulator's HTTP over real sockets: answers, refusals, and the failures an exporter can have."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from gpufleet.simulator.workload import EPOCH
from tests.simulator_fixture import ROOT, Simulator, running

T = EPOCH + 400 * 28_800 + 3_000


@pytest.fixture(scope="module")
def served() -> Iterator[Simulator]:
    with running("--nodes", "12") as started:
        yield started


def ask(served: Simulator, method: str, path: str, body: str | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=10)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_targets_name_the_address_they_were_asked_at(served: Simulator) -> None:
    groups = served.call("GET", "/targets.json")
    assert len(groups) == 24
    assert {group["targets"][0] for group in groups} == {urlsplit(served.url).netloc}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nodes/gpu-999/dcgm/metrics", None, 404), ("GET", "/nodes/gpu-001/dcgm/metrics?t=x", None, 400),
        ("GET", "/nodes/gpu-001/dcgm/metrics?t=nan", None, 400), ("GET", "/nodes/gpu-001/dcgm/metrics?t=5", None, 400),
        ("POST", "/nodes/gpu-001/dcgm/metrics", None, 405), ("GET", "/inject", None, 405),
        ("GET", "/nothing", None, 404),
        ("POST", "/inject", "{", 400), ("POST", "/inject", "[]", 422), ("POST", "/inject", '{"node": "x"}', 404),
        ("POST", "/inject", '{"node": ["x"]}', 404), ("POST", "/inject", '{"node": "gpu-001", "fault": "x"}', 422),
        ("POST", "/inject", '{"node": "gpu-001", "fault": "xid", "at": NaN}', 422),
        ("DELETE", "/inject/f999", None, 404), ("POST", "/inject", "x" * 70_000, 413),
    ],
)  # fmt: skip
def test_bad_requests_get_a_clear_error(
    served: Simulator, method: str, path: str, body: str | None, status: int
) -> None:
    before = served.call("GET", "/truth")
    got, _, text = ask(served, method, path, body)
    assert got == status
    assert json.loads(text)["error"]
    assert served.call("GET", "/truth") == before


@pytest.mark.parametrize(("number", "mode"), [(5, "500"), (6, "empty"), (7, "hang"), (8, "cut_off"), (9, "refused")])
def test_the_transport_fails_as_asked_in_virtual_time(served: Simulator, number: int, mode: str) -> None:
    node = f"gpu-{number:03d}"
    path = f"/nodes/{node}/dcgm/metrics?t="
    served.inject(node, "exporter_down", mode=mode, at=T, seconds=10)
    if mode == "cut_off":
        with pytest.raises(http.client.IncompleteRead) as cut:
            ask(served, "GET", f"{path}{T + 5}")
        assert cut.value.partial[-1:].isdigit()
    elif mode == "refused":
        with pytest.raises(ConnectionResetError):
            ask(served, "GET", f"{path}{T + 5}")
    else:
        status, headers, body = ask(served, "GET", f"{path}{T + 5}")
        assert (status, headers.get("X-Virtual-Delay")) == (
            500 if mode == "500" else 200,
            "3600" if mode == "hang" else None,
        )
        assert body == (b"Internal server error" if mode == "500" else b"")
    for well in (T - 1, T + 10):
        assert ask(served, "GET", f"{path}{well}")[2].startswith(b"# HELP")


def test_a_live_hang_says_nothing_until_repaired(served: Simulator) -> None:
    fault = served.inject("gpu-003", "node_down", mode="hang")
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as raw:
        raw.sendall(b"GET /nodes/gpu-003/node/metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        raw.settimeout(0.3)
        with pytest.raises(TimeoutError):
            raw.recv(1)
        raw.settimeout(10)
        served.repair(fault)
        with pytest.raises(ConnectionResetError):
            raw.recv(1)
    assert served.body("gpu-003", "node")


def test_a_live_fault_is_seen_and_told_and_repaired(served: Simulator) -> None:
    fault = served.inject("gpu-004", "xid", xid=79, slot=2)
    assert served.body("gpu-004").count(b"\nDCGM_FI_DEV_GPU_TEMP{") == 7
    told = next(row for row in served.call("GET", "/truth") if row["id"] == fault)
    names = ("node", "slot", "kind", "xid", "class", "action", "repaired_at")
    assert tuple(told[name] for name in names) == (
        "gpu-004", 2, "xid", 79, "fail_stop", "reboot_node", None,
    )  # fmt: skip
    assert told["uuid"].startswith("GPU-")
    served.repair(fault)
    assert served.body("gpu-004").count(b"\nDCGM_FI_DEV_GPU_TEMP{") == 8
    assert next(row for row in served.call("GET", "/truth") if row["id"] == fault)["repaired_at"]


def test_requests_in_one_packet_are_answered_in_order(served: Simulator) -> None:
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as raw:
        raw.sendall(b"GET /nothing HTTP/1.1\r\n\r\nDELETE /inject/x HTTP/1.1\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: raw.recv(65_536), b""))
    assert text.index(b"no such page") < text.index(b"no fault")


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_cleanly(stop: signal.Signals) -> None:
    with running("--nodes", "1") as started:
        started.process.send_signal(stop)
        assert started.process.wait(timeout=10) == 0


@pytest.mark.parametrize("options", [["--nodes", "0"], ["--gpus", "99"], ["--seed", "-1"], ["--script", "/nowhere"]])
def test_impossible_options_end_with_one_sentence(options: list[str]) -> None:
    command = [sys.executable, "-m", "gpufleet.simulator", "--port", "0", *options]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    assert ended.returncode == 2
    assert ended.stderr.startswith("simulator: ")
    assert ended.stderr.count("\n") == 1
