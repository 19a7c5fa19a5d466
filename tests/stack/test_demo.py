"""The whole of `bin/demo`, from an empty folder to a live map, twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode

import pytest
from processes import ROOT, Program, alive, clean_environment, eventually, processes_that_name

from gpufleet.stack.ports import free_port

ROLES = ["viewer", "responder", "manager", "admin"]
NODES = 2


@pytest.fixture
def data() -> Iterator[Path]:
    parent = Path(tempfile.mkdtemp(prefix="gpufleet-test-"))
    parent.chmod(0o711)
    yield parent / "data"
    shutil.rmtree(parent)


def demo(data: Path, port: int) -> list[str]:
    options = ["--data", str(data), "--port", str(port), "--nodes", str(NODES), "--interval", "5"]
    return [sys.executable, "-m", "gpufleet.stack", "demo", *options]


def state(data: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((data / "demo.json").read_text())
    return found


def fleet(data: Path) -> list[dict[str, Any]]:
    """The nodes of the fleet, by the API with the token of the data folder."""
    token = (data / "api-token").read_text().strip()
    request = urllib.request.Request(f"{state(data)['url']}/api/v1/fleet", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        nodes: list[dict[str, Any]] = json.load(answer)["nodes"]
    return nodes


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def shown_passwords(program: Program) -> dict[str, str]:
    lines = [line.split() for line in program.lines if line.startswith("  ")]
    return {words[0]: words[1] for words in lines if len(words) == 2 and words[0] in ROLES}


def open_stream(data: Path) -> IO[bytes]:
    """A live stream of a person who has signed in, as a browser holds it."""
    found = state(data)
    people = json.loads((data / "users.json").read_text())
    jar = CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    browser.open(f"{found['url']}/sign-in/", timeout=10).close()
    form = {
        "username": "viewer",
        "password": people["viewer"]["password"],
        "csrfmiddlewaretoken": next(str(cookie.value) for cookie in jar if cookie.name == "csrftoken"),
    }
    browser.open(f"{found['url']}/sign-in/", urlencode(form).encode(), timeout=10).close()
    stream: IO[bytes] = browser.open(f"http://127.0.0.1:{found['live_port']}/live/", timeout=10)
    assert stream.readline().startswith(b"retry: ")
    return stream


def stop(program: Program, data: Path) -> None:
    """TERM ends everything, open streams too, within ten seconds: no process is left, and none had to be killed."""
    streams = [open_stream(data) for _ in range(3)]
    said = len(program.lines)
    began = time.monotonic()
    program.process.send_signal(signal.SIGTERM)
    assert program.end(15) == 0
    assert time.monotonic() - began < 10
    assert [line for line in program.lines[said:] if "SIGKILL" in line] == []
    for stream in streams:
        stream.close()
    assert processes_that_name(str(data)) == []


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_from_an_empty_folder_to_a_live_map_and_again(data: Path, start: Callable[..., Program]) -> None:
    port = free_port()
    first = start(demo(data, port))
    first.until("the map is live", seconds=150)
    assert eventually(lambda: any("Ctrl-C" in line for line in first.lines), 30)

    people = json.loads((data / "users.json").read_text())
    assert shown_passwords(first) == {name: people[name]["password"] for name in ROLES}
    secrets = ["users.json", "demo.json", "env", "api-token", "stack.json"]
    assert {stat.S_IMODE((data / name).stat().st_mode) for name in secrets} == {0o600}
    assert eventually(lambda: sum(len(node["gpus"]) for node in fleet(data)) == NODES * 8, 30)

    killed = state(data)["pids"]["web"]
    os.kill(killed, signal.SIGKILL)
    first.until("web died (SIGKILL)")
    first.until("web is back")
    assert answers(f"{state(data)['url']}/healthz")
    assert eventually(lambda: state(data)["pids"]["web"] != killed)

    assert users_by_manage_py(data) == sorted(ROLES)
    stop(first, data)

    second = start(demo(data, port))
    second.until("the map is live", seconds=150)
    assert shown_passwords(second) == dict.fromkeys(ROLES, "(unchanged)")
    assert json.loads((data / "users.json").read_text()) == people
    assert [one for one in ROLES if people[one]["password"] in "\n".join(second.lines)] == []
    assert len(fleet(data)) == NODES

    pids = list(state(data)["pids"].values())
    second.process.kill()
    second.end()
    assert eventually(lambda: processes_that_name(str(data)) == [])
    assert eventually(lambda: not any(alive(pid) for pid in pids))


def users_by_manage_py(data: Path) -> list[str]:
    """What `manage.py` says in a shell that has sourced DIR/env."""
    code = "from gpufleet.accounts.models import User; print(*User.objects.values_list('username', flat=True))"
    command = f'. "{data}/env" && exec "{sys.executable}" manage.py shell --verbosity 0 -c "{code}"'
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=clean_environment(), capture_output=True, text=True, check=True
    )
    return sorted(done.stdout.split())
