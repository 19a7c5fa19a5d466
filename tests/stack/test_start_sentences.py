"""`python -m gpufleet.stack demo`: what stops a start is one clear sentence and exit code 1, and nothing is left."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import ROOT, Program, clean_environment, processes_that_name

from gpufleet.stack.account import STATE_FOLDER
from gpufleet.stack.folder import DataFolder
from gpufleet.stack.ports import free_port

DEMO = [sys.executable, "-m", "gpufleet.stack", "demo"]


@pytest.fixture
def data() -> Iterator[Path]:
    """A data folder that PostgreSQL's account can reach when root runs the tests."""
    parent = Path(tempfile.mkdtemp(prefix="gpufleet-test-"))
    parent.chmod(0o711)
    yield parent / "data"
    shutil.rmtree(parent)


def refused(*arguments: object, environment: dict[str, str] | None = None) -> str:
    """The one sentence of a start that fails."""
    done = subprocess.run(
        [*DEMO, *map(str, arguments)],
        cwd=ROOT,
        env=clean_environment() | (environment or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("gpufleet: ")
    assert lines[0].endswith(".")
    return lines[0].removeprefix("gpufleet: ")


def test_a_taken_port(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        sentence = refused("--data", data, "--port", port)
    assert sentence == f"Port {port} at 127.0.0.1 is taken by another program: choose another one with --port."


def test_an_address_that_is_not_ours(data: Path) -> None:
    assert "Cannot listen at 192.0.2.7" in refused("--data", data, "--host", "192.0.2.7", "--port", free_port())


def test_a_second_instance_on_the_same_folder(data: Path) -> None:
    first = DataFolder(data)
    sentence = refused("--data", data, "--port", free_port())
    first.close()
    assert sentence == f"Another gpufleet (process {os.getpid()}) already runs on {data}: stop it first."


def test_a_file_instead_of_a_folder(data: Path) -> None:
    data.write_text("x")
    assert refused("--data", data, "--port", free_port()).startswith(f"The data folder {data} is a file")


def test_a_cluster_folder_that_holds_something_else(data: Path) -> None:
    (data / "postgres").mkdir(parents=True)
    (data / "postgres" / "letter.txt").write_text("dear")
    data.chmod(0o711)
    sentence = refused("--data", data, "--port", free_port())
    assert sentence == f"The data folder is broken: {data}/postgres is not a PostgreSQL cluster."
    assert (data / "postgres" / "letter.txt").read_text() == "dear"


def test_a_cluster_of_another_version(data: Path) -> None:
    (data / "postgres").mkdir(parents=True)
    (data / "postgres" / "PG_VERSION").write_text("15\n")
    data.chmod(0o711)
    assert "was made by PostgreSQL 15 and this gpufleet brings 18" in refused("--data", data, "--port", free_port())


def test_a_cluster_that_does_not_start(data: Path) -> None:
    (data / "postgres").mkdir(parents=True)
    (data / "postgres" / "PG_VERSION").write_text("18\n")
    data.chmod(0o711)
    sentence = refused("--data", data, "--port", free_port())
    assert sentence.startswith(f"The data folder is broken: PostgreSQL does not start on {data}/postgres (")
    assert processes_that_name(str(data)) == []


def test_a_setting_that_cannot_be(data: Path) -> None:
    sentence = refused("--data", data, "--port", free_port(), environment={"GPUFLEET_COLOUR": "red"})
    assert sentence == "GPUFLEET_COLOUR is not a setting of gpufleet; docs/settings.md lists them all."


def test_a_database_that_cannot_be_reached(data: Path) -> None:
    port = free_port()
    done = subprocess.run(
        [*DEMO, "--data", str(data), "--port", str(free_port()), "--no-sim"],
        cwd=ROOT,
        env=clean_environment() | {"DATABASE_URL": f"postgresql://me:secret@127.0.0.1:{port}/none"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "using the PostgreSQL that DATABASE_URL names" in done.stdout
    assert done.stderr.count("\n") == 1
    assert "secret" not in done.stdout + done.stderr
    assert processes_that_name(str(data)) == []


def test_a_python_that_is_too_old(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\necho 3.9\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["sh", str(ROOT / "bin" / "demo"), "--data", str(tmp_path / "data")],
        env=clean_environment() | {"PYTHON": str(old)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"gpufleet: Python 3.11, 3.12 or 3.13 is needed ({old} is 3.9, see PYTHON=/path/to/python3).\n"
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--interval", "0"], "'0' is not a whole number from 1 to 300"),
        (["--port", "65536"], "'65536' is not a whole number from 1 to 65535"),
        (["--nodes", "-1"], "'-1' is not a whole number"),
        (["--targets", "/no/such/file"], "there is no file /no/such/file"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_options_that_cannot_be(start: Callable[..., Program], arguments: list[str], told: str) -> None:
    program = start([*DEMO, *arguments])
    assert program.end() == 2
    assert told in program.lines[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk and to be refused by PostgreSQL")
def test_a_full_disk(data: Path) -> None:
    data.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=711", "tmpfs", str(data)], check=False)
    if mounted.returncode != 0:
        pytest.skip("cannot mount a small disk here")
    try:
        sentence = refused("--data", data, "--port", free_port())
    finally:
        subprocess.run(["umount", str(data)], check=True)
    assert sentence.startswith(f"The disk that holds {data} is full (4 MB free)")


@pytest.mark.skipif(os.geteuid() != 0, reason="about what root's PostgreSQL can reach")
def test_a_folder_out_of_reach_keeps_its_cluster_elsewhere_and_its_permissions(data: Path) -> None:
    data.parent.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_REACH, str(data)], cwd=ROOT, env=clean_environment(), check=True, timeout=60
    )
    assert done.returncode == 0
    assert data.parent.stat().st_mode & 0o777 == 0o700
    assert data.stat().st_mode & 0o777 == 0o711
    assert (STATE_FOLDER / "0123456789abcdef" / "belongs-to").read_text() == f"{data}\n"
    assert (STATE_FOLDER / "0123456789abcdef" / "postgres" / "PG_VERSION").read_text() == "18\n"
    shutil.rmtree(STATE_FOLDER / "0123456789abcdef")


OUT_OF_REACH = """
import sys
from pathlib import Path
from gpufleet.stack import postgres
from gpufleet.stack.folder import DataFolder
folder = DataFolder(Path(sys.argv[1]))
cluster = postgres.cluster_for(folder.path, "0123456789abcdef")
assert postgres.create(cluster, "secret")
assert not postgres.create(cluster, "other")
"""
