"""Bodies as exporters may send them, good and broken, and what a reader without any cache says of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import strategies as st

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
    if parsed.at is not None:
        assert {at for _, at in plain.seen} == {parsed.at}
        assert not parsed.stamped
        return
    assert len(parsed.stamped) + sum(at is None for _, at in plain.seen) == parsed.accepted
