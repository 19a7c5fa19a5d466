"""Which account runs PostgreSQL, and which folders that account can reach.

PostgreSQL refuses to run as root. Its binaries then run as `nobody`, and both they and the cluster must lie where
`nobody` can go. The permissions of a folder that is not ours are never changed: what cannot be reached is kept below
STATE_FOLDER instead.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

STATE_FOLDER = Path("/var/lib/gpufleet")
UNPRIVILEGED = "nobody"


@dataclass(frozen=True, slots=True)
class Account:
    """A user by number."""

    uid: int
    gid: int


def database_account() -> Account | None:
    """The account for PostgreSQL when running as root; None: the present one will do."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam(UNPRIVILEGED)
    return Account(entry.pw_uid, entry.pw_gid)


def can_reach(account: Account, folder: Path) -> bool:
    """Whether `account` may walk down to `folder` and into it (mode bits; an access list may only grant more)."""
    resolved = folder.resolve()
    return all(_may_enter(account, part) for part in (resolved, *resolved.parents))


def _may_enter(account: Account, folder: Path) -> bool:
    about = folder.stat()
    if about.st_uid == account.uid:
        return bool(about.st_mode & stat.S_IXUSR)
    if about.st_gid == account.gid:
        return bool(about.st_mode & stat.S_IXGRP)
    return bool(about.st_mode & stat.S_IXOTH)


def own_folder(folder: Path) -> Path:
    """Makes `folder` below STATE_FOLDER: everybody may pass through, only root may list."""
    for path in (STATE_FOLDER, folder):
        if not path.exists():
            path.mkdir(mode=0o711)
            path.chmod(0o711)  # mkdir's mode is cut by the umask
    return folder
