"""What a sample costs to read: our reader with a warm cache beside the parser of prometheus_client, in one run.

    python bench/exposition.py [--gpus 8] [--fields 45] [--rounds 15] [--file BODY]

Both read the same bodies in turn: a DCGM body whose values change every time (or FILE as it is). Prints the median and
the spread in microseconds per sample, cold and warm, and the ratio.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from gpufleet.catalogue.metrics import rows
from gpufleet.scrape.exposition import SeriesCache, read

NOW = 1_780_000_000.0


def dcgm_body(gpus: int, fields: int, seed: int) -> bytes:
    """A body as dcgm-exporter writes it, `fields` gauges for each GPU."""
    chance = random.Random(seed)
    names = [row["name"] for row in rows("aliases.csv") if row["name"].startswith("DCGM_FI_DEV")][:fields]
    lines: list[str] = []
    for name in names:
        lines += [f"# HELP {name} A field.", f"# TYPE {name} gauge"]
        lines += [
            f'{name}{{gpu="{gpu}",UUID="GPU-4f2d7c1e-0b5a-4f0e-9d3c-00000000000{gpu}",'
            f'pci_bus_id="00000000:{gpu + 16:X}:00.0",'
            f'device="nvidia{gpu}",modelName="NVIDIA B200",Hostname="node-17",DCGM_FI_DRIVER_VERSION="580.65.06"}} '
            f"{chance.choice((chance.randint(0, 10**6), round(chance.random() * 900, 6)))}"
            for gpu in range(gpus)
        ]
    return ("\n".join(lines) + "\n").encode()


def per_sample(seconds: float, samples: int) -> float:
    return seconds / samples * 1e6


def timed_ours(body: bytes, cache: SeriesCache) -> float:
    start = time.perf_counter()
    parsed = read(body, cache, scraped_at=NOW, max_samples=1_000_000)
    return per_sample(time.perf_counter() - start, parsed.accepted)


def timed_peer(body: bytes) -> float:
    start = time.perf_counter()
    samples = sum(len(family.samples) for family in text_string_to_metric_families(body.decode()))
    return per_sample(time.perf_counter() - start, samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--fields", type=int, default=45)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--file", type=Path)
    options = parser.parse_args()
    rounds = range(options.rounds)
    bodies = [options.file.read_bytes() if options.file else dcgm_body(options.gpus, options.fields, n) for n in rounds]
    warm = SeriesCache()
    timed_ours(bodies[0], warm)
    figures: dict[str, list[float]] = {"ours_cold": [], "ours_warm": [], "prometheus_client": []}
    for body in bodies:
        figures["ours_cold"].append(timed_ours(body, SeriesCache()))
        # 20 reads at a time: one alone is near the resolution of the clock.
        figures["ours_warm"].append(statistics.mean(timed_ours(body, warm) for _ in range(20)))
        figures["prometheus_client"].append(timed_peer(body))
    report = {
        name: {
            "median_us": round(statistics.median(times), 3),
            "min": round(min(times), 3),
            "max": round(max(times), 3),
        }
        for name, times in figures.items()
    }
    ratio = statistics.median(figures["prometheus_client"]) / statistics.median(figures["ours_warm"])
    print(
        json.dumps({"rounds": options.rounds, "us_per_sample": report, "warm_is_faster_by": round(ratio, 1)}, indent=2)
    )


if __name__ == "__main__":
    main()
