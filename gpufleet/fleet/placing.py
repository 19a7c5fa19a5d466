"""Which slot each board is in, given where it was and what a scrape listed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MAX_SLOT = 32_767


@dataclass(frozen=True, slots=True)
class Seat:
    """A GPU in a slot of a node."""

    node_id: int
    slot: int
    pci_bus_id: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A GPU that a scrape listed; `index` is None and `pci_bus_id` empty where the exporter does not tell."""

    gpu_id: int
    index: int | None
    pci_bus_id: str


def place_boards(before: Mapping[int, Seat], listed: Mapping[int, Sequence[Placed]]) -> dict[int, Seat | None]:
    """The changes: GPU to its new seat, or to None when another board took its place. What stays is not named.

    Slot = the index that the exporter tells, else the place among the boards in the order of their bus. A board that
    is not listed keeps its seat (it is missing, not moved), also when others count on past it after a reboot. It loses
    it only to a board that was not in this node before and sits on its bus, or, without buses, in its slot. Of a board
    that two nodes list at once the one that had it keeps it.
    """
    claims: dict[int, Seat] = {}
    for node_id in sorted(listed):
        for slot, board in _slots(listed[node_id]):
            old = before.get(board.gpu_id)
            seat = Seat(node_id, slot, board.pci_bus_id or (old.pci_bus_id if old and old.node_id == node_id else ""))
            other = claims.get(board.gpu_id)
            if other is None or (old is not None and old.node_id == node_id):
                claims[board.gpu_id] = seat
    changes: dict[int, Seat | None] = {gpu_id: seat for gpu_id, seat in claims.items() if before.get(gpu_id) != seat}
    for gpu_id in _replaced(before, claims):
        changes[gpu_id] = None
    return changes


def _slots(boards: Sequence[Placed]) -> Iterable[tuple[int, Placed]]:
    by_bus = sorted(boards, key=lambda board: (board.pci_bus_id, board.gpu_id))
    taken = {board.index for board in boards}
    for rank, board in enumerate(by_bus):
        slot = board.index
        if slot is None:
            slot = next(free for free in range(rank, MAX_SLOT) if free not in taken)
            taken.add(slot)
        yield min(slot, MAX_SLOT), board


def _replaced(before: Mapping[int, Seat], claims: Mapping[int, Seat]) -> list[int]:
    """GPUs that no scrape listed and whose place a newcomer has."""
    newcomers = [seat for gpu_id, seat in claims.items() if before.get(gpu_id, _NOWHERE).node_id != seat.node_id]
    told = {seat.node_id for seat in claims.values()}
    gone: list[int] = []
    for gpu_id, seat in before.items():
        if gpu_id in claims or seat.node_id not in told:
            continue
        if any(_same_place(seat, new) for new in newcomers):
            gone.append(gpu_id)
    return gone


_NOWHERE = Seat(-1, -1, "")


def _same_place(old: Seat, new: Seat) -> bool:
    if old.node_id != new.node_id:
        return False
    if old.pci_bus_id and new.pci_bus_id:
        return old.pci_bus_id == new.pci_bus_id
    return old.slot == new.slot
