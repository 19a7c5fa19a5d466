"""Silences: what they mute, when, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest
from incident_findings import at, finding

from gpufleet.accounts.models import AuditEntry, User
from gpufleet.fleet.models import Cluster, Node, Rack
from gpufleet.incidents.actions import Invalid, NotFound
from gpufleet.incidents.intake import take_in
from gpufleet.incidents.models import Incident, IncidentEvent, Silence
from gpufleet.incidents.silences import Scope, create_silences, end_silence, is_silenced, list_silences


def silence(cluster: Cluster, ana: User, scope: Scope, *, start: float = 0, end: float = 3600, reason: str = "swap",
            now: float = 0) -> list[Silence]:  # fmt: skip
    return create_silences(
        cluster, scope, starts_at=at(start), ends_at=at(end), reason=reason, actor=ana, source="page", now=at(now)
    )


@pytest.fixture
def incident(cluster: Cluster) -> Incident:
    take_in(cluster, [finding(0)], at(0))
    return Incident.objects.get()


@pytest.mark.parametrize(
    ("scope", "muted"),
    [
        (Scope(), True),
        (Scope(nodes=("gpu-n01",)), True),
        (Scope(nodes=("gpu-n02",)), False),
        (Scope(rack="R01"), False),
        (Scope(kind="thermal"), True),
        (Scope(nodes=("gpu-n01",), kind="xid"), False),
    ],
)
def test_scope_decides_what_is_muted(
    cluster: Cluster, ana: User, incident: Incident, scope: Scope, muted: bool
) -> None:
    rack = Rack.objects.create(cluster=cluster, name="R01")
    Node.objects.create(cluster=cluster, name="gpu-n02", rack=rack)
    before = (incident.version, IncidentEvent.objects.count())
    silence(cluster, ana, scope)
    assert is_silenced(incident, at(10)) is muted
    incident.refresh_from_db()
    assert (incident.version, IncidentEvent.objects.count()) == before


@pytest.mark.parametrize(("seconds", "muted"), [(99, False), (100, True), (199, True), (200, False)])
def test_time_is_half_open(cluster: Cluster, ana: User, incident: Incident, seconds: int, muted: bool) -> None:
    silence(cluster, ana, Scope(), start=100, end=200)
    assert is_silenced(incident, at(seconds)) is muted
    assert bool(list_silences(cluster, at=at(seconds))) is muted


def test_other_cluster_is_not_muted(cluster: Cluster, ana: User, incident: Incident) -> None:
    silence(Cluster.objects.create(name="other"), ana, Scope())
    assert not is_silenced(incident, at(10))


def test_incident_without_a_node_is_muted_by_the_cluster_only(cluster: Cluster, ana: User) -> None:
    take_in(cluster, [finding(0, subject="cluster", node=None, gpu_uuid=None, slot=None)], at(0))
    silence(cluster, ana, Scope(nodes=("gpu-n01",)))
    assert not is_silenced(Incident.objects.get(), at(10))
    silence(cluster, ana, Scope())
    assert is_silenced(Incident.objects.get(), at(10))


def test_rack_makes_one_silence_a_node_each_with_its_audit_entry(cluster: Cluster, ana: User) -> None:
    rack = Rack.objects.create(cluster=cluster, name="R01")
    for name in ("gpu-n03", "gpu-n02"):
        Node.objects.create(cluster=cluster, name=name, rack=rack)
    made = silence(cluster, ana, Scope(rack="R01"))
    assert [one.node.name for one in made if one.node] == ["gpu-n02", "gpu-n03"]
    entries = AuditEntry.objects.filter(verb="silence.create").order_by("id")
    assert [(entry.actor, entry.subject, entry.detail["node"]) for entry in entries] == [
        ("ana", f"silence:{made[0].pk}", "gpu-n02"),
        ("ana", f"silence:{made[1].pk}", "gpu-n03"),
    ]


def test_ending_it_is_at_once_and_only_once(cluster: Cluster, ana: User, bo: User, incident: Incident) -> None:
    (one,) = silence(cluster, ana, Scope())
    end_silence(one.pk, actor=bo, source="api", now=at(60))
    end_silence(one.pk, actor=ana, source="api", now=at(70))
    one.refresh_from_db()
    assert one.ends_at == at(60)
    assert not is_silenced(incident, at(60))
    assert [entry.actor for entry in AuditEntry.objects.filter(verb="silence.end")] == ["bo"]


def test_ending_one_that_has_not_begun_means_it_never_holds(cluster: Cluster, ana: User, incident: Incident) -> None:
    (one,) = silence(cluster, ana, Scope(), start=1000, end=2000)
    end_silence(one.pk, actor=ana, source="page", now=at(5))
    assert [is_silenced(incident, at(seconds)) for seconds in (4, 5, 1500)] == [False, False, False]


def test_unknown_silence(db: None, ana: User) -> None:
    with pytest.raises(NotFound):
        end_silence(1, actor=ana, source="page", now=at(0))


@pytest.mark.parametrize(
    ("scope", "times", "reason", "field"),
    [
        (Scope(), (10, 10), "swap", "ends_at"),
        (Scope(), (-20, -10), "swap", "ends_at"),
        (Scope(), (0, timedelta(days=90).total_seconds() + 1), "swap", "ends_at"),
        (Scope(), (0, 10), "  ", "reason"),
        (Scope(), (0, 10), "x" * 256, "reason"),
        (Scope(), (0, 10), "a\x00b", "reason"),
        (Scope(kind="x" * 32), (0, 10), "swap", "kind"),
        (Scope(nodes=("gpu-n01",), rack="R01"), (0, 10), "swap", "rack"),
        (Scope(rack="R77"), (0, 10), "swap", "rack"),
        (Scope(nodes=("gpu-n01", "gpu-n77")), (0, 10), "swap", "nodes"),
        (Scope(nodes=("n",) * 1001), (0, 10), "swap", "nodes"),
    ],
)
def test_refused_and_nothing_changes(
    cluster: Cluster, ana: User, scope: Scope, times: tuple[float, float], reason: str, field: str
) -> None:
    with pytest.raises(Invalid) as error:
        silence(cluster, ana, scope, start=times[0], end=times[1], reason=reason)
    assert error.value.field == field
    assert (Silence.objects.count(), AuditEntry.objects.count()) == (0, 0)


def test_list_is_newest_first(cluster: Cluster, ana: User) -> None:
    first, second = (*silence(cluster, ana, Scope()), *silence(cluster, ana, Scope(kind="xid")))
    assert list_silences(cluster) == [second, first]
