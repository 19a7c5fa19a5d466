"""A small fleet whose targets have real series: two GPUs with two gauges and a counter each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from gpufleet.fleet.models import Cluster, Gpu, Node, Target
from gpufleet.store.frames import Frame, SeriesSpec
from gpufleet.store.series import ensure_layout, ensure_series

T0 = 1_796_126_400.0  # 2026-12-01 12:00:00 UTC, the start of a span of six hours
NOW = datetime.fromtimestamp(T0, tz=UTC)
INTERVAL = 15


def spec(name: str, gpu_id: int | None = None, **other: object) -> SeriesSpec:
    plain = SeriesSpec(name, name, {}, gpu_id, "gauge", "celsius", 1.0, None, None, "")
    return replace(plain, **other)  # type: ignore[arg-type]


@dataclass
class Fleet:
    cluster: Cluster
    nodes: list[Node]
    gpus: list[Gpu]
    targets: list[Target]

    def layout(self, target: int, specs: list[SeriesSpec]) -> int:
        target_id = self.targets[target].id
        return ensure_layout(target_id, ensure_series(target_id, specs, NOW), NOW)

    def frame(self, target: int, seconds: float, layout_id: int | None, *values: float, reason: str = "") -> Frame:
        """The scrape of a target `seconds` after T0; without a layout it failed."""
        good = layout_id is not None
        return Frame(
            target_id=self.targets[target].id,
            scraped_at=T0 + seconds,
            cycle=int((T0 + seconds) // INTERVAL),
            reason=reason or ("" if good else "timeout"),
            duration_seconds=0.25 if good else 10.0,
            bytes=1000 if good else 0,
            accepted=len(values),
            rejected=0,
            missing=0,
            layout_id=layout_id,
            values=np.array(values, dtype=np.float64) if good else None,
        )


def make_fleet(name: str = "default", is_replay: bool = False) -> Fleet:
    cluster = Cluster.objects.create(name=name, is_replay=is_replay)
    nodes = [Node.objects.create(cluster=cluster, name=f"gpu-{n}") for n in range(2)]
    gpus = [
        Gpu.objects.create(cluster=cluster, uuid=f"GPU-{name}-{n}", first_seen_at=NOW, last_seen_at=NOW)
        for n in range(2)
    ]
    targets = [
        Target.objects.create(cluster=cluster, node=node, url=f"http://{name}-{node.name}:9400/metrics", created_at=NOW)
        for node in nodes
    ]
    return Fleet(cluster, nodes, gpus, targets)
