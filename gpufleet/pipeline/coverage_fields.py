"""What one scrape says of each field, in arrays: how many GPUs have it, whether it moves, whether its unit fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gpufleet.catalogue.meaning import family
from gpufleet.catalogue.metrics import METRICS
from gpufleet.catalogue.units import contradiction, energy_contradiction
from gpufleet.catalogue.values import clean
from gpufleet.store.frames import FloatArray, IntArray
from gpufleet.store.layouts import LayoutTable
from gpufleet.store.queries import Latest

UNBOUNDED = np.array(np.nan)
BUSY_RATIO = 0.05
# These never stand still while a board lives; any other field may, unless its GPUs work.
ALWAYS_MOVING = frozenset({"gpu_power_watts", "gpu_energy_joules_total"})
LEAST_PEERS = 3
MOVING_SHARE = 0.8
ENERGY, POWER, UTILIZATION = "gpu_energy_joules_total", "gpu_power_watts", "gpu_utilization_ratio"


@dataclass(slots=True)
class Sent:
    """One field in the newest scrape. `sent`: its lines are there; `known`: how many have a value, on `gpus` GPUs.

    `still`: no line changed over ten minutes; None where that cannot be told or says nothing.
    `frozen` is settled by `settle_frozen`.
    """

    sent: bool = False
    known: int = 0
    gpus: int = 0
    still: bool | None = None
    frozen: bool = False
    wrong_unit: str = ""


@dataclass(slots=True)
class SentFields:
    """The fields of one target's newest scrape. `gpus`: how many GPUs it lists; `busy`: they work."""

    exporters: tuple[str, ...]
    gpus: int
    busy: bool
    fields: dict[str, Sent]

    @classmethod
    def of(cls, newest: Latest, earlier: Sequence[Latest]) -> SentFields:
        """`earlier`: its scrapes some minutes before, newest first; those laid out otherwise tell less."""
        layout, raw = newest.layout, _raw(newest)
        canonical = layout.clean(raw)
        alike = [_raw(one) for one in earlier if one.frame.layout_id == newest.frame.layout_id]
        known = ~np.isnan(canonical)
        values = np.stack([_unbounded(layout, one) for one in (raw, *alike)])
        is_still = np.ones(raw.size, dtype=np.bool_)
        for then in alike:
            is_still &= (raw == then) & (raw != 0)
        listed = np.unique(layout.gpu_ids[known & (layout.gpu_ids >= 0)]).size
        fields = {}
        for name, places in _fields(layout):
            at = places[known[places]]
            fields[name] = Sent(
                sent=True,
                known=at.size,
                gpus=_gpus(layout, at, listed) if METRICS[name].subject == "gpu" else listed,
                still=bool(is_still[at].all()) if len(alike) >= 2 and _tells(name, raw[at]) else None,
                wrong_unit=contradiction(METRICS[name], values[:, places], float(layout.scale[places[0]])),
            )
        if alike and ENERGY in fields and POWER in fields:
            fields[ENERGY].wrong_unit = _energy(newest, earlier, layout)
        work = canonical[layout.places_of(UTILIZATION)]
        busy = bool(work.size and not np.isnan(work).all() and np.nanmean(work) > BUSY_RATIO)
        return cls(_exporters(tuple(dict.fromkeys(layout.names))), listed, busy, fields)


def settle_frozen(targets: Iterable[SentFields]) -> None:
    """A field is frozen where it stands still, although it always moves, or moves on nearly all others that work."""
    targets = list(targets)
    moves: dict[str, list[bool]] = {}
    for target in targets:
        for name, told in target.fields.items():
            if told.still is not None and (target.busy or name in ALWAYS_MOVING):
                moves.setdefault(name, []).append(not told.still)
    for target in targets:
        for name, told in target.fields.items():
            peers = moves.get(name, [])
            if not told.still or METRICS[name].kind not in ("gauge", "counter"):
                continue
            if name in ALWAYS_MOVING or (target.busy and len(peers) > LEAST_PEERS):
                told.frozen = name == ENERGY or float(np.mean(peers)) >= MOVING_SHARE


def _tells(name: str, raw: FloatArray) -> bool:
    """Whether a standstill would mean something: whole numbers, such as degrees, may well be the same again."""
    return bool(raw.size) and (name in ALWAYS_MOVING or bool((raw != np.round(raw)).any()))


def _raw(one: Latest) -> FloatArray:
    assert one.frame.values is not None  # noqa: S101 - a good frame
    return one.frame.values


def _unbounded(layout: LayoutTable, raw: FloatArray) -> FloatArray:
    """Canonical values that keep what cannot be: it is what shows a wrong unit."""
    return clean(raw, layout.scale, UNBOUNDED, UNBOUNDED, layout.sentinels)


def _fields(layout: LayoutTable) -> list[tuple[str, IntArray]]:
    return [(name, places) for name, places in layout.places.items() if name in METRICS]


def _gpus(layout: LayoutTable, at: IntArray, listed: int) -> int:
    """How many GPUs have a value; lines without a GPU speak for all."""
    ids = set(layout.gpu_ids[at].tolist())
    return listed if -1 in ids else len(ids)


def _by_gpu(layout: LayoutTable, name: str) -> IntArray:
    """The places of a metric, in the order of its GPUs: those of a layout are in no order that means anything."""
    places = layout.places_of(name)
    ordered: IntArray = places[np.argsort(layout.gpu_ids[places], kind="stable")]
    return ordered


def _energy(newest: Latest, earlier: Sequence[Latest], layout: LayoutTable) -> str:
    then = next(one for one in reversed(earlier) if one.frame.layout_id == newest.frame.layout_id)
    places, power = _by_gpu(layout, ENERGY), _by_gpu(layout, POWER)
    now_values, old_values = _unbounded(layout, _raw(newest)), _unbounded(layout, _raw(then))
    if places.size != power.size or not np.array_equal(layout.gpu_ids[places], layout.gpu_ids[power]):
        return ""
    watts = (now_values[power] + old_values[power]) / 2
    return energy_contradiction(now_values[places] - old_values[places], watts, newest.scraped_at - then.scraped_at)


@lru_cache(maxsize=256)
def _exporters(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({found for name in names if (found := family(name))}))
