"""The event stream, for an ASGI server. Plain pages are three to four times slower here: serve those from wsgi.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpufleet.settings")

MOST_TURNS = 8  # each may hold a database connection

Message = Mapping[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def in_turns(inner: Application, most: int = MOST_TURNS) -> Application:
    """Lets at most `most` requests work towards their first byte; open streams do not count.

    After a restart every browser comes back at once, and who asks is looked up in the database: 200 at the same time
    would need 200 connections.
    """
    turns = asyncio.Semaphore(most)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        waiting = True

        def done() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                turns.release()

        async def send_and_pass_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                done()
            await send(message)

        await turns.acquire()
        try:
            await inner(scope, receive, send_and_pass_on)
        finally:
            done()

    return application


application = in_turns(get_asgi_application())
