"""How targets of a source are asked: credentials and certificates, all of them named by files.

Secrets stay in their files: they are read when they are needed and never kept in a message, a row or a repr.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pycurl

from gpufleet.scrape import failures
from gpufleet.scrape.failures import ScrapeFailed

MAX_SECRET_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Access:
    """What goes with each request. Empty text: not wanted. Basic or a bearer-like `scheme`, never both.

    `server_name` is the name that the certificate must hold where it is not the target's own.
    """

    username: str = ""
    password_file: str = ""
    scheme: str = ""
    credentials_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    insecure_skip_verify: bool = False

    def apply(self, curl: Any, headers: list[str]) -> None:
        """Sets a handle up. `headers` are those of every request."""
        if self.ca_file:
            curl.setopt(pycurl.CAINFO, self.ca_file)
        if self.cert_file:
            curl.setopt(pycurl.SSLCERT, self.cert_file)
            curl.setopt(pycurl.SSLKEY, self.key_file or self.cert_file)
        if self.insecure_skip_verify:
            curl.setopt(pycurl.SSL_VERIFYPEER, 0)
            curl.setopt(pycurl.SSL_VERIFYHOST, 0)
        if self.username or self.password_file:
            curl.setopt(pycurl.HTTPAUTH, pycurl.HTTPAUTH_BASIC)
        curl.setopt(pycurl.HTTPHEADER, headers)

    def authorise(self, curl: Any, headers: list[str]) -> None:
        """Puts the credentials of this moment into a request. Raises ScrapeFailed when their file cannot be read."""
        if self.username or self.password_file:
            curl.setopt(pycurl.USERNAME, self.username)
            curl.setopt(pycurl.PASSWORD, secret(self.password_file) if self.password_file else "")
        if self.credentials_file:
            curl.setopt(pycurl.HTTPHEADER, [*headers, f"Authorization: {self.scheme} {secret(self.credentials_file)}"])

    def aim(self, curl: Any, url: str) -> str:
        """The address to ask for. With a `server_name` that name is asked for at the target's own address."""
        if not self.server_name:
            return url
        parts = urlsplit(url)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise ScrapeFailed(failures.UNREACHABLE, f"not an address: {error}") from error
        host = parts.netloc.rpartition("@")[2].removesuffix(f":{port}")
        curl.setopt(pycurl.CONNECT_TO, [f"{self.server_name}:{port}:{host}:{port}"])
        return parts._replace(netloc=f"{self.server_name}:{port}").geturl()


PLAIN = Access()


def secret(path: str) -> str:
    """The text of a secret file without its line end. Raises ScrapeFailed, which names the file, not what it holds."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_SECRET_BYTES + 1).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise ScrapeFailed(failures.COLLECTOR, f"the credentials in {path} cannot be read: {why}") from None
    if not text or len(text) > MAX_SECRET_BYTES or not text.isprintable():
        raise ScrapeFailed(failures.COLLECTOR, f"the credentials in {path} are empty, too long or of several lines")
    return text
