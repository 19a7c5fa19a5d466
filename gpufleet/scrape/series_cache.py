"""Which series a target has sent before: the text before the value is the key, so labels are parsed once in a life.

One machine may keep millions of these, so a series costs little more than its text: labels are parsed again when asked
for, and identity is a number of 64 bits.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from hashlib import blake2b

from gpufleet.catalogue import meaning
from gpufleet.scrape import careful

DEFAULT_LIMIT = 20_000
DEFAULT_LIMIT_BYTES = 16 * 1024 * 1024


class SeriesCache:
    """Raw text to a small whole number, the *ref*, for one target.

    Two spellings of one series (labels in another order, other blanks) share a ref. A ref keeps its meaning until it is
    let go: beyond `limit` spellings or `limit_bytes` of text, series that the newest bodies did not hold are dropped,
    oldest first, and their refs may be given to other series later, which then stand in `Parsed.new_refs`.
    """

    def __init__(self, *, limit: int = DEFAULT_LIMIT, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._refs: dict[bytes, int] = {}
        self._raws: list[bytes | None] = []
        self._spellings: dict[int, list[bytes]] = {}
        self._identities = array("q")
        self._seen = array("q")
        self._declared: dict[int, str] = {}
        self._free: list[int] = []
        self._by_identity: dict[int, int] | None = None
        self._bytes = 0
        self._generation = 0
        self.layout: object | None = None

    def __len__(self) -> int:
        return len(self._raws) - len(self._free)

    @property
    def raw_bytes(self) -> int:
        """Bytes of series text that are kept."""
        return self._bytes

    def raw(self, ref: int) -> bytes:
        """The first text that a ref stood for. KeyError when it was let go."""
        raw = self._raws[ref] if 0 <= ref < len(self._raws) else None
        if raw is None:
            raise KeyError(ref)
        return raw

    def series(self, ref: int) -> tuple[str, dict[str, str]]:
        """Name and labels of a ref, parsed anew each time. KeyError when it was let go."""
        return careful.parse_series(self.raw(ref))

    def declared(self, ref: int) -> str:
        """What the TYPE line said of a series whose name the catalogue does not know, when it was new; else empty."""
        return self._declared.get(ref, "")

    def lookup(self, raw: bytes) -> int | None:
        return self._refs.get(raw)

    def begin(self) -> None:
        """A new body begins."""
        self._generation += 1

    def learn(self, raw: bytes, name: str, labels: dict[str, str]) -> tuple[int, bool]:
        """Ref of a text not seen before, and whether its series is new too."""
        if self._by_identity is None:
            # Only bodies with something new pay for this; it lives as long as the body is read.
            kept = (ref for ref, text in enumerate(self._raws) if text is not None)
            self._by_identity = {self._identities[ref]: ref for ref in kept}
        identity = _identity(name, labels)
        known = self._by_identity.get(identity)
        ref = self._new_ref(raw, identity) if known is None else known
        if known is not None:
            self._spellings.setdefault(ref, []).append(raw)
        self._seen[ref] = self._generation
        self._refs[raw] = ref
        self._bytes += len(raw)
        return ref, known is None

    def declare(self, names: Mapping[int, str], types: Mapping[str, str]) -> None:
        """Keep what the TYPE lines say of new series, `names` by ref."""
        for ref, name in names.items():
            kind = types.get(name) or types.get(_family(name), "")
            if kind and not meaning.is_known(name):
                self._declared[ref] = kind

    def touch(self, refs: Iterable[int]) -> None:
        for ref in refs:
            self._seen[ref] = self._generation

    def is_over(self) -> bool:
        return len(self._refs) > self._limit or self._bytes > self._limit_bytes

    def end(self) -> list[int]:
        """The body was read: drop what it did not hold, oldest first, until the limits hold. The refs let go.

        Second spellings go first: an exporter may shuffle its labels for ever, and they are soon learnt again.
        """
        self._by_identity = None
        if not self.is_over():
            return []
        self._drop_all_spellings()
        gone: list[int] = []
        kept = (ref for ref, text in enumerate(self._raws) if text is not None)
        for _, ref in sorted((self._seen[ref], ref) for ref in kept if self._seen[ref] < self._generation):
            if not self.is_over():
                break
            self._drop(ref)
            gone.append(ref)
        self._free.extend(gone)
        return gone

    def abandon(self, refs: Iterable[int]) -> None:
        """The body was refused: forget the refs that it brought, of which nobody was told. No other ref is let go."""
        for ref in refs:
            self._drop(ref)
            self._free.append(ref)
        self._by_identity = None
        if self.is_over():
            self._drop_all_spellings()

    def _new_ref(self, raw: bytes, identity: int) -> int:
        if self._free:
            ref = self._free.pop()
        else:
            ref = len(self._raws)
            self._raws.append(None)
            self._identities.append(0)
            self._seen.append(0)
        self._raws[ref] = raw
        self._identities[ref] = identity
        if self._by_identity is not None:
            self._by_identity[identity] = ref
        return ref

    def _drop(self, ref: int) -> None:
        self._drop_spellings(ref)
        self._drop_text(self.raw(ref))
        self._raws[ref] = None
        self._declared.pop(ref, None)

    def _drop_all_spellings(self) -> None:
        for ref in list(self._spellings):
            self._drop_spellings(ref)

    def _drop_spellings(self, ref: int) -> None:
        for raw in self._spellings.pop(ref, ()):
            self._drop_text(raw)

    def _drop_text(self, raw: bytes) -> None:
        del self._refs[raw]
        self._bytes -= len(raw)


def _identity(name: str, labels: dict[str, str]) -> int:
    """64 bits of name and labels in order; the separator cannot stand inside either."""
    words = [name]
    for label in sorted(labels):
        words += (label, labels[label])
    digest = blake2b("\0".join(words).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _family(name: str) -> str:
    """The name that the TYPE line of a histogram, a summary or an OpenMetrics counter carries."""
    return (
        name.rpartition("_")[0] if name.endswith(("_bucket", "_count", "_sum", "_total", "_created", "_info")) else ""
    )
