"""The on-call flow in a real browser on a running demo: a fault, the row on an open page, one click, the API agrees.

    python bench/on_call.py DATA_FOLDER [--node gpu-040] [--pictures FOLDER]

Signs in as the responder, leaves the fleet map open, injects XID 79, and never reloads. Prints the seconds from the
fault to the row on the page and from the click to the acknowledgement in the API, and repairs the fault.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path

from demo_client import Demo, wait_for
from playwright.sync_api import Page, sync_playwright

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip


def sign_in(page: Page, demo: Demo) -> None:
    password = json.loads((demo.data / "users.json").read_text())["responder"]["password"]
    page.goto(demo.state["url"] + "/sign-in/")
    page.fill("[name=username]", "responder")
    page.fill("[name=password]", password)
    page.click("main button[type=submit]")
    page.wait_for_selector(".wall")


def flow(page: Page, demo: Demo, node: str, pictures: Path | None) -> None:
    sign_in(page, demo)
    page.evaluate("window.neverReloaded = true")
    page.wait_for_timeout(2000)
    injected = demo.simulator("POST", "/inject", {"node": node, "fault": "xid", "xid": 79, "slot": 6})
    started = time.monotonic()
    form = page.locator(f"form.ack[data-what^='{node} g6']").first
    form.wait_for(timeout=120_000)
    print(
        f"row on the open page after {time.monotonic() - started:.2f} s (interval {demo.state['interval_seconds']} s)"
    )
    incident = int(form.get_attribute("data-incident") or 0)
    if pictures:
        page.screenshot(path=pictures / "incident-on-map.png")
    clicked = time.monotonic()
    form.locator("button").click()
    wait_for(lambda: demo.call("GET", f"/api/v1/incidents/{incident}")["status"] == "acknowledged", 10)
    answer = demo.call("GET", f"/api/v1/incidents/{incident}")
    print(f"acknowledged in the API {time.monotonic() - clicked:.2f} s after the click, by {answer['acknowledged_by']}")
    print(f"page was {'never' if page.evaluate('window.neverReloaded === true') else ''} reloaded")
    demo.simulator("DELETE", f"/inject/{injected['id']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--node", default="gpu-040")
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET))
        page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="dark")
        flow(page, Demo(options.data), options.node, options.pictures)
        browser.close()


if __name__ == "__main__":
    main()
