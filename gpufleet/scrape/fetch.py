"""Fetches the bodies of many targets at once. Nothing that a target does can hold up or harm another one.

libcurl speaks HTTP and TLS. An address is looked at when its socket is opened, so what was checked is what is connected
to, and once more before a request goes out on a connection that was open already.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pycurl

from gpufleet import __version__
from gpufleet.scrape import failures
from gpufleet.scrape.access import PLAIN, Access
from gpufleet.scrape.addresses import Network, allowed
from gpufleet.scrape.failures import ScrapeFailed
from gpufleet.scrape.transfers import OK, Transfers
from gpufleet.scrape.unpacking import Plain, unpacker

CONNECTIONS = 32_768  # kept open at most, where the system lets a process have so many
OTHER_FILES = 256  # that a process needs besides
DNS_SECONDS = 60
KEEP_ALIVE_SECONDS = 330  # longer than the longest interval
READ_BYTES = 512 * 1024
ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.9,*/*;q=0.1"
HEADERS = (f"User-Agent: gpufleet/{__version__}", f"Accept: {ACCEPT}", "Accept-Encoding: gzip")

_REASONS = {
    pycurl.E_OPERATION_TIMEDOUT: failures.TIMEOUT,
    pycurl.E_COULDNT_RESOLVE_HOST: failures.DNS,
    pycurl.E_COULDNT_CONNECT: failures.UNREACHABLE,
    pycurl.E_URL_MALFORMAT: failures.UNREACHABLE,
    pycurl.E_UNSUPPORTED_PROTOCOL: failures.NOT_AN_EXPOSITION,
    pycurl.E_FTP_WEIRD_SERVER_REPLY: failures.NOT_AN_EXPOSITION,
    pycurl.E_SSL_CONNECT_ERROR: failures.TLS,
    pycurl.E_SSL_CERTPROBLEM: failures.TLS,
    pycurl.E_SSL_CIPHER: failures.TLS,
    pycurl.E_PEER_FAILED_VERIFICATION: failures.TLS,
    pycurl.E_SSL_CACERT_BADFILE: failures.TLS,
    pycurl.E_SSL_ISSUER_ERROR: failures.TLS,
}


class Fetchable(Protocol):
    """What the fetcher must know of a target."""

    @property
    def id(self) -> int: ...
    @property
    def url(self) -> str: ...
    @property
    def trusted(self) -> bool: ...
    @property
    def access(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """One answer or its failure. `started_at`: Unix seconds by the wall clock; the duration is monotonic.

    `size` and `body` are unpacked; the body is None when the scrape failed; then `reason` is one of failures.REASONS.
    `headers`: names in lower case. `is_asked` is False where nothing was sent.
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
    is_asked: bool = True


def not_asked(target_id: int, at: float, reason: str) -> Fetched:
    """Stands for an answer where a sick target was left in peace; `reason` is why it is sick."""
    return Fetched(target_id, at, 0.0, 0, None, reason, "not asked this time", is_asked=False)


class Fetcher:
    """One client for the life of a process; connections stay open between scrapes. Not for several threads at once.

    `inside`: networks in which a target that is not trusted may be. `max_bytes` counts after unpacking. `accesses`:
    how to ask, by the name that a target gives.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        inside: Sequence[Network],
        accesses: Callable[[], Mapping[str, Access]] = dict,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_bytes = max_bytes
        self._inside = inside
        self._accesses = accesses
        self._clock = clock
        self._transfers = Transfers(_connections())
        self._idle: dict[Access, list[_Transfer]] = {}

    def close(self) -> None:
        self._transfers.close()
        for transfer in (transfer for idle in self._idle.values() for transfer in idle):
            transfer.curl.close()
        self._idle.clear()

    def fetch(
        self,
        targets: Sequence[Fetchable],
        timeout: float,
        query: str = "",
        timeout_of: Callable[[int, float], float] = lambda _, timeout: timeout,
    ) -> list[Fetched]:
        """All targets together, each within `timeout` seconds for everything; in the order of `targets`.

        `timeout_of` may give a target less, by its id. `query` is added to each address. A target is not asked twice at
        the same time.
        """
        found: dict[int, Fetched] = {}
        begun: dict[int, tuple[int, _Transfer]] = {}
        asked: set[int] = set()
        accesses = self._accesses()
        started_at, began = self._clock(), time.monotonic()
        for place, target in enumerate(targets):
            try:
                if target.id in asked:
                    raise ScrapeFailed(failures.COLLECTOR, "the last scrape is still open")
                transfer = self._begin(target, _access(accesses, target.access), timeout_of(target.id, timeout), query)
            except ScrapeFailed as error:
                found[place] = Fetched(target.id, started_at, 0.0, 0, None, error.reason, error.detail)
                continue
            asked.add(target.id)
            begun[id(transfer.curl)] = place, transfer
        for curl, code, message in self._transfers.run([transfer.curl for _, transfer in begun.values()]):
            place, transfer = begun[id(curl)]
            found[place] = transfer.end(targets[place].id, started_at, time.monotonic() - began, code, message)
            self._idle.setdefault(transfer.access, []).append(transfer)
        return [found[place] for place in range(len(targets))]

    def _begin(self, target: Fetchable, access: Access, timeout: float, query: str) -> _Transfer:
        idle = self._idle.setdefault(access, [])
        transfer = idle.pop() if idle else _Transfer(self._max_bytes, self._inside, access)
        url = target.url
        if query:
            url += ("&" if "?" in url else "?") + query
        try:
            transfer.begin(url, target.trusted, timeout)
        except ScrapeFailed:
            idle.append(transfer)
            raise
        return transfer


class _Transfer:
    """A handle of libcurl with what one answer brings; used again for other targets."""

    def __init__(self, max_bytes: int, inside: Sequence[Network], access: Access) -> None:
        self._max_bytes = max_bytes
        self._inside = inside
        self.access = access
        self._opened: list[socket.socket] = []
        self.curl = _handle()
        access.apply(self.curl, list(HEADERS))
        self.curl.setopt(pycurl.WRITEFUNCTION, self._take)
        self._head: list[bytes] = []  # its lines, looked at once the body begins
        self.curl.setopt(pycurl.HEADERFUNCTION, self._head.append)
        self.curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open)
        self.curl.setopt(pycurl.PREREQFUNCTION, self._before_request)

    def begin(self, url: str, trusted: bool, timeout: float) -> None:
        self._trusted = trusted
        self._head.clear()
        self._headers: dict[str, str] = {}
        self._unpack: Plain | None = None
        self._parts: list[bytes] = []
        self._failure: ScrapeFailed | None = None
        self._forbidden = ""
        self.access.authorise(self.curl, list(HEADERS))
        try:
            self.curl.setopt(pycurl.URL, self.access.aim(self.curl, url).encode())
        except (pycurl.error, ValueError) as error:
            raise ScrapeFailed(failures.UNREACHABLE, f"not an address: {error}") from error
        self.curl.setopt(pycurl.TIMEOUT_MS, max(1, int(timeout * 1000)))

    def end(self, target_id: int, started_at: float, spent: float, code: int, message: str) -> Fetched:
        """What came of it. Lets go of what the answer held."""
        size = 0 if self._unpack is None else self._unpack.size
        failure = self._ended_with(code, message)
        parts, headers = self._parts, self._headers
        self._parts, self._headers = [], {}
        while self._opened:
            self._opened.pop().close()
        if failure is not None:
            return Fetched(target_id, started_at, spent, size, None, failure.reason, failure.detail)
        content_type = headers.get("content-type", "").lower()
        return Fetched(target_id, started_at, spent, size, b"".join(parts), "", "", content_type, headers)

    def _ended_with(self, code: int, message: str) -> ScrapeFailed | None:
        if self._failure is not None:
            return self._failure
        try:
            if self._unpack is None and (code == OK or self._head[-1:] == [b"\r\n"]):
                self._unpack = self._unpacker()  # of an answer without a body, or one that never came
            if code != OK:
                return self._failure_of(code, message)
            if self._unpack is not None:
                self._unpack.finish()
        except ScrapeFailed as failure:
            return failure
        return None

    def _failure_of(self, code: int, message: str) -> ScrapeFailed:
        if self._forbidden and code in {pycurl.E_COULDNT_CONNECT, pycurl.E_ABORTED_BY_CALLBACK}:
            return ScrapeFailed(failures.FORBIDDEN_ADDRESS, self._forbidden)
        number = self.curl.getinfo(pycurl.OS_ERRNO)
        if code == pycurl.E_COULDNT_CONNECT and number == errno.ECONNREFUSED:
            return ScrapeFailed(failures.REFUSED, os.strerror(number))
        detail = "" if code == pycurl.E_OPERATION_TIMEDOUT else message
        return ScrapeFailed(_REASONS.get(code, failures.CUT_OFF), detail)

    def _take(self, chunk: bytes) -> int | None:
        """Minus one tells libcurl to end the transfer: what is still to come is not worth reading."""
        try:
            if self._unpack is None:
                self._unpack = self._unpacker()
            self._parts.append(self._unpack.take(chunk))
        except ScrapeFailed as failure:
            self._failure = failure
            return -1
        return None

    def _unpacker(self) -> Plain:
        """What unpacks the body that the head announces. Raises ScrapeFailed for an answer that is none of ours."""
        status, self._headers = _read_head(self._head)
        if 300 <= status < 400:
            raise ScrapeFailed(failures.REDIRECTED, f"{status} to {self._headers.get('location', 'nowhere')}")
        if status in {401, 403, 407}:
            raise ScrapeFailed(failures.UNAUTHORISED, str(status))
        if status != 200:
            raise ScrapeFailed(failures.HTTP_STATUS, str(status))
        return unpacker(self._headers.get("content-encoding", ""), self._max_bytes)

    def _open(self, _purpose: int, address: Any) -> socket.socket | int:
        if self._is_forbidden(address.addr[0]):
            return int(pycurl.SOCKET_BAD)
        opened = socket.socket(address.family, address.socktype, address.protocol)
        self._opened.append(opened)  # libcurl works on a duplicate
        return opened

    def _before_request(self, there: str, _here: str, _port: int, _local_port: int) -> int:
        return int(pycurl.PREREQFUNC_ABORT if self._is_forbidden(there) else pycurl.PREREQFUNC_OK)

    def _is_forbidden(self, address: str) -> bool:
        if self._trusted or allowed(address, self._inside):
            return False
        self._forbidden = address
        return True


def _handle() -> Any:
    """A handle that does one thing: GET, over HTTP 1.1, without proxies, cookies or redirects."""
    curl = pycurl.Curl()
    for option, value in (
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
        (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
        (pycurl.PROXY, ""),
        (pycurl.FOLLOWLOCATION, 0),
        (pycurl.NOSIGNAL, 1),
        (pycurl.BUFFERSIZE, READ_BYTES),
        (pycurl.DNS_CACHE_TIMEOUT, DNS_SECONDS),
        (pycurl.MAXAGE_CONN, KEEP_ALIVE_SECONDS),
    ):
        curl.setopt(option, value)
    return curl


def _access(accesses: Mapping[str, Access], name: str) -> Access:
    if not name:
        return PLAIN
    if name not in accesses:
        raise ScrapeFailed(failures.COLLECTOR, f"the file of sources of this worker has no job {name!r}")
    return accesses[name]


def _connections() -> int:
    """How many connections may stay open. A process may open fewer files than it could have, so it asks for all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return CONNECTIONS if soft == resource.RLIM_INFINITY else min(CONNECTIONS, max(16, soft - OTHER_FILES))


def _read_head(lines: Sequence[bytes]) -> tuple[int, dict[str, str]]:
    """Status and headers (names in lower case) of the last head; others before it were interim ones."""
    status = 0
    headers: dict[str, str] = {}
    for line in lines:
        if line.startswith(b"HTTP/"):
            words = line.split(None, 2)
            status, headers = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0, {}
        else:
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
    return status, headers
