"""Asks Debian's Prometheus and our evaluator the same expressions on the same samples, and prints where they differ.

    python bench/promql_conformance.py [--step 61] [--record tests/promql/prometheus_2_42.json.gz]
    python bench/promql_conformance.py --random 2000 [--seed 1]

The expressions are tests/promql/expressions.txt, the samples tests/promql_scrapes.py. With `--record` Prometheus'
answers are kept; the test run compares ours with them where there is no Prometheus.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from prometheus_server import get, prometheus, remote_write  # noqa: E402
from promql_answers import (  # noqa: E402
    DIFFERENCES,
    INSTANTS,
    RANGE,
    Reply,
    asked,
    difference,
    expressions,
    reply_of,
)
from promql_random import expressions as random_expressions  # noqa: E402
from promql_scrapes import T0, in_memory, rounds  # noqa: E402

from gpufleet.promql.engine import query_range  # noqa: E402


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--step", type=int, default=61, help="seconds; a second, finer range that is compared too")
    options.add_argument("--record", type=Path)
    options.add_argument("--random", type=int, default=0, help="instead of the file, as many random expressions")
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    queries = list(random_expressions(chosen.seed, chosen.random)) if chosen.random else expressions()
    with prometheus() as address:
        for batch in rounds():
            remote_write(address, [(labels, at, value.tobytes()) for labels, at, value in batch])
        theirs = {query: _asked(address, query) for query in queries}
        fine = {query: _range(address, query, T0, T0 + 4_500_000, chosen.step * 1000) for query in queries}
    if chosen.record:
        _record(chosen.record, theirs)
    return _report(theirs, fine, chosen.step * 1000)


def _asked(address: str, query: str) -> list[Reply]:
    instants = [_reply(get(f"{address}/api/v1/query", query=query, time=at / 1000)) for at in INSTANTS]
    return [*instants, _range(address, query, *RANGE)]


def _range(address: str, query: str, start: int, end: int, step: int) -> Reply:
    return _reply(
        get(f"{address}/api/v1/query_range", query=query, start=start / 1000, end=end / 1000, step=step / 1000)
    )


def _reply(answer: dict[str, Any]) -> Reply:
    if answer["status"] != "success":
        return {"error": answer["errorType"], "message": answer["error"]}
    data = answer["data"]
    if data["resultType"] in ("scalar", "string"):
        return {"kind": data["resultType"], "rows": [[{}, [data["result"]]]]}
    rows = [[row["metric"], row.get("values") or [row["value"]]] for row in data["result"]]
    return {"kind": data["resultType"], "rows": rows}


def _report(theirs: dict[str, list[Reply]], fine: dict[str, Reply], step: int) -> int:
    storage = in_memory()
    differing = unexplained = 0
    for query, replies in theirs.items():
        ours = asked(storage, query)
        names = [f"at +{(at - T0) / 1000:g} s" for at in INSTANTS] + ["range"]
        found = [
            f"{name}: {text}"
            for name, one, other in zip(names, replies, ours, strict=True)
            if (text := difference(query, one, other))
        ]
        mine = _fine(storage, query, step)
        if text := difference(query, fine[query], mine):
            found.append(f"every {step // 1000} s: {text}")
        differing += bool(found)
        unexplained += bool(found) and query not in DIFFERENCES
        print(f"{'differs' if found else 'agrees':8} {query}", *(f"\n         {text[:300]}" for text in found), sep="")
        if query in DIFFERENCES:
            print(f"         because {DIFFERENCES[query]}")
    print(f"{len(theirs) - differing} of {len(theirs)} expressions agree to 1e-9; {unexplained} differ unexplained")
    return 1 if unexplained else 0


def _fine(storage: Any, query: str, step: int) -> Reply:
    return reply_of(lambda: query_range(storage, query, T0, T0 + 4_500_000, step))


def _record(path: Path, theirs: dict[str, list[Reply]]) -> None:
    version = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
    said = (version.stdout or version.stderr).splitlines()[0]
    lines = [f"{json.dumps(query)}: {json.dumps(replies, separators=(',', ':'))}" for query, replies in theirs.items()]
    provenance = {
        "made_by": "python bench/promql_conformance.py --record",
        "server": said,
        "samples": "tests/promql_scrapes.py, sent by remote write",
        "instants": list(INSTANTS),
        "range": list(RANGE),
    }
    text = f'{{"provenance": {json.dumps(provenance)},\n"answers": {{\n' + ",\n".join(lines) + "\n}}\n"
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    sys.exit(main())
