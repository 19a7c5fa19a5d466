"""The page about PromQL names everything that is answered, and the limits as they are."""

from __future__ import annotations

from pathlib import Path

from promql_answers import DIFFERENCES, expressions

from dashboards.prometheus.views import LIMITS, LISTING, urlpatterns
from gpufleet.promql import aggregates, binary, parsing
from gpufleet.promql.evaluator import SUPPORTED

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "prometheus.md").read_text(encoding="utf-8")


def test_every_function_operator_and_aggregation_is_named() -> None:
    words = {*SUPPORTED, *aggregates.PLAIN, *binary.ARITHMETIC, *binary.COMPARISONS, *binary.SETS}
    words |= {"topk", "bottomk", "quantile", "count_values"}
    assert [word for word in sorted(words) if f"`{word}`" not in PAGE] == []


def test_every_route_is_named() -> None:
    routes = [str(pattern.pattern).replace("<str:name>", "<name>") for pattern in urlpatterns[:-1]]
    assert [route for route in routes if f"`{route}`" not in PAGE] == []


def test_the_limits_are_those_of_the_code() -> None:
    for number, words in (
        (LIMITS.max_points, "points a series"),
        (LIMITS.max_series, "series"),
        (LISTING.max_series, "series for lists of labels"),
        (parsing.MAX_CHARACTERS, "characters"),
        (parsing.MAX_OPERATORS, "operators"),
        (parsing.MAX_DEPTH, "nested brackets"),
    ):
        assert f"{number:,} {words}" in PAGE
    assert f"{LIMITS.max_samples // 10**6} million samples" in PAGE
    assert f"longer than {LIMITS.timeout_seconds:g} s" in PAGE


def test_the_agreement_is_that_of_the_expressions() -> None:
    assert f"the same {len(expressions())} expressions" in PAGE
    assert len(DIFFERENCES) == 1
    assert "All agree to 1e-9 but one" in PAGE
