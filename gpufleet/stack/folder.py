"""The data folder: one gpufleet at a time, secrets for the owner only, written whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from gpufleet.stack.problems import StackError, file_problem

NEEDED_BYTES = 256 * 1024 * 1024  # a new cluster with its first write-ahead log, and some hours of samples
LOCK_NAME = "lock"
STATE_NAME = "stack.json"


class DataFolder:
    """An opened and locked data folder; the lock lasts as long as this object's process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            _make(path)
            self._lock = _lock(path)
        except OSError as error:
            raise file_problem(error, path) from error
        free = shutil.disk_usage(path).free
        if free < NEEDED_BYTES:
            raise StackError(
                f"The disk that holds {path} is full ({free / 1e6:.0f} MB free): gpufleet needs at least "
                f"{NEEDED_BYTES / 1e6:.0f} MB to start."
            )

    def read_json(self, name: str) -> dict[str, Any]:
        """The object in the file, or {} if there is none. Raises StackError when it cannot be read."""
        path = self.path / name
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise file_problem(error, path) from error
        except ValueError as error:
            raise StackError(f"The data folder is broken: {path} is not readable JSON.") from error
        if not isinstance(found, dict):
            raise StackError(f"The data folder is broken: {path} does not hold a JSON object.")
        return found

    def write_secret(self, name: str, text: str) -> Path:
        """Writes a file that only its owner can read (mode 600), in one step."""
        return write_secret(self.path / name, text)

    def write_json(self, name: str, value: dict[str, Any]) -> Path:
        return self.write_secret(name, json.dumps(value, indent=2) + "\n")

    def state(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """What the stack remembers (passwords, ports), with `wanted` filling what is missing."""
        found = self.read_json(STATE_NAME)
        merged = {**wanted, **found}
        if merged != found:
            self.write_json(STATE_NAME, merged)
        return merged

    def close(self) -> None:
        os.close(self._lock)


def write_secret(path: Path, text: str) -> Path:
    """Writes `path` with mode 600 and replaces an older one in one step. Raises StackError when it cannot."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise file_problem(error, path.parent) from error
    return path


def new_password() -> str:
    return secrets.token_urlsafe(24)


def _make(path: Path) -> None:
    if path.exists():
        if not path.is_dir():
            raise StackError(f"The data folder {path} is a file, not a folder: choose another one with --data.")
    else:
        path.mkdir(parents=True)
        path.chmod(0o711 if os.geteuid() == 0 else 0o700)  # root's PostgreSQL passes through as another account
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise StackError(f"The data folder {path} cannot be written: change its owner or choose another with --data.")


def _lock(path: Path) -> int:
    handle = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(handle)
        raise StackError(f"Another gpufleet (process {owner}) already runs on {path}: stop it first.") from error
    os.ftruncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())
    return handle
