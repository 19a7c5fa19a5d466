"""Credentials and certificates: what goes with a request, what a failure says, and that no secret is ever said."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from serving import Server, Wire

from gpufleet.scrape.access import Access
from gpufleet.scrape.fetch import Fetched, Fetcher

SECRET = "s3cret-token-of-the-test"
Serve = Callable[..., Server]


@dataclass(frozen=True)
class Aim:
    url: str
    access: str = "job"
    id: int = 1
    trusted: bool = True


def get(url: str, access: Access, name: str = "job") -> Fetched:
    with closing(Fetcher(max_bytes=1000, inside=[], accesses=lambda: {"job": access})) as fetcher:
        return fetcher.fetch([Aim(url, name)], 5)[0]


async def good(wire: Wire) -> None:
    await wire.answer(b"up 1\n")


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    return file


def test_basic(serve: Serve, token: Path) -> None:
    server = serve(good)
    assert get(server.url(), Access(username="ops", password_file=str(token))).reason == ""
    assert server.headers[0]["authorization"] == f"Basic {b64encode(f'ops:{SECRET}'.encode()).decode()}"


def test_a_bearer_token_is_read_again_when_it_is_rotated(serve: Serve, token: Path) -> None:
    server = serve(good)
    access = Access(scheme="Bearer", credentials_file=str(token))
    with closing(Fetcher(max_bytes=1000, inside=[], accesses=lambda: {"job": access})) as fetcher:
        fetcher.fetch([Aim(server.url())], 5)
        token.write_text("another-one")
        fetcher.fetch([Aim(server.url())], 5)
        fetcher.fetch([Aim(server.url(), access="")], 5)
    assert [headers.get("authorization") for headers in server.headers] == [
        f"Bearer {SECRET}",
        "Bearer another-one",
        None,
    ]


def test_credentials_do_not_follow_a_redirect(serve: Serve, token: Path) -> None:
    thief = serve(good)

    async def elsewhere(wire: Wire) -> None:
        await wire.answer(b"", "302 Found", Location=thief.url())

    one = get(serve(elsewhere).url(), Access(scheme="Bearer", credentials_file=str(token)))
    assert one.reason == "redirected"
    assert thief.connections == 0


@pytest.mark.parametrize("holds", [None, b"", b"two\nlines", b"\xff\xfe", b"x" * 70_000])
def test_credentials_that_cannot_be_used(serve: Serve, tmp_path: Path, holds: bytes | None) -> None:
    server = serve(good)
    file = tmp_path / "token"
    if holds is not None:
        file.write_bytes(holds)
    one = get(server.url(), Access(scheme="Bearer", credentials_file=str(file)))
    assert (one.reason, one.body) == ("collector", None)
    assert one.detail.startswith(f"the credentials in {file} ")
    assert "two" not in one.detail
    assert server.connections == 0


def test_a_job_that_this_worker_does_not_know(serve: Serve) -> None:
    server = serve(good)
    one = get(server.url(), Access(), name="other")
    assert (one.reason, server.connections) == ("collector", 0)


def test_no_secret_is_said(serve: Serve, token: Path) -> None:
    async def refuse(wire: Wire) -> None:
        await wire.answer(b"", "401 Unauthorized")

    for access in (
        Access(scheme="Bearer", credentials_file=str(token)),
        Access(username="ops", password_file=str(token)),
    ):
        one = get(serve(refuse).url(), access)
        assert one.reason == "unauthorised"
        assert SECRET not in repr(one) + repr(access)


class Authority:
    """A certificate authority with its files."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        self.ca.cert_pem.write_to_path(self.ca_file)
        self.client_file = str(folder / "client.pem")
        self.ca.issue_cert("scraper@example.com").private_key_and_cert_chain_pem.write_to_path(self.client_file)

    def server(self, name: str, ask_for_client: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.ca.issue_cert(name).configure_cert(context)
        if ask_for_client:
            self.ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def test_https(serve: Serve, authority: Authority) -> None:
    url = serve(good, authority.server("127.0.0.1")).url()
    assert get(url, Access(ca_file=authority.ca_file)).body == b"up 1\n"
    assert get(url, Access()).reason == "tls"
    assert get(url, Access(insecure_skip_verify=True)).body == b"up 1\n"
    assert get(url, Access(ca_file="/no/such/file")).reason == "tls"


def test_a_certificate_of_another_name(serve: Serve, authority: Authority) -> None:
    server = serve(good, authority.server("exporter.example"))
    assert get(server.url(), Access(ca_file=authority.ca_file)).reason == "tls"
    named = Access(ca_file=authority.ca_file, server_name="exporter.example")
    assert get(server.url("/a?b=c"), named).body == b"up 1\n"
    assert server.requests == ["/a?b=c"]


def test_client_certificates(serve: Serve, authority: Authority) -> None:
    url = serve(good, authority.server("127.0.0.1", ask_for_client=True)).url()
    with_client = Access(ca_file=authority.ca_file, cert_file=authority.client_file)
    assert get(url, with_client).body == b"up 1\n"
    without = get(url, Access(ca_file=authority.ca_file))
    assert (without.reason, without.body) in {("tls", None), ("cut off", None)}


def test_certificates_of_one_job_are_not_lent_to_another(serve: Serve, authority: Authority) -> None:
    """The connection that the first job opened would be at hand for the second one."""
    server = serve(good, authority.server("127.0.0.1", ask_for_client=True))
    accesses = {
        "with": Access(ca_file=authority.ca_file, cert_file=authority.client_file),
        "without": Access(ca_file=authority.ca_file),
    }
    with closing(Fetcher(max_bytes=1000, inside=[], accesses=lambda: accesses)) as fetcher:
        assert fetcher.fetch([Aim(server.url(), "with")], 5)[0].body == b"up 1\n"
        assert fetcher.fetch([Aim(server.url(), "without")], 5)[0].body is None
        assert fetcher.fetch([Aim(server.url(), "with")], 5)[0].body == b"up 1\n"
