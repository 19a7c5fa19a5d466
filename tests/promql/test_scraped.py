"""The store as a storage of queries: the same samples as the evaluator's own memory, in whichever tier they lie."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from promql_answers import EXPECTED, asked, difference
from promql_scrapes import T0, in_memory
from promql_store import NOW, keep_scrapes

from gpufleet.promql.engine import query_instant, query_range
from gpufleet.promql.errors import ExecutionFailed, QueryTimeout
from gpufleet.promql.evaluator import without_stale
from gpufleet.promql.inventory import metric_names
from gpufleet.promql.limits import Budget, Limits
from gpufleet.promql.matchers import LabelMatcher
from gpufleet.promql.scraped import ScrapedStorage
from gpufleet.promql.storage import Storage
from gpufleet.promql.vectors import NAME, key_of
from gpufleet.store.layouts import forget_layouts
from gpufleet.store.names import forget_names
from gpufleet.store.seal import seal

WINDOW = (T0, T0 + 4_600_000)
# One of each way to read: newest, windows, offsets, markers, NaN, `up`.
QUERIES = (
    "flaky",
    "blank",
    "driver_info",
    "up",
    "temp offset 5m",
    '{__name__=~"temp|watts",gpu="0"}',
    'temp{gpu=~"0|2",node=~"gpu-00[12]"}',
    "rate(errors_total[5m])",
    "changes(blank[10m])",
    "count_over_time(flaky[5m])",
    "avg_over_time(up[30m])",
    "topk(2, watts)",
    "temp * on (node) group_left (version, model) driver_info",
    "histogram_quantile(0.99, sum by (le) (rate(wait_bucket[5m])))",
    "timestamp(flaky)",
    "max_over_time(rate(energy_total[1m])[10m:1m])",
)


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    forget_layouts()
    forget_names()
    yield
    forget_layouts()
    forget_names()


@pytest.fixture(params=["frames", "chunks"])
def kept(request: pytest.FixtureRequest, db: None) -> ScrapedStorage:
    keep_scrapes()
    if request.param == "chunks":
        done = seal(NOW + timedelta(days=2))
        assert (done.spans, done.dropped > 0) == (3, True)
    return ScrapedStorage()


def samples(storage: Storage, *matchers: LabelMatcher) -> dict[Any, Any]:
    """{labels: ((milliseconds, bits), ..)} without the markers, which stand where series end."""
    found = {}
    for group in storage.select(matchers, *WINDOW, Budget(Limits())):
        for part in without_stale(group):
            for labels, values in zip(part.labels, part.values, strict=True):
                bits = np.ascontiguousarray(values).view(np.int64).tolist()
                found[key_of(labels)] = list(zip(part.times.tolist(), bits, strict=True))
    return found


def test_every_sample_is_there_bit_for_bit(kept: ScrapedStorage) -> None:
    all_but_scrapes = LabelMatcher(NAME, "!~", "scrape_.*")
    assert samples(kept, all_but_scrapes) == samples(in_memory(), all_but_scrapes)


def test_answers_are_those_of_prometheus(kept: ScrapedStorage) -> None:
    answers = json.loads(gzip.decompress(EXPECTED.read_bytes()))["answers"]
    found = {
        query: [
            difference(query, theirs, ours) for theirs, ours in zip(answers[query], asked(kept, query), strict=True)
        ]
        for query in QUERIES
    }
    assert {query: texts for query, texts in found.items() if any(texts)} == {}


def test_scrapes_tell_of_themselves(kept: ScrapedStorage) -> None:
    at = T0 + 1_300_000  # the second target fails here
    duration = {r.labels["node"]: r.values[0] for r in query_instant(kept, "scrape_duration_seconds", at).rows}
    accepted = {r.labels["node"]: r.values[0] for r in query_instant(kept, "scrape_samples_scraped", at).rows}
    assert duration == {"gpu-001": 0.25, "gpu-002": 10.0, "gpu-003": 0.25}
    assert accepted["gpu-002"] == 0
    assert accepted["gpu-001"] > 20


def test_names_are_listed(kept: ScrapedStorage) -> None:
    assert {"temp", "wait_bucket", "up", "scrape_duration_seconds"} <= set(metric_names())
    assert metric_names() == sorted(set(metric_names()))


def test_the_number_of_queries_does_not_grow_with_the_targets(kept: ScrapedStorage) -> None:
    query_range(kept, "rate(errors_total[5m])", *WINDOW, 60_000)
    counts = []
    for matcher in ('{node="gpu-001"}', ""):
        with CaptureQueriesContext(
            connection,
        ) as captured:
            query_range(kept, f"rate(errors_total{matcher}[5m])", *WINDOW, 60_000)
        counts.append(len(captured))
    assert counts[0] == counts[1]
    assert counts[0] <= 16


def test_limits_hold_before_memory_is_filled(kept: ScrapedStorage) -> None:
    with pytest.raises(ExecutionFailed, match="series"):
        query_instant(kept, "temp", T0 + 60_000, Limits(max_series=3))
    with pytest.raises(ExecutionFailed, match="samples"):
        query_range(kept, "temp", *WINDOW, 60_000, Limits(max_samples=500))
    with pytest.raises(QueryTimeout):
        query_instant(kept, "temp", T0, Limits(timeout_seconds=0))


@pytest.mark.parametrize("offset", ["9999y", "-9999y", "56y", "-100y"])
def test_there_is_nothing_outside_of_time(kept: ScrapedStorage, offset: str) -> None:
    assert query_instant(kept, f"temp offset {offset}", T0).rows == []
    assert query_instant(kept, f"rate(temp[1h] offset {offset})", T0 + 60_000).rows == []


def test_the_database_stops_in_time(kept: ScrapedStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that takes too long is ended by the server, and the connection lives on."""

    def slow(*_: object) -> list[object]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(20)")
        return []

    monkeypatch.setattr("gpufleet.promql.inventory.list_series", slow)
    with pytest.raises(QueryTimeout):
        query_instant(kept, "temp", T0, Limits(timeout_seconds=0.3))
    monkeypatch.undo()
    assert query_instant(kept, "temp", T0 + 60_000).rows


def test_many_quick_statements_end_in_time_too(kept: ScrapedStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpufleet.store.sources.PIECE_CHUNKS", 2)
    with pytest.raises(QueryTimeout):
        query_instant(kept, "rate(temp[50y])", T0 + 60_000, Limits(timeout_seconds=0.5))
