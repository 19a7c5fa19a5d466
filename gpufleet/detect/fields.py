"""Which fields the rules read, and which rules are blind without some of them. Pure; metrics are canonical names."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpufleet.catalogue.metrics import METRICS
from gpufleet.detect.rules import Rule
from gpufleet.detect.windows import GPU_METRICS

# Lines that an exporter sends only once there is something to tell: their absence is no gap.
COMES_AND_GOES = frozenset(
    {
        *(name for name, metric in METRICS.items() if metric.kind in ("code", "window")),
        *("gpu_xid_events_total", "gpu_error_events_total", "gpu_p2p_status"),
    }
)
# Exporters whose lines about use are there only while something runs on the device.
IDLE_SILENT = frozenset({"neuron", "gke-tpu"})


def needed_fields(rules: Sequence[Rule]) -> tuple[str, ...]:
    """Every metric that some rule reads, in the order of the rules."""
    return tuple(dict.fromkeys(name for rule in rules for part in rule.inputs for name in part))


def critical_fields(rules: Sequence[Rule]) -> tuple[str, ...]:
    """The fields that a critical rule cannot do without and that are always sent where they are sent at all."""
    found = (part[0] for rule in rules if rule.severity == "critical" for part in rule.inputs if len(part) == 1)
    return tuple(dict.fromkeys(name for name in found if name in GPU_METRICS and name not in COMES_AND_GOES))


def blind_rules(rules: Sequence[Rule], missing: Collection[str]) -> tuple[str, ...]:
    """Ids of the rules that lack an input when the fields `missing` are not there, in the order of the rules."""
    return tuple(rule.id for rule in rules if any(all(name in missing for name in part) for part in rule.inputs))
