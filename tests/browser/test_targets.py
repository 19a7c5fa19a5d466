"""Targets and field coverage in a real browser: width, policy, keyboard, and a re-try that shows its outcome live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from browser_world import PHONE, Served, becomes_true
from playwright.sync_api import Page, expect

from gpufleet.celery import app
from gpufleet.fleet.models import Target
from gpufleet.pipeline import retrying
from gpufleet.scrape.models import TargetStatus

pytestmark = pytest.mark.browser

Open = Callable[..., Any]
BAD = {"line": 3, "text": '<img src=x onerror="alert(1)">' + "x" * 300, "reason": "no number"}


def test_pages_keep_the_policy_and_the_width(open_page: Open, served: Served) -> None:
    TargetStatus.objects.filter(target=served.fleet.targets[0]).update(samples_rejected=1, first_bad_line=BAD)
    for theme, size in (("dark", {}), ("light", {"size": PHONE})):
        for path in ("/targets/", "/targets/coverage/?group=yes", "/targets/coverage/"):
            page: Page = open_page(path, theme=theme, **size)
            width = page.evaluate("document.documentElement.clientWidth")
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.complaints == []  # type: ignore[attr-defined]
    page.locator(".covx").focus()
    page.keyboard.press("ArrowDown")
    becomes_true(page, "document.querySelector('.covx').scrollTop > 0")


def test_a_retry_by_keyboard_shows_its_outcome(
    open_page: Open, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "send_task", lambda name, args, **more: retrying.run(*args))
    target = served.fleet.targets[4]
    Target.objects.filter(pk=target.pk).update(url="http://127.0.0.1:9/metrics", trusted=True)
    page: Page = open_page(f"/targets/?q={target.node.name}")
    page.locator(f"#retry-{target.pk}").focus()
    page.keyboard.press("Enter")
    cell = page.locator(f"#try-{target.pk}")
    expect(cell).to_contain_text("refused", timeout=10_000)
    expect(cell).to_contain_text("by responder")
    assert page.complaints == []  # type: ignore[attr-defined]
