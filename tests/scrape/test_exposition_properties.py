"""Whatever the bytes: the fast path and the careful path say the same, nothing but ExpositionError comes out."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from shared import SHARED

from gpufleet.scrape import careful
from gpufleet.scrape.exposition import ExpositionError, Parsed, SeriesCache, read

NOW = 1_773_144_000.0
LIMIT = 500

NAMES = st.sampled_from(["a", "b", "DCGM_FI_DEV_GPU_TEMP", "node_load1", "x:y", '{"q.r"}', "9z", ""])
LABELS = st.sampled_from(
    [
        "",
        '{b="1"}',
        '{b="2"}',
        '{b="1",c="}"}',
        '{c="}",b="1"}',
        '{b="\\"# {"}',
        '{b="a"b"}',
        '{ b = "1" , }',
        "{}",
        "{",
        "}",
    ]
)
GAPS = st.sampled_from([" ", "", "  ", "\t", "\x0b", "\r"])
NUMBERS = st.sampled_from(
    [
        "1",
        "-0",
        "1.5e3",
        ".5",
        "5.",
        "NaN",
        "+Inf",
        "-inf",
        "infinity",
        "1_0",
        "1e400",
        "0x1",
        "",
        "1,2",
        "٣",
        "9" * 40,
        "01",
        "nAn",
    ]
) | st.floats().map(repr)
TAILS = st.sampled_from(
    ["", " ", "\r", " 1773144000000", " 1773144000", " 1.5", ' # {a="}"} 1', " # note", "\t\r", " 1 1"]
)
SAMPLES = st.builds("{}{}{}{}{}".format, NAMES, LABELS, GAPS, NUMBERS, TAILS)
LINES = (
    SAMPLES
    | st.sampled_from(["", "# HELP a b", "# TYPE a counter", " \t", "# EOF", "#", "<html>"])
    | st.text(max_size=20)
)
BODIES = st.lists(LINES, max_size=12).map(lambda lines: "\n".join(lines).encode(errors="surrogatepass"))


@dataclass
class Plain:
    """What a reader without any cache says: each line through the careful path, in plain dictionaries."""

    latest: dict[tuple[str, frozenset[tuple[str, str]]], tuple[float, float]] = field(default_factory=dict)
    seen: set[tuple[object, float | None]] = field(default_factory=set)
    reasons: dict[str, int] = field(default_factory=dict)
    first_bad_line: int = 0
    accepted: int = 0

    def read(self, body: bytes) -> None:
        openmetrics = body.rstrip(b" \t\r\n").endswith(b"# EOF")
        for number, line in enumerate(body.split(b"\n"), 1):
            text = line.strip(b" \t\r")
            if text and not text.startswith(b"#"):
                try:
                    self.take(careful.parse_line(text, openmetrics))
                except careful.BadLine as error:
                    self.reasons[error.reason] = self.reasons.get(error.reason, 0) + 1
                    self.first_bad_line = self.first_bad_line or number

    def take(self, sample: careful.Sample) -> None:
        key = (sample.name, frozenset(sample.labels.items()))
        if sample.at is not None and sample.at < NOW - 300:
            raise careful.BadLine("too_old")
        if sample.at is not None and sample.at > NOW + 60:
            raise careful.BadLine("too_far_ahead")
        if (key, sample.at) in self.seen:
            raise careful.BadLine("duplicate")
        self.seen.add((key, sample.at))
        self.accepted += 1
        moment = NOW if sample.at is None else sample.at
        if key not in self.latest or moment > self.latest[key][0]:
            self.latest[key] = (moment, sample.value)


def same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def outcome(body: bytes, cache: SeriesCache) -> Parsed | str:
    try:
        return read(body, cache, scraped_at=NOW, max_samples=LIMIT)
    except ExpositionError as error:
        return error.reason


def check_against_plain(body: bytes, cache: SeriesCache) -> None:
    parsed = outcome(body, cache)
    plain = Plain()
    plain.read(body)
    if isinstance(parsed, str):
        unreadable = sum(plain.reasons.get(word, 0) for word in ("syntax", "value", "too_long", "too_many_labels"))
        assert parsed == "not an exposition"
        assert unreadable > plain.accepted
        return
    assert (parsed.accepted, parsed.reasons) == (plain.accepted, plain.reasons)
    assert (parsed.first_bad_line[0] if parsed.first_bad_line else 0) == plain.first_bad_line
    refs = parsed.refs.tolist()
    names = [(cache.series(ref)[0], frozenset(cache.series(ref)[1].items())) for ref in refs]
    assert len(refs) == len(set(refs)) == len(set(names))
    assert dict.fromkeys(names).keys() == plain.latest.keys()
    for name, value in zip(names, parsed.values.tolist(), strict=True):
        assert same(value, plain.latest[name][1])
    assert len(parsed.stamped) + sum(at is None for _, at in plain.seen) == parsed.accepted


@given(BODIES, BODIES)
@settings(max_examples=400, deadline=None)
@example(b"a 1\nb 2", b"a 1\nb 1_0")
@example(b"a 1", b"a\x0b1")
@example(b"a 1", b"a {")
@example(b'a{b="1"} 1', b'a{b="1"}{c="}"} 1')
def test_cold_warm_and_plain_say_the_same(before: bytes, body: bytes) -> None:
    warm = SeriesCache()
    outcome(before, warm)
    for _ in range(3):
        check_against_plain(body, warm)
    check_against_plain(body, SeriesCache())


@given(BODIES, st.data())
@settings(max_examples=300, deadline=None)
def test_one_changed_byte_is_never_overlooked(body: bytes, data: st.DataObject) -> None:
    """The remembered layout is the tempting place to be careless: change any byte and compare."""
    cache = SeriesCache()
    outcome(body, cache)
    if body:
        at = data.draw(st.integers(0, len(body) - 1))
        byte = data.draw(st.sampled_from(b'0159.eE+-_ \t\r\n#{}",=aN\x00\xff'))
        body = body[:at] + bytes([byte]) + body[at + 1 :]
    check_against_plain(body, cache)


@given(st.binary(max_size=400), st.binary(max_size=400))
@settings(max_examples=400, deadline=None)
def test_raw_bytes_raise_nothing_else(before: bytes, body: bytes) -> None:
    cache = SeriesCache()
    outcome(before, cache)
    check_against_plain(body, cache)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=12), max_size=5), st.floats())
def test_what_is_written_by_the_rules_comes_back(labels: dict[str, str], value: float) -> None:
    inner = ",".join(f'{key}="{escape(text)}"' for key, text in labels.items())
    cache = SeriesCache()
    parsed = read(f"m{{{inner}}} {value!r}\n".encode(), cache, scraped_at=NOW, max_samples=1)
    expected = {key: text.replace("\0", "\ufffd") for key, text in labels.items() if text}
    assert cache.series(int(parsed.refs[0])) == ("m", expected)
    assert same(float(parsed.values[0]), value)


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def captures() -> list[str]:
    root = SHARED / "data/real/exporters"
    return sorted(str(path.relative_to(root)) for path in root.glob("*/*") if ".om." not in path.name)


@pytest.mark.parametrize("name", captures())
def test_captures_agree_with_the_client_library(name: str) -> None:
    body = (SHARED / "data/real/exporters" / name).read_bytes()
    expected: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    # Without TYPE lines: by them the library renames counters that do not end in _total.
    bare = "\n".join(line for line in body.decode().split("\n") if not line.startswith("#"))
    for family in text_string_to_metric_families(bare):
        for sample in family.samples:
            labels = frozenset((key, value) for key, value in sample.labels.items() if value)
            expected.setdefault((sample.name, labels), float(sample.value))
    cache = SeriesCache()
    for _ in range(2):
        parsed = read(body, cache, scraped_at=NOW, max_samples=50_000)
        found = {
            (cache.series(ref)[0], frozenset(cache.series(ref)[1].items())): value
            for ref, value in zip(parsed.refs.tolist(), parsed.values.tolist(), strict=True)
        }
        assert parsed.rejected == 0
        assert found.keys() == expected.keys()
        assert all(same(found[key], expected[key]) for key in expected)


def test_a_body_with_shuffled_and_changed_lines_reads_the_same() -> None:
    chance = random.Random(7)
    lines = [
        b'm%d{gpu="%d",UUID="GPU-%d"} %d' % (metric, gpu, gpu, metric * gpu) for metric in range(20) for gpu in range(8)
    ]
    cache = SeriesCache()
    for _ in range(50):
        chance.shuffle(lines)
        lines[chance.randrange(len(lines))] = b"m%d %d" % (chance.randrange(99), chance.randrange(10**6))
        check_against_plain(b"\n".join(lines[: chance.randrange(len(lines))]), cache)
