"""Which realm a target's frames lie in: the live one, or that of its replayed cluster."""

from __future__ import annotations

from collections.abc import Sequence

from gpufleet.fleet.models import Target
from gpufleet.store.frames import StoreError
from gpufleet.store.partitions import LIVE

# A target never changes its cluster, and a cluster never changes between live and replay.
_known: dict[int, int] = {}


def by_realm(target_ids: Sequence[int]) -> dict[int, list[int]]:
    """Target ids by realm. Raises StoreError for a target that does not exist."""
    unknown = [target_id for target_id in target_ids if target_id not in _known]
    if unknown:
        found = Target.objects.filter(id__in=unknown).values_list("id", "cluster_id", "cluster__is_replay")
        _known.update({target_id: cluster_id if replay else LIVE for target_id, cluster_id, replay in found})
    realms: dict[int, list[int]] = {}
    for target_id in target_ids:
        if target_id not in _known:
            raise StoreError(f"no target {target_id}")
        realms.setdefault(_known[target_id], []).append(target_id)
    return realms
