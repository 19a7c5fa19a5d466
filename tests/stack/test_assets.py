"""Third-party browser files: only what the lock file names is ever installed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gpufleet.stack import assets
from gpufleet.stack.problems import StackError

LOCK: dict[str, Any] = json.loads(assets.LOCK_FILE.read_text())


def without_npm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets.shutil, "which", lambda _name: None)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_without_node_the_pinned_wheels_bring_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_npm(monkeypatch)
    assets.install(LOCK, tmp_path)
    assert {path.name: sha256(path) for path in tmp_path.iterdir()} == {
        **{package["file"]: package["fallback"]["sha256"] for package in LOCK["packages"]},
        **{derived["file"]: derived["sha256"] for derived in LOCK["derived"]},
    }


def test_files_that_are_right_are_left_alone_and_wrong_ones_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_npm(monkeypatch)
    assets.install(LOCK, tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    (tmp_path / "htmx.min.js").write_text("alert(1)")
    assets.install(LOCK, tmp_path)
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert [name for name in before if before[name] != after[name]] == ["htmx.min.js"]
    assert sha256(tmp_path / "htmx.min.js") == LOCK["packages"][1]["fallback"]["sha256"]


def test_a_wheel_with_other_bytes_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_npm(monkeypatch)
    package = LOCK["packages"][1]
    changed = {**package, "fallback": {**package["fallback"], "sha256": "0" * 64}}
    with pytest.raises(StackError, match=r"^htmx-4\.min\.js is not what static/vendor\.lock\.json names: refused\.$"):
        assets.install({"packages": [changed], "derived": []}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def archive_of(content: bytes, member: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        about = tarfile.TarInfo(member)
        about.size = len(content)
        archive.addfile(about, io.BytesIO(content))
    return stream.getvalue()


def npm_that_packs(folder: Path, content: bytes) -> str:
    """A folder for PATH with an `npm` that writes `content` as its archive."""
    (folder / "archive").write_bytes(content)
    program = folder / "npm"
    program.write_text(f'#!/bin/sh\ncp "{folder}/archive" package.tgz\n')
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_an_archive_without_the_locked_integrity_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = LOCK["packages"][1]
    monkeypatch.setenv("PATH", npm_that_packs(tmp_path, archive_of(b"alert(1)", package["member"])))
    with pytest.raises(StackError, match=r"^htmx\.org 4\.0\.1 is not what static/vendor\.lock\.json names: refused\.$"):
        assets.from_npm(package)


def test_an_npm_that_fails_falls_back_to_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "npm"
    program.write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    data, source = assets.fetch(LOCK["packages"][1])
    assert hashlib.sha256(data).hexdigest() == LOCK["packages"][1]["fallback"]["sha256"]
    assert source.startswith("the django_htmx wheel")


def test_git_ignores_what_is_installed_and_keeps_the_lock() -> None:
    ignored = subprocess.run(
        ["git", "check-ignore", "static/vendor/plotly.min.js", "static/vendor.lock.json", "static-collected/x"],
        cwd=assets.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ignored.stdout.split() == ["static/vendor/plotly.min.js", "static-collected/x"]
