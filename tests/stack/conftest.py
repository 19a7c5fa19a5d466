"""Programs that end with their test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from processes import Program  # noqa: E402


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    """Starts a Program and ends it after the test."""
    started: list[Program] = []

    def begin(*arguments: Any, **options: Any) -> Program:
        started.append(Program(*arguments, **options))
        return started[-1]

    yield begin
    for program in started:
        program.close()
