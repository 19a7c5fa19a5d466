"""Which accelerator a series speaks of. A GPU is its UUID; index, bus, host name, driver and pod are facts about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from gpufleet.catalogue.meaning import Meaning, family

_UUID_LABELS = ("UUID", "uuid", "gpu_uuid", "GPU_UUID")
_PCI_LABELS = ("pci_bus_id", "pci_bdf", "pci_bus")
_INDEX_LABELS = ("gpu", "gpu_id", "index", "neuron_device_index", "minor_number")
_MODEL_LABELS = ("modelName", "model_name", "card_model", "dev_name", "hw_name", "chip", "name", "model")
_DRIVER_LABELS = ("DCGM_FI_SYSTEM_DRIVER_VERSION", "DCGM_FI_DRIVER_VERSION", "driver_version")
_SERIAL_LABELS = (
    "serial_number",
    "SERIAL_NUMBER",
    "Serial",
    "serial",
    "DCGM_FI_DEV_BOARD_SERIAL",
    "DCGM_FI_DEV_SERIAL",
)
_MIG_LABELS = ("GPU_I_ID", "gpu_instance_id")
# Facts that may change while the GPU stays the same; they never make a series.
_FACT_LABELS = frozenset(
    {
        *_UUID_LABELS,
        *_PCI_LABELS,
        *_INDEX_LABELS,
        *_DRIVER_LABELS,
        *_SERIAL_LABELS,
        *_MIG_LABELS,
        *("modelName", "model_name", "card_model", "dev_name", "hw_name", "chip"),
        *("device", "Hostname", "hostname", "GPU_I_PROFILE", "err_code", "err_msg", "window_size_in_ms", "dev_file"),
        *(
            "pci_dev",
            "vendor",
            "src",
            "node",
            "hw_id",
            "instance_id",
            "instance_name",
            "instance_type",
            "accelerator_id",
        ),
        *("availability_zone", "region", "subnet_id", "make", "tpu_topology", "gpud_component", "deployment_mode"),
        *(
            "gpu_compute_partition_type",
            "gpu_memory_partition_type",
            "gpu_partition_id",
            "vbios_version",
            "health_error_code",
        ),
        *(
            "compute_cap",
            "cuda_version",
            "driver_model_current",
            "driver_model_pending",
            "pci_sub_device_id",
            "kube_info",
        ),
    }
)
# Labels that say what runs on the GPU, with the product's word for each. `exported_` wins: then the plain one is the
# exporter's own pod.
_WORKLOAD = {
    "pod": "pod",
    "namespace": "namespace",
    "container": "container",
    "pod_name": "pod",
    "pod_namespace": "namespace",
    "container_name": "container",
    "kube_pod": "pod",
    "kube_namespace": "namespace",
    "kube_container": "container",
    "pod_uid": "pod_uid",
    "vgpu": "vgpu",
    "hpc_job": "job",
    "job_id": "job",
    "job_user": "user",
    "job_partition": "partition",
    "pid": "pid",
    "process_id": "pid",
    "process_name": "process",
    "runtime_tag": "runtime",
    "compute_instance_id": "compute_instance",
}
_VENDORS = {
    "dcgm-exporter": "nvidia",
    "nvidia_gpu_exporter": "nvidia",
    "gpud": "nvidia",
    "jetson": "nvidia",
    "amd-device-metrics-exporter": "amd",
    "amd_smi_exporter": "amd",
    "intel-xpum": "intel",
    "intel-xpumd": "intel",
    "gaudi": "intel",
    "macmon": "apple",
    "gke-tpu": "google",
    "neuron": "aws",
}
_LONE = frozenset({"jetson", "macmon", "neuron"})
_TELLING_LABEL = {"gke-tpu": "accelerator_id", "jetson": "statistic", "macmon": "chip"}
_BARE_HEX = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ZERO = re.compile(r"[-0]*")
_PCI = re.compile(r"(?:0x)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])")
_LONGEST = 255


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator as the labels of one series tell it; empty text or None: not told.

    `uuid` is `GPU-` and lower-case hex for NVIDIA, the vendor's own lower-case id else; an all-zero one is none.
    `pci_bus_id` has the form `0000:18:00.0`. `mig` is the instance (`GPU_I_ID`), empty for the whole board. `workload`
    has the keys pod, namespace, container, job and the like. `identity_labels` are what is left and makes a series.
    """

    uuid: str = ""
    pci_bus_id: str = ""
    index: int | None = None
    model: str = ""
    vendor: str = ""
    mig: str = ""
    driver_version: str = ""
    serial: str = ""
    workload: dict[str, str] = field(default_factory=dict)
    identity_labels: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What tells boards of one target apart: the UUID, else the bus, else the index; empty when nothing is told."""
        if self.uuid:
            return self.uuid
        if self.pci_bus_id:
            return self.pci_bus_id
        return "" if self.index is None else str(self.index)


def identify(labels: Mapping[str, str], name: str = "") -> Device | None:
    """The accelerator of a series, None when it speaks of none. `name` is the exporter's metric name.

    Without a name only labels that nothing but a GPU exporter has are trusted: `uuid` alone may be a disk.
    """
    source = family(name)
    if (
        source == "node_exporter"
        or (source == "" and not _is_gpu_row(labels))
        or not _is_about_a_device(labels, source)
    ):
        return None
    device = _device(tuple(labels.items()), source)
    return device if device.key or _may_be_nameless(labels, source) else None


def fold_key(name: str, meaning: Meaning, device: Device) -> tuple[str, ...]:
    """What makes two lines of one target the same series: exporter's name, board, instance and the labels left.

    Pods, jobs, processes and copies of a board's value for each MIG instance are not part of it. Of the lines of one
    scrape with the same key the highest value counts.
    """
    left = (f"{key}={value}" for key, value in sorted(device.identity_labels.items()) if key not in meaning.folded)
    return (name, device.key, device.mig if meaning.per_instance else "", *left)


def roll_call(devices: Iterable[Device]) -> dict[str, Device]:
    """Every key heard in one scrape of one target, with the board it stands for and all that its rows told.

    Rows of one board may name it in different ways: only the info row has bus and index when the UUID is hidden. A row
    that names no board is the only board's, when there is just one. The number of boards is the number of different
    values.
    """
    boards: dict[str, Device] = {}
    nameless: Device | None = None
    for device in devices:
        if device.key:
            boards[device.key] = _merged(boards.get(device.key), device)
        else:
            nameless = _merged(nameless, device)
    if nameless is not None and len(boards) <= 1:
        key = next(iter(boards), "")
        boards[key] = boards[""] = _merged(boards.get(key), nameless)
    return boards


@lru_cache(maxsize=2_048)
def _device(items: tuple[tuple[str, str], ...], source: str) -> Device:
    """All lines of a board carry the same labels, so a body of hundreds of lines asks for a handful of devices."""
    labels = dict(items)
    vendor = _VENDORS.get(source, "") or _vendor(labels)
    return Device(
        uuid=_uuid(labels, vendor),
        pci_bus_id=pci_bus_id(_first(labels, _PCI_LABELS)),
        index=_index(labels, source),
        model=_first(labels, _MODEL_LABELS),
        vendor=vendor,
        mig=_instance(labels),
        driver_version=_first(labels, _DRIVER_LABELS),
        serial=_first(labels, _SERIAL_LABELS),
        workload=_workload(labels),
        identity_labels=_identity_labels(labels, source),
    )


def _is_about_a_device(labels: Mapping[str, str], source: str) -> bool:
    """Some exporters use names that anything may have, and tell by a label that they mean an accelerator."""
    label = _TELLING_LABEL.get(source)
    return label is None or bool(labels.get(label))


def _may_be_nameless(labels: Mapping[str, str], source: str) -> bool:
    """One accelerator per target, which no label names; or the UUID is there but hidden behind zeros."""
    return source in _LONE or any(labels.get(label) for label in _UUID_LABELS)


def _is_gpu_row(labels: Mapping[str, str]) -> bool:
    """Labels that nothing but an accelerator exporter writes."""
    if any(
        label in labels
        for label in ("UUID", "gpu_uuid", "GPU_UUID", "modelName", "GPU_I_ID", "accelerator_id", "card_model")
    ):
        return True
    return labels.get("uuid", "").lower().startswith(("gpu-", "mig-"))


def _first(labels: Mapping[str, str], names: Iterable[str]) -> str:
    return next((labels[name][:_LONGEST] for name in names if labels.get(name)), "")


def _uuid(labels: Mapping[str, str], vendor: str) -> str:
    text = (_first(labels, _UUID_LABELS) or labels.get("accelerator_id", "")).strip().lower()[:_LONGEST]
    bare = text.removeprefix("gpu-")
    if _ZERO.fullmatch(bare):
        return ""
    if text != bare or (vendor == "nvidia" and _BARE_HEX.fullmatch(bare)):
        return f"GPU-{bare}"
    return text


def pci_bus_id(text: str) -> str:
    """`00000000:18:00.0` and `0000:18:00.0` are one bus id: lower case, domain of at least four digits."""
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return ""
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.{match[4]}".lower()


def _index(labels: Mapping[str, str], source: str) -> int | None:
    text = _first(labels, _INDEX_LABELS)
    if not text and source == "amd_smi_exporter":
        text = next((value for key, value in labels.items() if key.startswith("gpu_")), "")
    if not text and source == "gaudi":
        text = labels.get("device", "") or labels.get("id", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else None


def _instance(labels: Mapping[str, str]) -> str:
    partition = labels.get("gpu_partition_id", "")
    return _first(labels, _MIG_LABELS) or (partition if partition != "0" else "")


def _vendor(labels: Mapping[str, str]) -> str:
    if "card_model" in labels or "GPU_UUID" in labels:
        return "amd"
    if labels.get("make") == "cloud-tpu":
        return "google"
    return "nvidia" if any(label in labels for label in ("UUID", "modelName", "gpu_uuid", "uuid")) else ""


def _workload(labels: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for prefix in ("exported_", ""):
        for label, word in _WORKLOAD.items():
            value = labels.get(prefix + label)
            if value:
                found.setdefault(word, value)
    return found


def _identity_labels(labels: Mapping[str, str], source: str) -> dict[str, str]:
    return {
        label: value
        for label, value in labels.items()
        if value
        and label not in _FACT_LABELS
        and label.removeprefix("exported_") not in _WORKLOAD
        and not label.startswith(("dra_", "DCGM_FI_"))
        and not (source == "amd_smi_exporter" and (label.startswith("gpu_") or label == "productname"))
    }


def _merged(known: Device | None, told: Device) -> Device:
    """`known` with what it lacks taken from `told`. Workload, instance and labels belong to a row, not to a board."""
    if known is None:
        return replace(told, mig="", workload={}, identity_labels={})
    return replace(
        known,
        uuid=known.uuid or told.uuid,
        pci_bus_id=known.pci_bus_id or told.pci_bus_id,
        index=told.index if known.index is None else known.index,
        model=known.model or told.model,
        vendor=known.vendor or told.vendor,
        driver_version=known.driver_version or told.driver_version,
        serial=known.serial or told.serial,
    )
