"""Fetches the bodies of many targets at once. Nothing that a target does can hold up or harm another one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp
from aiohttp.resolver import DefaultResolver

from gpufleet import __version__
from gpufleet.scrape import failures
from gpufleet.scrape.addresses import ForbiddenAddress, GuardedResolver, Network, allowed
from gpufleet.scrape.failures import ScrapeFailed
from gpufleet.scrape.unpacking import unpacker

CONNECTIONS = 1_024
CONNECTIONS_A_HOST = 256
DNS_SECONDS = 60
KEEP_ALIVE_SECONDS = 330.0  # longer than the longest interval
HEADERS = {
    "User-Agent": f"gpufleet/{__version__}",
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}


class Fetchable(Protocol):
    """What the fetcher must know of a target."""

    @property
    def id(self) -> int: ...
    @property
    def url(self) -> str: ...
    @property
    def trusted(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """One answer or its failure. `started_at`: Unix seconds by the wall clock; the duration is monotonic.

    `size` and `body` are unpacked; the body is None when the scrape failed; then `reason` is one of failures.REASONS.
    """

    target_id: int
    started_at: float
    duration_seconds: float
    size: int
    body: bytes | None
    reason: str = ""
    detail: str = ""
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Fetcher:
    """One client for the life of a process; connections stay open between scrapes. Use within one event loop.

    `inside`: networks in which a target that is not trusted may be. `max_bytes` counts after unpacking.
    """

    def __init__(self, *, max_bytes: int, inside: Sequence[Network], clock: Callable[[], float] = time.time) -> None:
        self._max_bytes = max_bytes
        self._inside = inside
        self._clock = clock
        self._open: set[int] = set()
        self._trusted = _session(DefaultResolver())
        self._guarded = _session(GuardedResolver(DefaultResolver(), inside))

    async def close(self) -> None:
        await self._trusted.close()
        await self._guarded.close()

    async def fetch(self, targets: Sequence[Fetchable], timeout: float, query: str = "") -> list[Fetched]:
        """All targets together, each within `timeout` seconds for everything; in the order of `targets`.

        `query` is added to each address. A target that is still being fetched is not asked twice.
        """
        return list(await asyncio.gather(*(self._fetch_one(target, timeout, query) for target in targets)))

    async def _fetch_one(self, target: Fetchable, timeout: float, query: str) -> Fetched:
        started_at, began = self._clock(), time.monotonic()
        size = [0]
        try:
            if target.id in self._open:
                raise ScrapeFailed(failures.COLLECTOR, "the last scrape is still open")
            self._open.add(target.id)
            try:
                async with asyncio.timeout(timeout):
                    body, headers = await self._get(target, query, size)
            finally:
                self._open.discard(target.id)
        except (ScrapeFailed, TimeoutError, OSError, aiohttp.ClientError, ValueError) as error:
            failure = _failure(error)
            spent = time.monotonic() - began
            return Fetched(target.id, started_at, spent, size[0], None, failure.reason, failure.detail)
        content_type = headers.get("Content-Type", "").lower()
        spent = time.monotonic() - began
        return Fetched(target.id, started_at, spent, size[0], body, "", "", content_type, headers)

    async def _get(self, target: Fetchable, query: str, size: list[int]) -> tuple[bytes, Mapping[str, str]]:
        session = self._trusted if target.trusted else self._session_for(target.url)
        url = target.url
        if query:
            url += ("&" if "?" in url else "?") + query
        async with session.get(url, allow_redirects=False) as answer:
            _check_status(answer)
            unpack = unpacker(answer.headers.get("Content-Encoding", ""), self._max_bytes)
            parts: list[bytes] = []
            try:
                async for chunk in answer.content.iter_any():
                    parts.append(unpack.take(chunk))
                    size[0] = unpack.size
                unpack.finish()
            except ScrapeFailed:
                answer.close()  # what is still to come is not worth reading
                raise
            return b"".join(parts), answer.headers

    def _session_for(self, url: str) -> aiohttp.ClientSession:
        """The client that looks at addresses. A literal address never passes a resolver, so it is looked at here."""
        host = urlsplit(url).hostname or ""
        if (":" in host or host.replace(".", "").isdigit()) and not allowed(host, self._inside):
            raise ForbiddenAddress(host)
        return self._guarded


def _session(resolver: aiohttp.abc.AbstractResolver) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        limit=CONNECTIONS,
        limit_per_host=CONNECTIONS_A_HOST,
        ttl_dns_cache=DNS_SECONDS,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        resolver=resolver,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(),  # the deadline is around the whole scrape
        headers=HEADERS,
        auto_decompress=False,
        trust_env=False,
    )


def _check_status(answer: aiohttp.ClientResponse) -> None:
    if answer.status == 200:
        return
    answer.close()
    if 300 <= answer.status < 400:
        raise ScrapeFailed(failures.REDIRECTED, f"{answer.status} to {answer.headers.get('Location', 'nowhere')}")
    if answer.status in {401, 403, 407}:
        raise ScrapeFailed(failures.UNAUTHORISED, str(answer.status))
    raise ScrapeFailed(failures.HTTP_STATUS, str(answer.status))


def _failure(error: Exception) -> ScrapeFailed:
    """The typed reason of what the client raised."""
    if isinstance(error, ScrapeFailed):
        return error
    if isinstance(error, TimeoutError):
        return ScrapeFailed(failures.TIMEOUT)
    if isinstance(error, ForbiddenAddress):
        return ScrapeFailed(failures.FORBIDDEN_ADDRESS, str(error))
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        inner = error.os_error
        forbidden = isinstance(inner, ForbiddenAddress)
        return ScrapeFailed(failures.FORBIDDEN_ADDRESS if forbidden else failures.DNS, str(inner))
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.ClientConnectorCertificateError):
        return ScrapeFailed(failures.TLS, str(error))
    if isinstance(error, aiohttp.ClientConnectorError):
        refused = isinstance(error.os_error, ConnectionRefusedError)
        return ScrapeFailed(failures.REFUSED if refused else failures.UNREACHABLE, error.os_error.strerror or "")
    if isinstance(error, aiohttp.InvalidURL | ValueError):
        return ScrapeFailed(failures.UNREACHABLE, f"not an address: {error}")
    if isinstance(error, aiohttp.ClientResponseError):
        return ScrapeFailed(failures.NOT_AN_EXPOSITION, f"no HTTP answer: {error.message}")
    return ScrapeFailed(failures.CUT_OFF, str(error))
