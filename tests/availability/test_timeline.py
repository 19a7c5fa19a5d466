"""The ledger of one subject: gap-free whatever is told in whatever order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpufleet.availability.timeline import NOT_OBSERVED, Piece, tell

START = datetime(2026, 3, 10, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def said(seconds: float, state: str, *reasons: str) -> Piece:
    return Piece(at(seconds), None, state, reasons, None, 1)


def shape(pieces: list[Piece]) -> list[tuple[float, str]]:
    return [((piece.starts_at - START).total_seconds(), piece.state) for piece in pieces]


def test_first_word_begins_the_ledger() -> None:
    assert tell([], said(5, "healthy"), told_until=None) == [said(5, "healthy")]


def test_same_again_adds_nothing() -> None:
    before = [said(0, "healthy")]
    assert tell(before, said(15, "healthy"), told_until=None) == before


def test_change_closes_the_piece_before() -> None:
    found = tell([said(0, "healthy")], said(15, "failed"), told_until=None)
    assert shape(found) == [(0, "healthy"), (15, "failed")]
    assert found[0].ends_at == at(15)


def test_unobserved_time_is_unknown() -> None:
    found = tell([said(0, "healthy")], said(900, "healthy"), told_until=at(15))
    assert shape(found) == [(0, "healthy"), (15, "unknown"), (900, "healthy")]
    assert found[1].reasons == (NOT_OBSERVED,)


def test_planned_time_needs_no_eye_on_it() -> None:
    found = tell([said(0, "maintenance")], said(900, "maintenance"), told_until=at(15))
    assert shape(found) == [(0, "maintenance")]


def test_confirmed_fault_reaches_back_to_its_first_evidence() -> None:
    ledger = tell([said(0, "healthy")], said(30, "unknown", "scrape_failed"), told_until=None)
    found = tell(ledger, said(60, "failed"), told_until=None, since=at(30))
    assert shape(found) == [(0, "healthy"), (30, "failed")]


def test_reaching_back_spares_planned_and_unobserved_time() -> None:
    ledger = tell([said(0, "healthy")], said(10, "maintenance"), told_until=None)
    ledger = tell(ledger, said(20, "healthy"), told_until=None)
    ledger = tell(ledger, said(50, "healthy"), told_until=at(30))
    found = tell(ledger, said(60, "failed"), told_until=None, since=at(5))
    assert shape(found) == [
        (0, "healthy"),
        (5, "failed"),
        (10, "maintenance"),
        (20, "failed"),
        (30, "unknown"),
        (50, "failed"),
    ]


def test_never_reaches_before_the_first_piece() -> None:
    assert shape(tell([said(100, "healthy")], said(130, "failed"), told_until=None, since=at(0))) == [(100, "failed")]


def test_clock_that_steps_back_makes_no_negative_time() -> None:
    ledger = tell([said(0, "healthy")], said(100, "failed"), told_until=None)
    assert shape(tell(ledger, said(40, "healthy"), told_until=None)) == [(0, "healthy")] or shape(
        tell(ledger, said(40, "healthy"), told_until=None)
    ) == [(0, "healthy"), (100, "healthy")]


STATES = ("healthy", "degraded", "failed", "unknown", "maintenance", "out_of_service")
WORD = st.tuples(
    st.integers(-50, 400), st.sampled_from(STATES), st.one_of(st.none(), st.integers(0, 200)), st.booleans()
)


@given(st.lists(WORD, min_size=1, max_size=40))
def test_always_gap_free_in_order_and_open_at_the_end(words: list[tuple[int, str, int | None, bool]]) -> None:
    pieces: list[Piece] = []
    clock = 0
    for step, state, back, gap in words:
        clock = max(0, clock + step)
        told_until = at(max(0, clock - 100)) if gap else None
        since = at(clock - back) if back is not None else None
        pieces = tell(pieces, said(clock, state), told_until=told_until, since=since)
        assert pieces[-1].ends_at is None
        assert pieces[-1].state == state
        for left, right in zip(pieces, pieces[1:], strict=False):
            assert left.ends_at == right.starts_at
            assert left.starts_at < right.starts_at
            assert not left.says(right)
