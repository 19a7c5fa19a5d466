"""A node's page in a real browser: charts with their fixed settings, zoom in the address, keys, phone, both themes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from browser_world import PHONE, Served, becomes_true
from factories import scrape
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

Open = Callable[..., Any]


@pytest.fixture
def history(served: Served) -> datetime:
    """An hour of scrapes of the failed node, a minute apart, without those of a quarter of an hour."""
    now = datetime.now(tz=UTC)
    for minute in reversed(range(60)):
        if not 20 <= minute < 35:
            scrape(served.fleet, now - timedelta(minutes=minute), only=[26])
    return now


def drawn(page: Page) -> Page:
    expect(page.locator("#panels[data-drawn]")).to_have_count(1)
    return page


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_six_panels_and_the_policy_is_kept(open_page: Open, history: datetime, theme: str) -> None:
    page = drawn(open_page("/nodes/gpu-027/", theme=theme))
    expect(page.locator(".pan .js-plotly-plot")).to_have_count(6)
    expect(page.locator(".gput tbody tr")).to_have_count(8)
    expect(page.locator("[data-focus][aria-pressed=true]")).to_have_text("g5")
    assert page.complaints == []  # type: ignore[attr-defined]


def test_no_chart_can_be_sent_anywhere(open_page: Open, history: datetime) -> None:
    page = drawn(open_page("/nodes/gpu-027/"))
    settings = page.evaluate(
        "[...document.querySelectorAll('.js-plotly-plot')].map((one) => one._context)"
        ".map((one) => [one.showSendToCloud, one.plotlyServerURL, one.displayModeBar, one.displaylogo])"
    )
    assert settings == [[False, "", False, False]] * 6
    assert page.locator(".modebar-btn").count() == 0


def test_a_gap_stays_a_gap(open_page: Open, history: datetime) -> None:
    page = drawn(open_page("/nodes/gpu-027/"))
    missing = page.evaluate(
        "(() => { const trace = document.querySelector('.js-plotly-plot').data.at(-1);"
        " return [trace.connectgaps, [...trace.y].filter(Number.isNaN).length > trace.y.length / 5,"
        " [...trace.y].some((value) => value === 0)]; })()"
    )
    assert missing == [False, True, False]


def test_a_drag_zooms_all_panels_and_back_returns(open_page: Open, history: datetime) -> None:
    page = drawn(open_page("/nodes/gpu-027/"))
    page.evaluate("window.scrollTo(0, document.getElementById('panels').offsetTop - 100)")
    box = page.locator(".chartbox").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_url("**/nodes/gpu-027/?from=*&to=*")
    drawn(page)
    assert page.locator("[data-live-node]").count() == 0
    page.go_back()
    page.wait_for_url("**/nodes/gpu-027/")
    drawn(page)


def test_a_click_pins_the_crosshair_and_escape_clears_it(open_page: Open, history: datetime) -> None:
    page = drawn(open_page("/nodes/gpu-027/"))
    page.locator(".chartbox").first.click(position={"x": 150, "y": 60})
    expect(page.locator(".cross:visible")).to_have_count(6)
    assert "pin=" in page.url
    expect(page.locator("#readout")).to_contain_text("pinned at")
    page.keyboard.press("Escape")
    expect(page.locator(".cross:visible")).to_have_count(0)
    assert "pin=" not in page.url


def test_digits_put_a_gpu_in_focus(open_page: Open, history: datetime) -> None:
    page = drawn(open_page("/nodes/gpu-027/"))
    page.keyboard.press("3")
    expect(page.locator("[data-focus='3']")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".pan .readout").first).to_contain_text("g3")
    assert "gpu=3" in page.url
    page.goto(page.url)
    expect(page.locator("[data-focus][aria-pressed=true]")).to_have_text("g3")


@pytest.mark.parametrize("path", ["/nodes/gpu-027/", "/nodes/gpu-027/?from=now-24h"])
def test_a_phone_never_scrolls_sideways(open_page: Open, history: datetime, path: str) -> None:
    page = drawn(open_page(path, size=PHONE, device_scale_factor=2, has_touch=True))
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.complaints == []  # type: ignore[attr-defined]


def test_the_theme_changes_the_charts_too(open_page: Open, history: datetime) -> None:
    page = drawn(open_page("/nodes/gpu-027/", theme="dark"))
    colour = "document.querySelector('.js-plotly-plot').layout.font.color"
    before = page.evaluate(colour)
    page.locator("#theme").click()
    becomes_true(page, f"{colour} !== {before!r}")
