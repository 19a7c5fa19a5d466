"""Finds the trouble cases and captures beside the repository; tests that need them skip, visibly, without them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("SHARED_DATA", Path(__file__).resolve().parent.parent.parent / "shared"))


def shared(path: str) -> Path:
    """The path below the shared folder. Skips the test when it is absent."""
    full = SHARED / path
    if not full.exists():
        pytest.skip(f"shared data not at hand: {path}")
    return full


def case(number: str) -> tuple[Path, dict[str, Any]]:
    """Folder and case.json of a trouble case, by its three digits."""
    folders = sorted(shared("cases").glob(f"{number}-*"))
    if not folders:
        pytest.skip(f"no case {number} at hand")
    return folders[0], json.loads((folders[0] / "case.json").read_text(encoding="utf-8"))
