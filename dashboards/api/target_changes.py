"""POST /targets and DELETE /targets/{id}: a target that a person adds, and takes out again."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Schema
from pydantic import Field

from dashboards.api.access import caller, needs
from dashboards.api.fleet import answer, router
from dashboards.api.problems import Problem, invalid
from dashboards.api.schemas import answers
from gpufleet.core.times import utc_now
from gpufleet.fleet.actions import add_target, remove_target
from gpufleet.fleet.models import LIVE
from gpufleet.fleet.shown import shown_url
from gpufleet.fleet.specs import FleetError, TargetSpec
from gpufleet.scrape.addresses import allowed, is_literal, networks


class TargetIn(Schema):
    """`node` is the host of the address without it."""

    url: str = Field(max_length=2_048)
    node: str = Field("", max_length=255)
    job: str = Field("", max_length=127)
    rack: str = Field("", max_length=63)
    switch: str = Field("", max_length=63)
    cluster: str = Field(LIVE, max_length=63)


class TargetMade(Schema):
    id: int
    url: str
    node: str


@router.post(
    "/targets", response=answers(TargetMade, 400, 413, 422, good=201), auth=needs("target.change"),
    summary="Watch one more address; it has to lie inside GPUFLEET_SCRAPE_ALLOW",
)  # fmt: skip
def add(request: HttpRequest, body: TargetIn) -> HttpResponse:
    host = _host(body.url)
    if is_literal(host) and not allowed(host, networks(settings.ENV["GPUFLEET_SCRAPE_ALLOW"])):
        raise invalid("url", f"{host} is outside the networks that may be scraped (GPUFLEET_SCRAPE_ALLOW)")
    spec = TargetSpec(body.url, body.node.strip() or host, body.cluster or LIVE, body.rack, body.switch, body.job)
    try:
        target = add_target(spec, actor=caller(request).user.username, source="api", now=utc_now())
    except FleetError as error:
        raise invalid("url", str(error)) from error
    return answer({"id": target.id, "url": shown_url(target.url), "node": target.node.name}, status=201)


@router.delete(
    "/targets/{int:target_id}", response=answers(TargetMade, 404, 422), auth=needs("target.change"),
    summary="Stop watching an address; what was scraped of it stays",
)  # fmt: skip
def remove(request: HttpRequest, target_id: int) -> HttpResponse:
    try:
        target = remove_target(target_id, actor=caller(request).user.username, source="api", now=utc_now())
    except FleetError as error:
        raise invalid("target_id", str(error)) from error
    if target is None:
        raise Problem(404, f"There is no target {target_id}.")
    return answer({"id": target.id, "url": shown_url(target.url), "node": target.node.name})


def _host(url: str) -> str:
    """The host of an address that can be scraped."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        is_whole = False
    if not is_whole or not url.isprintable() or " " in url:
        raise invalid("url", "an address such as http://10.1.0.27:9400/metrics")
    if parts.username is not None or parts.password is not None:
        raise invalid("url", "no user or password in an address: name them in the file of sources")
    if parts.fragment:
        raise invalid("url", "no #fragment in an address")
    return str(parts.hostname)
