"""Servers and collectors that end with their test."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from serving import Handler, Server

from gpufleet.scrape.collector import Collector


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(handler: Handler, tls: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(handler, tls))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def make_collector() -> Iterator[Callable[..., Collector]]:
    made: list[Collector] = []

    def make(**wanted: Any) -> Collector:
        limits: dict[str, Any] = {"interval_seconds": 15, "max_bytes": 4 << 20, "max_samples": 50_000}
        made.append(Collector(**{**limits, **wanted}))
        return made[-1]

    yield make
    for collector in made:
        collector.close()


@pytest.fixture
def collector(make_collector: Callable[..., Collector]) -> Collector:
    return make_collector()
