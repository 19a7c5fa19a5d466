"""Reads query parameters that several routes share."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from dashboards.api.problems import Problem, invalid
from gpufleet.core.times import parse_rfc3339
from gpufleet.fleet.models import LIVE, Cluster, Node
from gpufleet.pipeline.health import live_clusters

EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
# A plus that was not escaped arrives as a space.
OFFSET_AFTER_SPACE = re.compile(r" (?=\d{2}:\d{2}$)")


def instant(field: str, value: str | None) -> datetime | None:
    """An aware UTC instant, or None without a value. 422 for anything but RFC 3339 with an offset."""
    if not value:
        return None
    try:
        found = parse_rfc3339(OFFSET_AFTER_SPACE.sub("+", value))
    except (ValueError, OverflowError) as error:
        message = f"{value[:64]!r} is no RFC 3339 time with an offset, for example 2026-03-10T12:00:00Z"
        raise invalid(field, message) from error
    if not EARLIEST <= found < LATEST:
        raise invalid(field, f"{value[:64]!r} lies outside the years 1970 to 2999")
    return found


def required(field: str, value: str) -> datetime:
    """As `instant`, of a field that has to be there."""
    found = instant(field, value)
    if found is None:
        raise invalid(field, "this time has to be given")
    return found


def cluster_to_change(name: str | None) -> Cluster:
    """As `cluster_named`, for a write: 404 where there is no cluster yet."""
    found = cluster_named(name)
    if found.pk is None:
        raise Problem(404, "There is no cluster yet: import targets first.", field="cluster")
    return found


def cluster_named(name: str | None) -> Cluster:
    """The cluster; without a name `default`, or the first one that is scraped where that has no targets.

    A fleet that has nothing yet is an empty cluster, not an error.
    """
    if name:
        found = Cluster.objects.filter(name=name).first()
        if found is None:
            raise Problem(404, f"There is no cluster {name!r}.", field="cluster")
        return found
    return next(iter(live_clusters()), None) or Cluster(name=LIVE)


def node_named(name: str, cluster: Cluster) -> Node:
    found = Node.objects.filter(cluster=cluster, name=name).first() if cluster.pk else None
    if found is None:
        raise Problem(404, f"There is no node {name!r} in cluster {cluster.name!r}.", field="node")
    return found
