"""All periodic jobs, in one table."""

from __future__ import annotations

from typing import Any


def beat_schedule(interval_seconds: int) -> dict[str, dict[str, Any]]:
    """Celery's beat table. A job that could not start within its period is dropped: a late scrape is a lie."""
    return {
        "tick": {
            "task": "pipeline.tick",
            "schedule": float(interval_seconds),
            "options": {"queue": "scrape", "expires": interval_seconds},
        },
        "sweep": {
            "task": "pipeline.sweep",
            "schedule": 10.0,
            "options": {"queue": "maintain", "expires": 10},
        },
        "keep_partitions": {
            "task": "pipeline.keep_partitions",
            "schedule": 600.0,
            "options": {"queue": "maintain", "expires": 600},
        },
    }
