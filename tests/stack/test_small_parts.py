"""The plain parts of the stack: reach, console, ports, options, plan."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufleet.environment import read as read_settings
from gpufleet.stack import options, plan, simulated_targets
from gpufleet.stack.account import Account, can_reach
from gpufleet.stack.console import MAX_WAITING_LINES, Console
from gpufleet.stack.folder import DataFolder
from gpufleet.stack.ports import free_port, is_free, require_free
from gpufleet.stack.postgres import Cluster, explain
from gpufleet.stack.problems import StackError

STRANGER = Account(uid=65534, gid=65534)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that a stranger can walk down to."""
    folder = Path(tempfile.mkdtemp(prefix="gpufleet-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("mode", "reached"), [(0o700, False), (0o710, False), (0o711, True), (0o755, True), (0o744, False)]
)
def test_a_stranger_reaches_a_folder_by_the_last_bit_only(open_folder: Path, mode: int, reached: bool) -> None:
    inside = open_folder / "outside" / "inside"
    inside.mkdir(parents=True)
    inside.chmod(0o755)
    inside.parent.chmod(mode)
    assert can_reach(STRANGER, inside) is reached
    inside.parent.chmod(0o700)


def test_an_owner_is_judged_by_the_owners_bits(tmp_path: Path) -> None:
    about = tmp_path.stat()
    tmp_path.chmod(0o077)
    try:
        assert not can_reach(Account(about.st_uid, about.st_gid), tmp_path)
    finally:
        tmp_path.chmod(0o700)


def read_all(descriptor: int) -> str:
    os.set_blocking(descriptor, False)
    found = b""
    try:
        while part := os.read(descriptor, 65536):
            found += part
    except BlockingIOError:
        pass
    return found.decode()


def test_the_console_never_waits_for_a_reader_and_says_what_it_dropped() -> None:
    reader, writer = os.pipe()
    console = Console(writer, colour=False)
    lines = MAX_WAITING_LINES + 2000
    for number in range(lines):
        console.line("web", f"line {number} " + "x" * 60)
    said = ""
    for _ in range(200):
        said += read_all(reader)
        console.flush()
    os.close(reader)
    os.close(writer)
    dropped = [int(line.split()[1]) for line in said.splitlines() if line.startswith("… ")]
    kept = [line for line in said.splitlines() if line.startswith("web")]
    assert len(dropped) == 1
    assert len(kept) + dropped[0] == lines
    assert f"line {lines - 1} " in kept[-1]


def test_the_console_outlives_its_reader() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    console = Console(writer, colour=False)
    console.say("one")
    console.say("two")
    os.close(writer)


@pytest.mark.parametrize("colour", [True, False])
def test_colours_only_where_asked_and_one_for_each_name(colour: bool) -> None:
    reader, writer = os.pipe()
    console = Console(writer, colour=colour)
    for name in ("web", "beat", "web"):
        console.line(name, "x")
    web, beat, again = read_all(reader).splitlines()
    os.close(reader)
    os.close(writer)
    assert ("\x1b[" in web) is colour
    assert web == again
    assert (web.replace("web ", "beat") == beat) is not colour


def test_a_port_is_taken_while_somebody_listens() -> None:
    port = free_port()
    assert is_free("127.0.0.1", port)
    require_free("127.0.0.1", port)


def test_the_defaults_are_those_of_the_contract() -> None:
    given = options.read([])
    assert (given.port, given.host, given.interval_seconds, given.nodes) == (8000, "127.0.0.1", 15, 63)
    assert (given.data, given.targets, given.simulator, given.history_days) == (options.ROOT / "data", None, True, 55)


def planned(tmp_path: Path, *arguments: str) -> plan.Plan:
    folder = DataFolder(tmp_path / "data")
    try:
        return plan.make(options.read(["--data", str(tmp_path / "data"), *arguments]), folder)
    finally:
        folder.close()


@pytest.fixture
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("GPUFLEET_") or name in ("DATABASE_URL", "BROKER_URL"):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("_clean")
def test_a_second_start_keeps_ports_and_secrets(tmp_path: Path) -> None:
    first, second = planned(tmp_path), planned(tmp_path)
    assert first == second
    assert len({first.ports.live, first.ports.simulator, first.ports.postgres, first.ports.valkey, 8000}) == 5


@pytest.mark.usefixtures("_clean")
def test_a_shell_that_has_sourced_the_environment_still_gets_our_own_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = planned(tmp_path)
    for name, value in first.environment.items():
        monkeypatch.setenv(name, value)
    second = planned(tmp_path)
    assert (second.database_embedded, second.broker_embedded) == (True, True)
    assert second.environment == first.environment


@pytest.mark.usefixtures("_clean")
def test_servers_that_the_environment_names_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:secret@db/fleet")
    monkeypatch.setenv("BROKER_URL", "redis://cache/1")
    made = planned(tmp_path)
    assert (made.database_embedded, made.broker_embedded) == (False, False)
    assert made.environment["DATABASE_URL"] == "postgresql://me:secret@db/fleet"
    assert made.environment["BROKER_URL"] == "redis://cache/1"


@pytest.mark.usefixtures("_clean")
def test_options_and_the_callers_settings_reach_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLEET_OUTBOUND_ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("GPUFLEET_INTERVAL_SECONDS", "60")
    made = planned(tmp_path, "--interval", "5", "--port", "8765", "--host", "::1")
    settings = read_settings(made.environment)
    assert settings["GPUFLEET_OUTBOUND_ALLOW"] == ["127.0.0.0/8"]
    assert settings["GPUFLEET_INTERVAL_SECONDS"] == 5
    assert settings["GPUFLEET_BASE_URL"] == "http://[::1]:8765"
    assert settings["GPUFLEET_LIVE_PORT"] == made.ports.live


@pytest.mark.usefixtures("_clean")
def test_a_shell_reads_the_environment_as_it_is(tmp_path: Path) -> None:
    values = {"GPUFLEET_BASE_URL": "http://x/$HOME?a='b' c", "BROKER_URL": "redis://:p@h/0"}
    path = tmp_path / "env"
    path.write_text(plan.as_shell(values))
    command = f'. {shlex.quote(str(path))}; printf \'%s|%s\' "$GPUFLEET_BASE_URL" "$BROKER_URL"'
    said = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert said == "http://x/$HOME?a='b' c|redis://:p@h/0"


def test_targets_are_moved_to_the_host_that_was_asked() -> None:
    groups = [{"targets": ["127.0.0.1:1", "127.0.0.1:1"], "labels": {"node": "n1", "cluster": "sim"}}]
    assert simulated_targets.at_host(groups, "simulator:9400") == [
        {"targets": ["simulator:9400", "simulator:9400"], "labels": {"node": "n1"}}
    ]


def test_a_silent_simulator_is_told(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"^The simulated fleet does not answer at http://127\.0\.0\.1:"):
        simulated_targets.fetch(f"http://127.0.0.1:{free_port()}/targets.json", tmp_path / "t.json", wait_seconds=0.0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("FATAL:  could not write lock file: No space left on device", "The disk that holds"),
        ("PANIC:  could not locate a valid checkpoint record", "The data folder is broken"),
    ],
)
def test_the_last_words_of_postgres_become_one_sentence(tmp_path: Path, said: str, sentence: str) -> None:
    assert str(explain(Cluster(tmp_path, None, tmp_path), said)).startswith(sentence)
