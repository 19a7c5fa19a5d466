"""Faults: what they are called, when they hold, and the table of what each does to a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from gpufleet.catalogue.xids import XIDS

MODES = ("refused", "hang", "500", "empty", "cut_off")


class FaultError(ValueError):
    """The description of a fault is impossible; the text says why."""


@dataclass(frozen=True)
class Kind:
    """One row of the table. `load` is the factor on the job's load, `fields` are sums over the healthy values,
    `growth` is counted per second while it holds, `fixed` replaces."""

    name: str
    klass: str
    action: str
    gpu: bool = True
    load: float = 1.0
    fixed: Mapping[str, float] = field(default_factory=dict)
    growth: Mapping[str, float] = field(default_factory=dict)
    reasons: int = 0


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("xid", "fail_stop", "contact_support"),
        Kind("gpu_lost", "detachment", "reboot_node"),
        Kind("exporter_down", "telemetry", "check_exporter", gpu=False),
        Kind("node_down", "fail_stop", "reboot_node", gpu=False),
        Kind("frozen", "telemetry", "check_exporter", gpu=False),
        Kind(
            "thermal",
            "fail_slow",
            "check_cooling",
            load=0.6,
            fixed={"DCGM_FI_DEV_SM_CLOCK": 1125},
            growth={"DCGM_FI_DEV_THERMAL_VIOLATION": 9e8},
            reasons=0x48,
        ),
        Kind(
            "power_brake",
            "fail_slow",
            "check_power",
            load=0.4,
            fixed={"DCGM_FI_DEV_SM_CLOCK": 900},
            growth={"DCGM_FI_DEV_POWER_VIOLATION": 9e8},
            reasons=0x88,
        ),
        Kind("straggler", "fail_slow", "drain", load=0.85, fixed={"DCGM_FI_DEV_SM_CLOCK": 1410}),
        Kind(
            "hang",
            "fail_stop",
            "restart_app",
            load=0.1,
            fixed={"DCGM_FI_DEV_GPU_UTIL": 100, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0, "DCGM_FI_PROF_DRAM_ACTIVE": 0},
        ),
        Kind("nvlink_errors", "degradation", "reset_gpu", growth={"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 0.5}),
        Kind(
            "pcie_degraded",
            "fail_slow",
            "drain",
            fixed={"DCGM_FI_DEV_PCIE_LINK_WIDTH": 8, "DCGM_FI_DEV_PCIE_LINK_GEN": 3},
            growth={"DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 0.2},
        ),
        Kind(
            "ecc",
            "degradation",
            "reset_gpu",
            fixed={"DCGM_FI_DEV_ROW_REMAP_PENDING": 1},
            growth={"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0.01, "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": 0.01},
        ),
        Kind("hbm_wear", "degradation", "replace", growth={"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": 4.6 / 86_400}),
    )
}


@dataclass
class Fault:
    id: str
    node: str
    kind: Kind
    onset: float
    end: float = inf
    slot: int = 0
    xid: int = 0
    vanish: bool = False
    mode: str = "refused"
    exporter: str = "dcgm"
    origin: str = "injected"

    def holds(self, t: float) -> bool:
        return self.onset <= t < self.end

    def hides_gpu(self) -> bool:
        return self.kind.name == "gpu_lost" or self.vanish

    def action(self) -> str:
        return XIDS[self.xid].action if self.xid in XIDS else self.kind.action


def make_fault(given: Mapping[str, Any], fault_id: str, now: float, gpus: int, origin: str = "injected") -> Fault:
    """A fault out of its JSON form; `at` defaults to `now`. Raises FaultError."""
    unknown = set(given) - {"node", "fault", "slot", "xid", "mode", "seconds", "at", "vanish", "exporter"}
    if unknown:
        raise FaultError(f"unknown field: {sorted(unknown)[0]}")
    kind = KINDS.get(str(given.get("fault")))
    if kind is None:
        raise FaultError(f"fault must be one of {', '.join(KINDS)}")
    slot = int(_number(given, "slot", 0, 0, gpus - 1, whole=True))
    xid = int(_number(given, "xid", 79, 1, 1000, whole=True)) if kind.name == "xid" else 0
    onset = _number(given, "at", now, 0, 1e11)
    seconds = _number(given, "seconds", inf, 0.001, 1e10) if "seconds" in given else inf
    mode, exporter = str(given.get("mode", "refused")), given.get("exporter", "dcgm")
    if mode not in MODES:
        raise FaultError(f"mode must be one of {', '.join(MODES)}")
    if exporter not in ("dcgm", "node", "both"):
        raise FaultError("exporter must be dcgm, node or both")
    vanish = given.get("vanish", xid == 79)
    if not isinstance(vanish, bool):
        raise FaultError("vanish must be true or false")
    return Fault(fault_id, str(given["node"]), kind, onset, onset + seconds, slot, xid, vanish, mode, exporter, origin)


def _number(given: Mapping[str, Any], name: str, default: float, low: float, high: float, whole: bool = False) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or (value != default and not low <= value <= high):
        raise FaultError(f"{name} must be a number from {low:g} to {high:g}")
    if whole and value != int(value):
        raise FaultError(f"{name} must be a whole number")
    return value
