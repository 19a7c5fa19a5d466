"""A node's expected number of GPUs, corrected by a person."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router

from dashboards.api import schemas
from dashboards.api.access import caller, needs
from dashboards.api.fleet import answer
from dashboards.api.parameters import cluster_named, node_named
from dashboards.api.problems import invalid
from gpufleet.core.times import utc_now
from gpufleet.fleet.actions import set_expected_gpus
from gpufleet.fleet.specs import FleetError

router = Router(tags=["fleet"])


@router.post(
    "/nodes/{name}/expected-gpus", response=schemas.answers(schemas.ExpectedGpusOut, 400, 404, 413, 422),
    auth=needs("target.change"), summary="Say how many GPUs a node should have; null goes back to what was seen",
)  # fmt: skip
def expected_gpus(request: HttpRequest, name: str, body: schemas.ExpectedGpusIn) -> HttpResponse:
    node = node_named(name, cluster_named(body.cluster))
    actor = caller(request).user.username
    try:
        node = set_expected_gpus(node.pk, body.count, actor=actor, source="api", now=utc_now())
    except FleetError as error:
        raise invalid("count", str(error)) from error
    by = node.expected_gpus_by or None
    return answer({"node": node.name, "expected_gpus": node.expected_gpus, "expected_gpus_by": by})
