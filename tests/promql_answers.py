"""What is asked for each expression, and how two answers are compared."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from promql_scrapes import T0

from gpufleet.promql.engine import Answer, Row, query_instant, query_range
from gpufleet.promql.errors import PromqlError
from gpufleet.promql.numbers import spelling
from gpufleet.promql.storage import Storage

FOLDER = Path(__file__).resolve().parent / "promql"
EXPECTED = FOLDER / "prometheus_2_42.json.gz"
# While a target fails; while another is not scraped; just after one more failure.
INSTANTS = (T0 + 1_300_000, T0 + 2_200_000, T0 + 3_003_000)
RANGE = (T0 + 400_000, T0 + 4_400_000, 437_000)
TOLERANCE = 1e-9

# Where we mean to differ, and why.
DIFFERENCES = {
    "temp atan2 watts": "2.42 forgets to drop the metric's name after atan2, unlike every other arithmetic operator;"
    " later releases drop it, and so do we",
}

Reply = dict[str, Any]  # {"kind", "rows": [[labels, [[seconds, text], ..]], ..]} or {"error", "message"}


def expressions() -> list[str]:
    lines = (FOLDER / "expressions.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def asked(storage: Storage, query: str) -> list[Reply]:
    """Our answers at INSTANTS, and over RANGE."""
    asks = [lambda at=at: query_instant(storage, query, at) for at in INSTANTS]
    return [reply_of(ask) for ask in (*asks, lambda: query_range(storage, query, *RANGE))]


def reply_of(ask: Any) -> Reply:
    try:
        answer: Answer = ask()
    except PromqlError as error:
        return {"error": error.kind, "message": str(error)}
    rows = [[dict(row.labels), _points(row)] for row in answer.rows]
    return {"kind": answer.kind, "rows": rows}


def _points(row: Row) -> list[list[Any]]:
    return [[at / 1000, spelling(value)] for at, value in zip(row.times.tolist(), row.values.tolist(), strict=True)]


def difference(query: str, theirs: Reply, ours: Reply) -> str:
    """What differs, in words; empty when the answers agree."""
    if "error" in theirs or "error" in ours:
        same = theirs.get("error") == ours.get("error")
        return "" if same else f"{theirs.get('message', 'an answer')!r} against {ours.get('message', 'an answer')!r}"
    if theirs["kind"] != ours["kind"]:
        return f"kind {theirs['kind']} against {ours['kind']}"
    if query.startswith("sort") and theirs["kind"] == "vector":
        # Equal values may stand in any order: the values tell whether it is sorted.
        order = [[points[0][1] for _, points in reply["rows"]] for reply in (theirs, ours)]
        if not all(agree(float(one), float(other)) for one, other in zip(*order, strict=False)):
            return "another order"
    left, right = ({_key(labels): points for labels, points in reply["rows"]} for reply in (theirs, ours))
    if left.keys() != right.keys():
        there, here = sorted(left.keys() - right.keys())[:2], sorted(right.keys() - left.keys())[:2]
        return f"series only there {there}, only here {here}"
    for key, points in left.items():
        found = _point_difference(points, right[key])
        if found:
            return f"{dict(key)}: {found}"
    return ""


def _point_difference(theirs: list[list[Any]], ours: list[list[Any]]) -> str:
    if [at for at, _ in theirs] != [at for at, _ in ours]:
        odd = sorted({at for at, _ in theirs} ^ {at for at, _ in ours})[:3]
        return f"values at other times: {len(theirs)} against {len(ours)}, as at {odd}"
    for (at, one), (_, other) in zip(theirs, ours, strict=True):
        if not agree(float(one), float(other)):
            return f"{one} against {other} at {at}"
    return ""


def agree(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or abs(one - other) <= TOLERANCE * max(1.0, abs(one), abs(other))


def _key(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))
