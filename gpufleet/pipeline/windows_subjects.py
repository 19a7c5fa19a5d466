"""Whom detection looks at: the targets of a shard, their nodes, and the GPUs that stand in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from django.db.models import Q

from gpufleet.core.times import from_unix
from gpufleet.detect.windows import KIND_GPU, KIND_NODE, KIND_UNKNOWN, BoolArray, FloatArray, IntArray
from gpufleet.fleet.models import MaintenanceWindow, Node, Placement, Target

KINDS = {Target.Kind.UNKNOWN: KIND_UNKNOWN, Target.Kind.GPU: KIND_GPU, Target.Kind.NODE: KIND_NODE}


@dataclass(frozen=True, slots=True)
class Subjects:
    """Targets [S], nodes [N] and GPUs [G] of a shard, each in the order of its id. `*_node` are indexes into nodes."""

    target_ids: IntArray
    target_node: IntArray
    target_kind: IntArray
    node_ids: IntArray
    node_names: list[str]
    expected_gpus: IntArray
    gpu_ids: IntArray
    gpu_uuids: list[str]
    gpu_models: list[str]
    gpu_bus_ids: list[str]
    gpu_slots: IntArray
    gpu_node: IntArray

    @property
    def axes(self) -> tuple[bytes, bytes, bytes]:
        """What the columns of rows stand for: equal axes, equal columns."""
        return self.target_ids.tobytes(), self.node_ids.tobytes(), self.gpu_ids.tobytes()


def subjects_of(target_ids: Sequence[int], at: float) -> Subjects:
    """The shard with these targets as it stands at `at` (Unix seconds). Three queries."""
    targets = list(Target.objects.filter(id__in=target_ids).order_by("id").values_list("id", "node_id", "kind"))
    nodes = list(
        Node.objects.filter(id__in={node_id for _, node_id, _ in targets})
        .filter(Q(retired_at=None) | Q(retired_at__gt=from_unix(at)))
        .order_by("id")
        .values_list("id", "name", "expected_gpus")
    )
    index = {node_id: place for place, (node_id, _, _) in enumerate(nodes)}
    targets = [target for target in targets if target[1] in index]
    gpus = list(
        Placement.objects.filter(node_id__in=index, ends_at=None)
        .order_by("gpu_id")
        .values_list("gpu_id", "gpu__uuid", "gpu__model", "pci_bus_id", "slot", "node_id")
    )
    return Subjects(
        target_ids=_ints(target_id for target_id, _, _ in targets),
        target_node=_ints(index[node_id] for _, node_id, _ in targets),
        target_kind=_ints(KINDS[Target.Kind(kind)] for _, _, kind in targets),
        node_ids=_ints(index),
        node_names=[name for _, name, _ in nodes],
        expected_gpus=_ints(expected or 0 for _, _, expected in nodes),
        gpu_ids=_ints(gpu[0] for gpu in gpus),
        gpu_uuids=[gpu[1] for gpu in gpus],
        gpu_models=[gpu[2] for gpu in gpus],
        gpu_bus_ids=[gpu[3] for gpu in gpus],
        gpu_slots=_ints(gpu[4] for gpu in gpus),
        gpu_node=_ints(index[gpu[5]] for gpu in gpus),
    )


def maintenance_mask(subjects: Subjects, times: FloatArray) -> BoolArray:
    """[T, N]: planned time, by the announced windows. One query."""
    mask = np.zeros((len(times), len(subjects.node_ids)), dtype=np.bool_)
    if not len(times):
        return mask
    place = {int(node_id): index for index, node_id in enumerate(subjects.node_ids)}
    announced = MaintenanceWindow.objects.filter(
        node_id__in=place, starts_at__lte=from_unix(float(times[-1])), ends_at__gt=from_unix(float(times[0]))
    ).values_list("node_id", "starts_at", "ends_at")
    for node_id, starts_at, ends_at in announced:
        mask[:, place[node_id]] |= (times >= starts_at.timestamp()) & (times < ends_at.timestamp())
    return mask


def _ints(values: Iterable[int]) -> IntArray:
    return np.array(list(values), dtype=np.int64)
