"""Open streams do not keep others from being answered; a crowd is let in a few at a time."""

from __future__ import annotations

import asyncio

from gpufleet.asgi import Message, Receive, Scope, Send, in_turns


async def nothing() -> Message:
    return {}


async def swallow(_message: Message) -> None:
    return None


def test_at_most_so_many_work_towards_their_first_byte_and_streams_do_not_count() -> None:
    working, most_seen, streaming = 0, 0, 0

    async def stream(_scope: Scope, _receive: Receive, send: Send) -> None:
        nonlocal working, most_seen, streaming
        working += 1
        most_seen = max(most_seen, working)
        await asyncio.sleep(0)
        working -= 1
        await send({"type": "http.response.start"})
        streaming += 1
        await asyncio.Event().wait()

    async def crowd() -> None:
        application = in_turns(stream, most=3)
        tasks = [asyncio.create_task(application({}, nothing, swallow)) for _ in range(20)]
        for _ in range(200):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(crowd())
    assert (most_seen, streaming) == (3, 20)


def test_one_that_fails_gives_its_turn_back() -> None:
    async def fail(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise LookupError

    async def twice() -> list[BaseException | None]:
        application = in_turns(fail, most=1)
        calls = [application({}, nothing, swallow) for _ in range(2)]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    assert [type(found) for found in asyncio.run(twice())] == [LookupError, LookupError]
