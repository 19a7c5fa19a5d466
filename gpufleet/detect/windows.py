"""Windows: what detection looks at, as plain numpy arrays. Nothing here knows where the numbers came from.

Axes: T cycles (oldest first), S targets, N nodes, G GPUs, K counted XID series. Times are Unix seconds (float64),
values are canonical units, NaN is "no value". All arrays of one Windows share T.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
HashArray = npt.NDArray[np.uint64]

GPU_METRICS: tuple[str, ...] = (
    "gpu_temperature_celsius",
    "gpu_memory_temperature_celsius",
    "gpu_temperature_margin_celsius",
    "gpu_power_watts",
    "gpu_energy_joules_total",
    "gpu_utilization_ratio",
    "gpu_clock_event_reasons",
    "gpu_xid_code",
)
BOOT_METRIC = "node_boot_time_seconds"
XID_SOURCES: Mapping[str, str] = {"gpu_xid_window_count": "window", "gpu_xid_events_total": "total"}

KIND_UNKNOWN, KIND_GPU, KIND_NODE = 0, 1, 2


@dataclass(slots=True)
class Targets:
    """The S targets of a shard and how their scrapes went.

    `node`: [S] index into the nodes. `kind`: [S] KIND_*. `scraped`: [T, S] a scrape was made (good or not).
    `good`: [T, S] it was good. `reason`: [T, S] object array of the failure's words, '' for a good or no scrape.
    `at`: [T, S] start of the scrape, NaN without one. `signature`: [T, S] a hash of all values of the body, 0 for none.
    """

    ids: IntArray
    node: IntArray
    kind: IntArray
    scraped: BoolArray
    good: BoolArray
    reason: npt.NDArray[np.object_]
    at: FloatArray
    duration_seconds: FloatArray
    bytes: IntArray
    signature: HashArray


@dataclass(slots=True)
class Gpus:
    """The G GPUs that are placed in the shard's nodes.

    `node`: [G] index into the nodes, `target`: [G] index of the target that lists the GPU (-1: none ever did).
    `listed`: [T, G] a good scrape named the GPU. `values`: canonical metric -> [T, G].
    """

    uuid: list[str]
    model: list[str]
    pci_bus_id: list[str]
    slot: IntArray
    node: IntArray
    target: IntArray
    listed: BoolArray
    values: dict[str, FloatArray]


@dataclass(slots=True)
class XidCounts:
    """The K counted XID series: `gpu` [K] index, `code` [K], `source` [K] 'window' or 'total', `values` [T, K].

    `window_seconds` [K]: length of the exporter's own counting window, infinite for totals.
    """

    gpu: IntArray
    code: IntArray
    source: list[str]
    window_seconds: FloatArray
    values: FloatArray


@dataclass(slots=True)
class Before:
    """The last known values before the first row. NaN: never known.

    `seen` [G]: a good scrape named the GPU before. `listed_at` [G]: when the last one did. `xid_code`,
    `energy_joules` [G]; `xid_count`, `xid_count_at` [K]; `boot_at` [N]. `field_at`: when a GPU last had a value, [G] by
    metric, for the fields that critical rules need and at most an hour back.
    """

    seen: BoolArray
    xid_code: FloatArray
    energy_joules: FloatArray
    xid_count: FloatArray
    xid_count_at: FloatArray
    boot_at: FloatArray
    field_at: dict[str, FloatArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpenKey:
    """An unresolved incident. `last_event_at`: time of its newest occurrence (XID), else its first evidence.

    `is_known`: a person labelled it as known. `signals`: what its evidence names, for `field_missing` only.
    """

    kind: str
    subject: str
    opened_at: float
    first_evidence_at: float
    last_event_at: float
    recovered_at: float | None = None
    is_known: bool = False
    signals: frozenset[str] = frozenset()


@dataclass(slots=True)
class Windows:
    """The last T cycles of one shard. `maintenance`: [T, N] planned time. `boot_at`: [T, N] the node's boot time.

    `expected_gpus`: [N], 0 when nobody knows. Happenings (XIDs) are told for rows from `tell_from` on; the rows
    before it are context. `open`: the unresolved incidents of the cluster by (kind, subject).
    """

    times: FloatArray
    interval_seconds: float
    nodes: list[str]
    expected_gpus: IntArray
    maintenance: BoolArray
    boot_at: FloatArray
    targets: Targets
    gpus: Gpus
    xids: XidCounts
    before: Before
    open: dict[tuple[str, str], OpenKey] = field(default_factory=dict)
    tell_from: int = 0

    def good_for_gpus(self) -> BoolArray:
        """[T, G]: the target that lists the GPU was scraped, well, outside maintenance."""
        target = self.gpus.target
        good = self.targets.good[:, np.maximum(target, 0)] & (target >= 0)[None, :]
        return good & ~self.maintenance[:, self.gpus.node]

    def gpu_times(self) -> FloatArray:
        """[T, G]: when the GPU's target was scraped; the cycle's time without a scrape."""
        target = self.gpus.target
        at = np.where((target >= 0)[None, :], self.targets.at[:, np.maximum(target, 0)], np.nan)
        return np.where(np.isnan(at), self.times[:, None], at)

    def until(self, rows: int) -> Windows:
        """The windows as they were when row `rows` - 1 was the newest one. Arrays are views."""
        targets, gpus = self.targets, self.gpus
        over_time = ("scraped", "good", "reason", "at", "duration_seconds", "bytes", "signature")
        return replace(
            self,
            times=self.times[:rows],
            maintenance=self.maintenance[:rows],
            boot_at=self.boot_at[:rows],
            targets=replace(targets, **{name: getattr(targets, name)[:rows] for name in over_time}),
            gpus=replace(
                gpus, listed=gpus.listed[:rows], values={name: values[:rows] for name, values in gpus.values.items()}
            ),
            xids=replace(self.xids, values=self.xids.values[:rows]),
        )

    def metric(self, name: str) -> FloatArray:
        """[T, G] canonical values; all NaN for a metric that nobody sends."""
        values = self.gpus.values.get(name)
        return np.full(self.gpus.listed.shape, np.nan) if values is None else values


def gpu_subject(uuid: str) -> str:
    return f"gpu:{uuid}"


def node_subject(name: str) -> str:
    return f"node:{name}"


CLUSTER_SUBJECT = "cluster"
