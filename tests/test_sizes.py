"""Files and functions stay small enough to read in one go. An exception needs its reason here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
FOLDERS = ("gpufleet", "dashboards", "tests", "bench")

LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}


def python_files() -> Iterator[Path]:
    """Our own Python files. Migrations are generated, and data tables (`*_table.py`) are data."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "migrations" not in path.parts and not path.name.endswith("_table.py"):
                yield path


FILES = {str(path.relative_to(ROOT)): path for path in python_files()}


@pytest.mark.parametrize("name", FILES)
def test_file_and_function_lengths(name: str) -> None:
    text = FILES[name].read_text(encoding="utf-8")
    lines = len(text.splitlines())
    assert (lines > MAX_FILE_LINES) == (name in LONG_FILES), f"{name} has {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            where = f"{name}:{node.name}"
            assert (length > MAX_FUNCTION_LINES) == (where in LONG_FUNCTIONS), f"{where} has {length} lines"


def test_every_exception_names_something_that_exists() -> None:
    assert [name for name in LONG_FILES if name not in FILES] == []
    assert [name for name in LONG_FUNCTIONS if name.split(":")[0] not in FILES] == []
