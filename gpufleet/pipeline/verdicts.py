"""What the ledger says of every node and GPU at one moment, and how long that holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from gpufleet.availability.models import LedgerHead, StateInterval
from gpufleet.fleet.models import Cluster


@dataclass(frozen=True, slots=True)
class Verdict:
    """`told_until`: Unix seconds up to which a scrape or a person has spoken for this state."""

    state: str
    reasons: list[str]
    incident_id: int | None
    since: datetime
    told_until: float


@dataclass(frozen=True, slots=True)
class Verdicts:
    """By the id of the node and of the GPU."""

    nodes: dict[int, Verdict]
    gpus: dict[int, Verdict]


def verdicts(cluster: Cluster, at: datetime | None) -> Verdicts:
    """The verdicts that hold now, or (with `at`) held at a past moment. Two queries.

    A past verdict holds to the end of its interval: the ledger has been told up to there, gaps as unknown.
    """
    covering = Q(ends_at=None) if at is None else Q(starts_at__lte=at) & (Q(ends_at=None) | Q(ends_at__gt=at))
    rows = StateInterval.objects.filter(covering, cluster=cluster).values_list(
        "node_id", "gpu_id", "state", "reasons", "incident_id", "starts_at", "ends_at"
    )
    heads = dict(LedgerHead.objects.filter(node__cluster=cluster).values_list("node_id", "told_until"))
    found = Verdicts({}, {})
    for node_id, gpu_id, state, reasons, incident_id, starts_at, ends_at in rows:
        until = ends_at or heads.get(node_id) or starts_at
        verdict = Verdict(state, list(reasons), incident_id, starts_at, until.timestamp())
        if gpu_id is not None:
            found.gpus[gpu_id] = verdict
        elif node_id is not None:
            found.nodes[node_id] = verdict
    return found
