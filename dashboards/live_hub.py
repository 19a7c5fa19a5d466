"""One subscription to the live bus a process, handed to all readers: each message is framed once, its bytes shared."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from dataclasses import dataclass, field

import redis.asyncio
import structlog

from gpufleet.core.bus import BROKER_ERRORS, channel
from gpufleet.pipeline.live import open_envelope

log = structlog.get_logger(__name__)

MOST_WAITING = 32
RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)
COUNT_SECONDS = 10
CLIENTS_KEY = "gpufleet:live:clients:"


@dataclass(eq=False, slots=True)
class Reader:
    """A stream that is open. Slow readers lose the oldest messages: every message is a whole picture."""

    cluster: str
    metrics: frozenset[str]
    waiting: deque[bytes] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, event: str, cluster: str, metric: str) -> bool:
        if cluster and cluster != self.cluster:
            return False
        return event != "cycle" or metric in self.metrics

    def hand(self, frame: bytes) -> None:
        self.waiting.append(frame)
        self.ready.set()

    async def next_frames(self, timeout: float) -> bytes:
        """What has come, or after `timeout` seconds nothing."""
        try:
            await asyncio.wait_for(self.ready.wait(), timeout)
        except TimeoutError:
            return b""
        self.ready.clear()
        frames = b"".join(self.waiting)
        self.waiting.clear()
        return frames


class LiveHub:
    """Belongs to one event loop. The subscription starts with the first reader."""

    def __init__(self, broker_url: str) -> None:
        self.broker_url = broker_url
        self.readers: set[Reader] = set()
        self.newest: dict[tuple[str, str], bytes] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def join(self, reader: Reader) -> None:
        """The reader gets the newest pictures at once."""
        if not self.tasks or any(task.done() for task in self.tasks):
            self.tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._count())]
        for metric in reader.metrics:
            frame = self.newest.get((reader.cluster, metric))
            if frame is not None:
                reader.hand(frame)
        self.readers.add(reader)

    def leave(self, reader: Reader) -> None:
        self.readers.discard(reader)

    def take(self, message: bytes) -> None:
        """Frames one message of the bus and hands it to whoever wants it. A message that is not ours is dropped."""
        try:
            head, body = open_envelope(message)
        except ValueError:
            log.warning("message on the live bus not understood", bytes=len(message))
            return
        event, cluster, metric = str(head["event"]), str(head["cluster"]), str(head["metric"])
        number = b"id: %d\n" % int(head["seq"]) if head["seq"] else b""
        frame = number + b"event: " + event.encode() + b"\ndata: " + body + b"\n\n"
        if event == "cycle":
            self.newest[cluster, metric] = frame
        for reader in self.readers:
            if reader.wants(event, cluster, metric):
                reader.hand(frame)

    async def _listen(self) -> None:
        failures = 0
        while True:
            try:
                async with (
                    redis.asyncio.Redis.from_url(self.broker_url, health_check_interval=15) as client,
                    client.pubsub(ignore_subscribe_messages=True) as line,
                ):
                    await line.subscribe(channel(self.broker_url))
                    failures = 0
                    while True:
                        message = await line.get_message(timeout=15)
                        if message is not None:
                            self.take(message["data"])
            except BROKER_ERRORS as error:
                wait = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
                failures += 1
                log.warning("live bus lost", reason=type(error).__name__, retry_seconds=wait)
                await asyncio.sleep(wait)

    async def _count(self) -> None:
        """Tells how many streams are open, for our own metrics; the figure expires with the process."""
        key = f"{CLIENTS_KEY}{socket.gethostname()}:{os.getpid()}"
        while True:
            try:
                async with redis.asyncio.Redis.from_url(self.broker_url) as client:
                    await client.set(key, len(self.readers), ex=3 * COUNT_SECONDS)
            except BROKER_ERRORS:
                pass
            await asyncio.sleep(COUNT_SECONDS)
