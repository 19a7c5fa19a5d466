"""The exposition reader: the parse cases, the limits, and what a body must tell."""

from __future__ import annotations

import numpy as np
import pytest
from shared import case

from gpufleet.catalogue.meaning import resolve
from gpufleet.catalogue.values import SENTINEL_CODES, clean, count_missing
from gpufleet.scrape import careful
from gpufleet.scrape.exposition import ExpositionError, Parsed, SeriesCache, Stamped, parse_series, read

NOON = 1_773_144_000.0  # 2026-03-10T12:00:00Z


def read_body(body: bytes, cache: SeriesCache | None = None, **options: object) -> Parsed:
    settings = {"scraped_at": NOON, "max_samples": 50_000, **options}
    return read(body, SeriesCache() if cache is None else cache, **settings)  # type: ignore[arg-type]


def by_label(parsed: Parsed, cache: SeriesCache, label: str) -> dict[str, float]:
    found = zip(parsed.refs.tolist(), parsed.values.tolist(), strict=True)
    return {cache.series(ref)[1].get(label, ""): value for ref, value in found}


def case_body(number: str) -> tuple[bytes, dict[str, object]]:
    folder, told = case(number)
    return (folder / "input.prom").read_bytes(), told["numbers"]


def test_case_001_label_escapes() -> None:
    body, numbers = case_body("001")
    cache = SeriesCache()
    parsed = read_body(body, cache)
    jobs = {cache.series(ref)[1]["gpu"]: cache.series(ref)[1].get("job") for ref in parsed.refs.tolist()}
    assert (parsed.accepted, parsed.rejected) == (numbers["samples_accepted"], numbers["lines_rejected"])
    assert jobs == {
        "0": 'train "base" run',
        "1": "C:\\data\\new",
        "2": "line one\nline two",
        "3": '{a="b",c="d"} 7',
        "4": "a,b=c # not a comment",
        "5": "ends with one\\",
        "6": None,
        "7": "tab\\there",
        "8": "trailing comma",
    }


def test_case_002_one_bad_line_costs_one_line() -> None:
    body, numbers = case_body("002")
    cache = SeriesCache()
    parsed = read_body(body, cache)
    assert (parsed.accepted, parsed.rejected) == (numbers["samples_accepted"], numbers["lines_rejected"])
    assert parsed.first_bad_line is not None
    number, text, reason = parsed.first_bad_line
    assert (number, reason) == (numbers["first_bad_line"], "syntax")
    assert text == body.decode().split("\n")[5][:200]
    assert "3" not in by_label(parsed, cache, "gpu")


def test_case_003_text_where_a_number_belongs() -> None:
    body, numbers = case_body("003")
    cache = SeriesCache()
    parsed = read_body(body, cache)
    assert (parsed.accepted, parsed.rejected) == (numbers["samples_accepted"], numbers["lines_rejected"])
    assert {cache.series(ref)[0] for ref in parsed.refs.tolist()} == {"DCGM_FI_DEV_GPU_TEMP"}
    assert parsed.values.tolist() == [45.0] * 8


def test_case_004_blanks_and_line_ends() -> None:
    body, numbers = case_body("004")
    cache = SeriesCache()
    parsed = read_body(body, cache)
    assert (parsed.accepted, parsed.rejected) == (numbers["samples_accepted"], numbers["lines_rejected"])
    assert by_label(parsed, cache, "gpu") == {"0": 44, "1": 45, "2": 46, "3": 47, "4": 48}
    assert all("\r" not in value for ref in parsed.refs.tolist() for value in cache.series(ref)[1].values())


def test_case_005_number_spellings() -> None:
    body, numbers = case_body("005")
    cache = SeriesCache()
    parsed = read_body(body, cache)
    values = by_label(parsed, cache, "case")
    finite = {label: value for label, value in values.items() if np.isfinite(value)}
    assert finite == {"a": 1.5e6, "b": 1e3, "c": 0.5, "d": 5, "e": 0, "f": 7, "g": 9.223372036854776e18}
    assert len(finite) == numbers["samples_accepted"]
    assert set(values) - set(finite) == {"h", "i", "j"}
    assert parsed.rejected == numbers["lines_rejected"]
    nothing = np.full(len(parsed.values), np.nan)
    codes = np.full(len(parsed.values), SENTINEL_CODES[""])
    assert count_missing(parsed.values, nothing, nothing, codes) == (numbers["samples_missing"], 0)


def test_case_006_explicit_time_stamps() -> None:
    body, numbers = case_body("006")
    cache = SeriesCache()
    parsed = read_body(body, cache)
    assert (parsed.accepted, parsed.rejected) == (numbers["samples_accepted"], numbers["lines_rejected"])
    assert parsed.reasons == numbers["reasons"]
    assert parsed.duplicates == 1
    assert by_label(parsed, cache, "case") == {"a": 1, "b": 2, "g": 8, "h": 9}
    stamped = [(cache.series(sample.ref)[1]["case"], sample.value, sample.at - NOON) for sample in parsed.stamped]
    assert stamped == [("b", 2, -4), ("g", 7, -20), ("g", 8, -10), ("h", 9, -5)]


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "text/plain", ""])
def test_case_007_a_page_is_no_exposition(content_type: str) -> None:
    folder, _ = case("007")
    body = (folder / "input.txt").read_bytes().partition(b"\r\n\r\n")[2]
    with pytest.raises(ExpositionError, match="not an exposition"):
        read_body(body, content_type=content_type)


def test_case_009_is_for_the_fetcher_only() -> None:
    """The reader cannot see that a body was cut inside a number: the length tells. All it can do is take the text."""
    folder, _ = case("009")
    assert read_body((folder / "input.prom").read_bytes()).accepted == 16


def test_case_019_no_value_numbers() -> None:
    body, numbers = case_body("019")
    cache = SeriesCache()
    parsed = read_body(body, cache)
    meanings = [resolve(*cache.series(ref)) for ref in parsed.refs.tolist()]
    codes = [SENTINEL_CODES[meaning.sentinels] for meaning in meanings]
    low, high = [meaning.low for meaning in meanings], [meaning.high for meaning in meanings]
    missing, impossible = count_missing(parsed.values, low, high, codes)
    values = clean(parsed.values, [meaning.scale for meaning in meanings], low, high, codes)
    temperatures = [value for value, told in zip(values, meanings, strict=True) if told.metric.endswith("_celsius")]
    assert (parsed.accepted, parsed.rejected) == (numbers["samples"], 0)
    assert (missing, impossible) == (numbers["missing"], 0)
    assert np.count_nonzero(np.isfinite(values)) == numbers["numbers"]
    assert np.nanmax(temperatures) == numbers["max_temp"]


def test_a_body_laid_out_as_before_gives_the_same_refs_array() -> None:
    cache = SeriesCache()
    first = read_body(b'a{b="1"} 1\n# note\nc 2\n', cache)
    second = read_body(b'a{b="1"} -3.5e2\n# note\nc NaN\n', cache)
    assert second.refs is first.refs
    assert first.new_refs == [0, 1]
    assert second.new_refs == []
    assert second.values[0] == -350
    assert np.isnan(second.values[1])


@pytest.mark.parametrize(
    "body",
    [
        b"a 1\n# note\nb 1_0\n",
        b"a 1\n# note\nb 1e400\n",
        b"a 1\n# note\nb 0x10\n",
        b"a 1\n# note\nb \n",
        b"a 1\n# note\nb 1,2\n",
        b"a 1\n# note\nb \xd9\xa3\n",
    ],
)
def test_a_number_gone_bad_is_seen_although_the_layout_fits(body: bytes) -> None:
    cache = SeriesCache()
    read_body(b"a 7\n# note\nb 8\n", cache)
    parsed = read_body(body, cache)
    assert (parsed.accepted, parsed.reasons) == (1, {"value": 1})
    assert parsed.first_bad_line is not None
    assert parsed.first_bad_line[0] == 3


def test_a_sample_in_the_place_of_a_comment_is_not_lost() -> None:
    cache = SeriesCache()
    read_body(b"# note\nb 8\n", cache)
    parsed = read_body(b"a 1234\nb 8\n", cache)
    assert parsed.accepted == 2


def test_duplicates_are_counted_and_the_first_wins() -> None:
    cache = SeriesCache()
    parsed = read_body(b'a{x="1",y="2"} 1\na{y="2",x="1"} 2\na{x="1", y="2",z=""} 3\n', cache)
    assert (parsed.accepted, parsed.duplicates, parsed.rejected) == (1, 2, 2)
    assert parsed.values.tolist() == [1]
    assert len(cache) == 1


def test_openmetrics_stamps_are_seconds_and_exemplars_are_left_out() -> None:
    body = b'a_total 5 1773143990.5 # {trace_id="x"} 0.5 1773143990\n# EOF\n'
    parsed = read_body(body)
    assert parsed.stamped == [Stamped(0, 5.0, 1773143990.5)]


@pytest.mark.parametrize(
    "content_type", ["application/openmetrics-text; version=1.0.0", "Application/OpenMetrics-Text"]
)
def test_openmetrics_without_its_mark_was_cut_off(content_type: str) -> None:
    with pytest.raises(ExpositionError, match="cut off"):
        read_body(b"a 1\n", content_type=content_type)


def test_text_that_says_so_has_stamps_in_milliseconds_whatever_its_last_line() -> None:
    body = b"a 1 1773143990000\n# EOF\n"
    assert read_body(body, content_type="text/plain; version=0.0.4").accepted == 1
    assert read_body(body).reasons == {"too_far_ahead": 1}


def test_quoted_names_of_any_letters() -> None:
    cache = SeriesCache()
    parsed = read_body('{"gpu.temp",node="é"} 4\n{x="y","gpu.power"} 5\n'.encode(), cache)
    assert [cache.series(ref) for ref in parsed.refs.tolist()] == [
        ("gpu.temp", {"node": "é"}),
        ("gpu.power", {"x": "y"}),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a{b=1} 1", "syntax"),
        (b'a{b="1" c="2"} 1', "syntax"),
        (b'a{b="1",b="2"} 1', "syntax"),
        (b'a{__name__="b"} 1', "syntax"),
        (b'a{="1"} 1', "syntax"),
        (b'a{b="1"', "syntax"),
        (b'{b="1"} 1', "syntax"),
        (b'a{"b"} 1', "syntax"),
        (b'a{b="\xff"} 1', "syntax"),
        (b"a", "value"),
        (b"a 1 2 3", "value"),
        (b"a 1 1.5", "syntax"),
        (b'a 1 # {b="c"}', "syntax"),
        (b'a 1 # {b="c} 1', "syntax"),
        (b"a 1 # note", "syntax"),
        (b"1a 1", "syntax"),
        (b"a 1" + b" " * 20_000 + b"1", "too_long"),
        (b"a" * 300 + b" 1", "too_long"),
        (b"a{" + b",".join(b'l%d="1"' % number for number in range(65)) + b"} 1", "too_many_labels"),
    ],
)
def test_what_is_no_sample(line: bytes, reason: str) -> None:
    parsed = read_body(b"fine 1\n" + line + b"\nfine2 2\n")
    assert (parsed.accepted, parsed.reasons) == (2, {reason: 1})
    assert parsed.first_bad_line is not None
    number, text, told = parsed.first_bad_line
    assert (number, told) == (2, reason)
    assert text == line.decode(errors="replace")[:200]


def test_a_nul_in_a_label_becomes_the_replacement_character() -> None:
    assert parse_series(b'a{b="x\x00y"}') == ("a", {"b": "x\ufffdy"})


def test_parse_series_wants_the_series_and_nothing_else() -> None:
    with pytest.raises(careful.BadLine):
        parse_series(b'a{b="1"} ')


def test_a_label_flood_of_64_is_taken() -> None:
    line = b"a{" + b",".join(b'l%d="1"' % number for number in range(64)) + b"} 1"
    assert read_body(line).accepted == 1


@pytest.mark.parametrize("warm", [False, True])
def test_too_many_samples_cost_the_scrape(warm: bool) -> None:
    body = b"".join(b"m%d 1\n" % number for number in range(11))
    cache = SeriesCache()
    if warm:
        read_body(body, cache)
    with pytest.raises(ExpositionError, match="too many samples"):
        read_body(body, cache, max_samples=10)
    assert read_body(body, cache, max_samples=11).accepted == 11


def test_a_sick_exporter_is_still_an_exposition() -> None:
    """Every line of it is bad, but it speaks of metrics that are known: the scrape is partial, not a foreign page."""
    body = b'DCGM_FI_DEV_GPU_TEMP{pod="a"b"} 4\n' * 3
    assert read_body(body).reasons == {"syntax": 3}


@pytest.mark.parametrize(
    "body", [b"Not found\n", b'{"status":"ok"}', b"\x1f\x8b\x08\x00junk", b"<html>\nload 12\n</html>\n"]
)
def test_other_answers_are_no_exposition(body: bytes) -> None:
    with pytest.raises(ExpositionError, match="not an exposition"):
        read_body(body)


@pytest.mark.parametrize("body", [b"", b"\n", b"# HELP a b\n# TYPE a gauge\n", b"\r\n \t\r\n"])
def test_nothing_in_it_is_nothing_in_it(body: bytes) -> None:
    parsed = read_body(body)
    assert (parsed.accepted, parsed.rejected, len(parsed.refs)) == (0, 0, 0)


def test_the_type_line_is_remembered_for_new_series() -> None:
    cache = SeriesCache()
    body = b"# TYPE a counter\na 1\n# TYPE h histogram\nh_bucket 1\nb 2\n# TYPE a gauge\n"
    parsed = read_body(body, cache)
    assert [cache.declared(ref) for ref in parsed.refs.tolist()] == ["counter", "histogram", ""]


def test_captures_are_read_the_same_way_twice() -> None:
    folder, _ = case("015")
    cache = SeriesCache()
    first = read_body((folder / "t000.prom").read_bytes(), cache)
    again = read_body((folder / "t000.prom").read_bytes(), cache)
    assert again.refs is first.refs
    np.testing.assert_array_equal(again.values, first.values)
