"""A small server for transport tests: what goes over the wire is written out byte by byte."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping

Handler = Callable[["Wire"], Awaitable[None]]


class Wire:
    """One request: its `path` (with query) and headers, and where the answer goes."""

    def __init__(
        self, path: str, headers: Mapping[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.path = path
        self.headers = headers
        self._reader = reader
        self._writer = writer

    @property
    def is_gone(self) -> bool:
        """The other side closed the connection."""
        return self._reader.at_eof()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, body: bytes, status: str = "200 OK", **headers: str) -> None:
        """A whole answer with its length; header names with `_` for `-`."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def close(self) -> None:
        self._writer.close()


class Server:
    """Serves on a free loopback port in a thread of its own. `requests` holds the paths asked for, in order."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self.handler = handler
        self._tls = tls
        self.requests: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.connections = 0
        self.open_now = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def url(self, path: str = "/metrics") -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}{path}"

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in self._tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self.open_now += 1
        try:
            while not writer.is_closing():
                request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                path = request.split(" ")[1]
                headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines if x)}
                self.requests.append(path)
                self.headers.append(headers)
                await self.handler(Wire(path, headers, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open_now -= 1
            writer.close()
