"""The live bus: one Valkey channel that carries ready bytes from the workers to every open page.

Messages may be lost at any moment: whoever listens notices the gap in the sequence and asks for the whole again.
"""

from __future__ import annotations

from functools import lru_cache

import redis

BROKER_ERRORS = (redis.exceptions.RedisError, OSError)
TIMEOUT_SECONDS = 2.0


@lru_cache(maxsize=4)
def broker(url: str) -> redis.Redis:
    """The process's client of the broker at `url`; connects when first used, and again after a loss."""
    return redis.Redis.from_url(
        url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, health_check_interval=30
    )


def channel(url: str) -> str:
    """The channel of the installation at `url`. Publishing knows no database numbers, so the name carries it."""
    parts = redis.connection.parse_url(url)  # type: ignore[no-untyped-call]
    return f"gpufleet:live:{parts.get('db', 0)}"


def publish(url: str, message: bytes) -> int:
    """Hands `message` to every listener; returns how many there were. Raises one of BROKER_ERRORS."""
    return int(broker(url).publish(channel(url), message))


def next_sequence(url: str, cluster: str) -> int:
    """The number of the next message of a cluster: one more than the last; from 1 when the broker lost its memory."""
    return int(broker(url).incr(f"gpufleet:live:seq:{cluster}"))
