"""Installs the browser's third-party files by static/vendor.lock.json, and collects all static files.

From the package registry through the npm client where Node is at hand, else from the installed Python wheels. Every
file is held to the hash in the lock file; what does not match is never served. `python -m gpufleet.stack.assets`.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from gpufleet.stack.options import ROOT
from gpufleet.stack.problems import StackError, file_problem

STATIC = ROOT / "static"
COLLECTED = ROOT / "static-collected"
LOCK_FILE = STATIC / "vendor.lock.json"
VENDOR = STATIC / "vendor"
NPM_SECONDS = 60
RULE = re.compile(r"""("[^"]*"|'[^']*'|[XY]):("[^"]*"|'[^']*')""")


def main() -> int:
    """Exit code 1 with one sentence when a file can be had from neither source."""
    try:
        install(json.loads(LOCK_FILE.read_text(encoding="utf-8")), VENDOR)
        collect()
    except StackError as error:
        print(f"gpufleet: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"gpufleet: {file_problem(error, STATIC)}", file=sys.stderr)
        return 1
    return 0


def install(lock: dict[str, Any], vendor: Path) -> None:
    """Brings `vendor` to what the lock names; a file that is right already is left alone."""
    vendor.mkdir(parents=True, exist_ok=True)
    for package in lock["packages"]:
        path = vendor / package["file"]
        node_free = shutil.which("npm") is None
        right = {package["sha256"]} | ({package["fallback"]["sha256"]} if node_free else set())
        if path.exists() and _sha256(path.read_bytes()) in right:
            continue
        data, source = fetch(package)
        _replace(path, data)
        print(f"gpufleet: {path.name} from {source}", flush=True)
    for derived in lock["derived"]:
        path = vendor / derived["file"]
        if path.exists() and _sha256(path.read_bytes()) == derived["sha256"]:
            continue
        text = plotly_css((vendor / derived["from"]).read_text(encoding="utf-8"))
        _replace(path, checked(text.encode(), derived["sha256"], derived["file"]))


def fetch(package: dict[str, Any]) -> tuple[bytes, str]:
    """The file's bytes and where they come from. Raises StackError when neither source has the right ones."""
    name = f"{package['name']} {package['version']}"
    if shutil.which("npm") is not None:
        try:
            return from_npm(package), name
        except (OSError, subprocess.SubprocessError, tarfile.TarError, KeyError) as error:
            print(f"gpufleet: npm cannot bring {name} ({_first_line(error)}); using the Python wheel's", flush=True)
    return from_wheel(package["fallback"]), f"the {package['fallback']['wheel']} wheel (no {name} at hand)"


def from_npm(package: dict[str, Any]) -> bytes:
    """Packs the locked version into a temporary folder. Raises StackError when its integrity is not the locked one."""
    with tempfile.TemporaryDirectory(prefix="gpufleet-npm-") as folder:
        subprocess.run(
            ("npm", "pack", "--silent", "--ignore-scripts", f"{package['name']}@{package['version']}"),
            cwd=folder,
            env={**os.environ, "npm_config_cache": str(Path(folder) / "cache"), "npm_config_update_notifier": "false"},
            check=True,
            capture_output=True,
            text=True,
            timeout=NPM_SECONDS,
        )
        archive = next(Path(folder).glob("*.tgz"), None)
        if archive is None:
            raise FileNotFoundError("npm pack wrote no archive")
        digest = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if digest != package["integrity"]:
            raise StackError(
                f"{package['name']} {package['version']} is not what static/vendor.lock.json names: refused."
            )
        with tarfile.open(archive) as members:
            member = members.extractfile(package["member"])
            if member is None:
                raise KeyError(package["member"])
            return checked(member.read(), package["sha256"], package["file"])


def from_wheel(fallback: dict[str, str]) -> bytes:
    """The copy that a pinned Python package brings."""
    found = importlib.util.find_spec(fallback["wheel"])
    if found is None or found.origin is None:
        raise StackError(f"Neither npm nor the Python package {fallback['wheel']} is at hand: run bin/demo.")
    path = Path(found.origin).parent / fallback["member"]
    return checked(path.read_bytes(), fallback["sha256"], path.name)


def checked(data: bytes, sha256: str, name: str) -> bytes:
    """`data`, or StackError when it is not what the lock names."""
    if _sha256(data) != sha256:
        raise StackError(f"{name} is not what static/vendor.lock.json names: refused.")
    return data


def plotly_css(bundle: str) -> str:
    """Plotly's style sheet, from the rules that its bundle would insert by script (a strict policy forbids that).

    Byte for byte the `dist/plotly.css` of the same version, without fetching the 22 MB package that holds it.
    """
    start = bundle.index('{"X,X div":')
    rules = RULE.findall(bundle[start + 1 : bundle.index("};", start)])
    return "".join(f"{_selector(key.strip(chr(34) + chr(39)))}{{{value[1:-1].rstrip(';')}}}" for key, value in rules)


def collect() -> None:
    """Runs collectstatic when a static file has changed since the last time; one process at a time."""
    wanted = _fingerprint()
    stamp = COLLECTED / ".collected"
    COLLECTED.mkdir(exist_ok=True)
    with open(COLLECTED / ".lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
            return
        started = time.monotonic()
        command: tuple[str, ...] = (
            sys.executable,
            str(ROOT / "manage.py"),
            "collectstatic",
            "--no-input",
            "--verbosity",
            "0",
        )
        command += ("--ignore", "django_htmx")  # its htmx is not ours, and refers to files that it does not bring
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StackError(f"The static files cannot be collected: {_error_line(done.stderr or done.stdout)}")
        stamp.write_text(wanted, encoding="ascii")
        print(f"gpufleet: collected static files in {time.monotonic() - started:.1f} s", flush=True)


def _fingerprint() -> str:
    digest = hashlib.sha256((ROOT / "requirements.txt").read_bytes())
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            about = path.stat()
            digest.update(f"{path.relative_to(STATIC)} {about.st_size} {about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _selector(key: str) -> str:
    return re.sub("^,", " ,", key).replace("X", ".js-plotly-plot .plotly").replace("Y", ".plotly-notifier")


def _replace(path: Path, data: bytes) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_bytes(data)
    new.replace(path)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _error_line(said: str) -> str:
    """The line of a traceback that names the error, or the last one."""
    lines = [line for line in said.splitlines() if line.strip()] or ["it said nothing"]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return (named or lines)[-1]


def _first_line(error: Exception) -> str:
    said = getattr(error, "stderr", "") or str(error)
    return next((line for line in str(said).splitlines() if line.strip()), type(error).__name__)


if __name__ == "__main__":
    sys.exit(main())
