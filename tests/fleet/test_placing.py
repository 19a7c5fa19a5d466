"""Where boards sit: re-enumeration, swaps, replacements, moves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpufleet.fleet.placing import Placed, Seat, place_boards

BUS = [f"0000:{n:02x}:00.0" for n in range(16)]


def seats(node_id: int, *gpu_ids: int) -> dict[int, Seat]:
    return {gpu_id: Seat(node_id, slot, BUS[slot]) for slot, gpu_id in enumerate(gpu_ids)}


def listed(*boards: tuple[int, int | None, int | None]) -> list[Placed]:
    """Boards as (gpu, index, number of the bus)."""
    return [Placed(gpu, index, "" if bus is None else BUS[bus]) for gpu, index, bus in boards]


def test_first_sight() -> None:
    found = place_boards({}, {1: listed((10, 0, 0), (11, 1, 1))})
    assert found == {10: Seat(1, 0, BUS[0]), 11: Seat(1, 1, BUS[1])}


def test_nothing_new_is_no_change() -> None:
    assert place_boards(seats(1, 10, 11), {1: listed((10, 0, 0), (11, 1, 1))}) == {}


def test_a_missing_board_keeps_its_seat() -> None:
    assert place_boards(seats(1, 10, 11), {1: listed((10, 0, 0))}) == {}


def test_a_reboot_counts_past_the_missing_board() -> None:
    found = place_boards(seats(1, 10, 11, 12), {1: listed((10, 0, 0), (12, 1, 2))})
    assert found == {12: Seat(1, 1, BUS[2])}


def test_a_swap() -> None:
    found = place_boards(seats(1, 10, 11), {1: listed((11, 0, 0), (10, 1, 1))})
    assert found == {11: Seat(1, 0, BUS[0]), 10: Seat(1, 1, BUS[1])}


def test_a_replaced_board() -> None:
    found = place_boards(seats(1, 10, 11), {1: listed((10, 0, 0), (99, 1, 1))})
    assert found == {99: Seat(1, 1, BUS[1]), 11: None}


def test_a_replaced_board_without_buses() -> None:
    before = {10: Seat(1, 0, ""), 11: Seat(1, 1, "")}
    assert place_boards(before, {1: listed((10, 0, None), (99, 1, None))}) == {99: Seat(1, 1, ""), 11: None}


def test_a_board_moves_to_another_node() -> None:
    before = {**seats(1, 10), **seats(2, 20)}
    found = place_boards(before, {2: listed((20, 0, 0), (10, 1, 1))})
    assert found == {10: Seat(2, 1, BUS[1])}


def test_two_nodes_trade_boards() -> None:
    before = {**seats(1, 10), **seats(2, 20)}
    found = place_boards(before, {1: listed((20, 0, 0)), 2: listed((10, 0, 0))})
    assert found == {20: Seat(1, 0, BUS[0]), 10: Seat(2, 0, BUS[0])}


def test_of_two_nodes_that_list_a_board_the_one_that_has_it_keeps_it() -> None:
    before = seats(2, 10)
    assert place_boards(before, {1: listed((10, 0, 0)), 2: listed((10, 0, 0))}) == {}


def test_boards_without_an_index_sit_in_the_order_of_their_bus() -> None:
    found = place_boards({}, {1: listed((11, None, 9), (10, None, 3))})
    assert found == {10: Seat(1, 0, BUS[3]), 11: Seat(1, 1, BUS[9])}


def test_an_exporter_that_stops_telling_the_bus_moves_nothing() -> None:
    assert place_boards(seats(1, 10), {1: listed((10, 0, None))}) == {}


boards = st.lists(
    st.tuples(st.integers(1, 12), st.none() | st.integers(0, 8), st.none() | st.integers(0, 8)), max_size=8
)
told = st.dictionaries(st.integers(1, 3), boards.map(lambda rows: listed(*rows)), max_size=3)


def applied(before: dict[int, Seat], news: dict[int, list[Placed]]) -> dict[int, Seat]:
    after = {**before, **place_boards(before, news)}
    return {gpu_id: seat for gpu_id, seat in after.items() if seat is not None}


@given(st.lists(told, max_size=4))
def test_whatever_is_told_it_settles_and_keeps_what_is_listed(history: list[dict[int, list[Placed]]]) -> None:
    state: dict[int, Seat] = {}
    for news in history:
        unique = {n: list({b.gpu_id: b for b in rows}.values()) for n, rows in news.items()}
        state = applied(state, unique)
        for node_id, rows in unique.items():
            for board in rows:
                assert board.gpu_id in state
                others = [n for n, also in unique.items() if any(b.gpu_id == board.gpu_id for b in also)]
                assert state[board.gpu_id].node_id in others
                assert node_id in others
        # The same again changes nothing.
        assert place_boards(state, unique) == {}
