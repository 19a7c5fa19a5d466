"""Fetches the simulator's target list; as a program (`… simulated_targets URL`), also imports it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpufleet.stack.folder import write_secret
from gpufleet.stack.problems import StackError

WAIT_SECONDS = 60.0


def fetch(url: str, path: Path, wait_seconds: float = WAIT_SECONDS) -> Path:
    """Writes the file_sd list of `url` to `path`, with every target at the host that `url` names.

    Waits until the simulator answers; raises StackError when it does not.
    """
    until = time.monotonic() + wait_seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - named by the operator
                groups: list[dict[str, Any]] = json.load(answer)
            break
        except (urllib.error.URLError, OSError, ValueError) as error:
            if time.monotonic() > until:
                raise StackError(f"The simulated fleet does not answer at {url} ({error}).") from error
            time.sleep(0.1)
    return write_secret(path, json.dumps(at_host(groups, urlsplit(url).netloc)) + "\n")


def at_host(groups: list[dict[str, Any]], host: str) -> list[dict[str, Any]]:
    """The groups with every target at `host`: the simulator cannot know under which name it is seen.

    Its own cluster label goes: the demo watches one fleet, the default one, which pages and API show unasked.
    """
    return [{"targets": [host for _target in group["targets"]], "labels": _labels(group)} for group in groups]


def _labels(group: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in group.get("labels", {}).items() if name != "cluster"}


def main(url: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = fetch(url, Path(folder) / "simulator-targets.json")
        except StackError as error:
            print(error, file=sys.stderr)
            return 1
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpufleet.settings")
        import django
        from django.core.management import call_command

        django.setup()
        call_command("import_targets", str(path), "--prune")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
