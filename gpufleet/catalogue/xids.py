"""The XID catalogue: what a code of the NVIDIA driver means, how bad it is and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpufleet.catalogue.metrics import rows

# Faults of the job, not of the hardware: counted, never an incident.
APPLICATION_CODES = frozenset({13, 31, 43, 45})

# The catalogue's recovery actions in the words of the product. Draining comes first where the runbook says so.
ACTIONS: Mapping[str, str] = MappingProxyType(
    {
        "none": "none",
        "ignore_if_app": "restart_app",
        "restart_app": "restart_app",
        "reset_gpu": "reset_gpu",
        "drain_and_reset": "reset_gpu",
        "check_nvlink": "reset_gpu",
        "reboot_node": "reboot_node",
        "check_power_thermal": "check_power",
        "contact_support": "contact_support",
    }
)
SEVERITIES = frozenset({"info", "warning", "critical"})


@dataclass(frozen=True, slots=True)
class Xid:
    """One code. `scope` is gpu, app, nvlink or node; `hardware_fault` is yes, maybe or no; `action` a stable action."""

    code: int
    name: str
    summary: str
    severity: str
    scope: str
    hardware_fault: str
    action: str
    application: bool
    runbook: str


def _load() -> dict[int, Xid]:
    overrides = {row["code"]: row for row in rows("xid_overrides.csv")}
    return {int(row["code"]): _xid({**row, **overrides.get(row["code"], {})}) for row in rows("xid_catalog.csv")}


def _xid(row: Mapping[str, str]) -> Xid:
    if row["severity"] not in SEVERITIES:
        raise ValueError(f"XID {row['code']}: unknown severity {row['severity']!r}")
    code = int(row["code"])
    return Xid(
        code=code,
        name=row["name"],
        summary=row["summary"],
        severity=row["severity"],
        scope=row["scope"],
        hardware_fault=row["hardware_fault"],
        action=ACTIONS[row["recovery_action"]],
        application=code in APPLICATION_CODES,
        runbook=row["runbook"],
    )


XIDS: Mapping[int, Xid] = MappingProxyType(_load())


def xid(code: int) -> Xid:
    """The entry of a code. One that the catalogue does not know is a warning that a person should look at."""
    known = XIDS.get(code)
    if known is not None:
        return known
    return Xid(
        code=code,
        name=f"XID_{code}",
        summary="Not in the catalogue.",
        severity="warning",
        scope="gpu",
        hardware_fault="maybe",
        action="contact_support",
        application=False,
        runbook="Look the code up in the driver's release notes and keep the kernel log line.",
    )
