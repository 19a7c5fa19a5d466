"""Reads query parameters that several routes share."""

from __future__ import annotations

from datetime import datetime

from dashboards.api.problems import Problem, invalid
from gpufleet.core.times import parse_rfc3339
from gpufleet.fleet.models import LIVE, Cluster, Node


def instant(field: str, value: str | None) -> datetime | None:
    """An aware UTC instant, or None without a value. 422 for anything but RFC 3339 with an offset."""
    if not value:
        return None
    try:
        return parse_rfc3339(value.replace(" ", "+"))
    except (ValueError, OverflowError) as error:
        raise invalid(
            field, f"{value!r} is no RFC 3339 time with an offset, for example 2026-03-10T12:00:00Z"
        ) from error


def cluster_named(name: str | None) -> Cluster:
    """The cluster, `default` without a name. A fleet that has nothing yet is an empty cluster, not an error."""
    wanted = name or LIVE
    found = Cluster.objects.filter(name=wanted).first()
    if found is None and name:
        raise Problem(404, f"There is no cluster {wanted!r}.", field="cluster")
    return found or Cluster(name=wanted)


def node_named(name: str, cluster: Cluster) -> Node:
    found = Node.objects.filter(cluster=cluster, name=name).first() if cluster.pk else None
    if found is None:
        raise Problem(404, f"There is no node {name!r} in cluster {cluster.name!r}.", field="node")
    return found
