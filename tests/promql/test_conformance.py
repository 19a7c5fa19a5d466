"""The same expressions on the same samples give what Debian's Prometheus gave: its answers were recorded.

`python bench/promql_conformance.py --record tests/promql/prometheus_2_42.json.gz` records them anew.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

import pytest
from promql_answers import DIFFERENCES, EXPECTED, INSTANTS, RANGE, asked, difference, expressions
from promql_scrapes import in_memory

from gpufleet.promql.storage import MemoryStorage


@cache
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(EXPECTED.read_bytes()))
    return found


@cache
def storage() -> MemoryStorage:
    return in_memory()


def test_the_record_is_of_these_expressions_and_instants() -> None:
    assert list(recorded()["answers"]) == expressions()
    assert recorded()["provenance"]["instants"] == list(INSTANTS)
    assert recorded()["provenance"]["range"] == list(RANGE)
    assert "2.42.0" in recorded()["provenance"]["server"]
    assert len(expressions()) >= 200


def test_the_record_holds_values_for_nearly_all() -> None:
    """An empty answer agrees with anything that is empty."""
    full = [query for query, replies in recorded()["answers"].items() if any(reply.get("rows") for reply in replies)]
    assert len(full) > len(expressions()) - 25


@pytest.mark.parametrize("query", expressions())
def test_agrees_with_prometheus(query: str) -> None:
    found = [
        difference(query, theirs, ours)
        for theirs, ours in zip(recorded()["answers"][query], asked(storage(), query), strict=True)
    ]
    assert any(found) == (query in DIFFERENCES), found
