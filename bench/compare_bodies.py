"""Compares what a running demo shows with the bodies it watches, read by the Prometheus client's parser.

    python bench/serve_bodies.py FOLDER --port 9500 --file-sd targets.json
    bin/demo --no-sim --targets targets.json
    python bench/compare_bodies.py DATA_FOLDER FOLDER

For each body: GPUs listed against distinct boards in the body, temperature and power of each board, and every open
incident. Exits 1 on a difference.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path

from demo_client import Demo
from prometheus_client.parser import text_string_to_metric_families
from serve_bodies import ENDINGS

WATCHED = {
    "gpu_temperature_celsius": ("DCGM_FI_DEV_GPU_TEMP", "nvidia_smi_temperature_gpu"),
    "gpu_power_watts": (
        "DCGM_FI_DEV_POWER_USAGE",
        "nvidia_smi_power_draw_watts",
        "nvidia_smi_power_draw_average_watts",
    ),
}


def samples(path: Path) -> Iterator[tuple[str, dict[str, str], float]]:
    """Line by line, so that one line which the client's parser refuses costs only itself."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            for family in text_string_to_metric_families(line + "\n"):
                for sample in family.samples:
                    yield sample.name, dict(sample.labels), sample.value
        except (ValueError, KeyError, IndexError):
            continue


def boards(path: Path, names: tuple[str, ...]) -> list[float]:
    """The sorted values of a metric, one a board, as the body has them; numbers that mean no value are left out."""
    found: dict[str, float] = {}
    for name, labels, value in samples(path):
        if name in names and not labels.get("GPU_I_ID"):
            key = labels.get("UUID") or labels.get("uuid") or labels.get("gpu", "")
            if value < 1e9:
                found.setdefault(key, value)
    return sorted(found.values())


def differences(node: dict, path: Path) -> Iterator[str]:
    for metric, names in WATCHED.items():
        expected = boards(path, names)
        shown = sorted(v for gpu in node["gpus"] if (v := gpu["metrics"].get(metric)) is not None)
        same = len(expected) == len(shown) and all(
            math.isclose(a, b, rel_tol=1e-6) for a, b in zip(expected, shown, strict=True)
        )
        if expected and not same:
            yield f"{node['name']}: {metric} {shown}, the body has {expected}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    demo = Demo(options.data)
    paths = {p.name.rsplit(".", 1)[0]: p for p in options.folder.rglob("*") if p.suffix in ENDINGS}
    nodes = demo.call("GET", "/api/v1/fleet")["nodes"]
    wrong = [line for node in nodes if node["name"] in paths for line in differences(node, paths[node["name"]])]
    compared = sum(bool(boards(path, names)) for path in paths.values() for names in WATCHED.values())
    gpus = sum(len(node["gpus"]) for node in nodes)
    down = [target["url"] for target in demo.call("GET", "/api/v1/targets")["targets"] if not target["up"]]
    print(f"{len(nodes)} nodes, {gpus} GPUs, {len(down)} targets down")
    print(f"{compared} metrics of bodies compared, {len(wrong)} differ")
    print(*wrong, *(f"down: {url}" for url in down), sep="\n")
    for incident in demo.call("GET", "/api/v1/incidents?status=open,acknowledged&limit=1000")["incidents"]:
        print(f"incident {incident['kind']} on {incident['node']}: {incident['title']}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
