"""A fleet made of rows: nodes with GPUs, targets, one round of frames, verdicts, and incidents on request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np

from gpufleet.accounts.models import Role, User
from gpufleet.availability.models import LedgerHead, StateInterval
from gpufleet.detect.findings import Evidence, Finding, Status
from gpufleet.fleet.models import LIVE, Assignment, Cluster, Gpu, Node, Placement, Rack, Switch, Target
from gpufleet.incidents.actions import acknowledge
from gpufleet.incidents.intake import take_in
from gpufleet.incidents.models import Incident
from gpufleet.scrape.models import Cycle, TargetStatus
from gpufleet.store.append import append_frames
from gpufleet.store.frames import Frame, SeriesSpec
from gpufleet.store.series import ensure_layout, ensure_series

INTERVAL_SECONDS = 15
PASSWORD = "correct horse battery staple"
# name as DCGM sends it, canonical metric, unit, scale from raw to canonical
METRICS = (
    ("DCGM_FI_DEV_GPU_UTIL", "gpu_utilization_ratio", "ratio", 0.01),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gpu_tensor_active_ratio", "ratio", 1.0),
    ("DCGM_FI_DEV_GPU_TEMP", "gpu_temperature_celsius", "celsius", 1.0),
    ("DCGM_FI_DEV_POWER_USAGE", "gpu_power_watts", "watts", 1.0),
    ("DCGM_FI_DEV_FB_USED", "gpu_memory_used_bytes", "bytes", 1048576.0),
    ("DCGM_FI_DEV_SM_CLOCK", "gpu_sm_clock_hertz", "hertz", 1e6),
)


@dataclass(slots=True)
class MadeFleet:
    """What was made; `gpus` are in slot order for each node. `layouts`: layout id by target id."""

    cluster: Cluster
    nodes: list[Node]
    gpus: dict[int, list[Gpu]]
    targets: list[Target]
    layouts: dict[int, int] = field(default_factory=dict)

    def gpu(self, node: int, slot: int) -> Gpu:
        return self.gpus[self.nodes[node].id][slot]


def make_user(role: str = Role.VIEWER, name: str = "") -> User:
    user: User = User.objects.create_user(username=name or role, password=PASSWORD, role=role)
    return user


def make_fleet(now: datetime, nodes: int = 3, gpus: int = 8, name: str = LIVE, *, racks: int = 8) -> MadeFleet:
    """Nodes `gpu-001` to `gpu-NNN`, filled rack by rack, all of them healthy and scraped two seconds before `now`."""
    cluster = Cluster.objects.create(name=name)
    made = _inventory(cluster, now, nodes, gpus, racks)
    _series(made, now)
    scrape(made, now - timedelta(seconds=2))
    since = now - timedelta(days=2)
    for node in made.nodes:
        tell(made, node, "healthy", since, now)
        for gpu in made.gpus[node.id]:
            tell(made, node, "healthy", since, now, gpu=gpu)
    return made


def _inventory(cluster: Cluster, now: datetime, nodes: int, gpus: int, racks: int) -> MadeFleet:
    height = max(1, math.ceil(nodes / racks))
    count = math.ceil(nodes / height)
    in_rack = Rack.objects.bulk_create([Rack(cluster=cluster, name=f"R{n + 1:02}") for n in range(count)])
    switches = Switch.objects.bulk_create([Switch(cluster=cluster, name=f"leaf-{n + 1}") for n in range(2)])
    made = Node.objects.bulk_create(
        [
            Node(
                cluster=cluster,
                name=f"gpu-{n + 1:03}",
                rack=in_rack[n // height],
                switch=switches[n % 2],
                expected_gpus=gpus,
                commissioned_at=now - timedelta(days=30),
            )
            for n in range(nodes)
        ]
    )
    first = now - timedelta(days=30)
    boards = Gpu.objects.bulk_create(
        [
            Gpu(
                cluster=cluster,
                uuid=f"GPU-{n:08x}-{slot:04x}-4000-8000-000000000000",
                model="NVIDIA B200",
                vendor="NVIDIA",
                first_seen_at=first,
                last_seen_at=now,
            )
            for n in range(nodes)
            for slot in range(gpus)
        ]
    )
    by_node = {node.id: boards[n * gpus : (n + 1) * gpus] for n, node in enumerate(made)}
    Placement.objects.bulk_create(
        Placement(gpu=gpu, node=node, slot=slot, starts_at=first)
        for node in made
        for slot, gpu in enumerate(by_node[node.id])
    )
    Assignment.objects.bulk_create(
        Assignment(gpu=gpu, job="train-48213", starts_at=first) for gpu in by_node[made[0].id] if made
    )
    targets = Target.objects.bulk_create(
        Target(
            cluster=cluster,
            node=node,
            url=f"http://{node.name}:9400/metrics",
            kind=Target.Kind.GPU,
            created_at=first,
        )
        for node in made
    )
    return MadeFleet(cluster, made, by_node, targets)


def _series(made: MadeFleet, now: datetime) -> None:
    for target in made.targets:
        specs = [
            SeriesSpec(name, metric, {}, gpu.id, "gauge", unit, scale, None, None, "dcgm")
            for name, metric, unit, scale in METRICS
            for gpu in made.gpus[target.node_id]
        ]
        made.layouts[target.id] = ensure_layout(target.id, ensure_series(target.id, specs, now), now)


def raw_values(node: int, gpus: int) -> np.ndarray:
    """What the GPUs of the node with this number send: busy in the first racks, idle in the last."""
    slots = np.arange(gpus, dtype=np.float64)
    busy = max(0.0, 98.0 - 1.3 * node) - slots
    util = np.clip(busy, 0, 100)
    return np.concatenate(
        [
            util,
            np.round(util / 130, 3),
            np.round(38 + util * 0.36 + slots),
            np.round(140 + util * 8.1),
            np.round(60000 + util * 900),
            np.round(1965 - slots * 3),
        ]
    )


def scrape(
    made: MadeFleet, at: datetime, only: Sequence[int] | None = None, values: Mapping[int, float] | None = None
) -> None:
    """One good scrape of every node (or those with these numbers), the cycle it belongs to, and the ledger told.

    `values`: utilisation in per cent of every GPU, by the node's number.
    """
    cycle = int(at.timestamp() // INTERVAL_SECONDS)
    frames = []
    for number, target in enumerate(made.targets):
        if only is not None and number not in only:
            continue
        gpus = len(made.gpus[target.node_id])
        raw = raw_values(number, gpus)
        if values and number in values:
            raw[:gpus] = values[number]
        frames.append(
            Frame(target.id, at.timestamp(), cycle, "", 0.05, 9000, raw.size, 0, 0, made.layouts[target.id], raw)
        )
        TargetStatus.objects.update_or_create(
            target=target,
            defaults={
                "last_scrape_at": at,
                "last_good_at": at,
                "reason": "",
                "duration_seconds": 0.05,
                "samples_accepted": raw.size,
            },
        )
    append_frames(frames, at)
    nodes = [made.targets[number].node_id for number in range(len(made.targets)) if only is None or number in only]
    LedgerHead.objects.filter(node_id__in=nodes).update(told_until=at + timedelta(seconds=INTERVAL_SECONDS))
    Cycle.objects.update_or_create(
        cluster=made.cluster,
        number=cycle,
        interval_seconds=INTERVAL_SECONDS,
        defaults={
            "started_at": at,
            "shards": 1,
            "shards_scraped": 1,
            "shards_detected": 1,
            "finished_at": at + timedelta(seconds=1),
        },
    )


def tell(
    made: MadeFleet,
    node: Node,
    state: str,
    since: datetime,
    now: datetime,
    *,
    gpu: Gpu | None = None,
    reasons: Sequence[str] = (),
) -> None:
    """The state of a node or GPU from `since` on; what was open before ends then. The ledger is told up to `now`."""
    StateInterval.objects.filter(node=node, gpu=gpu, ends_at=None).update(ends_at=since)
    StateInterval.objects.create(
        cluster=made.cluster, node=node, gpu=gpu, state=state, reasons=list(reasons), starts_at=since
    )
    LedgerHead.objects.update_or_create(node=node, defaults={"told_until": now + timedelta(seconds=INTERVAL_SECONDS)})


def make_incident(
    made: MadeFleet,
    node: int,
    now: datetime,
    *,
    slot: int | None = None,
    kind: str = "xid",
    severity: str = "critical",
    title: str = "GPU has fallen off the bus (XID 79)",
    minutes: float = 6,
    by: str = "",
) -> Incident:
    """An open incident of a node or of its GPU in `slot`; `by`: who acknowledged it a minute after it was opened."""
    where = made.nodes[node]
    gpu = None if slot is None else made.gpu(node, slot)
    opened_at = now - timedelta(minutes=minutes)
    uuid = gpu.uuid if gpu else None
    seen = Evidence("gpu_xid_code", where.name, uuid, opened_at.timestamp(), 79, 0)
    finding = Finding(
        rule=kind,
        kind=kind,
        subject=f"gpu:{uuid}" if gpu else f"node:{where.name}",
        status=Status.FIRING,
        severity=severity,
        title=title,
        recommended_action="reset_gpu",
        first_evidence_at=opened_at.timestamp(),
        at=opened_at.timestamp(),
        node=where.name,
        gpu_uuid=uuid,
        slot=slot,
        state="failed",
        evidence=(seen,),
    )
    change = take_in(made.cluster, [finding], opened_at)[0]
    if by:
        person = User.objects.filter(username=by).first() or make_user("responder", by)
        acknowledge(change.incident_id, person, now=opened_at + timedelta(minutes=1), source="page")
    return Incident.objects.get(pk=change.incident_id)
