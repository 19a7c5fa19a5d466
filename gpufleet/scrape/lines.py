"""What a line is: which series of which board, and what runs there. Worked out once in the life of a series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpufleet.catalogue.devices import Device, fold_key, identify, roll_call
from gpufleet.catalogue.meaning import Meaning, resolve
from gpufleet.catalogue.values import SENTINEL_CODES
from gpufleet.fleet.specs import BoardSeen, Workload
from gpufleet.store.frames import SeriesSpec

MAX_LABEL_CHARACTERS = 1_024
# Words of a workload that tell who runs; a process or a slice of the board changes without a new run.
_RUNS = frozenset({"namespace", "pod", "pod_uid", "container", "job", "user", "partition", "runtime"})


@dataclass(frozen=True, slots=True)
class Line:
    """`key` is what makes two lines the same series; `labels` are those that the series is kept with."""

    name: str
    labels: dict[str, str]
    key: tuple[str, ...]
    meaning: Meaning
    device: Device | None
    workload: Workload
    code: int

    def spec(self, gpu_id: int | None) -> SeriesSpec:
        meaning = self.meaning
        return SeriesSpec(
            name=self.name,
            metric=meaning.metric,
            labels=self.labels,
            gpu_id=gpu_id,
            kind=meaning.kind,
            unit=meaning.unit,
            scale=meaning.scale,
            low=meaning.low,
            high=meaning.high,
            sentinels=meaning.sentinels,
        )


def line_of(name: str, labels: Mapping[str, str], declared: str) -> Line:
    """The line with this name and labels; `declared` is the exporter's TYPE. Labels are cut at 1,024 characters."""
    labels = {key: value[:MAX_LABEL_CHARACTERS] for key, value in labels.items()}
    meaning = resolve(name, labels, declared)
    device = identify(labels, name)
    if device is None:
        kept = {key: value for key, value in labels.items() if value and key not in meaning.folded}
        key = (name, "", "", *(f"{label}={kept[label]}" for label in sorted(kept)))
        return Line(name, kept, key, meaning, None, (), SENTINEL_CODES[meaning.sentinels])
    kept = {key: value for key, value in device.identity_labels.items() if key not in meaning.folded}
    if meaning.per_instance and device.mig:
        kept["GPU_I_ID"] = device.mig
    workload = tuple(sorted((word, text) for word, text in device.workload.items() if word in _RUNS))
    key = fold_key(name, meaning, device)
    return Line(name, kept, key, meaning, device, workload, SENTINEL_CODES[meaning.sentinels])


def boards_of(lines: Iterable[Line]) -> tuple[BoardSeen, ...]:
    """The boards that the lines of one good scrape speak of, each with every key that names it and what runs on it."""
    with_device = [(line.device, line.workload) for line in lines if line.device is not None]
    called = roll_call(device for device, _ in with_device)
    keys: dict[str, set[str]] = {}
    runs: dict[str, set[Workload]] = {}
    for key, board in called.items():
        keys.setdefault(board.key, set()).add(key)
    for device, workload in with_device:
        # A row that names no board, of a target with several, is nobody's.
        if workload and device.key in called:
            runs.setdefault(called[device.key].key, set()).add(workload)
    boards = {board.key: board for board in called.values()}
    return tuple(BoardSeen(frozenset(keys[key]), boards[key], frozenset(runs.get(key, ()))) for key in sorted(boards))
