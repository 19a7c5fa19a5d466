"""Style, types, import directions and migrations: each check is a test, so its fault is in the closing line too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(sys.executable).parent
CHECKS = {
    "ruff": ["ruff", "check", "--quiet", "."],
    "ruff-format": ["ruff", "format", "--check", "--quiet", "."],
    "mypy": ["mypy", "--cache-dir", ".mypy_cache", "gpufleet", "dashboards", "manage.py"],
    "import-linter": ["lint-imports", "--no-cache"],
    "migrations": ["python", "manage.py", "makemigrations", "--check", "--dry-run"],
    "deployment": ["python", "manage.py", "check", "--fail-level", "WARNING"],
}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", CHECKS)
def test_check(name: str) -> None:
    program, *arguments = CHECKS[name]
    done = subprocess.run(
        [str(PROGRAMS / program), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(CHECKS[name])}\n{done.stdout[-8000:]}{done.stderr[-4000:]}"
