"""Health checks tell the truth in both directions."""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet.stack import healthcheck
from gpufleet.stack.ports import free_port


@pytest.fixture
def answering() -> Iterator[str]:
    """An address that answers 200 at /well and 503 elsewhere."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/well" else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_http(answering: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert healthcheck.main(["http", f"{answering}/well"]) == 0
    assert capsys.readouterr().out == ""
    assert healthcheck.main(["http", f"{answering}/ill"]) == 1
    assert "503" in capsys.readouterr().out
    assert healthcheck.main(["http", f"http://127.0.0.1:{free_port()}/"]) == 1


def test_beat_is_judged_by_the_age_of_its_newest_file(tmp_path: Path) -> None:
    schedule = tmp_path / "beat-schedule"
    assert healthcheck.beat_problem(schedule, 120.0, 1000.0) == f"{schedule} does not exist"
    for name, at in (("beat-schedule.db", 500.0), ("beat-schedule.dat", 880.0)):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (at, at))
    assert healthcheck.beat_problem(schedule, 120.0, 1000.0) == ""
    assert healthcheck.beat_problem(schedule, 120.0, 1000.5) == "beat sent nothing for 120 s"


def test_a_worker_without_a_broker_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_URL", f"redis://127.0.0.1:{free_port()}/0")
    assert "the broker cannot be asked" in healthcheck.worker_problem("worker-scrape")


@pytest.mark.parametrize("arguments", [[], ["http"], ["beat", "x"], ["cure", "x"]])
def test_a_wrong_call_is_neither(arguments: list[str]) -> None:
    assert healthcheck.main(arguments) == 2
