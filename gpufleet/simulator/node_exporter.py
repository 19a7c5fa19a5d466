"""node_exporter's text for one host: about 250 series of the collectors a GPU node runs."""

from __future__ import annotations

from typing import NamedTuple

from gpufleet.simulator.fleet import Node
from gpufleet.simulator.workload import EPOCH, inlet

CPUS = 16
MEMORY = 2 * 1024**4


class Host(NamedTuple):
    """What moves a host at one instant: `load` 0 to 1, `work` its integral, `age` seconds since boot."""

    t: float
    load: float
    work: float
    age: float


class Series(NamedTuple):
    """value = base + per_age * age + per_work * work + per_load * load"""

    labels: str
    base: float = 0.0
    per_age: float = 0.0
    per_work: float = 0.0
    per_load: float = 0.0


Family = tuple[str, str, list[Series]]


def _cpu() -> list[Family]:
    modes = {"user": (0.02, 0.42), "system": (0.01, 0.05), "iowait": (0.001, 0.004), "irq": (0.0, 0.001),
             "softirq": (0.001, 0.003), "nice": (0.0, 0.0), "steal": (0.0, 0.0), "idle": (0.968, -0.48)}  # fmt: skip
    cpus = [Series(f'cpu="{c}",mode="{m}"', 0, a, w) for c in range(CPUS) for m, (a, w) in modes.items()]
    return [
        ("node_cpu_seconds_total", "counter", cpus),
        ("node_load1", "gauge", [Series("", 0.4, 0, 0, 22)]),
        ("node_load5", "gauge", [Series("", 0.5, 0, 0, 21.5)]),
        ("node_load15", "gauge", [Series("", 0.6, 0, 0, 21)]),
        ("node_procs_running", "gauge", [Series("", 1, 0, 0, 24)]),
        ("node_procs_blocked", "gauge", [Series("")]),
        ("node_intr_total", "counter", [Series("", 0, 900, 9100)]),
        ("node_context_switches_total", "counter", [Series("", 0, 4_000, 61_000)]),
        ("node_forks_total", "counter", [Series("", 4_000, 0.8)]),
        ("node_boot_time_seconds", "gauge", [Series("", EPOCH)]),
    ]


def _memory() -> list[Family]:
    rows = {"MemTotal": (MEMORY, 0), "MemFree": (1.5e12, -4.1e11), "MemAvailable": (2.05e12, -4.2e11),
            "Buffers": (1e9, 0),
            "Cached": (5e11, 1e10), "SwapTotal": (0, 0), "SwapFree": (0, 0), "Dirty": (4e6, 9e7), "Writeback": (0, 2e6),
            "AnonPages": (9e9, 4e11), "Mapped": (2e9, 3e9), "Shmem": (1e9, 8e9), "Slab": (1.2e10, 2e9),
            "Active": (6e10, 4e11), "Inactive": (4e11, 1e10)}  # fmt: skip
    made: list[Family] = [
        (f"node_memory_{name}_bytes", "gauge", [Series("", base, 0, 0, load)]) for name, (base, load) in rows.items()
    ]
    pages = {"pgpgin": (40, 52_000), "pgpgout": (60, 2_400), "pgfault": (3_000, 40_000), "pgmajfault": (0.01, 0.05),
             "pswpin": (0, 0), "pswpout": (0, 0), "oom_kill": (0, 0)}  # fmt: skip
    return made + [(f"node_vmstat_{n}", "untyped", [Series("", 0, a, w)]) for n, (a, w) in pages.items()]


def _network() -> list[Family]:
    devices = {"eno1": (9_000.0, 40_000.0), "bond0": (12_000.0, 9e8), "lo": (2_000.0, 30_000.0)}
    rows = {"bytes": 1.0, "packets": 1 / 900, "errs": 0.0, "drop": 0.0}
    made: list[Family] = [
        (
            f"node_network_{way}_{row}_total",
            "counter",
            [Series(f'device="{d}"', 0, a * k, w * k) for d, (a, w) in devices.items()],
        )
        for way in ("receive", "transmit")
        for row, k in rows.items()
    ]
    made.append(("node_network_up", "gauge", [Series(f'device="{d}"', 1) for d in devices]))
    ports = [f'device="mlx5_{n}",port="1"' for n in range(8)]
    for name, a, w in (
        ("port_data_received_bytes_total", 1e4, 1.9e10), ("port_data_transmitted_bytes_total", 1e4, 1.9e10),
        ("port_packets_received_total", 10.0, 4.6e6), ("link_downed_total", 0.0, 0.0), ("symbol_error_total", 0.0, 0.0),
    ):  # fmt: skip
        made.append((f"node_infiniband_{name}", "counter", [Series(port, 0, a, w) for port in ports]))
    made.append(("node_infiniband_state_id", "gauge", [Series(port, 4) for port in ports]))
    return made


def _storage() -> list[Family]:
    disks = {'device="/dev/nvme0n1p2",fstype="ext4",mountpoint="/"': 9.4e11,
             'device="/dev/nvme1n1",fstype="xfs",mountpoint="/scratch"': 3e13,
             'device="storage:/train",fstype="nfs4",mountpoint="/train"': 2e15}  # fmt: skip
    made: list[Family] = [
        (f"node_filesystem_{name}_bytes", "gauge", [Series(d, size * share) for d, size in disks.items()])
        for name, share in (("size", 1.0), ("free", 0.62), ("avail", 0.58))
    ]
    made.append(("node_filesystem_readonly", "gauge", [Series(d) for d in disks]))
    calls = [Series(f'method="{m}",proto="4"', 0, a, w) for m, a, w in
             (("Read", 0.2, 90.0), ("Write", 0.2, 14.0), ("GetAttr", 1.0, 6.0), ("Open", 0.1, 0.6))]  # fmt: skip
    made += [
        ("node_nfs_requests_total", "counter", calls),
        ("node_nfs_rpc_retransmissions_total", "counter", [Series("")]),
    ]
    for name, a, w in (("read_bytes", 2e4, 3e7), ("written_bytes", 5e4, 9e6), ("io_time_seconds", 0.001, 0.05)):
        made.append((f"node_disk_{name}_total", "counter", [Series(f'device="nvme{n}n1"', 0, a, w) for n in range(2)]))
    return made


def _hardware(node: Node) -> list[Family]:
    chips = [f'chip="platform_coretemp_{c}",sensor="temp{s}"' for c in range(2) for s in range(1, 4)]
    cores = [f'controller="{c}"' for c in range(2)]
    release = 'release="6.8.0-60-generic",sysname="Linux",version="#63"'
    system = f'domainname="(none)",machine="x86_64",nodename="{node.name}",{release}'
    return [
        ("node_hwmon_temp_celsius", "gauge", [Series(chip, 14, 0, 0, 22) for chip in chips]),
        ("node_edac_correctable_errors_total", "counter", [Series(c) for c in cores]),
        ("node_edac_uncorrectable_errors_total", "counter", [Series(c) for c in cores]),
        ("node_filefd_allocated", "gauge", [Series("", 9_000, 0, 0, 6_000)]),
        ("node_entropy_available_bits", "gauge", [Series("", 256)]),
        ("node_sockstat_TCP_inuse", "gauge", [Series("", 40, 0, 0, 180)]),
        ("node_timex_sync_status", "gauge", [Series("", 1)]),
        ("node_uname_info", "gauge", [Series(system, 1)]),
    ]


class NodeText:
    """One host's exposition: the fixed text once, its numbers at every call."""

    def __init__(self, node: Node) -> None:
        parts: list[str] = []
        self._moving: list[Series] = []
        self._inlet: list[bool] = []
        for name, kind, rows in [*_cpu(), *_memory(), *_network(), *_storage(), *_hardware(node)]:
            parts.append(f"# HELP {name} {name.removeprefix('node_').replace('_', ' ')}.\n# TYPE {name} {kind}\n")
            for row in rows:
                parts.append(f"{name}{{{row.labels}}} " if row.labels else f"{name} ")
                parts.append(self._place(name, row) + "\n")
        parts.append("# HELP node_time_seconds System time.\n# TYPE node_time_seconds gauge\nnode_time_seconds %.6f\n")
        self._template = "".join(parts)

    def _place(self, name: str, row: Series) -> str:
        warm = name == "node_hwmon_temp_celsius"
        if not warm and not (row.per_age or row.per_work or row.per_load):
            return f"{row.base:.15g}"
        self._moving.append(row)
        self._inlet.append(warm)
        return "%.2f" if abs(row.base) + abs(row.per_load) < 100 else "%d"

    def render(self, host: Host) -> bytes:
        """The body at one instant."""
        warm = inlet(host.t)
        values = [
            base + a * host.age + w * host.work + k * host.load + (warm if air else 0.0)
            for (_, base, a, w, k), air in zip(self._moving, self._inlet, strict=True)
        ]
        return (self._template % (*values, host.t)).encode()
