"""What was last known before the windows begin: sticky codes, counters, boot times."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gpufleet.detect.fields import critical_fields
from gpufleet.detect.rules import load_rules
from gpufleet.detect.windows import FloatArray, IntArray
from gpufleet.pipeline.windows_rows import CountKey, Row, RowMaker
from gpufleet.pipeline.windows_subjects import Subjects
from gpufleet.store.layouts import layout_tables
from gpufleet.store.queries import Latest, read_at, read_frames, read_last_before, read_latest

NEAR_SECONDS = 600.0
FAR_SECONDS = 86_400.0
BACK_SECONDS = 3_600.0


@dataclass(slots=True)
class Known:
    """Last known values: [G] `listed_at` (0: never), `lister` (-1: never), `xid_code`, `energy_joules`; [N] `boot_at`;
    `counts`: (value, time) by counted XID series; `field_at`: [G] by critical field, when it last had a value (0:
    never).
    """

    listed_at: FloatArray
    lister: IntArray
    xid_code: FloatArray
    energy_joules: FloatArray
    boot_at: FloatArray
    counts: dict[CountKey, tuple[float, float]] = field(default_factory=dict)
    field_at: dict[str, FloatArray] = field(default_factory=dict)

    @classmethod
    def nothing(cls, subjects: Subjects) -> Known:
        gpus, nodes = len(subjects.gpu_ids), len(subjects.node_ids)
        return cls(
            listed_at=np.zeros(gpus),
            lister=np.full(gpus, -1, dtype=np.int64),
            xid_code=np.full(gpus, np.nan),
            energy_joules=np.full(gpus, np.nan),
            boot_at=np.full(nodes, np.nan),
            field_at={name: np.zeros(gpus) for name in critical_fields(load_rules())},
        )

    def learn(self, row: Row) -> None:
        """Takes in a row that falls out of the windows."""
        listed = row.listed
        target_at = np.where(listed, row.scraped_at[np.maximum(row.lister, 0)] if len(row.scraped_at) else row.at, 0.0)
        self.listed_at = np.where(listed, target_at, self.listed_at)
        self.lister = np.where(listed, row.lister, self.lister)
        self.xid_code = _newer(row.values["gpu_xid_code"], self.xid_code)
        self.energy_joules = _newer(row.values["gpu_energy_joules_total"], self.energy_joules)
        self.boot_at = _newer(row.boot_at, self.boot_at)
        for name, known_at in self.field_at.items():
            self.field_at[name] = np.where(np.isnan(row.values[name]), known_at, target_at)
        for key in set(self.counts) | set(row.counts):
            if listed[key[0]]:
                self.counts[key] = (row.counts.get(key, 0.0), float(target_at[key[0]]))

    def for_subjects(self, old: Subjects, new: Subjects) -> Known:
        """The same knowledge for other columns; what is new is unknown."""
        known = Known.nothing(new)
        gpu_to = {int(gpu_id): index for index, gpu_id in enumerate(new.gpu_ids)}
        target_to = {int(target_id): index for index, target_id in enumerate(new.target_ids)}
        node_to = {int(node_id): index for index, node_id in enumerate(new.node_ids)}
        moved: dict[int, int] = {}
        for index, gpu_id in enumerate(old.gpu_ids):
            to = gpu_to.get(int(gpu_id))
            if to is None:
                continue
            moved[index] = to
            lister = self.lister[index]
            known.lister[to] = target_to.get(int(old.target_ids[lister]), -1) if lister >= 0 else -1
            for name in ("listed_at", "xid_code", "energy_joules"):
                getattr(known, name)[to] = getattr(self, name)[index]
            for name, known_at in self.field_at.items():
                known.field_at[name][to] = known_at[index]
        for index, node_id in enumerate(old.node_ids):
            if int(node_id) in node_to:
                known.boot_at[node_to[int(node_id)]] = self.boot_at[index]
        known.counts = {
            (moved[gpu], code, source): told for (gpu, code, source), told in self.counts.items() if gpu in moved
        }
        return known


def known_before(subjects: Subjects, maker: RowMaker, at: float) -> Known:
    """What the store knows from before `at` (Unix seconds): the last good frame of each target, at most a day old."""
    known = Known.nothing(subjects)
    found = sorted(_last_good(subjects.target_ids.tolist(), at), key=lambda latest: latest.scraped_at)
    for latest in found:
        known.learn(maker.row(latest.scraped_at, [latest.frame], {latest.layout.id: latest.layout}))
    _look_back(known, subjects, maker, at)
    silent = np.flatnonzero(np.isnan(known.xid_code) & (known.listed_at > 0))
    if len(silent):
        codes = read_last_before("gpu_xid_code", subjects.gpu_ids[silent].tolist(), at, BACK_SECONDS)
        for gpu in silent:
            known.xid_code[gpu] = codes.get(int(subjects.gpu_ids[gpu]), (0.0, np.nan))[1]
    _find_fields(known, subjects, at)
    return known


def _find_fields(known: Known, subjects: Subjects, at: float) -> None:
    """When a field last had a value, for GPUs whose last good scrape came without it."""
    for name, known_at in known.field_at.items():
        without = np.flatnonzero((known_at == 0) & (known.listed_at > 0))
        if len(without):
            told = read_last_before(name, subjects.gpu_ids[without].tolist(), at, BACK_SECONDS)
            for gpu in without:
                known_at[gpu] = told.get(int(subjects.gpu_ids[gpu]), (0.0, np.nan))[0]


def _look_back(known: Known, subjects: Subjects, maker: RowMaker, at: float) -> None:
    """For GPUs that the last good frame of their node did not list: goes through the hour before, in order."""
    unseen = np.unique(subjects.gpu_node[known.listed_at == 0])
    ids = subjects.target_ids[np.isin(subjects.target_node, unseen)].tolist()
    if not ids:
        return
    frames = [frame for frame in read_frames(ids, at - BACK_SECONDS, at) if frame.values is not None]
    layouts = layout_tables([frame.layout_id for frame in frames if frame.layout_id is not None])
    for frame in sorted(frames, key=lambda frame: frame.scraped_at):
        known.learn(maker.row(frame.scraped_at, [frame], layouts))


def _last_good(target_ids: list[int], at: float) -> list[Latest]:
    """Looks near first; then, for targets that were silent for long, at their newest frame of all, and far back."""
    just_before = at - 0.001
    found = read_at(target_ids, just_before, NEAR_SECONDS)
    missing = _without(target_ids, found)
    newest = {latest.target_id: latest for latest in read_latest(missing)} if missing else {}
    found += [latest for latest in newest.values() if latest.scraped_at < at]
    far = [target_id for target_id in _without(missing, found) if target_id in newest]
    return found + (read_at(far, just_before, FAR_SECONDS) if far else [])


def _without(target_ids: list[int], found: list[Latest]) -> list[int]:
    there = {latest.target_id for latest in found}
    return [target_id for target_id in target_ids if target_id not in there]


def _newer(values: FloatArray, known: FloatArray) -> FloatArray:
    return np.where(np.isnan(values), known, values)
