"""The data folder: who may use it, what is kept in it, and the one sentence for each thing that can be wrong."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpufleet.stack import folder as folders
from gpufleet.stack.folder import DataFolder, write_secret
from gpufleet.stack.problems import StackError


def test_a_new_folder_is_closed_and_root_lets_its_database_account_pass(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "a" / "data")
    folder.close()
    assert stat.S_IMODE(folder.path.stat().st_mode) == (0o711 if os.geteuid() == 0 else 0o700)


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_an_existing_folder_and_its_parent_keep_their_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(mode)
    parent = stat.S_IMODE(tmp_path.stat().st_mode)
    DataFolder(path).close()
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(tmp_path.stat().st_mode)) == (mode, parent)


def test_secrets_are_for_their_owner_only_even_when_they_replace_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.write_text("old")
    path.chmod(0o644)
    write_secret(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)
    assert [entry.name for entry in tmp_path.iterdir()] == ["users.json"]


def test_what_is_remembered_stays_and_what_is_missing_is_added(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    assert folder.state({"a": 1}) == {"a": 1}
    assert folder.state({"a": 2, "b": 3}) == {"a": 1, "b": 3}
    folder.close()


def test_a_second_instance_is_refused_and_names_the_first(tmp_path: Path) -> None:
    first = DataFolder(tmp_path / "data")
    with pytest.raises(StackError) as refused:
        DataFolder(tmp_path / "data")
    assert str(refused.value) == (
        f"Another gpufleet (process {os.getpid()}) already runs on {tmp_path / 'data'}: stop it first."
    )
    first.close()
    DataFolder(tmp_path / "data").close()


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(StackError, match=r"is a file, not a folder"):
        DataFolder(tmp_path / "data")
    assert (tmp_path / "data").read_text() == "x"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    with pytest.raises(StackError, match=r"cannot be written"):
        DataFolder(tmp_path / "data")


def test_a_parent_that_is_a_file_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StackError, match=r"^Cannot use .*: Not a directory\.$"):
        DataFolder(tmp_path / "file" / "data")


def test_a_nearly_full_disk_is_told_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=folders.NEEDED_BYTES - 1))
    with pytest.raises(StackError, match=r"^The disk that holds .* is full \(268 MB free\)"):
        DataFolder(tmp_path / "data")
    assert [entry.name for entry in (tmp_path / "data").iterdir()] == ["lock"]


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_a_broken_record_is_told_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    folder = DataFolder(tmp_path / "data")
    (folder.path / "stack.json").write_text(text)
    with pytest.raises(StackError, match=r"^The data folder is broken: .*stack\.json"):
        folder.state({"a": 1})
    assert (folder.path / "stack.json").read_text() == text
    folder.close()


def test_no_space_left_while_writing_is_told_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_secret(tmp_path / "env", "old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StackError, match=r"^The disk that holds .* is full"):
        write_secret(path, "new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["env"]
    assert path.read_text() == "old"
