"""Lists of incidents: pages that stay stable, filters, order, and a cost that does not grow with the rows."""

from __future__ import annotations

import base64

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from incident_findings import at, finding

from gpufleet.accounts.models import User
from gpufleet.fleet.models import Cluster
from gpufleet.incidents import actions, queries
from gpufleet.incidents.intake import take_in
from gpufleet.incidents.models import Incident
from gpufleet.incidents.queries import BadCursor, Filters, list_incidents, open_incidents
from gpufleet.incidents.serialize import incident_json


def open_some(cluster: Cluster, numbers: range, seconds: float = 0, **changes: object) -> None:
    """One incident a number, all opened at the same instant: only the key tells them apart."""
    found = [finding(seconds, subject=f"gpu:GPU-{number}", **changes) for number in numbers]  # type: ignore[arg-type]
    take_in(cluster, found, at(seconds))


def test_pages_are_stable_while_rows_are_added(cluster: Cluster) -> None:
    open_some(cluster, range(7), 0.123457)
    expected = list(Incident.objects.order_by("-opened_at", "-id").values_list("pk", flat=True))
    seen: list[int] = []
    cursor, pages = None, 0
    while pages == 0 or cursor is not None:
        rows, cursor = list_incidents(Filters(), limit=3, cursor=cursor)
        seen += [row.pk for row in rows]
        pages += 1
        open_some(cluster, range(100 * pages, 100 * pages + 2), 60 * pages)
    assert (seen, pages) == (expected, 3)


def test_exact_last_page_names_no_next(cluster: Cluster) -> None:
    open_some(cluster, range(4))
    rows, following = list_incidents(Filters(), limit=4, cursor=None)
    assert (len(rows), following) == (4, None)


@pytest.mark.parametrize(
    "text", ["x", "1.2", "1.2.3", "nan.1", "1.-1", f"1.{2**63}", f"{10**30}.1", "1.\u0665\u0665\u0665x"]
)
def test_cursor_that_no_list_gave_out(db: None, text: str) -> None:
    with pytest.raises(BadCursor):
        list_incidents(Filters(), limit=3, cursor=text)
    if text != "1.2":
        encoded = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        with pytest.raises(BadCursor):
            list_incidents(Filters(), limit=3, cursor=encoded)


def test_filters(cluster: Cluster, ana: User) -> None:
    open_some(cluster, range(1), 0)
    open_some(cluster, range(1, 2), 60, kind="xid", severity="warning", title="XID 48 100%_")
    replayed = Cluster.objects.create(name="replay", is_replay=True)
    take_in(replayed, [finding(0)], at(0))
    thermal, xid = Incident.objects.get(cluster=cluster, kind="thermal"), Incident.objects.get(kind="xid")
    actions.acknowledge(xid.pk, ana, now=at(70), source="api")

    def found(filters: Filters) -> list[int]:
        return [row.pk for row in list_incidents(filters, limit=10, cursor=None)[0]]

    assert found(Filters()) == [xid.pk, thermal.pk]
    assert found(Filters(statuses=("open",))) == [thermal.pk]
    assert found(Filters(statuses=("acknowledged", "resolved"))) == [xid.pk]
    assert found(Filters(kinds=("xid",))) == [xid.pk]
    assert found(Filters(severities=("critical",))) == [thermal.pk]
    assert found(Filters(node="gpu-n01")) == [xid.pk, thermal.pk]
    assert found(Filters(node="gpu-n02")) == []
    assert found(Filters(text="100%_")) == [xid.pk]
    assert found(Filters(since=at(60))) == [xid.pk]
    assert found(Filters(until=at(60))) == [thermal.pk]
    assert found(Filters(cluster="replay")) == [Incident.objects.get(cluster=replayed).pk]


def test_open_ones_by_acknowledgement_then_severity_then_age(cluster: Cluster, ana: User) -> None:
    for number, severity in enumerate(("info", "warning", "critical", "critical")):
        open_some(cluster, range(number, number + 1), number, severity=severity)
    by_number = list(Incident.objects.order_by("id"))
    actions.acknowledge(by_number[2].pk, ana, now=at(60), source="page")
    actions.resolve(by_number[0].pk, ana, now=at(61), source="page", force=True)
    assert [row.pk for row in open_incidents(cluster)] == [by_number[3].pk, by_number[1].pk, by_number[2].pk]


def test_cost_does_not_grow_with_the_rows(cluster: Cluster) -> None:
    costs = []
    for numbers in (range(2), range(2, 40)):
        open_some(cluster, numbers)
        with CaptureQueriesContext(connection) as asked:
            rows, _ = list_incidents(Filters(), limit=100, cursor=None)
            assert all(incident_json(row)["evidence"] for row in rows)
            queries.open_keys(cluster)
        costs.append(len(asked))
    assert costs == [3, 3]
