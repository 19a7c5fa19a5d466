"""The supervised group, with real processes: order, restarts, the end of all of them, whatever ends the supervisor."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import Program, alive, eventually, python

GROUP = [sys.executable, str(Path(__file__).with_name("group.py"))]
SAY_PID = "import os, time; print('pid', os.getpid(), flush=True)"
SLEEP = f"{SAY_PID}; time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
WITH_CHILD = (
    "import subprocess, sys, time; "
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    "print('pid', child.pid, flush=True); time.sleep(600)"
)


def unit(name: str, code: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "command": python(code), **fields}


@pytest.fixture
def group(start: Callable[..., Program]) -> Callable[..., Program]:
    return lambda *units: start(GROUP, typed=json.dumps(units))


def pid_in(line: str) -> int:
    return int(line.rsplit(" ", 1)[1])


def test_lines_carry_the_name_of_their_unit(group: Callable[..., Program]) -> None:
    running = group(unit("alpha", "print('one'); print('two', flush=True); import time; time.sleep(600)"))
    assert running.until("one") == f"{'alpha':<13} | one"
    assert running.until("two") == f"{'alpha':<13} | two"


def test_a_unit_waits_for_what_it_comes_after(group: Callable[..., Program]) -> None:
    running = group(
        unit("second", "print('second runs', flush=True); import time; time.sleep(600)", after=["first"]),
        unit(
            "first",
            "import time; time.sleep(0.5); print('first is up', flush=True); time.sleep(600)",
            ready_line="is up",
        ),
    )
    running.until("second runs")
    said = "\n".join(running.lines)
    assert said.index("first is up") < said.index("second runs")


def test_a_job_runs_once_and_its_followers_start_after_it(group: Callable[..., Program]) -> None:
    running = group(
        unit("job", "print('job runs', flush=True)", once=True),
        unit("after", SLEEP, after=["job"]),
    )
    running.until("pid")
    time.sleep(1.0)
    running.process.terminate()
    running.end()
    assert sum("job runs" in line for line in running.lines) == 1


def test_a_child_that_dies_is_started_again_and_it_is_said(group: Callable[..., Program]) -> None:
    running = group(unit("web", SLEEP))
    first = pid_in(running.until("pid"))
    os.kill(first, signal.SIGKILL)
    assert "web died (SIGKILL), starting it again in 0.5 s" in running.until("died")
    second = pid_in(running.until("pid"))
    assert second != first
    assert "web is back" in "\n".join(running.lines)


def test_each_death_in_a_row_doubles_the_wait(group: Callable[..., Program]) -> None:
    running = group(unit("broken", "raise SystemExit(3)"))
    waits = [re.search(r"code 3\), starting it again in (\S+) s", running.until("died")) for _ in range(3)]
    assert [found.group(1) for found in waits if found] == ["0.5", "1", "2"]


def test_a_command_that_does_not_exist_is_said_and_tried_again(group: Callable[..., Program]) -> None:
    running = group({"name": "ghost", "command": ["/no/such/program"]})
    assert "cannot be started" in running.until("ghost")
    assert "starting it again" in running.until("died (code 127)")


def test_a_vital_unit_that_ends_before_it_is_ready_ends_the_start(group: Callable[..., Program]) -> None:
    running = group(
        unit("other", SLEEP),
        unit("base", "import time; time.sleep(0.5); print('FATAL: no'); print('bye')", vital=True, ready_line="up"),
    )
    other = pid_in(running.until("pid"))
    assert running.end() == 1
    assert running.lines[-1] == "failed: base ended with code 0: FATAL: no"
    assert not alive(other)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_all_of_them(group: Callable[..., Program], number: int) -> None:
    running = group(unit("a", SLEEP), unit("b", SLEEP), unit("c", WITH_CHILD))
    pids = [pid_in(running.until("pid")) for _ in range(3)]
    running.process.send_signal(number)
    assert running.end(10) == 0
    assert [pid for pid in pids if alive(pid)] == []


def test_children_that_do_not_listen_are_killed_within_ten_seconds(group: Callable[..., Program]) -> None:
    running = group(unit("a", DEAF), unit("b", DEAF), unit("base", DEAF, last=True))
    pids = [pid_in(running.until("pid")) for _ in range(3)]
    running.process.terminate()
    assert running.end(10) == 0
    assert [pid for pid in pids if alive(pid)] == []


def test_databases_stop_after_those_who_use_them(group: Callable[..., Program]) -> None:
    tell = (
        "import signal, sys, time; "
        "signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit())); "
        "print('up', flush=True); time.sleep(600)"
    )
    running = group(unit("base", tell, last=True), unit("user", tell))
    running.until("up")
    running.until("up")
    running.process.terminate()
    running.end(10)
    byes = [line.split()[0] for line in running.lines if line.endswith("bye")]
    assert byes == ["user", "base"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the wish to die with the parent is Linux's")
def test_no_child_outlives_a_killed_supervisor(group: Callable[..., Program]) -> None:
    running = group(unit("a", SLEEP), unit("b", DEAF))
    pids = [pid_in(running.until("pid")) for _ in range(2)]
    running.process.kill()
    running.end()
    assert eventually(lambda: not any(alive(pid) for pid in pids))


def test_a_dead_childs_own_children_go_with_it(group: Callable[..., Program]) -> None:
    running = group(unit("parent", WITH_CHILD))
    grandchild = pid_in(running.until("pid"))
    parent = int(Path(f"/proc/{grandchild}/stat").read_text().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)
    running.until("died")
    assert eventually(lambda: not alive(grandchild))


def test_what_is_typed_in_reaches_the_child_at_every_start(group: Callable[..., Program]) -> None:
    code = f"import sys; print('heard', sys.stdin.read(), flush=True); {SLEEP}"
    running = group(unit("one", code, stdin="a secret"))
    assert running.until("heard").endswith("heard a secret")
    os.kill(pid_in(running.until("pid")), signal.SIGKILL)
    assert running.until("heard").endswith("heard a secret")


def test_an_attached_command_gives_its_exit_code(group: Callable[..., Program]) -> None:
    running = group(
        unit("base", SLEEP, quiet=True), unit("command", "raise SystemExit(7)", attached=True, after=["base"])
    )
    assert running.end() == 7
