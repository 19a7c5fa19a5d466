"""Debian's Prometheus, started for a comparison and given samples by remote write."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

Sample = tuple[dict[str, str], int, bytes]  # labels, Unix milliseconds, the eight bytes of the value


@contextmanager
def prometheus(scrape: str = "") -> Iterator[str]:
    """Address of an empty Prometheus that takes remote write and scrapes by `scrape` (YAML). It ends with the block."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "prometheus.yml")
        config.write_text(f"global: {{scrape_interval: 15s}}\n{scrape}")
        port = free_port()
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder}/data",
            "--storage.tsdb.retention.time=30d",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
            "--log.level=error",
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(f"{address}/-/ready")
            yield address
        finally:
            process.terminate()
            process.wait(30)


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def wait_for(url: str, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            with urlopen(url, timeout=2):
                return
        except (URLError, OSError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def get(url: str, **parameters: object) -> dict[str, object]:
    """The JSON of an answer, of an error too."""
    body = urlencode(parameters).encode()
    try:
        with urlopen(Request(url, body), timeout=60) as answer:
            return json.load(answer)
    except HTTPError as error:
        return json.load(error)


def remote_write(address: str, samples: Iterable[Sample]) -> None:
    """Sends samples, which have to come in order of time."""
    body = b"".join(_field(1, _series(*sample)) for sample in samples)
    request = Request(f"{address}/api/v1/write", _snappy(body), method="POST")
    request.add_header("Content-Encoding", "snappy")
    request.add_header("Content-Type", "application/x-protobuf")
    request.add_header("X-Prometheus-Remote-Write-Version", "0.1.0")
    with urlopen(request, timeout=30):
        pass


def _series(labels: dict[str, str], at: int, value: bytes) -> bytes:
    pairs = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, text.encode())) for name, text in sorted(labels.items())
    )
    return pairs + _field(2, b"\x09" + value + b"\x10" + _varint(at))


def _field(number: int, body: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _snappy(body: bytes) -> bytes:
    """Snappy's format without compression: literals of up to 64 KiB."""
    parts = [_varint(len(body))]
    for low in range(0, len(body), 65_536):
        part = body[low : low + 65_536]
        parts += [b"\xf4" + struct.pack("<H", len(part) - 1), part]
    return b"".join(parts)
