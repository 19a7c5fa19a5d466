"""What a full disk and a restored dump do to history: every sample is counted before and after.

    python bench/history_safety.py full     # as root: a cluster of its own on a small tmpfs, filled while it seals
    python bench/history_safety.py dump     # pg_dump and pg_restore of DATABASE_URL into a database beside it

`full` appends six hours of a small fleet, leaves less and less of the disk free, and seals: each time until PostgreSQL
refuses, then with room again. What is readable must be the same at each point, and in the end all of it is sealed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpufleet.settings")
DISK_MB, HOURS, NODES = 256, 6, 4


def answers() -> str:
    """A digest of every frame and every sample that can be read, and how many samples there are."""
    import history_fill as fill

    from gpufleet.fleet.models import Target
    from gpufleet.store.models import Series
    from gpufleet.store.queries import read_frames, read_samples

    digest, samples = hashlib.sha256(), 0
    start = fill.START.timestamp()
    for target_id in Target.objects.order_by("id").values_list("id", flat=True):
        for frame in read_frames([target_id], start, start + 2 * 86_400):
            facts = (frame.target_id, frame.scraped_at, frame.cycle, frame.reason, frame.bytes, frame.layout_id)
            digest.update(repr(facts).encode() + (b"" if frame.values is None else frame.values.tobytes()))
        ids = list(Series.objects.filter(target=target_id).order_by("id").values_list("id", flat=True))
        for series_id, found in sorted(read_samples(ids, start, start + 2 * 86_400).items()):
            digest.update(repr(series_id).encode() + found.times.tobytes() + found.values.tobytes())
            samples += found.times.size
    return f"{samples} {digest.hexdigest()[:16]}"


def seal() -> str:
    import history_fill as fill
    from django.db import Error

    from gpufleet.store.seal import GRACE, seal

    try:
        done = seal(fill.START + fill.timedelta(hours=HOURS) + GRACE)
    except Error as error:
        return f"refused: {str(error).splitlines()[0]}"
    return f"sealed {done.spans} spans, dropped {done.dropped} partitions"


def child(*arguments: str, url: str) -> str:
    """Output of one of this program's parts, or of another one, on a database; the last line when it fails."""
    environment = {**os.environ, "DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def part(name: str, url: str) -> str:
    for _ in range(60):
        try:
            return child(__file__, name, url=url)
        except AssertionError as error:
            # A full disk may end the server, which then recovers by itself.
            if "recovery mode" not in str(error) and "starting up" not in str(error) and "closed" not in str(error):
                raise
            time.sleep(1)
    raise AssertionError("the server did not come back")


@contextmanager
def small_disk() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gpufleet-disk-") as folder:
        Path(folder).chmod(0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=755", "tmpfs", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def served(disk: Path) -> Iterator[str]:
    """The embedded PostgreSQL on a folder; gives its DATABASE_URL."""
    from gpufleet.stack import postgres
    from gpufleet.stack.ports import free_port

    data, port = disk / "data", free_port()
    data.mkdir(mode=0o755)
    cluster = postgres.cluster_for(data, "unused")
    if cluster.account:
        os.chown(data, cluster.account.uid, cluster.account.gid)
    postgres.create(cluster, "secret")
    unit = postgres.server(cluster, port)
    small = ["-c", "max_wal_size=48MB", "-c", "min_wal_size=32MB", "-c", "restart_after_crash=on"]
    process = subprocess.Popen(
        [*unit.command, *small], env=dict(unit.environment), cwd="/", stdout=subprocess.DEVNULL,
        stderr=(disk.parent / f"{disk.name}.log").open("w"), user=cluster.account.uid if cluster.account else None,
        group=cluster.account.gid if cluster.account else None, extra_groups=[] if cluster.account else None,
    )  # fmt: skip
    try:
        time.sleep(3)
        yield postgres.address(postgres.SUPERUSER, "secret", port, "postgres")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def full() -> None:
    with small_disk() as disk, served(disk) as url:
        child("manage.py", "migrate", url=url)
        child(
            "bench/history_fill.py", "--hours", "0", "--open-minutes", str(HOURS * 60), "--nodes", str(NODES), url=url
        )
        before = part("answers", url)
        print(f"appended: {before}", flush=True)
        for left in (0, 64, 128, 256, 384, 512, 768):
            with (disk / "ballast").open("wb") as ballast:
                stat = os.statvfs(disk)
                ballast.write(bytes(max(0, stat.f_bavail * stat.f_frsize - left * 2**10)))
            said = part("seal", url)
            while_full = part("answers", url)
            (disk / "ballast").unlink()
            after = part("answers", url)
            print(
                f"{left} KiB left: {said}; the same while full: {while_full == before}, after: {after == before}",
                flush=True,
            )
            assert while_full == after == before
        print(part("seal", url))
        assert part("answers", url) == before
        print("all sealed, and the same")


def dump() -> None:
    url = os.environ["DATABASE_URL"]
    scheme, place, path, *_ = urlsplit(url)
    copy = urlunsplit((scheme, place, path + "_restored", "", ""))
    admin = urlunsplit((scheme, place, "/postgres", "", ""))
    from gpufleet.stack import postgres

    binaries = postgres._binaries(None)
    before = part("answers", url)
    with tempfile.NamedTemporaryFile(suffix=".dump") as file:
        began = time.perf_counter()
        subprocess.run([binaries / "pg_dump", "--format=custom", f"--file={file.name}", f"--dbname={url}"], check=True)
        size, took = Path(file.name).stat().st_size, time.perf_counter() - began
        psql = [binaries / "psql", "--quiet", f"--dbname={admin}", "-c"]
        subprocess.run([*psql, f'DROP DATABASE IF EXISTS "{path[1:]}_restored"'], check=True)
        subprocess.run([*psql, f'CREATE DATABASE "{path[1:]}_restored"'], check=True)
        began = time.perf_counter()
        subprocess.run([binaries / "pg_restore", f"--dbname={copy}", "--no-owner", file.name], check=True)
    print(f"dump of {size:,} bytes in {took:.1f} s, restored in {time.perf_counter() - began:.1f} s")
    after = part("answers", copy)
    subprocess.run([*psql, f'DROP DATABASE "{path[1:]}_restored"'], check=True)
    print(f"before {before}\nafter  {after}")
    assert before == after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("what", choices=("full", "dump", "answers", "seal"))
    what = parser.parse_args().what
    if what in ("answers", "seal"):
        print(answers() if what == "answers" else seal())
    else:
        full() if what == "full" else dump()


if __name__ == "__main__":
    main()
