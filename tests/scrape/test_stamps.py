"""Bodies out of another server's memory: one time on every line, read as fast as a body without times."""

from __future__ import annotations

import pytest
from exposition_bodies import BODIES, NOW, check_against_plain, outcome
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpufleet.scrape.exposition import Parsed, SeriesCache, read
from gpufleet.scrape.memory import TargetMemory
from gpufleet.scrape.stamps import shared_stamp

STAMP = "1773143990000"


def stamped(body: bytes, stamp: str = STAMP) -> bytes:
    return b"\n".join(
        line + b" " + stamp.encode() if line.strip() and not line.startswith(b"#") else line
        for line in body.split(b"\n")
    )


@example(b"", b"a 1 1773144000000", STAMP)
@example(b"", b"a 1 # {} 1", STAMP)
@example(b"a 1", b"a", STAMP)
@given(BODIES, BODIES, st.sampled_from([STAMP, "1773144000000", "1773143990", "1773143990.5", "0", "1773130000000"]))
@settings(max_examples=300, deadline=None)
def test_stamped_bodies_say_the_same_cold_warm_and_plain(before: bytes, body: bytes, stamp: str) -> None:
    warm = SeriesCache()
    outcome(before, warm)
    for text in (body, stamped(body, stamp), body, stamped(body, stamp), stamped(body, stamp)):
        check_against_plain(text, warm)
    check_against_plain(stamped(body, stamp), SeriesCache())


def taken(body: bytes, cache: SeriesCache, *, newest_only: bool = True) -> dict[str, float]:
    parsed = read(body, cache, scraped_at=NOW, max_samples=100, newest_only=newest_only)
    names = [cache.series(ref)[0] for ref in parsed.refs.tolist()]
    return dict(zip(names, parsed.values.tolist(), strict=True))


def test_the_newest_scrape_only() -> None:
    cache = SeriesCache()
    both = b"a 1 1773143990000\nb 2 1773143975000\nc 3\n"
    assert taken(both, cache) == {"a": 1, "c": 3}
    assert taken(both, cache, newest_only=False) == {"a": 1, "b": 2, "c": 3}
    assert taken(b"a 1 1773143990000\nb 2 1773143990000\n", cache) == {"a": 1, "b": 2}


def test_a_shared_stamp_keeps_the_layout() -> None:
    cache = SeriesCache()
    found: list[Parsed] = []
    for second in range(3):
        body = f'# TYPE a gauge\na 1 177314399{second}000\nb{{x="1"}} 2.5 177314399{second}000\n'.encode()
        found.append(read(body, cache, scraped_at=NOW, max_samples=100))
    assert [parsed.at for parsed in found] == [1773143990.0, 1773143991.0, 1773143992.0]
    assert found[2].refs is found[1].refs is found[0].refs
    assert found[2].values.tolist() == [1, 2.5]


@pytest.mark.parametrize(
    ("body", "openmetrics", "expected"),
    [
        (b"a 1 1773143990000\n", False, (1773143990.0, b"a 1\n", 1)),
        (b"a 1 1773143990000", False, (1773143990.0, b"a 1", 1)),
        (b"a 1 1773143990000\nb 1\nc 1 1773143990000\n", False, (1773143990.0, b"a 1\nb 1\nc 1\n", 2)),
        (b"a 1 1773143990.25\n# EOF\n", True, (1773143990.25, b"a 1\n# EOF\n", 1)),
        (b"a 1 1773143990000\n# EOF\n", True, None),
        (b"a 1 1773143990.5\n", False, None),
        (b"a 1\n", False, None),
        (b"a 1 1773143990000\n# a comment\n", False, None),
        (b"", False, None),
        (b"\n\n", False, None),
    ],
)
def test_what_is_taken_off(body: bytes, openmetrics: bool, expected: tuple[float, bytes, int] | None) -> None:
    found = shared_stamp(body, openmetrics)
    assert (None if found is None else (found.at, found.rest, found.count)) == expected


def test_values_grow_stale_by_the_pace_of_the_other_server() -> None:
    memory = TargetMemory(1, SeriesCache(), is_federated=True)
    assert not memory.is_stale(NOW, NOW + 90)
    assert memory.is_stale(NOW, NOW + 91)
    assert not memory.is_stale(NOW + 15, NOW + 15 + 37)
    assert memory.is_stale(NOW + 15, NOW + 15 + 38)
    assert not memory.is_stale(None, NOW + 1000)
