"""The world of the browser tests: a troubled fleet, the event stream's process, and the sessions of people."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.test import Client
from factories import MadeFleet, make_incident, make_user, tell

from gpufleet.accounts.models import User

ROOT = Path(__file__).resolve().parent.parent
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}


@dataclass(frozen=True, slots=True)
class Served:
    """Where pages and stream are, and the fleet they show."""

    url: str
    fleet: MadeFleet


def trouble(fleet: MadeFleet, now: datetime) -> None:
    since = now - timedelta(minutes=78)
    broken, risky, down = fleet.nodes[26], fleet.nodes[32], fleet.nodes[44]
    tell(fleet, broken, "degraded", since, now)
    tell(fleet, broken, "failed", since, now, gpu=fleet.gpu(26, 5), reasons=["xid 79"])
    tell(fleet, risky, "degraded", now - timedelta(minutes=11), now)
    for slot in (1, 6):
        tell(fleet, risky, "degraded", now - timedelta(minutes=11), now, gpu=fleet.gpu(32, slot), reasons=["nvlink"])
    tell(fleet, down, "failed", now - timedelta(minutes=6), now, reasons=["node_down"])
    for gpu in fleet.gpus[down.id]:
        tell(fleet, down, "failed", now - timedelta(minutes=6), now, gpu=gpu, reasons=["node_down"])
    tell(fleet, fleet.nodes[55], "maintenance", now - timedelta(hours=3), now)
    for gpu in fleet.gpus[fleet.nodes[55].id]:
        tell(fleet, fleet.nodes[55], "maintenance", now - timedelta(hours=3), now, gpu=gpu)
    tell(fleet, fleet.nodes[52], "unknown", now - timedelta(minutes=3), now)
    for gpu in fleet.gpus[fleet.nodes[52].id]:
        tell(fleet, fleet.nodes[52], "unknown", now - timedelta(minutes=3), now, gpu=gpu)
    make_incident(fleet, 44, now, kind="node_down", title="node down")
    make_incident(fleet, 32, now, kind="nvlink_fault", severity="warning", title="NVLink CRC errors", minutes=11)
    make_incident(fleet, 50, now, slot=0, kind="power_brake", severity="info", title="power brake", minutes=2)
    make_incident(fleet, 26, now, slot=5, minutes=78, by="ortiz")


def start_stream(port: int, base_url: str) -> subprocess.Popen[bytes]:
    """The command of the live process, on the test database."""
    target = connection.settings_dict
    address = f"postgresql://{target['USER']}:{target['PASSWORD']}@/{target['NAME']}?host={target['HOST']}"
    if target["PORT"]:
        address += f"&port={target['PORT']}"
    environment = {
        **os.environ,
        "DATABASE_URL": address,
        "BROKER_URL": settings.BROKER_URL,
        "GPUFLEET_BASE_URL": base_url,
        "GPUFLEET_SECRET_KEY": settings.SECRET_KEY,
    }
    command = [sys.executable, "-m", "gunicorn", "gpufleet.asgi", "--bind", f"127.0.0.1:{port}"]
    command += ["--worker-class", "asgi", "--workers", "1", "--graceful-timeout", "1", "--log-level", "warning"]
    return subprocess.Popen(command, cwd=ROOT, env=environment)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"the live process ended with {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} did not answer within 30 s")


def becomes_true(page: Any, expression: str, seconds: float = 10.0) -> None:
    """Waits until the page says so, from out here: the page's policy forbids Playwright's own waiting."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never true: {expression}"
        time.sleep(0.05)


def note(page: Any, kind: str, text: str) -> None:
    if kind == "error":
        page.complaints.append(text)


def session_cookie(url: str, role: str) -> Any:
    user = User.objects.filter(username=role).first() or make_user(role)
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return {"name": "sessionid", "value": client.cookies["sessionid"].value, "url": url}
