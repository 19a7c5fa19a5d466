"""The smallest promises of the evaluator; agreement with Prometheus itself is in test_conformance.py."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufleet.promql.engine import query_instant, query_range
from gpufleet.promql.errors import BadQuery, ExecutionFailed, PromqlError, QueryTimeout
from gpufleet.promql.limits import Budget, Limits
from gpufleet.promql.storage import MemoryStorage
from gpufleet.promql.vectors import STALE, Samples

TIMES = np.arange(0, 1_200_000, 15_000, dtype=np.int64)
GONE_FROM = 600_000


def storage() -> MemoryStorage:
    """Three series that grow by 1, 2 and 3 a scrape; the third one ends with a staleness marker."""
    values = np.cumsum(np.ones((3, TIMES.size)) * [[1.0], [2.0], [3.0]], axis=1)
    values[2, TIMES >= GONE_FROM] = STALE
    return MemoryStorage([Samples([{"__name__": "grown", "a": str(n)} for n in range(3)], TIMES, values)])


def values(query: str, at: int = 300_000) -> dict[str, float]:
    return {row.labels.get("a", ""): float(row.values[0]) for row in query_instant(storage(), query, at).rows}


def test_a_series_that_ended_is_gone_at_once() -> None:
    assert values("grown", GONE_FROM - 1).keys() == {"0", "1", "2"}
    assert values("grown", GONE_FROM).keys() == {"0", "1"}


def test_a_series_without_an_end_is_seen_for_five_minutes() -> None:
    last = int(TIMES[-1])
    assert values("grown", last + 300_000).keys() == {"0", "1"}
    assert values("grown", last + 300_001) == {}


def test_windows_are_closed_at_both_ends() -> None:
    assert values("count_over_time(grown[30s])", 300_000) == {"0": 3, "1": 3, "2": 3}
    assert values("count_over_time(grown[30s])", 300_001) == {"0": 2, "1": 2, "2": 2}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("limitk(2, grown)", "limitk"),
        ("sort_by_label(grown, 'a')", "sort_by_label"),
        ("holt_winters(grown[5m], 0.5, 0.5)", "holt_winters"),
        ("histogram_count(grown)", "histogram_count"),
        ("mad_over_time(grown[5m])", "mad_over_time"),
        ('grown{a="1" or a="2"}', "or"),
        ("grown + fill(0) grown", "fill"),
        ("grown[5m] smoothed", "invalid"),
        ("rate(grown)", "rate"),
        ("nothing_like(grown)", "nothing_like"),
        ('grown{a=~"("}', "("),
        ("", "no expression"),
        ("{}", "matcher"),
    ],
)
def test_what_is_not_supported_is_named(query: str, names: str) -> None:
    with pytest.raises(BadQuery) as caught:
        query_instant(storage(), query, 300_000)
    assert names in str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "(" * 5_000 + "grown" + ")" * 5_000,
        "-" * 5_000 + "grown",
        "+".join(["grown"] * 3_000),
        "sum(" * 200,
        "a" * 20_000,
    ],
)
def test_a_query_without_end_is_refused_and_the_process_lives(query: str) -> None:
    """In a thread, where the stack is small: the parser would take the process down."""
    caught: list[BaseException] = []

    def ask() -> None:
        try:
            query_instant(storage(), query, 0)
        except PromqlError as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert isinstance(caught[0], BadQuery)


def test_the_deepest_query_that_is_let_through_is_answered() -> None:
    deep = "(" * 50 + "grown" + ")" * 50
    wide = "+".join(["1"] * 201)
    answers: list[int] = []
    thread = threading.Thread(
        target=lambda: answers.extend(
            len(query_instant(storage(), query, 0).rows) for query in (deep, wide, "-" * 200 + "1")
        )
    )
    thread.start()
    thread.join()
    assert answers == [3, 1, 1]


def test_limits_each_have_their_own_failure() -> None:
    held = storage()
    with pytest.raises(BadQuery, match="11,000 points"):
        query_range(held, "grown", 0, 11_000_000, 1_000)
    with pytest.raises(ExecutionFailed, match="more than 2 series"):
        query_range(held, "grown", 0, 60_000, 1_000, Limits(max_series=2))
    with pytest.raises(ExecutionFailed, match="more than 100 samples"):
        query_range(held, "grown", 0, 600_000, 1_000, Limits(max_samples=100))
    with pytest.raises(QueryTimeout, match="longer than 0 s"):
        query_range(held, "grown", 0, 60_000, 1_000, Limits(timeout_seconds=0))
    with pytest.raises(BadQuery, match="step"):
        query_range(held, "grown", 0, 60_000, 0)
    with pytest.raises(BadQuery, match="end timestamp"):
        query_range(held, "grown", 60_000, 0, 1_000)


@pytest.mark.parametrize(
    "query",
    [
        "max_over_time(grown[10y:1ms])",
        "sum_over_time(grown[99y:1s])",
        "count_values('v', grown[1y:1s])",
        "grown @ 1e300",
        "rate(grown[99999999999y])",
        "max_over_time(max_over_time(grown[1y:1s])[1y:1s])",
    ],
)
def test_a_question_without_end_costs_nothing(query: str) -> None:
    with pytest.raises(PromqlError):
        query_instant(storage(), query, 300_000)


def test_long_work_looks_at_the_clock() -> None:
    """Windows of a day at 11,000 steps over many series are hours of work: it ends in time, in the middle."""
    times = np.arange(0, 86_400_000, 5_000, dtype=np.int64)
    labels = [{"__name__": "m", "a": str(number)} for number in range(100)]
    held = MemoryStorage([Samples(labels, times, np.ones((100, times.size)))])
    for query in ("sum_over_time(m[1d])", "quantile_over_time(0.5, m[1d])", "deriv(m[1d])"):
        with pytest.raises(QueryTimeout):
            query_range(held, query, 0, 86_400_000, 8_000, Limits(timeout_seconds=0.2))


def test_values_are_counted_within_the_limits() -> None:
    times = np.arange(0, 1_000_000, 1_000, dtype=np.int64)
    held = MemoryStorage([Samples([{"__name__": "m"}], times, np.arange(1_000.0)[None, :])])
    with pytest.raises(ExecutionFailed, match="more than 500 series"):
        query_range(held, 'count_values("v", m)', 0, 999_000, 1_000, Limits(max_series=500))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from([0.0, 1.0, 2.0, 3.5, float("nan"), float("inf"), -float("inf")]), min_size=4, max_size=4
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 7),
    st.sampled_from(["topk", "bottomk"]),
)
def test_the_best_of_a_range_are_those_of_its_instants(table: list[list[float]], many: int, op: str) -> None:
    labels = [{"__name__": "m", "a": str(row)} for row in range(len(table))]
    held = MemoryStorage([Samples(labels, np.arange(4, dtype=np.int64) * 15_000, np.array(table))])
    query = f"{op}({many}, m)"
    together = {
        (row.labels["a"], at) for row in query_range(held, query, 0, 45_000, 15_000).rows for at in row.times.tolist()
    }
    alone = {(row.labels["a"], at) for at in range(0, 60_000, 15_000) for row in query_instant(held, query, at).rows}
    assert together == alone


def test_the_time_that_is_left_is_told() -> None:
    now = [10.0]
    budget = Budget(Limits(timeout_seconds=2), clock=lambda: now[0])
    now[0] = 11.5
    assert budget.seconds_left == 0.5
    budget.check_time()
    now[0] = 12.0
    with pytest.raises(QueryTimeout):
        budget.check_time()


@pytest.mark.parametrize(
    "query",
    [
        "grown * on() grown",
        'label_replace(grown, "a", "", "a", ".*")',
        'label_replace(grown, "0a", "", "a", ".*")',
        'label_replace(grown, "b", "", "a", "(")',
        'label_join(grown, "b", ",", "0a")',
        "grown + on() group_left grown",
        "topk(NaN, grown)",
    ],
)
def test_what_cannot_be_told_apart_fails(query: str) -> None:
    with pytest.raises(ExecutionFailed):
        query_instant(storage(), query, 300_000)


_WORDS = st.sampled_from(
    [
        *(
            [
                "grown",
                "sum",
                "rate",
                "(",
                ")",
                "[5m]",
                "[5m:1m]",
                "by",
                "without",
                "(a)",
                "{a=~'1|2'}",
                "+",
                "-",
                "*",
                "/",
                "^",
                "==",
                "bool",
                "and",
                "or",
                "unless",
                "on(a)",
            ]
        ),
        *(
            [
                "group_left",
                "offset",
                "1m",
                "@",
                "1",
                "start()",
                "end()",
                "topk",
                "2",
                ",",
                "'x'",
                "quantile",
                "histogram_quantile",
                "label_replace",
            ]
        ),
        *(['"', "`", "\\", "#", "\x00", "é", "NaN", "Inf", "0x", "1e999"]),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_WORDS, max_size=12).map(" ".join))
def test_any_text_is_answered_or_refused(query: str) -> None:
    try:
        query_range(storage(), query, 0, 60_000, 15_000)
    except PromqlError:
        return


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(
        ["rate", "delta", "deriv", "stddev_over_time", "changes", "max_over_time", "last_over_time", "irate"]
    ),
    st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=40),
    st.integers(1, 20),
)
def test_a_range_is_its_instants(function: str, readings: list[float], scrapes: int) -> None:
    """Evaluating all steps at once gives what each step alone gives."""
    times = np.arange(len(readings), dtype=np.int64) * 15_000
    held = MemoryStorage([Samples([{"__name__": "m"}], times, np.array([readings]))])
    query = f"{function}(m[{15 * scrapes}s])"
    steps = range(0, 15_000 * len(readings) + 60_000, 7_000)
    together = query_range(held, query, 0, steps[-1], 7_000).rows
    alone = [(at, row.values[0]) for at in steps for row in query_instant(held, query, at).rows]
    at_once = list(zip(together[0].times, together[0].values, strict=True)) if together else []
    assert [at for at, _ in alone] == [at for at, _ in at_once]
    np.testing.assert_allclose([v for _, v in at_once], [v for _, v in alone], rtol=1e-9, atol=1e-9)
