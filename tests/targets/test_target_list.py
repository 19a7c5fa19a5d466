"""The page of targets: state, order, pages and filters, what is escaped, and what is never shown."""

from __future__ import annotations

from datetime import timedelta
from html import unescape

import pytest
from api_callers import body_of, by_token
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from factories import MadeFleet, make_fleet, make_user, scrape
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.core.times import utc_now
from gpufleet.fleet.models import Target
from gpufleet.fleet.shown import shown_url
from gpufleet.scrape.failures import REASONS
from gpufleet.scrape.models import TargetStatus

pytestmark = pytest.mark.django_db
PAGE = "/targets/"


def signed_in(role: str = "viewer") -> Client:
    client = Client()
    client.force_login(make_user(role))
    return client


def nodes(client: Client, query: str) -> list[str]:
    return [line.target.node.name for line in client.get(PAGE + query).context["lines"]]


def many(count: int) -> MadeFleet:
    """A fleet with `count` more targets that were never scraped, all on its first node."""
    made = make_fleet(utc_now(), nodes=2)
    node = made.nodes[0]
    Target.objects.bulk_create(
        Target(cluster=made.cluster, node=node, url=f"http://h{n:05}:9100/metrics", job="node", created_at=utc_now())
        for n in range(count)
    )
    return made


def test_pages_hold_every_target_once() -> None:
    many(230)
    client = signed_in()
    seen: list[int] = []
    for page in (1, 2, 3):
        seen += [line.target.pk for line in client.get(f"{PAGE}?page={page}").context["lines"]]
    assert len(seen) == len(set(seen)) == 232
    assert client.get(f"{PAGE}?page=9999").context["page"] == 3
    assert client.get(f"{PAGE}?page=-1").context["page"] == 1
    text = unescape(client.get(f"{PAGE}?page=2&show=never%20scraped&sort=age").content.decode())
    assert 'href="/targets/?page=3&show=never+scraped&sort=age"' in text


@pytest.mark.parametrize("count", [0, 300])
def test_queries_do_not_grow_with_the_targets(count: int) -> None:
    many(count)
    client = signed_in()
    client.get(PAGE)
    with CaptureQueriesContext(connection) as queries:
        assert client.get(PAGE + "?q=h0&sort=duration").status_code == 200
    assert len(queries) == 11, "\n".join(query["sql"][:160] for query in queries)


def test_order_and_filters_come_from_the_address() -> None:
    made = make_fleet(utc_now(), nodes=4)
    first, second, third, _ = made.targets
    TargetStatus.objects.filter(target=first).update(duration_seconds=3.0, samples_rejected=2)
    TargetStatus.objects.filter(target=second).update(reason="timeout", duration_seconds=9.0)
    TargetStatus.objects.filter(target=third).delete()
    client = signed_in()
    assert nodes(client, "") == ["gpu-002", "gpu-003", "gpu-001", "gpu-004"]
    assert nodes(client, "?sort=duration") == ["gpu-002", "gpu-001", "gpu-004", "gpu-003"]
    assert nodes(client, "?sort=age")[0] == "gpu-003"
    assert nodes(client, "?show=bad%20lines") == ["gpu-001"]
    assert nodes(client, "?show=never%20scraped") == ["gpu-003"]
    assert nodes(client, "?reason=timeout") == ["gpu-002"]
    assert nodes(client, "?q=GPU-004") == ["gpu-004"]
    assert nodes(client, "?sort=nonsense&show=nonsense&reason=nonsense&page=x%00") == nodes(client, "")


def test_htmx_gets_the_rows_alone() -> None:
    make_fleet(utc_now(), nodes=2)
    text = signed_in().get(PAGE, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in text
    assert "gpu-002" in text


def test_a_bad_line_is_shown_with_its_number_and_escaped() -> None:
    made = make_fleet(utc_now(), nodes=1)
    bad = {"line": 17, "text": 'x{a="<script>alert(1)</script>"} nope', "reason": "no number"}
    TargetStatus.objects.filter(target=made.targets[0]).update(samples_rejected=1, first_bad_line=bad)
    text = signed_in().get(PAGE).content.decode()
    assert "line 17, no number" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<script>alert" not in text


def test_usual_duration_is_the_median_of_the_last_hour() -> None:
    made = make_fleet(utc_now(), nodes=1)
    for back in range(10, 40, 10):
        scrape(made, utc_now() - timedelta(minutes=back))
    TargetStatus.objects.filter(target=made.targets[0]).update(duration_seconds=2.5)
    (line,) = signed_in().get(PAGE).context["lines"]
    assert line.usual_seconds == pytest.approx(0.05)
    assert line.is_slow


def test_credentials_are_shown_nowhere() -> None:
    made = make_fleet(utc_now(), nodes=1)
    secret = "http://me:hunter2@10.0.0.1:9400/metrics?token=hunter2&collect=gpu"
    Target.objects.filter(pk=made.targets[0].pk).update(url=secret)
    client = signed_in("admin")
    assert "hunter2" not in client.get(PAGE).content.decode()
    assert nodes(client, "?q=hunter2") == []
    (told,) = body_of(by_token("viewer").get("targets"))["targets"]
    assert told["url"] == "http://10.0.0.1:9400/metrics?token=***&collect=gpu"


@given(st.from_regex(r"[a-z0-9]{6,12}", fullmatch=True), st.from_regex(r"[A-Z0-9]{8,20}", fullmatch=True))
def test_user_and_password_never_come_through(user: str, password: str) -> None:
    assert shown_url(f"https://{user}:{password}@[fd00::1]:9400/m?x=1") == "https://[fd00::1]:9400/m?x=1"
    assert password not in shown_url(f"http://h/m?api_key={password}&X-Auth-Token={password}")
    assert shown_url(f"http://[h{password}") == "***"


def test_every_reason_is_said_in_words() -> None:
    made = make_fleet(utc_now(), nodes=1)
    client = signed_in()
    for reason in REASONS:
        TargetStatus.objects.filter(target=made.targets[0]).update(reason=reason)
        (line,) = client.get(PAGE).context["lines"]
        assert line.why != reason


def test_a_contract_answer_has_every_field() -> None:
    make_fleet(utc_now(), nodes=1)
    (told,) = body_of(by_token("viewer").get("targets"))["targets"]
    wanted = (
        "url labels node job up reason last_scrape_at duration_seconds bytes samples_accepted samples_rejected"
        " samples_missing first_bad_line"
    )
    assert set(wanted.split()) <= told.keys()
