"""The simulator's HTTP: a small protocol of its own, because it must also fail in ways no framework offers."""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
import struct
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from gpufleet.simulator.faults import FaultError
from gpufleet.simulator.workload import EPOCH
from gpufleet.simulator.world import Answer, World

MAX_HEAD = 16_384
MAX_BODY = 65_536
LATEST = 1e11
HANG_DELAY = 3_600
METRICS = re.compile(r"/nodes/([^/]+)/(dcgm|node)/metrics")
INJECTED = re.compile(r"/inject/([^/]+)")
TEXT = "text/plain; version=0.0.4; charset=utf-8"
REASONS = {200: "OK", 201: "Created", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
           413: "Content Too Large", 422: "Unprocessable Content", 500: "Internal Server Error"}  # fmt: skip


class RequestError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def reply(status: int, body: bytes, kind: str = "application/json", more: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return (
        f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n{more}\r\n".encode()
        + body
    )


class Connection(asyncio.Protocol):
    """One client. Requests are answered in order; a hang holds the connection without a word."""

    def __init__(self, world: World, clock: Callable[[], float], open_connections: set[Connection]) -> None:
        self.world, self.clock, self.open = world, clock, open_connections
        self.buffer = bytearray()
        self.hanging = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - the loop's contract for streams
        self.transport = transport
        self.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open.discard(self)

    def data_received(self, data: bytes) -> None:
        if self.hanging:
            return
        self.buffer += data
        while self.buffer and not self._silent():
            try:
                if not self._next_request():
                    return
            except RequestError as error:
                self.transport.write(_problem(error))
                self.transport.close()

    def _silent(self) -> bool:
        return self.hanging or self.transport.is_closing()

    def _next_request(self) -> bool:
        """Answers one whole request; False when more bytes are needed. Raises RequestError if it cannot be read."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self.buffer) > MAX_HEAD:
                raise RequestError(413, "the head is too large")
            return False
        head = bytes(self.buffer[:end]).decode("latin-1")
        parts = head.split("\r\n", 1)[0].split(" ")
        if len(parts) != 3:
            raise RequestError(400, "not an HTTP request")
        lowered = head.lower()
        size = _body_size(lowered)
        if len(self.buffer) < end + 4 + size:
            return False
        body = bytes(self.buffer[end + 4 : end + 4 + size])
        del self.buffer[: end + 4 + size]
        self._answer(parts[0], parts[1], body)
        if "\r\nconnection: close" in lowered and not self.hanging:
            self.transport.close()
        return True

    def _answer(self, method: str, target: str, body: bytes) -> None:
        path, _, query = target.partition("?")
        try:
            found = METRICS.fullmatch(path)
            if found:
                _only(method, "GET")
                self._metrics(found[1], found[2], query)
            else:
                self.transport.write(self._json(method, path, body))
        except RequestError as error:
            self.transport.write(_problem(error))

    def _metrics(self, name: str, exporter: str, query: str) -> None:
        virtual = "t=" in query
        t = _instant(query) if virtual else self.clock()
        try:
            answer = self.world.answer(name, exporter, t)
        except KeyError:
            raise RequestError(404, f"no node {name!r}") from None
        if answer.mode:
            self._fail(answer, virtual)
        else:
            self.transport.write(reply(200, answer.body, TEXT))

    def _fail(self, answer: Answer, virtual: bool) -> None:
        if answer.mode == "500":
            self.transport.write(reply(500, b"Internal server error", TEXT))
        elif answer.mode == "empty":
            self.transport.write(reply(200, b"", TEXT))
        elif answer.mode == "cut_off":
            # Inside a number: behind the last blank there is at least one digit.
            cut = answer.body.rindex(b" ", 0, len(answer.body) * 2 // 3) + 2
            self.transport.write(reply(200, answer.body[:cut], TEXT, length=len(answer.body)))
            self.transport.close()
        elif answer.mode == "hang" and virtual:
            self.transport.write(reply(200, b"", TEXT, f"X-Virtual-Delay: {HANG_DELAY}\r\n"))
        elif answer.mode == "hang":
            self.hanging = True
        else:
            self.reset()

    def reset(self) -> None:
        """Ends the connection with RST, the nearest a shared port comes to a refused connection."""
        raw = self.transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _json(self, method: str, path: str, body: bytes) -> bytes:
        if path == "/targets.json":
            _only(method, "GET")
            host, port = self.transport.get_extra_info("sockname")[:2]
            return reply(200, _dump(self.world.targets(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")))
        if path == "/truth":
            _only(method, "GET")
            return reply(200, _dump(self.world.truth()))
        if path == "/inject":
            _only(method, "POST")
            return self._inject(body)
        found = INJECTED.fullmatch(path)
        if found:
            _only(method, "DELETE")
            return self._repair(found[1], body)
        raise RequestError(404, "no such page")

    def _inject(self, body: bytes) -> bytes:
        try:
            given = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RequestError(400, "the body is not JSON") from error
        if not isinstance(given, dict):
            raise RequestError(422, "an object is needed")
        try:
            return reply(201, _dump({"id": self.world.inject(given, self.clock()).id}))
        except KeyError as error:
            raise RequestError(404, str(error.args[0])) from error
        except FaultError as error:
            raise RequestError(422, str(error)) from error

    def _repair(self, fault_id: str, body: bytes) -> bytes:
        try:
            fault = self.world.repair(fault_id, self.clock())
        except KeyError:
            raise RequestError(404, f"no fault {fault_id!r}") from None
        for other in [c for c in self.open if c.hanging]:
            other.reset()
        return reply(200, _dump({"id": fault.id, "repaired_unix": fault.end}))


def _body_size(lowered: str) -> int:
    found = re.search(r"\r\ncontent-length: *([^\r]*)", lowered)
    if found is None:
        return 0
    text = found[1].strip()
    if not (text.isascii() and text.isdigit()):
        raise RequestError(400, "a bad Content-Length")
    if len(text) > 9 or int(text) > MAX_BODY:
        raise RequestError(413, f"at most {MAX_BODY} bytes")
    return int(text)


def _instant(query: str) -> float:
    try:
        t = float(parse_qs(query)["t"][-1])
    except (KeyError, ValueError):
        raise RequestError(400, "t must be Unix seconds") from None
    if not math.isfinite(t) or not EPOCH <= t <= LATEST:
        raise RequestError(400, f"t must be from {EPOCH:.0f} to {LATEST:.0f}")
    return t


def _only(method: str, allowed: str) -> None:
    if method != allowed:
        raise RequestError(405, f"only {allowed}")


def _problem(error: RequestError) -> bytes:
    return reply(error.status, _dump({"error": str(error)}))


def _dump(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


async def listen(
    world: World, host: str, port: int, clock: Callable[[], float] = time.time
) -> tuple[asyncio.Server, set[Connection]]:
    """A server that answers for `world`, and the set of its open connections. Raises OSError when it cannot listen."""
    connections: set[Connection] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(world, clock, connections), host, port, backlog=512)
    return server, connections
