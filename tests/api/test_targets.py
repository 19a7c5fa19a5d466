"""Targets that a person adds over the API: who may, where they may be, and what stays."""

from __future__ import annotations

from typing import Any

import pytest
from api_callers import CALLERS, assert_problem, body_of, by_token, stranger
from factories import MadeFleet

from gpufleet.accounts.models import AuditEntry, Role
from gpufleet.fleet.models import Node, Target

URL = "http://10.1.0.27:9400/metrics"


def everything() -> list[Any]:
    return [list(model.objects.order_by("pk").values()) for model in (Target, Node, AuditEntry)]


@pytest.mark.parametrize("way", CALLERS)
@pytest.mark.parametrize("role", [*Role, None])
def test_only_an_administrator_adds_and_removes(fleet: MadeFleet, role: Role | None, way: str) -> None:
    asking = CALLERS[way](role) if role else stranger()
    before = everything()
    added = asking.post("targets", {"url": URL})
    if role != Role.ADMIN:
        status = 403 if role else 401
        assert_problem(added, status)
        assert_problem(asking.delete(f"targets/{Target.objects.earliest('id').pk}"), status)
        assert everything() == before
        return
    assert added.status_code == 201
    made = body_of(added)
    assert (made["url"], made["node"]) == (URL, "10.1.0.27")
    target = Target.objects.get(pk=made["id"])
    assert (target.trusted, target.access, target.source) == (False, "", "by hand: admin")
    assert body_of(asking.delete(f"targets/{made['id']}")) == made
    assert Target.objects.get(pk=made["id"]).removed_at is not None
    assert_problem(asking.delete(f"targets/{made['id']}"), 404)
    assert list(AuditEntry.objects.order_by("id").values_list("verb", flat=True))[-2:] == [
        "target.add",
        "target.remove",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9400/metrics",
        "http://[::1]/metrics",
        "http://169.254.169.254/latest/meta-data",
        "http://8.8.8.8/metrics",
        "http://[::ffff:127.0.0.1]/metrics",
        "http://ops:secret@10.1.0.27/metrics",
        "ftp://10.1.0.27/metrics",
        "10.1.0.27:9400",
        "http://",
        "http://10.1.0.27:99999/",
        "http://10.1.0.27/#a",
        "http://10.1.0.27/ metrics",
        "http://10.1.0.27/\nmetrics",
        "http://10.1.0.27/" + "a" * 2_048,
        "",
    ],
)
def test_addresses_that_are_refused(fleet: MadeFleet, url: str) -> None:
    admin = by_token("admin")
    before = everything()
    problem = assert_problem(admin.post("targets", {"url": url}), 422, "url")
    assert "secret" not in str(problem)
    assert everything() == before


def test_what_is_watched_already_is_left_as_it_is(fleet: MadeFleet) -> None:
    admin = by_token("admin")
    Target.objects.update(trusted=True)
    target = Target.objects.earliest("id")
    Target.objects.filter(pk=target.pk).update(url=URL)
    before = everything()
    assert_problem(admin.post("targets", {"url": URL, "node": "other", "job": "x"}), 422, "url")
    assert everything() == before


def test_a_target_of_a_followed_list_is_taken_out_there(fleet: MadeFleet) -> None:
    target = Target.objects.earliest("id")
    Target.objects.filter(pk=target.pk).update(source="sources/dcgm")
    admin = by_token("admin")
    before = everything()
    problem = assert_problem(admin.delete(f"targets/{target.pk}"), 422)
    assert "sources/dcgm" in str(problem)
    assert everything() == before
