"""The processes of gpufleet on one machine, as units; the same commands as in docker-compose.yml."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from gpufleet.stack.options import ROOT
from gpufleet.stack.plan import Plan
from gpufleet.stack.units import Unit

PYTHON = sys.executable
SIGQUIT = 3
CELERY_ENVIRONMENT = {
    "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",
    "CELERY_SKIP_CHECKS": "1",  # else every worker imports all pages to check them: 1.2 s and 40 MB each
}
MIGRATED = "the database is up to date"
WORKERS = {"worker-scrape": "scrape", "worker-detect": "detect", "worker-notify": "notify,maintain"}


def web_units(made: Plan, environment: Mapping[str, str]) -> list[Unit]:
    """Pages on threads, the event stream on its own ASGI server."""
    host, ports = made.options.host, made.ports
    return [
        Unit(
            name="web",
            command=(PYTHON, "-m", "gunicorn", *web_arguments(f"{_bracketed(host)}:{ports.web}")),
            environment=environment,
            after=("prepare",),
            probe=answers(f"http://{_reachable(host)}:{ports.web}/healthz"),
            death_signal=SIGQUIT,
            working_folder=str(ROOT),
        ),
        Unit(
            name="live",
            command=(PYTHON, "-m", "gunicorn", *live_arguments(f"{_bracketed(host)}:{ports.live}")),
            environment=environment,
            after=("prepare",),
            probe=answers(f"http://{_reachable(host)}:{ports.live}/healthz"),
            stop_signal=SIGQUIT,  # a stream has no end that would be worth waiting for: all are cut at once
            death_signal=SIGQUIT,
            working_folder=str(ROOT),
        ),
    ]


def worker_units(data: Path, environment: Mapping[str, str]) -> list[Unit]:
    """The three Celery workers, and beat, which waits for them."""
    workers = [
        Unit(
            name=name,
            command=(PYTHON, "-m", "celery", *worker_arguments(name, queues)),
            environment={**environment, **CELERY_ENVIRONMENT},
            after=("prepare",),
            ready_line="ready.",
            working_folder=str(ROOT),
        )
        for name, queues in WORKERS.items()
    ]
    beat = Unit(
        name="beat",
        command=(PYTHON, "-m", "celery", *beat_arguments(data / "beat-schedule")),
        environment={**environment, **CELERY_ENVIRONMENT},
        after=("prepare",),
        working_folder=str(ROOT),
    )
    return [*workers, beat]


def simulator_unit(made: Plan) -> Unit:
    port, nodes = str(made.ports.simulator), str(made.options.nodes)
    return Unit(
        name="simulator",
        command=(PYTHON, "-m", "gpufleet.simulator", "--port", port, "--nodes", nodes),
        environment={"PYTHONUNBUFFERED": "1"},
        probe=answers(f"{made.simulator_url}/targets.json"),
        working_folder=str(ROOT),
    )


def prepare_unit(made: Plan, environment: Mapping[str, str], after: tuple[str, ...]) -> Unit:
    """Schema, people, token and targets; the others start as soon as the schema is there."""
    options = made.options
    watched: tuple[str, ...] = ()
    if options.targets is not None:
        watched = ("--targets", str(options.targets))
    elif options.simulator:
        watched = ("--targets-url", f"{made.simulator_url}/targets.json")
        if options.history_days:
            watched += ("--history", str(options.history_days), "--nodes", str(options.nodes))
    return Unit(
        name="prepare",
        command=(PYTHON, "-m", "gpufleet.stack.prepare", str(options.data), *watched),
        environment=environment,
        after=after,
        once=True,
        vital=True,
        ready_line=MIGRATED,
        working_folder=str(ROOT),
    )


def first_look_unit(made: Plan, began: float) -> Unit:
    """Says when the first values are on the map."""
    token = str(made.options.data / "api-token")
    asked = f"http://{_reachable(made.options.host)}:{made.ports.web}"
    return Unit(
        name="first-look",
        command=(PYTHON, "-m", "gpufleet.stack.first_look", asked, token, str(began)),
        environment={"PYTHONUNBUFFERED": "1"},
        after=("web",),
        once=True,
        working_folder=str(ROOT),
    )


def web_arguments(bind: str) -> tuple[str, ...]:
    return (
        "gpufleet.wsgi",
        *("--bind", bind, "--worker-class", "gthread", "--workers", "1", "--threads", "8"),
        *("--timeout", "60", "--graceful-timeout", "4", "--keep-alive", "30", "--log-level", "warning"),
        *("--no-control-socket",),
    )


def live_arguments(bind: str) -> tuple[str, ...]:
    return (
        "gpufleet.asgi",
        *("--bind", bind, "--worker-class", "asgi", "--workers", "1", "--worker-connections", "2000"),
        # Its worker needs up to two seconds to cut all streams; given less it is killed, with an alarming line.
        *("--timeout", "60", "--graceful-timeout", "4", "--log-level", "warning"),
        *("--no-control-socket",),
    )


def worker_arguments(name: str, queues: str) -> tuple[str, ...]:
    return (
        *("--quiet", "-A", "gpufleet.celery", "worker", "-n", f"{name}@%h", "-Q", queues, "--pool", "solo", "-c", "1"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "INFO"),
    )


def beat_arguments(schedule: Path) -> tuple[str, ...]:
    return ("--quiet", "-A", "gpufleet.celery", "beat", "-s", str(schedule), "-l", "WARNING")


def answers(url: str) -> Callable[[], bool]:
    """A probe: whether the address answers with a status below 500 within a second."""

    def probe() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=1):  # noqa: S310 - the address is our own
                return True
        except urllib.error.HTTPError as error:
            return error.code < 500
        except (urllib.error.URLError, OSError):
            return False

    return probe


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _reachable(host: str) -> str:
    """An address at which a server that listens on `host` can be asked from here."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, _bracketed(host))  # noqa: S104
