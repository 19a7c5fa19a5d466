"""dcgm-exporter's text: the fields, their healthy values, and what faults make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpufleet.simulator.faults import Fault
from gpufleet.simulator.fleet import DRIVER, MODEL, Gpu, Node
from gpufleet.simulator.workload import EPOCH, FloatArray, Workload, session

TOTAL_MIB, RESERVED_MIB = 183_359.0, 1_024.0
XID_WINDOW = 300.0
HOTTEST = 96.0
HEATING = 120.0  # seconds from the onset of a thermal fault to its full heat
XID_TEXT = {
    79: "GPU has fallen off the bus",
    94: "Contained error",
    119: "GSP RPC Timeout",
    48: "DBE (Double Bit Error) ECC Error",
}


class Field(NamedTuple):
    name: str
    kind: str
    help: str
    form: str = "%d"


def _field(row: str) -> Field:
    name, kind, text, *form = row.split("|")
    prefix = "DCGM_FI_PROF_" if name.startswith("PROF_") else "DCGM_FI_DEV_"
    return Field(prefix + name.removeprefix("PROF_"), kind, text, *form)


FIELDS: tuple[Field, ...] = tuple(
    map(
        _field,
        """SM_CLOCK|gauge|SM clock frequency (in MHz).
MEM_CLOCK|gauge|Memory clock frequency (in MHz).
MEMORY_TEMP|gauge|Memory temperature (in C).
GPU_TEMP|gauge|GPU temperature (in C).
GPU_TEMP_LIMIT|gauge|Distance to the nearest slowdown threshold (in C).
POWER_USAGE|gauge|Power draw (in W).|%.3f
TOTAL_ENERGY_CONSUMPTION|counter|Total energy consumption since boot (in mJ).
POWER_MGMT_LIMIT|gauge|Current power limit (in W).|%.6f
ENFORCED_POWER_LIMIT|gauge|Effective power limit (in W).|%.6f
PCIE_REPLAY_COUNTER|counter|Total number of PCIe retries.
PCIE_LINK_GEN|gauge|PCIe link generation.
PCIE_LINK_WIDTH|gauge|PCIe link width.
GPU_UTIL|gauge|GPU utilization (in %).
MEM_COPY_UTIL|gauge|Memory utilization (in %).
ENC_UTIL|gauge|Encoder utilization (in %).
DEC_UTIL|gauge|Decoder utilization (in %).
CLOCKS_EVENT_REASONS|gauge|Current clock event reasons (bitmask).
POWER_VIOLATION|counter|Throttling duration due to power constraints (in ns).
THERMAL_VIOLATION|counter|Throttling duration due to thermal constraints (in ns).
SYNC_BOOST_VIOLATION|counter|Throttling duration due to sync-boost constraints (in ns).
BOARD_LIMIT_VIOLATION|counter|Throttling duration due to board limit constraints (in ns).
RELIABILITY_VIOLATION|counter|Throttling duration due to reliability constraints (in ns).
FB_FREE|gauge|Framebuffer memory free (in MiB).
FB_USED|gauge|Framebuffer memory used (in MiB).
FB_RESERVED|gauge|Framebuffer memory reserved (in MiB).
ECC_SBE_VOL_TOTAL|counter|Total number of single-bit volatile ECC errors.
ECC_DBE_VOL_TOTAL|counter|Total number of double-bit volatile ECC errors.
ECC_SBE_AGG_TOTAL|counter|Total number of single-bit persistent ECC errors.
ECC_DBE_AGG_TOTAL|counter|Total number of double-bit persistent ECC errors.
UNCORRECTABLE_REMAPPED_ROWS|counter|Number of remapped rows for uncorrectable errors.
CORRECTABLE_REMAPPED_ROWS|counter|Number of remapped rows for correctable errors.
ROW_REMAP_FAILURE|gauge|Whether remapping of rows has failed.
ROW_REMAP_PENDING|gauge|Whether remapping of rows is pending.
NVLINK_REPLAY_ERROR_COUNT_TOTAL|counter|Total number of NVLink retries.
NVLINK_RECOVERY_ERROR_COUNT_TOTAL|counter|Total number of NVLink recovery errors.
NVLINK_BANDWIDTH_TOTAL|gauge|NVLink bandwidth over all lanes.
FABRIC_MANAGER_STATUS|gauge|Fabric registration status.
PROF_GR_ENGINE_ACTIVE|gauge|Ratio of time the graphics engine is active.|%.6f
PROF_SM_ACTIVE|gauge|The ratio of cycles an SM has at least 1 warp assigned.|%.6f
PROF_SM_OCCUPANCY|gauge|The ratio of warps resident on an SM.|%.6f
PROF_PIPE_TENSOR_ACTIVE|gauge|Ratio of cycles the tensor (HMMA) pipe is active.|%.6f
PROF_DRAM_ACTIVE|gauge|Ratio of cycles the device memory interface is active.|%.6f
PROF_PCIE_TX_BYTES|gauge|Rate of data sent over PCIe (in bytes per second).
PROF_PCIE_RX_BYTES|gauge|Rate of data received over PCIe (in bytes per second).""".splitlines(),
    )
)
ROW = {field.name: number for number, field in enumerate(FIELDS)}
DRIVER_COUNTERS = tuple(
    ROW[f.name] for f in FIELDS if f.kind == "counter" and "AGG" not in f.name and "ROWS" not in f.name
)


def healthy(workload: Workload, t: float) -> FloatArray:
    """Raw values of the whole fleet at `t`, shape (fields, GPUs)."""
    load, work, temperature = workload.load(t), workload.work(t), workload.temperature(t)
    power, energy = workload.power(t), workload.energy(t)
    busy = load > 0
    age, spread = t - EPOCH, workload.phase
    number = np.arange(load.size, dtype=np.float64)
    values: dict[str, FloatArray | float] = {
        "SM_CLOCK": np.where(busy, 1890 - 45 * load + 20 * spread, 345), "MEM_CLOCK": 3996, "GPU_TEMP": temperature,
        "MEMORY_TEMP": temperature + 4 + 6 * load, "GPU_TEMP_LIMIT": 90 - temperature, "POWER_USAGE": power,
        "TOTAL_ENERGY_CONSUMPTION": energy * 1e3, "POWER_MGMT_LIMIT": 1000, "ENFORCED_POWER_LIMIT": 1000,
        "PCIE_REPLAY_COUNTER": number % 3, "PCIE_LINK_GEN": 5, "PCIE_LINK_WIDTH": 16,
        "GPU_UTIL": (load * 100).clip(0, 100), "MEM_COPY_UTIL": (load * 46 + 4 * spread * busy).clip(0, 100),
        "CLOCKS_EVENT_REASONS": np.where(busy, np.where(load > 1.02, 4, 0), 1), "POWER_VIOLATION": work * 2e6,
        "FB_FREE": TOTAL_MIB - RESERVED_MIB - _used(busy, spread), "FB_USED": _used(busy, spread),
        "FB_RESERVED": RESERVED_MIB, "ECC_SBE_VOL_TOTAL": (age * 3e-8 + number % 7 / 7) // 1,
        "ECC_SBE_AGG_TOTAL": (age * 3e-8 + number % 7 / 7) // 1 + number % 5,
        "CORRECTABLE_REMAPPED_ROWS": number % 11 == 0,
        "NVLINK_BANDWIDTH_TOTAL": load * 412_000 * (1 + 0.1 * spread), "FABRIC_MANAGER_STATUS": 3,
        "PROF_GR_ENGINE_ACTIVE": (load * 0.94).clip(0, 1), "PROF_SM_ACTIVE": load * (0.78 + 0.08 * spread),
        "PROF_SM_OCCUPANCY": load * (0.31 + 0.04 * spread), "PROF_PIPE_TENSOR_ACTIVE": load * (0.42 + 0.06 * spread),
        "PROF_DRAM_ACTIVE": load * (0.37 + 0.05 * spread), "PROF_PCIE_TX_BYTES": 2e5 + load * 2.1e9,
        "PROF_PCIE_RX_BYTES": 3e5 + load * 3.4e9,
    }  # fmt: skip
    matrix = np.zeros((len(FIELDS), load.size))
    for name, value in values.items():
        prefix = "DCGM_FI_" if name.startswith("PROF_") else "DCGM_FI_DEV_"
        matrix[ROW[prefix + name]] = value
    return matrix


def _used(busy: FloatArray | np.ndarray[tuple[int, ...], np.dtype[np.bool_]], spread: FloatArray) -> FloatArray:
    return np.asarray(np.where(busy, 164_200 + 2_000 * spread, 4).round())


def suffer(values: FloatArray, fault: Fault, node: Node, workload: Workload, t: float) -> None:
    """Changes one node's values (fields, slots) in place for one of its GPU faults, also after its repair."""
    slot, kind = fault.slot, fault.kind
    place = node.index * len(node.gpus) + slot
    upto = min(t, fault.end)
    if upto <= fault.onset:
        return
    column = values[:, slot]
    lost = workload.work(upto)[place] - workload.work(fault.onset)[place]
    column[ROW["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]] += (kind.load - 1) * workload.span_watts[place] * lost * 1e3
    for name, rate in kind.growth.items():
        column[ROW[name]] += rate * (upto - fault.onset)
    if fault.holds(t):
        _while_it_holds(column, fault, workload.span_watts[place] * workload.load(t)[place], t)


def _while_it_holds(column: FloatArray, fault: Fault, load_watts: float, t: float) -> None:
    kind = fault.kind
    column[ROW["DCGM_FI_DEV_POWER_USAGE"]] += (kind.load - 1) * load_watts
    if kind.load < 1:
        for name, row in ROW.items():
            if name.startswith("DCGM_FI_PROF_"):
                column[row] *= kind.load
    for name, value in kind.fixed.items():
        column[ROW[name]] = value
    if kind.reasons:
        reasons = ROW["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"]
        column[reasons] = (int(column[reasons]) & ~1) | kind.reasons
    if kind.name == "thermal":
        heat = min(1.0, (t - fault.onset) / HEATING)
        for name, hottest in (("DCGM_FI_DEV_GPU_TEMP", HOTTEST), ("DCGM_FI_DEV_MEMORY_TEMP", HOTTEST + 6)):
            column[ROW[name]] += heat * (hottest - column[ROW[name]])
        column[ROW["DCGM_FI_DEV_GPU_TEMP_LIMIT"]] = 90 - column[ROW["DCGM_FI_DEV_GPU_TEMP"]]


def restart_counters(column: FloatArray, at_repair: FloatArray) -> None:
    """A GPU that came back counts from nought: energy, replays, violations, volatile ECC."""
    for row in DRIVER_COUNTERS:
        column[row] = max(0.0, column[row] - at_repair[row])


def labels(node: Node, gpu: Gpu, t: float) -> str:
    """The label pairs of one GPU's series; pod, namespace and container while a job runs."""
    text = (
        f'gpu="{gpu.slot}",UUID="{gpu.uuid}",pci_bus_id="{gpu.pci_bus_id}",device="nvidia{gpu.slot}",'
        f'modelName="{MODEL}",Hostname="{node.name}",DCGM_FI_DRIVER_VERSION="{DRIVER}"'
    )
    pod = job(node, t)
    return text + (f',container="train",namespace="pretrain",pod="{pod}"' if pod else "")


def job(node: Node, t: float) -> str:
    number, inside = session(t)
    return "" if node.spare or inside < 240 else f"solar-{number}-worker-{node.index}"


def template(node: Node, slots: Sequence[int], t: float) -> str:
    """The exposition with a place for every value, in the order (field, slot)."""
    parts = []
    pairs = [labels(node, node.gpus[slot], t) for slot in slots]
    for field in FIELDS:
        parts.append(f"# HELP {field.name} {field.help.replace('%', '%%')}\n# TYPE {field.name} {field.kind}\n")
        parts.extend(f"{field.name}{{{pair}}} {field.form}\n" for pair in pairs)
    return "".join(parts)


def xid_lines(node: Node, slots: Sequence[int], faults: Sequence[Fault], t: float) -> str:
    """The last XID of each GPU (no line before the first) and the count of the last five minutes.

    The exporter remembers events, not values: a GPU that an XID took off the bus keeps its XID lines while all others
    of it are gone. A GPU that vanished without a word has none.
    """
    last: list[str] = []
    counts: list[str] = []
    struck = {f.slot for f in faults if f.xid and f.hides_gpu() and f.holds(t)}
    for slot in sorted({*slots, *struck}):
        pair = labels(node, node.gpus[slot], t)
        seen = sorted((f for f in faults if f.xid and f.slot == slot and f.onset <= t), key=lambda f: (f.onset, f.id))
        if seen:
            code = seen[-1].xid
            text = XID_TEXT.get(code, "Unknown Error")
            last.append(f'DCGM_FI_DEV_XID_ERRORS{{{pair},err_code="{code}",err_msg="{text}"}} {code}\n')
        recent = [f.xid for f in seen if t - f.onset < XID_WINDOW]
        if not recent and slot in slots:
            counts.append(f"DCGM_EXP_XID_ERRORS_COUNT{{{pair}}} 0\n")
        for code in sorted(set(recent)):
            more = f'{pair},window_size_in_ms="300000",xid="{code}"'
            counts.append(f"DCGM_EXP_XID_ERRORS_COUNT{{{more}}} {recent.count(code)}\n")
    head = "# HELP {0} {1}\n# TYPE {0} gauge\n"
    text = head.format("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.") if last else ""
    text += "".join(last)
    return text + head.format("DCGM_EXP_XID_ERRORS_COUNT", "XID errors within the window.") + "".join(counts)
