"""The first screen in a real browser: all GPUs there, live without a reload, honest when data grows old."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from browser_world import PHONE, Served
from factories import PASSWORD, make_incident, make_user, scrape
from playwright.sync_api import Page, expect

from gpufleet.incidents.models import Incident
from gpufleet.pipeline.live import publish_cycle, publish_incident

pytestmark = pytest.mark.browser

Open = Callable[..., Any]


def next_cycle(served: Served, values: dict[int, float] | None = None, only: list[int] | None = None) -> int:
    """A round of scrapes now, told to every open page. Returns the bytes that were published."""
    now = datetime.now(tz=UTC)
    scrape(served.fleet, now, values=values, only=only)
    return publish_cycle(served.fleet.cluster, int(now.timestamp() // 15), now)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_all_gpus_are_on_one_screen_and_the_policy_is_kept(open_page: Open, theme: str) -> None:
    page: Page = open_page(theme=theme)
    expect(page.locator("#wall .c[data-i]")).to_have_count(504)
    expect(page.locator("#wall .n")).to_have_count(63)
    assert page.evaluate("document.documentElement.scrollHeight") <= 900
    assert page.evaluate("typeof window.Plotly") == "undefined"
    assert page.complaints == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", ["/", "/?view=matrix", "/?at=now-5m"])
def test_a_phone_never_scrolls_sideways(open_page: Open, path: str) -> None:
    page: Page = open_page(path, size=PHONE, device_scale_factor=2, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.complaints == []  # type: ignore[attr-defined]


def test_a_cycle_changes_the_cells_in_place(served: Served, open_page: Open) -> None:
    page: Page = open_page()
    page.evaluate("window.notReloaded = true")
    expect(page.locator("body[data-feed=live]")).to_have_count(1)
    cell = page.locator('[data-i="0"]')
    assert "b15" in (cell.get_attribute("class") or "")
    assert next_cycle(served, values={0: 3.0}) > 0
    expect(cell).to_have_class("c b0")
    assert page.evaluate("window.notReloaded") is True


def test_an_incident_appears_without_a_reload(served: Served, open_page: Open) -> None:
    page: Page = open_page()
    page.evaluate("window.notReloaded = true")
    expect(page.locator("body[data-feed=live]")).to_have_count(1)
    made = make_incident(served.fleet, 9, datetime.now(tz=UTC), slot=2, kind="thermal", title="too hot", minutes=0.1)
    publish_incident(SimpleNamespace(incident_id=made.id, verb="open"))
    expect(page.locator(f'li[data-incident="{made.id}"] .ti')).to_contain_text("gpu-010 g2")
    expect(page.locator("#incident-box .warnchip")).to_have_text("4 unacknowledged")
    expect(page.locator("[data-open-count]")).to_have_text("5")
    assert page.evaluate("window.notReloaded") is True


def test_old_values_hatch_and_the_banner_comes_without_the_server(open_page: Open, served: Served) -> None:
    page: Page = open_page("/sign-in/", role="responder")
    page.clock.install()
    page.goto(served.url + "/")
    next_cycle(served)
    expect(page.locator("body[data-seq]")).to_have_count(1)
    assert page.locator("#wall .c.nd").count() == 16
    page.clock.run_for(35_000)
    fresh = page.locator("#wall .c:not(.nd):not(.mtc):not(.fail)")
    expect(fresh).to_have_count(0)
    expect(page.locator("#stale")).to_be_hidden()
    page.clock.run_for(15_000)
    expect(page.locator("#stale")).to_be_visible()
    expect(page.locator("#live .word")).to_contain_text("No update for")


def test_two_tabs_share_one_stream(served: Served, open_page: Open) -> None:
    page: Page = open_page()
    other = page.context.new_page()
    other.goto(served.url + "/?metric=gpu_power_watts")
    for tab in (page, other):
        expect(tab.locator("body[data-feed=live]")).to_have_count(1)
    next_cycle(served, values={0: 3.0})
    expect(page.locator('[data-i="0"]')).to_have_class("c b0")
    expect(other.locator("body[data-seq]")).to_have_count(1)
    streams = page.evaluate("performance.getEntriesByType('resource').filter(r => r.name.includes('/live/')).length")
    assert streams == 0, "the page itself opens no stream: the shared worker does"


def test_polling_takes_over_when_the_stream_is_gone(served: Served, open_page: Open, settings: Any) -> None:
    settings.ENV = {**settings.ENV, "GPUFLEET_LIVE_PORT": 1, "GPUFLEET_INTERVAL_SECONDS": 3}
    page: Page = open_page()
    expect(page.locator("#live .word")).to_have_text("Polling", timeout=15_000)
    next_cycle(served, values={0: 3.0})
    expect(page.locator('[data-i="0"]')).to_have_class("c b0", timeout=10_000)


def test_another_metric_without_a_reload_and_in_the_address(open_page: Open) -> None:
    page: Page = open_page()
    page.evaluate("window.notReloaded = true")
    page.get_by_role("link", name="Power", exact=True).click()
    expect(page.locator("#scale-high")).to_have_text("1,000 W")
    assert "metric=gpu_power_watts" in page.url
    page.keyboard.press("M")
    expect(page.locator("#scale-high")).to_have_text("90 °C")
    page.go_back()
    expect(page.locator("#scale-high")).to_have_text("1,000 W")
    assert page.evaluate("window.notReloaded") is True


def test_an_incident_is_acknowledged_and_taken_back(open_page: Open, served: Served) -> None:
    page: Page = open_page()
    row = page.locator("#open-incidents li", has_text="gpu-045")
    row.get_by_role("button").click()
    expect(page.locator("#toasts")).to_contain_text("Acknowledged gpu-045 node down")
    expect(row).to_contain_text("responder")
    made = Incident.objects.get(kind="node_down")
    assert made.acknowledged_by == "responder"
    page.keyboard.press("u")
    expect(row.get_by_role("button")).to_be_visible()
    made.refresh_from_db()
    assert made.acknowledged_at is None
    assert [event.verb for event in made.events.all()][-2:] == ["acknowledged", "unacknowledged"]


def test_the_card_tells_state_age_and_identity(open_page: Open, served: Served) -> None:
    page: Page = open_page()
    page.locator(f'[data-i="{26 * 8 + 5}"]').hover()
    card = page.locator("#gpu-card")
    expect(card).to_be_visible()
    expect(card).to_contain_text("gpu-027 g5")
    expect(card).to_contain_text("failed")
    expect(card).to_contain_text("xid 79")
    expect(card).to_contain_text(served.fleet.gpu(26, 5).uuid)
    assert page.complaints == []  # type: ignore[attr-defined]


def test_keys_move_and_help(open_page: Open) -> None:
    page: Page = open_page()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    stands_on = "document.activeElement.closest('li')?.dataset.node"
    assert page.evaluate(stands_on) == "gpu-045"
    page.evaluate("document.getElementById('open-incidents').dataset.old = 'yes'")
    page.evaluate("htmx.trigger(document.getElementById('open-incidents'), 'refresh')")
    expect(page.locator("#open-incidents[data-old]")).to_have_count(0)
    assert page.evaluate(stands_on) == "gpu-045"  # though the panel is a new one
    page.locator('.n[data-n="0"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.i") == "5"


def test_the_theme_is_kept(open_page: Open) -> None:
    page: Page = open_page(theme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(11, 14, 19)"
    page.locator("#theme").click()
    assert page.evaluate(ground) == "rgb(243, 245, 248)"
    page.reload()
    assert page.evaluate(ground) == "rgb(243, 245, 248)"


def test_the_screen_reads_without_scripts(open_page: Open) -> None:
    page: Page = open_page(java_script_enabled=False)
    expect(page.locator("#wall .c[data-i]")).to_have_count(504)
    expect(page.locator("#open-incidents .ti").first).to_contain_text("gpu-045")
    expect(page.locator("#theme")).to_be_hidden()


def test_signing_in_and_out(open_page: Open, served: Served) -> None:
    make_user("viewer")
    page: Page = open_page("/?metric=gpu_power_watts", role="")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("Name").fill("viewer")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#wall .c[data-i]")).to_have_count(504)
    assert page.url == served.url + "/?metric=gpu_power_watts"
    page.get_by_label("Signed in as viewer").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
