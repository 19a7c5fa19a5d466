"""Transport: whatever a target does, the scrape ends in time with the right word, and no other target notices."""

from __future__ import annotations

import asyncio
import gzip
import resource
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pycurl
import pytest
from serving import Handler, Server, Wire
from shared import case

from gpufleet.scrape import fetch as fetching
from gpufleet.scrape.addresses import networks
from gpufleet.scrape.fetch import Fetched, Fetcher

Serve = Callable[[Handler], Server]


@dataclass(frozen=True)
class Aim:
    id: int
    url: str
    trusted: bool = True
    access: str = ""


def get(
    *urls: str, timeout: float = 5.0, limit: int = 4 << 20, trusted: bool = True, inside: str = ""
) -> list[Fetched]:
    with closing(Fetcher(max_bytes=limit, inside=networks([inside] if inside else []))) as fetcher:
        return fetcher.fetch([Aim(n, url, trusted) for n, url in enumerate(urls)], timeout)


def outcome(fetched: Fetched) -> tuple[str, bytes | None]:
    return fetched.reason, fetched.body


async def good(wire: Wire) -> None:
    await wire.answer(b"up 1\n", Content_Type="text/plain; version=0.0.4")


def test_a_good_answer(serve: Serve) -> None:
    server = serve(good)
    before = time.time()
    (one,) = get(server.url())
    assert outcome(one) == ("", b"up 1\n")
    assert before <= one.started_at <= time.time()
    assert one.size == 5
    assert one.content_type == "text/plain; version=0.0.4"
    assert server.headers[0]["user-agent"] == "gpufleet/0.1.0"
    assert server.headers[0]["accept-encoding"] == "gzip"
    assert "cookie" not in server.headers[0]


def test_connections_are_kept_and_cookies_are_not(serve: Serve) -> None:
    async def handler(wire: Wire) -> None:
        await wire.answer(b"up 1\n", Set_Cookie="a=b")

    server = serve(handler)

    with closing(Fetcher(max_bytes=100, inside=[])) as fetcher:
        found = [fetcher.fetch([Aim(1, server.url())], 5)[0] for _ in range(3)]
    assert [one.body for one in found] == [b"up 1\n"] * 3
    assert server.connections == 1
    assert all("cookie" not in headers for headers in server.headers)


def test_a_connection_that_the_server_let_go_is_made_anew(serve: Serve) -> None:
    async def handler(wire: Wire) -> None:
        await good(wire)
        wire.close()

    server = serve(handler)

    with closing(Fetcher(max_bytes=100, inside=[])) as fetcher:
        for _ in range(3):
            assert fetcher.fetch([Aim(1, server.url())], 5)[0].reason == ""
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("status", "reason", "detail"),
    [
        ("302 Found", "redirected", "302 to http://elsewhere.example/"),
        ("301 Moved", "redirected", "301 to http://elsewhere.example/"),
        ("401 Unauthorized", "unauthorised", "401"),
        ("403 Forbidden", "unauthorised", "403"),
        ("404 Not Found", "http status", "404"),
        ("500 Oops", "http status", "500"),
        ("204 No Content", "http status", "204"),
    ],
)
def test_statuses(serve: Serve, status: str, reason: str, detail: str) -> None:
    async def handler(wire: Wire) -> None:
        await wire.answer(b"", status, Location="http://elsewhere.example/")

    server = serve(handler)
    (one,) = get(server.url())
    assert (one.reason, one.detail, one.body) == (reason, detail, None)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "reason"), [("302 Found", "redirected"), ("500 Oops", "http status"), ("200 OK", "timeout")]
)
def test_an_answer_of_which_only_the_head_comes(serve: Serve, status: str, reason: str) -> None:
    async def handler(wire: Wire) -> None:
        await wire.send(f"HTTP/1.1 {status}\r\nContent-Length: 10\r\n\r\n".encode())
        await asyncio.sleep(2)

    (one,) = get(serve(handler).url(), timeout=0.3)
    assert outcome(one) == (reason, None)


def test_an_interim_answer_is_not_the_answer(serve: Serve) -> None:
    async def handler(wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 103 Early Hints\r\nContent-Encoding: br\r\n\r\n")
        await good(wire)

    assert outcome(get(serve(handler).url())[0]) == ("", b"up 1\n")


def test_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        (one,) = get(f"http://127.0.0.1:{port}/metrics")
    assert outcome(one) == ("refused", None)


def test_a_name_that_does_not_exist() -> None:
    (one,) = get("http://no-such-host.invalid/metrics")
    assert outcome(one) == ("dns", None)


def test_no_tls_where_tls_is_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            connection.recv(4096)
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        (one,) = get(f"https://127.0.0.1:{listening.getsockname()[1]}/metrics")
        thread.join(10)
    assert outcome(one) == ("tls", None)


def test_an_answer_that_is_no_http(serve: Serve) -> None:
    async def handler(wire: Wire) -> None:
        await wire.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        wire.close()

    (one,) = get(serve(handler).url())
    assert outcome(one) == ("not an exposition", None)


def test_case_009_a_body_that_ends_before_its_length(serve: Serve) -> None:
    folder, facts = case("009")
    body = (folder / "input.prom").read_bytes()
    assert facts["numbers"] == {"samples_accepted": 0, "scrape_ok": False}

    async def with_length(wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3719\r\n\r\n" + body[:3709])
        wire.close()

    async def in_chunks(wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await wire.send(b"%x\r\n" % 3709 + body[:3709] + b"\r\n")
        wire.close()

    assert outcome(get(serve(with_length).url())[0]) == ("cut off", None)
    assert outcome(get(serve(in_chunks).url())[0]) == ("cut off", None)


def test_case_010_the_deadline_is_for_the_whole_scrape(serve: Serve) -> None:
    """The times of the case divided by ten, so that the test is short."""
    folder, _ = case("010")
    body = (folder / "input.prom").read_bytes()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)

    async def handler(wire: Wire) -> None:
        if wire.path == "/a":
            await asyncio.sleep(0.01)
            await wire.send(head)
            await asyncio.sleep(0.19)
            await wire.send(body[: len(body) // 2])
            while not wire.is_gone:
                await asyncio.sleep(0.05)
        if wire.path == "/b":
            await wire.send(head)
            for byte in body:
                await asyncio.sleep(0.5)
                await wire.send(bytes([byte]))
        if wire.path == "/c":
            await asyncio.sleep(0.9)
            await wire.send(head)
            await wire.send(body)
        if wire.path.startswith("/node"):
            await wire.answer(body)

    server = serve(handler)
    urls = [server.url(path) for path in ("/a", "/b", "/c", *(f"/node{n}" for n in range(62)))]
    a, b, c, *others = get(*urls, timeout=1.3)
    for one in (a, b):
        assert outcome(one) == ("timeout", None)
        assert 1.2 < one.duration_seconds < 2.3
    assert outcome(c) == ("", body)
    assert [outcome(one) for one in others] == [("", body)] * 62
    # Nobody waited for the slow ones.
    assert max(one.duration_seconds for one in others) < 0.9
    deadline = time.monotonic() + 5
    while server.open_now and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.open_now == 0


def test_case_011_a_small_file_with_a_huge_body(serve: Serve) -> None:
    folder, facts = case("011")
    packed = (folder / "input.prom.gz").read_bytes()
    assert len(packed) == facts["numbers"]["packed_bytes"]

    async def handler(wire: Wire) -> None:
        if wire.path == "/bomb":
            await wire.answer(packed, Content_Encoding="gzip")
        else:
            await good(wire)

    server = serve(handler)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bomb, next_one = get(server.url("/bomb"), server.url(), limit=4 << 20)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert outcome(bomb) == ("too large", None)
    assert bomb.size <= (4 << 20) + 1
    assert outcome(next_one) == ("", b"up 1\n")
    assert grown < 32 * 1024


def test_a_packed_body(serve: Serve) -> None:
    body = b"up 1\n" * 10_000
    packed = {
        "/whole": gzip.compress(body),
        "/members": gzip.compress(body[:25_000]) + gzip.compress(body[25_000:]),
        "/cut": gzip.compress(body)[:-9],
        "/broken": b"\x1f\x8b" + b"nonsense" * 9,
    }

    async def handler(wire: Wire) -> None:
        await wire.answer(packed[wire.path], Content_Encoding="gzip")

    server = serve(handler)
    found = get(*(server.url(path) for path in packed), limit=len(body))
    assert [outcome(one) for one in found] == [("", body), ("", body), ("cut off", None), ("bad packing", None)]
    assert found[0].size == len(body)


def test_a_packing_that_was_not_asked_for(serve: Serve) -> None:
    async def handler(wire: Wire) -> None:
        await wire.answer(b"up 1\n", Content_Encoding="br")

    assert outcome(get(serve(handler).url())[0]) == ("bad packing", None)


@pytest.mark.parametrize(("size", "reason"), [(1024, ""), (1025, "too large")])
def test_the_limit_is_exact(serve: Serve, size: int, reason: str) -> None:
    async def handler(wire: Wire) -> None:
        await wire.answer(b"#" * size)

    assert get(serve(handler).url(), limit=1024)[0].reason == reason


def test_an_endless_body_ends_at_the_limit(serve: Serve) -> None:
    async def handler(wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await wire.send(b"400\r\n" + b"#" * 0x400 + b"\r\n")

    (one,) = get(serve(handler).url(), limit=100_000)
    assert outcome(one) == ("too large", None)


def test_a_target_is_asked_once_at_a_time(serve: Serve) -> None:
    async def handler(wire: Wire) -> None:
        await asyncio.sleep(0.2)
        await good(wire)

    server = serve(handler)

    with closing(Fetcher(max_bytes=100, inside=[])) as fetcher:
        first, second = fetcher.fetch([Aim(1, server.url()), Aim(1, server.url())], 5)
    assert outcome(first) == ("", b"up 1\n")
    assert outcome(second) == ("collector", None)
    assert len(server.requests) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}/metrics", "http://localhost:{port}/metrics"])
@pytest.mark.parametrize("inside", ["", "127.0.0.0/8", "10.0.0.0/8"])
def test_what_a_person_added_is_never_on_loopback(serve: Serve, url: str, inside: str) -> None:
    server = serve(good)
    (one,) = get(url.format(port=server.port), trusted=False, inside=inside)
    assert outcome(one) == ("forbidden address", None)
    assert server.connections == 0


def test_only_the_usable_addresses_of_a_name_are_connected_to(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(good)
    handle = fetching._handle
    asked: list[str] = []

    def named() -> Any:
        curl = handle()
        curl.setopt(pycurl.RESOLVE, [f"node:{server.port}:127.0.0.9,127.0.0.1", f"other:{server.port}:127.0.0.9"])
        return curl

    def is_allowed(address: str, _inside: object) -> bool:
        asked.append(address)
        return address == "127.0.0.1"

    monkeypatch.setattr(fetching, "_handle", named)
    monkeypatch.setattr(fetching, "allowed", is_allowed)
    one, other = get(f"http://node:{server.port}/", f"http://other:{server.port}/", trusted=False)
    assert outcome(one) == ("", b"up 1\n")
    assert outcome(other) == ("forbidden address", None)
    assert sorted(asked) == ["127.0.0.1", "127.0.0.1", "127.0.0.9", "127.0.0.9"]
    assert server.connections == 1


def test_an_open_connection_of_a_trusted_target_is_not_lent(serve: Serve) -> None:
    server = serve(good)
    with closing(Fetcher(max_bytes=100, inside=[])) as fetcher:
        assert fetcher.fetch([Aim(1, server.url())], 5)[0].reason == ""
        assert fetcher.fetch([Aim(2, server.url("/secret"), trusted=False)], 5)[0].reason == "forbidden address"
        assert fetcher.fetch([Aim(1, server.url())], 5)[0].reason == ""
    assert server.requests == ["/metrics", "/metrics"]


@pytest.mark.parametrize(
    "url", ["", "nonsense", "file:///etc/passwd", "ftp://127.0.0.1/", "http://a b/", "http://[::1"]
)
def test_what_is_no_address_of_ours(url: str) -> None:
    (one,) = get(url)
    assert one.body is None
    assert one.reason in {"unreachable", "dns", "not an exposition"}
