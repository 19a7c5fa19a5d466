"""Reads lists of announced maintenance windows: JSON `[{node, from, to, reason}]`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpufleet.core.times import parse_rfc3339
from gpufleet.fleet.specs import FleetError, WindowSpec

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_REASON = 255
_FIELDS = ("node", "from", "to", "reason")


def read_windows(path: Path) -> list[WindowSpec]:
    """Every window of a file. Raises FleetError with the file and the place in it."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise FleetError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
        windows = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise FleetError(f"{path}: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise FleetError(f"{path}: byte {error.start} is no UTF-8") from error
    except RecursionError as error:
        raise FleetError(f"{path}: nested too deep") from error
    except OSError as error:
        raise FleetError(f"{path}: {error.strerror or error}") from error
    if not isinstance(windows, list):
        raise FleetError(f"{path}: the list of windows is missing: it starts with [")
    return [_window(window, f"{path}: window {number}") for number, window in enumerate(windows, 1)]


def _window(window: Any, place: str) -> WindowSpec:
    if not isinstance(window, dict) or not all(isinstance(window.get(name), str) for name in _FIELDS):
        raise FleetError(f"{place}: needs the texts node, from, to and reason")
    reason = window["reason"]
    if len(reason) > MAX_REASON or "\0" in reason:
        raise FleetError(f"{place}: the reason is longer than {MAX_REASON} characters or holds a zero byte")
    try:
        starts_at, ends_at = (parse_rfc3339(window[name]).timestamp() for name in ("from", "to"))
    except ValueError as error:
        raise FleetError(f"{place}: {error}") from error
    if not starts_at < ends_at:
        raise FleetError(f"{place}: ends before it starts")
    return WindowSpec(window["node"], starts_at, ends_at, reason)
