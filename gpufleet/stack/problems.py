"""What stops a start: one clear sentence, exit code 1."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

DISK_FULL_WORDS = ("No space left on device", "Disk quota exceeded")
DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})


class StackError(Exception):
    """A start that cannot go on; the message is the sentence shown to the person."""


def disk_full(folder: Path) -> StackError:
    """The sentence for a full disk, with what is left there."""
    try:
        left = f"{shutil.disk_usage(folder).free / 1e6:.0f} MB free"
    except OSError:
        left = "nothing known to be free"
    return StackError(f"The disk that holds {folder} is full ({left}): make room and start again.")


def speaks_of_full_disk(line: str) -> bool:
    return any(words in line for words in DISK_FULL_WORDS)


def file_problem(error: OSError, folder: Path) -> StackError:
    """The sentence for a failed read or write below `folder`."""
    if error.errno in DISK_FULL_ERRNOS:
        return disk_full(folder)
    return StackError(f"Cannot use {error.filename or folder}: {error.strerror or error}.")
