"""Tells whether one part is healthy, by exit code: `http URL`, `worker NAME` or `beat SCHEDULE_FILE SECONDS`.

Run inside the part's own container. Loads no Django: it is asked every half minute.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from gpufleet import environment

HTTP_SECONDS = 5
WORKER_SECONDS = 10


def main(arguments: list[str]) -> int:
    """0 healthy, 1 not (with one line that says why), 2 for a wrong call."""
    match arguments:
        case ["http", url]:
            problem = http_problem(url)
        case ["worker", name]:
            problem = worker_problem(name)
        case ["beat", path, seconds]:
            problem = beat_problem(Path(path), float(seconds), time.time())
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    if problem:
        print(problem)
    return 1 if problem else 0


def http_problem(url: str) -> str:
    """Empty when the address answers with 200."""
    try:
        with urllib.request.urlopen(url, timeout=HTTP_SECONDS) as answer:  # noqa: S310 - named by the operator
            return "" if answer.status == 200 else f"{url} answered {answer.status}"
    except (urllib.error.URLError, OSError) as error:
        return f"{url}: {error}"


def worker_problem(name: str) -> str:
    """Empty when the Celery worker `name` of this host answers a ping through the broker.

    The answer comes from the loop that also runs the tasks, so a worker that hangs is not healthy.
    """
    from celery import Celery

    broker = str(environment.read(os.environ)["BROKER_URL"])
    node = f"{name}@{socket.gethostname()}"
    app = Celery(broker=broker, set_as_current=False)
    app.conf.broker_transport_options = {"socket_timeout": 5, "socket_connect_timeout": 5}
    try:
        answers = app.control.ping(destination=[node], timeout=WORKER_SECONDS, limit=1)
    except Exception as error:  # noqa: BLE001 - whatever the transport raises, the worker cannot be asked
        return f"{node}: the broker cannot be asked ({error})"
    finally:
        app.close()
    return "" if answers else f"{node} does not answer"


def beat_problem(schedule: Path, seconds: float, now: float) -> str:
    """Empty when beat wrote its schedule within `seconds`; it does so each time it sends a task."""
    written = [path.stat().st_mtime for path in schedule.parent.glob(f"{schedule.name}*")]
    if not written:
        return f"{schedule} does not exist"
    age = now - max(written)
    return "" if age <= seconds else f"beat sent nothing for {age:.0f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
