"""Unpacks bodies as they arrive, and stops at the limit: some kilobytes of gzip can hold gigabytes."""

from __future__ import annotations

import zlib

from gpufleet.scrape import failures
from gpufleet.scrape.failures import ScrapeFailed

_GZIP = 31  # zlib's code for "gzip, window of 32 kB"


class Plain:
    """A body that is not packed. `size` counts the bytes after unpacking."""

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit

    def take(self, chunk: bytes) -> bytes:
        self.size += len(chunk)
        if self.size > self._limit:
            raise ScrapeFailed(failures.TOO_LARGE, f"more than {self._limit} bytes")
        return chunk

    def finish(self) -> None:
        """All has arrived."""


class Gzip(Plain):
    """A gzip body, also of several members."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._inflate = zlib.decompressobj(_GZIP)
        self._begun = False

    def take(self, chunk: bytes) -> bytes:
        parts: list[bytes] = []
        while chunk:
            self._begun = True
            try:
                # One byte more than may come, so that a body of exactly the limit passes.
                parts.append(super().take(self._inflate.decompress(chunk, self._limit - self.size + 1)))
            except zlib.error as error:
                raise ScrapeFailed(failures.BAD_PACKING, str(error)) from error
            chunk = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if self._inflate.eof:
                self._inflate = zlib.decompressobj(_GZIP)
                self._begun = bool(chunk)
        return b"".join(parts)

    def finish(self) -> None:
        if self._begun:
            raise ScrapeFailed(failures.CUT_OFF, "the packed body has no end")


def unpacker(encoding: str, limit: int) -> Plain:
    """What unpacks an answer with this Content-Encoding, to at most `limit` bytes."""
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return Plain(limit)
    if name in {"gzip", "x-gzip"}:
        return Gzip(limit)
    raise ScrapeFailed(failures.BAD_PACKING, f"packed as {name[:40]}")
