"""The made-up scrapes as rows of the store."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from promql_scrapes import T0, Scrape, ScrapedTarget, SeriesKey, scraped_targets

from gpufleet.fleet.models import Cluster, Node, Rack, Target
from gpufleet.store.append import append_frames
from gpufleet.store.frames import Frame, SeriesSpec
from gpufleet.store.series import ensure_layout, ensure_series

NOW = datetime.fromtimestamp(T0 / 1000, tz=UTC)


def keep_scrapes() -> list[Target]:
    """Makes the targets of promql_scrapes and their frames."""
    cluster = Cluster.objects.create(name="default")
    return [_keep(cluster, target) for target in scraped_targets()]


def _keep(cluster: Cluster, scraped: ScrapedTarget) -> Target:
    rack, _ = Rack.objects.get_or_create(cluster=cluster, name=scraped.rack)
    node = Node.objects.create(cluster=cluster, name=scraped.node, rack=rack)
    target = Target.objects.create(
        cluster=cluster, node=node, url=f"http://{scraped.instance}/metrics", job=scraped.job, created_at=NOW
    )
    layouts: dict[tuple[SeriesKey, ...], int] = {}
    append_frames([_frame(target.pk, scrape, layouts) for scrape in scraped.scrapes], NOW)
    return target


def _frame(target_id: int, scrape: Scrape, layouts: dict[tuple[SeriesKey, ...], int]) -> Frame:
    if scrape.values is None:
        return Frame(target_id, scrape.at / 1000, scrape.at // 15_000, "timeout", 10.0, 0, 0, 0, 0, None, None)
    keys = tuple(sorted(scrape.values))
    if keys not in layouts:
        specs = [SeriesSpec(name, name, dict(labels), None, "gauge", "", 1.0, None, None, "") for name, labels in keys]
        layouts[keys] = ensure_layout(target_id, ensure_series(target_id, specs, NOW), NOW)
    values = np.array([scrape.values[key] for key in keys])
    return Frame(
        target_id, scrape.at / 1000, scrape.at // 15_000, "", 0.25, 9_000, values.size, 0, 0, layouts[keys], values
    )
