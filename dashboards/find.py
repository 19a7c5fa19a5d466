"""Search: a node by its name, a GPU by its UUID or serial, a job. One hit goes straight there."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from dashboards.addresses import gpu_address, node_address
from dashboards.shell import shell
from gpufleet.fleet.models import Assignment, Cluster, Node, Placement

SHORTEST, LONGEST = 2, 255
MOST_HITS = 50


@dataclass(frozen=True, slots=True)
class Hit:
    kind: str
    name: str
    place: str
    url: str


@require_safe
def find(request: HttpRequest) -> HttpResponse:
    frame = shell(request)["shell"]
    text = request.GET.get("q", "").strip()
    if len(text) < SHORTEST or len(text) > LONGEST or "\x00" in text or frame.cluster is None:
        return render(request, "find.html", {"text": text[:LONGEST], "hits": [], "asked": bool(text)})
    hits = search(frame.cluster, text)
    if len(hits) == 1:
        return redirect(hits[0].url)
    return render(request, "find.html", {"text": text, "hits": hits, "asked": True, "most": MOST_HITS})


def search(cluster: Cluster, text: str) -> list[Hit]:
    """Up to 50 hits; an exact node name or UUID stands alone. Three queries."""
    nodes = Node.objects.filter(cluster=cluster, name__icontains=text).select_related("rack").order_by("name")
    hits = [
        Hit("node", node.name, node.rack.name if node.rack else "", node_address(node.name))
        for node in nodes[:MOST_HITS]
    ]
    by_uuid = Q(gpu__uuid__icontains=text) | Q(gpu__serial__iexact=text)
    placements = Placement.objects.filter(by_uuid, node__cluster=cluster, ends_at=None).select_related("gpu", "node")
    hits += [
        Hit("GPU", place.gpu.uuid, f"{place.node.name} g{place.slot}", gpu_address(place.gpu.uuid))
        for place in placements.order_by("node__name", "slot")[:MOST_HITS]
    ]
    hits += _jobs(cluster, text)
    exact = [hit for hit in hits if hit.name.lower() == text.lower() and hit.kind != "job"]
    return exact if len(exact) == 1 else hits[:MOST_HITS]


def _jobs(cluster: Cluster, text: str) -> list[Hit]:
    running = Assignment.objects.filter(gpu__cluster=cluster, ends_at=None, job__icontains=text)
    places = running.filter(gpu__placements__ends_at=None).values_list("job", "gpu__placements__node__name")
    found = sorted({(job, node) for job, node in places.distinct()[:MOST_HITS] if node})
    return [Hit("job", job, node, node_address(node)) for job, node in found]
