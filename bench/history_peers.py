"""Gives Prometheus and VictoriaMetrics the samples that `history_fill.py` brought, and weighs all three on disk.

Samples are read back out of the store, so the peers get what it kept. Times are whole multiples of the interval, as
Prometheus makes them itself: without that they would need far more. It goes on where it was stopped:

    DATABASE_URL=postgresql:///gpufleet_history python bench/history_peers.py fill [--data /tmp/gpufleet-peers]
    DATABASE_URL=postgresql:///gpufleet_history python bench/history_peers.py sizes
    DATABASE_URL=postgresql:///gpufleet_history python bench/history_peers.py open   # what is not sealed, too
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import history_fill as ours  # noqa: E402
import numpy as np  # noqa: E402
import orjson  # noqa: E402

from gpufleet.store.chunks import SPAN_SECONDS  # noqa: E402
from gpufleet.store.models import Series  # noqa: E402
from gpufleet.store.queries import read_samples  # noqa: E402

VICTORIA, PROMETHEUS = 19428, 19429


@contextmanager
def served(command: list[str], ready: str) -> Iterator[subprocess.Popen[bytes]]:
    """A peer for as long as the block runs; `ready` answers when it does."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(ready, timeout=5).read()
                    break
                except OSError:
                    time.sleep(0.2)
            yield process
        finally:
            process.terminate()
            process.wait(timeout=60)


def victoria(data: Path) -> tuple[list[str], str]:
    address = f"127.0.0.1:{VICTORIA}"
    command = [
        *("victoria-metrics", f"-storageDataPath={data}/victoria", f"-httpListenAddr={address}"),
        *("-retentionPeriod=10y", "-search.latencyOffset=0s", "-search.disableCache", "-memory.allowedPercent=20"),
    ]
    return command, f"http://{address}/health"


def prometheus(data: Path) -> tuple[list[str], str]:
    config = data / "prometheus.yml"
    config.write_text("global: {scrape_interval: 15s}\n")
    command = [
        *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}/prometheus"),
        *("--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{PROMETHEUS}"),
    ]
    return command, f"http://127.0.0.1:{PROMETHEUS}/-/ready"


def series_of(start: float) -> Iterator[tuple[str, dict[str, str], list[int], list[float]]]:
    """(name, labels, milliseconds, values) of every series in two hours, in order of name."""
    rows = Series.objects.order_by("name", "target_id", "id").values_list(
        "id", "name", "labels", "gpu__uuid", "target__node__name"
    )
    by_name: dict[str, list[tuple[int, dict[str, str]]]] = {}
    for series_id, name, labels, uuid, node in rows:
        plain = {"instance": f"{node}:9400", "job": "dcgm", "Hostname": node, **labels}
        by_name.setdefault(name, []).append((series_id, plain | ({"UUID": uuid} if uuid else {})))
    for name, members in by_name.items():
        found = read_samples([series_id for series_id, _ in members], start, start + SPAN_SECONDS, canonical=False)
        for series_id, labels in members:
            if series_id in found:
                aligned = (found[series_id].times // ours.INTERVAL * ours.INTERVAL * 1000).astype(np.int64)
                yield name, labels, aligned.tolist(), found[series_id].values.tolist()


def fill_span(data: Path, start: float) -> int:
    """One pass over the samples: JSON lines for VictoriaMetrics, OpenMetrics text for promtool. Returns how many."""
    text, lines, samples = data / "span.om", bytearray(), 0
    with text.open("w") as out:
        last = ""
        for name, labels, times, values in series_of(start):
            if name != last:
                out.write(f"# TYPE {name} gauge\n")
                last = name
            lines += (
                orjson.dumps({"metric": {"__name__": name, **labels}, "values": values, "timestamps": times}) + b"\n"
            )
            if len(lines) > 20_000_000:
                import_lines(lines)
            head = name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "} "
            out.write("".join(f"{head}{value:.17g} {at // 1000}\n" for value, at in zip(values, times, strict=True)))
            samples += len(values)
        out.write("# EOF\n")
    import_lines(lines)
    (data / "prometheus").mkdir(exist_ok=True)
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(data / "prometheus")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    text.unlink()
    return samples


def import_lines(lines: bytearray) -> None:
    if lines:
        request = urllib.request.Request(f"http://127.0.0.1:{VICTORIA}/api/v1/import", data=bytes(lines), method="POST")
        urllib.request.urlopen(request, timeout=600).read()
        lines.clear()


def fill(data: Path, filled: Path, *, with_open: bool) -> None:
    data.mkdir(exist_ok=True)
    record = data / "record.jsonl"
    done = {json.loads(line)["start"] for line in record.read_text().splitlines()} if record.exists() else set()
    starts = [json.loads(line)["start"] for line in filled.read_text().splitlines()]
    starts += [starts[-1] + SPAN_SECONDS] if with_open else []
    command, ready = victoria(data)
    with served(command, ready):
        for start in starts:
            if start not in done:
                before = time.perf_counter()
                samples = fill_span(data, start)
                with record.open("a") as out:
                    out.write(json.dumps({"start": start, "samples": samples}) + "\n")
                print(f"{start:.0f} {samples:,} samples in {time.perf_counter() - before:.0f} s", flush=True)
        for path in ("internal/force_flush", "internal/force_merge"):
            urllib.request.urlopen(f"http://127.0.0.1:{VICTORIA}/{path}", timeout=600).read()
        time.sleep(20)


def disk(path: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())


def sizes(data: Path) -> None:
    samples = sum(json.loads(line)["samples"] for line in (data / "record.jsonl").read_text().splitlines())
    print(f"{samples:,} samples")
    mine = ours.sizes()
    chunks = mine["store_chunk"]
    rolled = mine["store_rollup_5m"] + mine["store_rollup_1h"]
    names = mine["store_series"] + mine["store_layout"] + mine["store_name"]
    rows = {
        "gpufleet, samples": chunks,
        "gpufleet, samples and series": chunks + names,
        "gpufleet, samples, series and roll-ups": chunks + names + rolled,
        "Prometheus": disk(data / "prometheus"),
        "VictoriaMetrics": disk(data / "victoria"),
    }
    for name, size in rows.items():
        print(f"{name:42} {size:14,} bytes {size / samples:8.4f} a sample")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("what", choices=("fill", "sizes", "open", "clean"))
    parser.add_argument("--data", type=Path, default=Path("/tmp/gpufleet-peers"))  # noqa: S108
    parser.add_argument("--record", type=Path, default=ours.RECORD)
    given = parser.parse_args()
    os.environ.setdefault("TZ", "UTC")
    if given.what == "clean":
        shutil.rmtree(given.data)
    else:
        brought = partial(fill, filled=given.record, with_open=given.what == "open")
        {"fill": brought, "open": brought, "sizes": sizes}[given.what](given.data)


if __name__ == "__main__":
    main()
