"""A headless Chromium against the pages of the test database, with the real event stream beside them.

Without a Chromium at hand these tests skip, visibly.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from browser_world import DESKTOP, QUIET, ROOT, Served, free_port, note, session_cookie, start_stream, trouble, wait_for
from django.conf import settings as django_settings
from factories import make_fleet
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium at hand: browser tests not run")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # Playwright keeps an event loop in this thread
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(autouse=True)
def pages_as_tested(chromium: Browser, settings: Any) -> None:
    """Static files under their plain names; what the tests need besides is looked for, and missed visibly."""
    settings.STORAGES = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
    if not (ROOT / "static/vendor/htmx.min.js").exists():
        pytest.skip("static/vendor is empty: run python -m gpufleet.stack.assets")
    try:
        redis.Redis.from_url(django_settings.BROKER_URL, socket_connect_timeout=1).flushdb()
    except redis.exceptions.RedisError:
        pytest.skip("no broker at BROKER_URL: browser tests not run")


@pytest.fixture
def served(transactional_db: None, live_server: Any, settings: Any) -> Iterator[Served]:
    """63 nodes, 504 GPUs, with a failed GPU, a degraded one, a node down and two incidents; pages and stream up."""
    now = datetime.now(tz=UTC)
    fleet = make_fleet(now, nodes=63)
    trouble(fleet, now)
    port = free_port()
    settings.ENV = {**settings.ENV, "GPUFLEET_LIVE_PORT": port, "GPUFLEET_BASE_URL": live_server.url}
    process = start_stream(port, live_server.url)
    try:
        wait_for(f"http://localhost:{port}/healthz", process)
        yield Served(live_server.url, fleet)
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture
def open_page(chromium: Browser, served: Served) -> Iterator[Callable[..., Page]]:
    """`open_page(path, role=, theme=, size=, **context options)` signed in; what the page complains of is collected."""
    contexts: list[BrowserContext] = []

    def open_(path: str = "/", role: str = "responder", theme: Any = "dark", size: Any = DESKTOP, **more: Any) -> Page:
        context = chromium.new_context(viewport=size, color_scheme=theme, **more)
        contexts.append(context)
        if role:
            context.add_cookies([session_cookie(served.url, role)])
        page = context.new_page()
        page.complaints = []  # type: ignore[attr-defined]
        page.on("console", lambda message: note(page, message.type, message.text))
        page.on("pageerror", lambda error: note(page, "error", str(error)))
        page.goto(served.url + path)
        return page

    yield open_
    for context in contexts:
        context.close()
