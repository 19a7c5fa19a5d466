"""The parser suites of OpenMetrics, Prometheus and telegraf: what they accept we accept with the same count,
what they refuse we refuse, and every difference is listed here with its reason.

A file counts as refused when the body or a line of it is refused: one bad line costs us one line, the peers all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families
from shared import SHARED, shared

from gpufleet.scrape.exposition import ExpositionError, Parsed, SeriesCache, read

CORPUS = "data/real/conformance"
# The suites use stamps near the epoch: a scrape at 100 s takes those from 0 to 160 s.
SCRAPED_AT = 100.0

METADATA = "comments are not read: the catalogue says what a metric is, and real exporters repeat and misspell them"
FAMILIES = "rules about a family judge a good number by its TYPE line; the number is stored as sent"
ORDER = "samples of a series may come in any order, each stands by its own time"
BLANKS = "empty lines and blanks around a sample do no harm (case 004)"
LAST_LINE = "a last line without a line feed counts: whether the body came whole is told by its length (case 004)"
ESCAPE = "an unknown escape stays as it is (case 001)"
EXEMPLAR = "exemplars are checked for form only and left out"
GLUED = "a value may stand right after the closing brace (case 004)"

ACCEPTED_ALTHOUGH_REFUSED = {
    METADATA: """openmetrics/bad_clashing_names_0 openmetrics/bad_clashing_names_2 openmetrics/bad_help_1
        openmetrics/bad_help_2 openmetrics/bad_help_4 openmetrics/bad_metadata
        openmetrics/bad_metadata_in_wrong_place_0 openmetrics/bad_metadata_in_wrong_place_2
        openmetrics/bad_repeated_metadata_1 openmetrics/bad_repeated_metadata_2 openmetrics/bad_type_0
        openmetrics/bad_type_1 openmetrics/bad_type_3 openmetrics/bad_type_4 openmetrics/bad_type_6
        openmetrics/bad_type_7 openmetrics/bad_unit_1 openmetrics/bad_unit_2 openmetrics/bad_unit_4
        openmetrics/bad_unit_5 openmetrics/bad_unit_7 expfmt/from_test_parse_error_12.prom
        expfmt/from_test_parse_error_13.prom expfmt/from_test_parse_error_15.prom
        expfmt/from_test_parse_error_16.prom go/TestPromParseErrors_016.prom go/testTextParseError_012.prom
        go/testTextParseError_013.prom go/testTextParseError_015.prom go/testTextParseError_016.prom""",
    FAMILIES: """openmetrics/bad_counter_values_0 openmetrics/bad_counter_values_10 openmetrics/bad_counter_values_11
        openmetrics/bad_counter_values_13 openmetrics/bad_counter_values_14 openmetrics/bad_counter_values_16
        openmetrics/bad_counter_values_17 openmetrics/bad_counter_values_19 openmetrics/bad_counter_values_2
        openmetrics/bad_counter_values_4 openmetrics/bad_counter_values_5 openmetrics/bad_counter_values_7
        openmetrics/bad_counter_values_8 openmetrics/bad_grouping_or_ordering_0
        openmetrics/bad_grouping_or_ordering_2 openmetrics/bad_grouping_or_ordering_3
        openmetrics/bad_histograms_0 openmetrics/bad_histograms_10 openmetrics/bad_histograms_11
        openmetrics/bad_histograms_13 openmetrics/bad_histograms_14 openmetrics/bad_histograms_3
        openmetrics/bad_histograms_4 openmetrics/bad_histograms_6 openmetrics/bad_histograms_7
        openmetrics/bad_histograms_9 openmetrics/bad_info_and_stateset_values_0
        openmetrics/bad_missing_or_invalid_labels_for_a_type_0
        openmetrics/bad_missing_or_invalid_labels_for_a_type_1
        openmetrics/bad_missing_or_invalid_labels_for_a_type_3
        openmetrics/bad_missing_or_invalid_labels_for_a_type_4
        openmetrics/bad_missing_or_invalid_labels_for_a_type_6
        openmetrics/bad_missing_or_invalid_labels_for_a_type_7 openmetrics/bad_stateset_info_values_0
        openmetrics/bad_stateset_info_values_1 openmetrics/bad_stateset_info_values_3
        expfmt/from_test_parse_error_7.prom expfmt/from_test_parse_error_19.prom go/testTextParseError_007.prom
        go/testTextParseError_019.prom go/testTextParseError_033.prom go/testTextParseError_043.prom
        go/testTextParseError_045.prom go/testTextParseError_046.prom""",
    ORDER: """openmetrics/bad_grouping_or_ordering_5 openmetrics/bad_grouping_or_ordering_6
        openmetrics/bad_grouping_or_ordering_8 openmetrics/bad_grouping_or_ordering_9""",
    BLANKS: """openmetrics/bad_blank_line openmetrics/bad_value_2 openmetrics/bad_value_3 openmetrics/bad_exemplars_5
        go/TestOpenMetricsParseErrors_031.om""",
    LAST_LINE: "go/testTextParseError_000.prom",
    ESCAPE: """expfmt/from_test_parse_error_1.prom go/testTextParseError_001.prom go/testTextParseError_036.prom""",
    EXEMPLAR: """openmetrics/bad_exemplar_complex_chars openmetrics/bad_exemplars_6
        openmetrics/bad_exemplars_on_unallowed_metric_types_1
        openmetrics/bad_exemplars_on_unallowed_metric_types_2 openmetrics/bad_exemplars_on_unallowed_samples_1
        openmetrics/bad_exemplars_on_unallowed_samples_2""",
    GLUED: "openmetrics/bad_invalid_labels_6",
}
OURS_ACCEPTS = {name: reason for reason, names in ACCEPTED_ALTHOUGH_REFUSED.items() for name in names.split()}

# Accepted by the suites, with what we take and what we leave.
STAMPS = "stamps outside the window are refused (case 006)"
TWICE = "the second sample of a series with the same time is refused (case 006)"
PARTLY = {
    "openmetrics/timestamps": (3, {"too_far_ahead": 3}, STAMPS),
    "openmetrics/duplicate_timestamps_1": (2, {"duplicate": 3}, TWICE),
    "go/testTextParse_006.prom": (1, {"too_far_ahead": 1}, STAMPS),
    "go/testTextParse_007.prom": (1, {"too_far_ahead": 1}, STAMPS),
}
# Accepted in full, where prometheus_client counts otherwise.
COUNTED_OTHERWISE = {
    "openmetrics/duplicate_timestamps_0": (5, "prometheus_client drops samples less than a microsecond apart"),
    "go/testTextParse_016.prom": (7, "prometheus_client does not know gauge histograms in text"),
}


class Case(NamedTuple):
    name: str
    path: Path
    openmetrics: bool
    should_parse: bool


def corpus() -> Iterator[Case]:
    root = SHARED / CORPUS
    if not root.exists():
        return
    for folder in sorted((root / "openmetrics").iterdir()):
        told = json.loads((folder / "test.json").read_text(encoding="utf-8"))
        yield Case(f"openmetrics/{folder.name}", folder / "metrics", True, told["shouldParse"])
    for path in sorted((root / "expfmt-corpus").iterdir()):
        yield Case(f"expfmt/{path.name}", path, False, "error" not in path.name)
    go = root / "prometheus-go-tests"
    for name, told in json.loads((go / "expected.json").read_text(encoding="utf-8")).items():
        yield Case(f"go/{name}", go / name, told["format"] == "om", told["shouldParse"])


CASES = list(corpus())


def outcome(case: Case) -> Parsed | ExpositionError:
    content_type = "application/openmetrics-text; version=1.0.0" if case.openmetrics else "text/plain; version=0.0.4"
    try:
        return read(
            case.path.read_bytes(),
            SeriesCache(),
            scraped_at=SCRAPED_AT,
            max_samples=10_000,
            content_type=content_type,
        )
    except ExpositionError as error:
        return error


def test_the_corpus_is_at_hand() -> None:
    shared(CORPUS)
    assert len(CASES) == 277
    names = {case.name for case in CASES}
    assert set(OURS_ACCEPTS) | set(PARTLY) | set(COUNTED_OTHERWISE) <= names


@pytest.mark.parametrize("case", [case for case in CASES if not case.should_parse], ids=lambda case: case.name)
def test_what_the_suites_refuse(case: Case) -> None:
    result = outcome(case)
    is_refused = isinstance(result, ExpositionError) or result.rejected > 0
    assert is_refused is (case.name not in OURS_ACCEPTS)


@pytest.mark.parametrize("case", [case for case in CASES if case.should_parse], ids=lambda case: case.name)
def test_what_the_suites_accept(case: Case) -> None:
    result = outcome(case)
    assert isinstance(result, Parsed)
    if case.name in PARTLY:
        accepted, reasons, _ = PARTLY[case.name]
        assert (result.accepted, result.reasons) == (accepted, reasons)
        return
    assert result.reasons == {}
    if case.name in COUNTED_OTHERWISE:
        assert result.accepted == COUNTED_OTHERWISE[case.name][0]
        return
    families = openmetrics_families if case.openmetrics else text_families
    text = case.path.read_bytes().decode()
    assert result.accepted == sum(len(family.samples) for family in families(text))


@pytest.mark.parametrize("folder", sorted((SHARED / CORPUS / "telegraf").glob("*")), ids=lambda folder: folder.name)
def test_telegraf_bodies(folder: Path) -> None:
    body = (folder / "input.txt").read_bytes()
    lines = [line for line in body.splitlines() if line.strip() and not line.lstrip().startswith(b"#")]
    parsed = read(body, SeriesCache(), scraped_at=SCRAPED_AT, max_samples=10_000)
    stamped_elsewhen = parsed.reasons.get("too_old", 0) + parsed.reasons.get("too_far_ahead", 0)
    assert parsed.rejected == stamped_elsewhen
    assert parsed.accepted + stamped_elsewhen == len(lines)
