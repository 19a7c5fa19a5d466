"""requirements*.txt: exact pins with hashes, from pyproject.toml, and nothing about the machine that made them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = (ROOT / "requirements.txt").read_text()
DEVELOPMENT = (ROOT / "requirements-dev.txt").read_text()
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", re.MULTILINE)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", name)[0]).lower()


def pins(text: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, version in PIN.findall(text):
        found.setdefault(normal(name), set()).add(version)
    return found


@pytest.mark.parametrize("text", [RUNTIME, DEVELOPMENT], ids=["runtime", "development"])
def test_every_requirement_is_pinned_and_hashed(text: str) -> None:
    entries = [entry for entry in re.split(r"\n(?=[a-z0-9])", re.sub(r"(?m)^ *#.*\n?", "", text)) if entry.strip()]
    assert entries != []
    assert [entry for entry in entries if not PIN.match(entry) or "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("text", [RUNTIME, DEVELOPMENT], ids=["runtime", "development"])
def test_no_address_and_no_path_is_in_them(text: str) -> None:
    assert re.findall(r"https?:|--index|--find-links|file:| /\w+/\w+", text) == []


def test_all_that_pyproject_names_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime = {normal(name) for name in project["project"]["dependencies"]}
    development = {normal(name) for name in project["dependency-groups"]["dev"]}
    assert runtime - pins(RUNTIME).keys() == set()
    assert (runtime | development) - pins(DEVELOPMENT).keys() == set()


def test_both_files_agree_and_django_has_one_line_only() -> None:
    runtime, development = pins(RUNTIME), pins(DEVELOPMENT)
    assert {name for name in runtime if runtime[name] != development[name]} == set()
    assert [version.rsplit(".", 1)[0] for version in runtime["django"]] == ["5.2"]
