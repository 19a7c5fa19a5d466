"""The pages of targets and rules: what they show, to whom, and what they say when there is nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from factories import make_fleet, make_user

from gpufleet.core.times import utc_now
from gpufleet.detect.rules import load_rules
from gpufleet.fleet.models import Target
from gpufleet.scrape.models import SourceStatus, TargetStatus

pytestmark = pytest.mark.django_db
ROLES = ("viewer", "responder", "manager", "admin")


def signed_in(role: str = "viewer") -> Client:
    client = Client()
    client.force_login(make_user(role))
    return client


@pytest.mark.parametrize("page", ["/targets/", "/rules/"])
def test_stranger_is_sent_to_the_sign_in(page: str) -> None:
    answer = Client().get(page)
    assert (answer.status_code, answer["Location"]) == (302, f"/sign-in/?next={page}")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("page", ["/targets/", "/rules/"])
def test_every_role_may_read(page: str, role: str) -> None:
    assert signed_in(role).get(page).status_code == 200


def test_no_targets_says_what_to_do() -> None:
    assert "manage.py import_targets targets.json" in signed_in().get("/targets/").content.decode()


def test_failing_target_comes_first_with_its_reason() -> None:
    made = make_fleet(utc_now(), nodes=3)
    sick = made.targets[-1]
    TargetStatus.objects.filter(target=sick).update(reason="cut off", failures_in_a_row=4, detail="3709 of 3719 bytes")
    answer = signed_in().get("/targets/")
    first = answer.context["lines"][0]
    assert (first.target, first.status.reason) == (sick, "cut off")
    text = answer.content.decode()
    assert "3709 of 3719 bytes" in text
    assert "4 in a row" in text
    assert answer.context["up"] == Target.objects.count() - 1


def test_filters_are_in_the_address() -> None:
    made = make_fleet(utc_now(), nodes=3)
    TargetStatus.objects.filter(target=made.targets[0]).update(
        reason="timeout", last_scrape_at=utc_now() - timedelta(60)
    )
    client = signed_in()
    assert [line.target for line in client.get("/targets/?show=down").context["lines"]] == [made.targets[0]]
    assert (
        len(client.get("/targets/?q=gpu-002").context["lines"]) == Target.objects.filter(node__name="gpu-002").count()
    )
    assert "No target fits" in client.get("/targets/?q=no-such-node").content.decode()


def test_every_rule_stands_there_with_what_clears_it() -> None:
    text = signed_in().get("/rules/").content.decode()
    missing = [rule.id for rule in load_rules() if rule.id not in text]
    assert missing == []


def test_sources_say_what_is_wrong_with_them() -> None:
    now = utc_now()
    SourceStatus.objects.create(name="sources/a", targets=3, read_at=now, good_at=now)
    SourceStatus.objects.create(name="sources/b", problem="<b>gone</b>", read_at=now, good_at=now - timedelta(hours=2))
    page = signed_in().get("/targets/").content.decode()
    assert page.index("sources/b") < page.index("sources/a")
    assert "&lt;b&gt;gone&lt;/b&gt;" in page
    assert "<b>gone" not in page
    assert "The last list goes on" in page
