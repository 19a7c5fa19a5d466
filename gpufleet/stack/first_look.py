"""Waits for the first live map and says how long it took. A job of the demo: `… first_look URL TOKEN_FILE SINCE`."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

PATIENCE_SECONDS = 180.0


def main(url: str, token_file: str, since: str) -> int:
    """`since` is the Unix time at which the start began. Always 0: a slow start is told, not punished."""
    until = time.time() + PATIENCE_SECONDS
    gpus = 0
    while time.time() < until:
        try:
            gpus = count_gpus_with_data(url, Path(token_file))
        except (urllib.error.URLError, OSError, ValueError):
            gpus = 0
        if gpus:
            print(f"the map is live: {gpus} GPUs, {time.time() - float(since):.1f} s after the start", flush=True)
            return 0
        time.sleep(0.25)
    print(f"no GPU has shown data within {PATIENCE_SECONDS:.0f} s; {url}/targets/ tells why", flush=True)
    return 0


def count_gpus_with_data(url: str, token_file: Path) -> int:
    """GPUs of the fleet whose newest values are known, by the API."""
    token = token_file.read_text(encoding="ascii").strip()
    request = urllib.request.Request(f"{url}/api/v1/fleet", headers={"Authorization": f"Bearer {token}"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - the address is our own
        nodes = json.load(answer)["nodes"]
    return sum(gpu["data_age_seconds"] is not None for node in nodes for gpu in node["gpus"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
