"""The list of incidents and the page of one in a real browser: live, by keys, by role, on a phone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from browser_world import PHONE, Served
from factories import make_incident, make_user
from playwright.sync_api import Page, expect

from gpufleet.incidents.actions import acknowledge, comment
from gpufleet.incidents.models import Incident
from gpufleet.pipeline.live import publish_incident

pytestmark = pytest.mark.browser

Open = Callable[..., Any]
NASTY = '"><img src=x onerror=alert(1)><b>bold</b>'


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", [None, PHONE])
def test_list_and_page_keep_the_policy_and_the_width(open_page: Open, served: Served, theme: str, size: Any) -> None:
    made = Incident.objects.get(kind="xid")
    for path in ("/incidents/", f"/incidents/{made.pk}/"):
        page: Page = open_page(path, theme=theme, **({"size": size} if size else {}))
        width = page.evaluate("document.documentElement.clientWidth")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.complaints == []  # type: ignore[attr-defined]


def test_a_new_incident_comes_into_the_list(open_page: Open, served: Served) -> None:
    page: Page = open_page("/incidents/")
    page.evaluate("window.notReloaded = true")
    expect(page.locator("body[data-feed=live]")).to_have_count(1)
    made = make_incident(served.fleet, 9, datetime.now(tz=UTC), slot=2, kind="thermal", title=NASTY, minutes=0.1)
    publish_incident(SimpleNamespace(incident_id=made.pk, verb="open"))
    row = page.locator(f'[data-incident="{made.pk}"]')
    expect(row).to_contain_text("<b>bold</b>")
    assert row.locator("img, b b").count() == 0
    assert page.evaluate("window.notReloaded") is True
    assert page.complaints == []  # type: ignore[attr-defined]


def test_acknowledged_by_keys_and_taken_back(open_page: Open, served: Served) -> None:
    page: Page = open_page("/incidents/")
    expect(page.locator("body[data-feed=live]")).to_have_count(1)
    page.keyboard.press("j")
    first = page.locator("#rows [data-incident].sel")
    number = first.get_attribute("data-incident")
    page.keyboard.press("a")
    row = page.locator(f'[data-incident="{number}"]')
    expect(row).to_contain_text("responder")
    assert Incident.objects.get(pk=number).acknowledged_by == "responder"
    page.keyboard.press("u")
    expect(row).not_to_contain_text("responder")
    assert Incident.objects.get(pk=number).acknowledged_at is None


def test_the_page_of_one_follows_what_others_do(open_page: Open, served: Served) -> None:
    made = Incident.objects.get(kind="node_down")
    page: Page = open_page(f"/incidents/{made.pk}/", role="viewer")
    expect(page.locator("body[data-feed=live]")).to_have_count(1)
    assert page.locator("main form").count() == 0
    lee = make_user("responder", "lee")
    acknowledge(made.pk, lee, now=datetime.now(tz=UTC), source="api")
    comment(made.pk, lee, now=datetime.now(tz=UTC), source="api", text=NASTY)
    publish_incident(SimpleNamespace(incident_id=made.pk, verb="acknowledge"))
    expect(page.locator("[data-part=head]")).to_contain_text("Acknowledged by lee")
    expect(page.locator("[data-part=events]")).to_contain_text(NASTY)
    assert page.locator("[data-part=events] img").count() == 0


def test_a_comment_being_written_is_not_lost(open_page: Open, served: Served) -> None:
    made = Incident.objects.get(kind="node_down")
    page: Page = open_page(f"/incidents/{made.pk}/")
    expect(page.locator("body[data-feed=live]")).to_have_count(1)
    page.locator("textarea[name=text]").fill("half a thou")
    acknowledge(made.pk, make_user("responder", "lee"), now=datetime.now(tz=UTC), source="api")
    publish_incident(SimpleNamespace(incident_id=made.pk, verb="acknowledge"))
    expect(page.locator("[data-part=head]")).to_contain_text("Acknowledged by lee")
    expect(page.locator("textarea[name=text]")).to_have_value("half a thou")
    page.locator("textarea[name=text]").fill("a whole thought")
    page.get_by_role("button", name="Add comment").click()
    expect(page.locator("[data-part=events]")).to_contain_text("a whole thought")
