"""Maintenance windows: announced, listed, ended."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from dashboards.api import schemas
from dashboards.api.access import caller, needs
from dashboards.api.fleet import answer
from dashboards.api.paging import PageParameters, cut
from dashboards.api.parameters import cluster_named, cluster_to_change, instant, required
from dashboards.api.problems import Problem, invalid
from gpufleet.core.times import rfc3339, utc_now
from gpufleet.fleet.actions import create_windows, end_window
from gpufleet.fleet.models import Cluster, MaintenanceWindow
from gpufleet.fleet.queries import list_windows
from gpufleet.fleet.specs import FleetError, WindowSpec

router = Router(tags=["maintenance"])


@router.get(
    "/maintenance", response=schemas.answers(schemas.WindowsOut, 404, 422), auth=needs("read"),
    summary="Maintenance windows, newest first; with `at` those that hold then",
)  # fmt: skip
def windows(request: HttpRequest, parameters: Query[PageParameters]) -> HttpResponse:
    cluster, at, size = cluster_named(parameters.cluster), instant("at", parameters.at), parameters.size
    found = list_windows(cluster, at=at, before=parameters.before, limit=size + 1) if cluster.pk else []
    rows, following = cut(found, size)
    return answer({"maintenance": [window_json(row) for row in rows], "next": following})


@router.post(
    "/maintenance", response=schemas.answers(schemas.WindowsMade, 400, 404, 413, 422, good=201),
    auth=needs("maintenance.change"), summary="Announce planned time of nodes or a rack; one window a node",
)  # fmt: skip
def announce(request: HttpRequest, body: schemas.WindowIn) -> HttpResponse:
    """A window that is there already is not made again, so the same request twice makes it once."""
    now = utc_now()
    if body.kind:
        raise invalid("kind", "planned time holds whatever the kind of an incident; a silence can be of one kind")
    cluster = cluster_to_change(body.cluster)
    starts_at = instant("starts_at", body.starts_at) or now
    ends_at = required("ends_at", body.ends_at)
    if starts_at >= ends_at:
        raise invalid("ends_at", "a window ends after it starts")
    if not body.reason.strip():
        raise invalid("reason", "planned time needs a reason")
    period = (starts_at.timestamp(), ends_at.timestamp(), body.reason.strip())
    specs = [WindowSpec(name, *period) for name in _names(cluster, body)]
    try:
        made = create_windows(cluster, specs, actor=caller(request).user.username, source="api", now=now)
    except FleetError as error:
        raise invalid("nodes", str(error)) from error
    return answer({"maintenance": [window_json(row) for row in made]}, status=201)


def _names(cluster: Cluster, body: schemas.WindowIn) -> list[str]:
    if bool(body.nodes) == bool(body.rack):
        raise invalid("nodes", "give either nodes or a rack")
    if not body.rack:
        return body.nodes
    names = list(cluster.nodes.filter(rack__name=body.rack, retired_at=None).values_list("name", flat=True))
    if not names:
        raise invalid("rack", f"there is no node in a rack {body.rack!r}")
    return names


@router.post(
    "/maintenance/{int:window_id}/end", response=schemas.answers(schemas.WindowOut, 404),
    auth=needs("maintenance.change"), summary="End a window now; one that is over stays as it is",
)  # fmt: skip
def end(request: HttpRequest, window_id: int) -> HttpResponse:
    try:
        ended = end_window(window_id, actor=caller(request).user.username, source="api", now=utc_now())
    except FleetError as error:
        raise Problem(404, f"There is no maintenance window {window_id}.") from error
    return answer(window_json(ended))


def window_json(window: MaintenanceWindow) -> dict[str, Any]:
    return {
        "id": window.pk,
        "cluster": window.node.cluster.name,
        "node": window.node.name,
        "starts_at": rfc3339(window.starts_at),
        "ends_at": rfc3339(window.ends_at),
        "reason": window.reason,
        "created_by": window.created_by,
        "created_at": rfc3339(window.created_at),
    }
