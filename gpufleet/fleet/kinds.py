"""What a target is, as far as its job name tells; what it has shown decides later."""

from __future__ import annotations

import re

from gpufleet.fleet.models import Target

_GPU_JOB = re.compile(
    r"dcgm|nvidia[-_]?(gpu|smi)|gpu[-_]?exporter|amd[-_](gpu|smi)|device-metrics-exporter|gpud\b|xpum|gaudi|habana|neuron"
)
_NODE_JOB = re.compile(r"^node$|node[-_]?exporter")


def kind_of(job: str) -> Target.Kind:
    """Kind of a target that was never scraped. Only the exporters' own names count: `gpu-nodes` tells nothing."""
    if _GPU_JOB.search(job.lower()):
        return Target.Kind.GPU
    return Target.Kind.NODE if _NODE_JOB.search(job.lower()) else Target.Kind.UNKNOWN
