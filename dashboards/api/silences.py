"""Silences: made, listed, ended."""

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
from gpufleet.incidents.actions import Invalid, NotFound
from gpufleet.incidents.models import Silence
from gpufleet.incidents.queries import known_kinds
from gpufleet.incidents.silences import Scope, create_silences, end_silence, list_silences

router = Router(tags=["silences"])


@router.get(
    "/silences", response=schemas.answers(schemas.SilencesOut, 404, 422), auth=needs("read"),
    summary="Silences, newest first; with `at` those that hold then",
)  # fmt: skip
def silences(request: HttpRequest, parameters: Query[PageParameters]) -> HttpResponse:
    cluster, at, size = cluster_named(parameters.cluster), instant("at", parameters.at), parameters.size
    found = list_silences(cluster, at=at, before=parameters.before, limit=size + 1) if cluster.pk else []
    rows, following = cut(found, size)
    return answer({"silences": [silence_json(row) for row in rows], "next": following})


@router.post(
    "/silences", response=schemas.answers(schemas.SilencesMade, 400, 404, 413, 422, good=201),
    auth=needs("silence.change"), summary="Mute nodes, a rack or the cluster for a while; one silence a node",
)  # fmt: skip
def make_silences(request: HttpRequest, body: schemas.SilenceIn) -> HttpResponse:
    now = utc_now()
    if body.kind and body.kind not in known_kinds():
        raise invalid("kind", f"there is no kind of incident {body.kind!r}")
    try:
        made = create_silences(
            cluster_to_change(body.cluster),
            Scope(tuple(body.nodes), body.rack or "", body.kind or ""),
            starts_at=instant("starts_at", body.starts_at) or now,
            ends_at=required("ends_at", body.ends_at),
            reason=body.reason, actor=caller(request).user, source="api", now=now,
        )  # fmt: skip
    except Invalid as error:
        raise invalid(error.field, str(error)) from error
    return answer({"silences": [silence_json(row) for row in made]}, status=201)


@router.post(
    "/silences/{int:silence_id}/end", response=schemas.answers(schemas.SilenceOut, 404),
    auth=needs("silence.change"), summary="End a silence now; one that is over stays as it is",
)  # fmt: skip
def end(request: HttpRequest, silence_id: int) -> HttpResponse:
    try:
        ended = end_silence(silence_id, actor=caller(request).user, source="api", now=utc_now())
    except NotFound as error:
        raise Problem(404, f"There is no silence {silence_id}.") from error
    return answer(silence_json(ended))


def silence_json(silence: Silence) -> dict[str, Any]:
    return {
        "id": silence.pk,
        "cluster": silence.cluster.name,
        "node": silence.node.name if silence.node else None,
        "kind": silence.kind or None,
        "starts_at": rfc3339(silence.starts_at),
        "ends_at": rfc3339(silence.ends_at),
        "reason": silence.reason,
        "created_by": silence.created_by,
    }
