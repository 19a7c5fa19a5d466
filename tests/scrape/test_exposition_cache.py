"""The cache of one target stays bounded however its labels change, and tells what it let go."""

from __future__ import annotations

import random

import pytest

from gpufleet.scrape.exposition import ExpositionError, SeriesCache, read


def scrape(cache: SeriesCache, body: bytes) -> tuple[list[int], list[int], list[int]]:
    parsed = read(body, cache, scraped_at=1e9, max_samples=10_000)
    return parsed.refs.tolist(), parsed.new_refs, parsed.gone_refs


def pods(number: int, gpus: int = 8) -> bytes:
    return b"".join(b'busy{gpu="%d",pod="train-%d"} 1\n' % (gpu, number) for gpu in range(gpus))


def test_ten_thousand_pods_leave_a_small_cache() -> None:
    cache = SeriesCache(limit=100)
    known: dict[int, tuple[str, dict[str, str]]] = {}
    for number in range(10_000 // 8):
        refs, new, gone = scrape(cache, pods(number))
        for ref in gone:
            del known[ref]
        for ref in new:
            known[ref] = cache.series(ref)
        assert len(cache) <= 100
        assert max(refs) < 200
        assert all(known[ref] == cache.series(ref) for ref in refs)
        assert {known[ref][1]["pod"] for ref in refs} == {f"train-{number}"}
        assert len(known) == len(cache)


def test_what_the_newest_body_holds_is_never_let_go() -> None:
    cache = SeriesCache(limit=4)
    refs, _, gone = scrape(cache, pods(1))
    assert (len(refs), gone) == (8, [])
    refs, new, gone = scrape(cache, pods(2))
    assert len(refs) == len(new) == len(gone) == 8
    assert len(cache) == 8


def test_the_series_longest_unseen_goes_first() -> None:
    cache = SeriesCache(limit=3)
    (a,), _, _ = scrape(cache, b"a 1\n")
    (b,), _, _ = scrape(cache, b"b 1\n")
    scrape(cache, b"a 2\n")
    scrape(cache, b"a 3\n")  # through the remembered layout: this is a sight of `a` too
    _, _, gone = scrape(cache, b"c 1\nd 1\n")
    assert gone == [b]
    assert cache.series(a) == ("a", {})


def test_text_is_bounded_too() -> None:
    cache = SeriesCache(limit_bytes=10_000)
    for number in range(200):
        scrape(cache, b'a{text="%b"} 1\n' % (b"%03d" % number * 100))
        assert cache.raw_bytes <= 10_000


def test_spellings_of_one_series_share_a_ref_and_go_together() -> None:
    cache = SeriesCache(limit=2)
    (first,), new, _ = scrape(cache, b'a{x="1",y="2"} 1\n')
    (second,), none, _ = scrape(cache, b'a{y="2",x="1"} 1\n')
    assert first == second
    assert (new, none) == ([first], [])
    _, _, gone = scrape(cache, b"b 1\nc 1\n")
    assert gone == [first]
    with pytest.raises(KeyError):
        cache.series(first)
    assert cache.raw_bytes == 2


def test_a_refused_body_leaves_nothing_behind() -> None:
    cache = SeriesCache(limit=10)
    (known,), _, _ = scrape(cache, b"a 1\n")
    for number in range(50):
        body = b"a 2\n" + b"".join(b"m%d_%d 1\n" % (number, series) for series in range(20))
        with pytest.raises(ExpositionError, match="too many samples"):
            read(body, cache, scraped_at=1e9, max_samples=20)
        assert len(cache) == 1
    refs, new, _ = scrape(cache, b"a 3\nm1_1 1\n")
    assert refs[0] == known
    assert new == refs[1:]


def test_spellings_learnt_from_refused_bodies_are_bounded_too() -> None:
    cache = SeriesCache(limit=10)
    scrape(cache, b'a{x="1"} 1\n')
    for blanks in range(1, 50):
        with pytest.raises(ExpositionError):
            read(b'a{x="1"%b} 1\nb 1\n' % (b" " * blanks), cache, scraped_at=1e9, max_samples=1)
    assert cache.raw_bytes < 500


def test_a_ref_never_changes_its_meaning_untold() -> None:
    """Good and refused bodies in any order: who follows `gone_refs` and `new_refs` always knows every ref."""
    chance = random.Random(3)
    cache = SeriesCache(limit=12)
    known: dict[int, tuple[str, dict[str, str]]] = {}
    for _ in range(2_000):
        body = b"".join(b"m%d 1\n" % chance.randrange(40) for _ in range(chance.randint(1, 9)))
        try:
            parsed = read(body, cache, scraped_at=1e9, max_samples=6)
        except ExpositionError:
            continue
        for ref in parsed.gone_refs:
            del known[ref]
        known.update({ref: cache.series(ref) for ref in parsed.new_refs})
        assert all(known[ref] == cache.series(ref) for ref in parsed.refs.tolist())
        assert len(known) == len(cache)


def test_an_exporter_that_shuffles_its_labels_keeps_its_refs() -> None:
    cache = SeriesCache(limit=20)
    labels = [b'l%d="1"' % number for number in range(8)]
    first: list[int] = []
    for turn in range(500):
        labels.insert(turn % 8, labels.pop((turn * 5) % 8))
        refs, new, gone = scrape(cache, b"a{" + b",".join(labels) + b"} 1\n")
        first = first or refs
        assert (refs, gone) == (first, [])
        assert new == (refs if turn == 0 else [])
    assert cache.raw_bytes < 20 * 80
