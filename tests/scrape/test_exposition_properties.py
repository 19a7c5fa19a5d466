"""Whatever the bytes: the fast path and the careful path say the same, nothing but ExpositionError comes out."""

from __future__ import annotations

import random

import pytest
from exposition_bodies import (
    BODIES,
    NOW,
    check_against_plain,
    outcome,
    same,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from shared import SHARED

from gpufleet.scrape.exposition import SeriesCache, read


@given(BODIES, BODIES)
@settings(max_examples=400, deadline=None)
@example(b"a 1\nb 2", b"a 1\nb 1_0")
@example(b"a 1", b"a\x0b1")
@example(b"a 1", b"a ")
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
