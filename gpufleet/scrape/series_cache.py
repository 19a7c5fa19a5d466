"""Which series a target has sent before: the text before the value is the key, so labels are parsed once in a life."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

DEFAULT_LIMIT = 20_000
DEFAULT_LIMIT_BYTES = 16 * 1024 * 1024

Identity = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class _Entry:
    name: str
    labels: dict[str, str]
    identity: Identity
    seen: int
    raws: list[bytes] = field(default_factory=list)
    declared: str = ""


class SeriesCache:
    """Raw text to a small whole number, the *ref*, for one target.

    Two spellings of one series (labels in another order, other blanks) share a ref. A ref keeps its meaning until it is
    let go: beyond `limit` series or `limit_bytes` of text, series that the newest bodies did not hold are dropped,
    oldest first, and their refs may be given to other series later, which then stand in `Parsed.new_refs`.
    """

    def __init__(self, *, limit: int = DEFAULT_LIMIT, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._refs: dict[bytes, int] = {}
        self._entries: dict[int, _Entry] = {}
        self._by_identity: dict[Identity, int] = {}
        self._free: list[int] = []
        self._next = 0
        self._bytes = 0
        self._generation = 0
        self.layout: object | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def raw_bytes(self) -> int:
        """Bytes of series text that are kept."""
        return self._bytes

    def series(self, ref: int) -> tuple[str, dict[str, str]]:
        """Name and labels of a ref. KeyError when it was let go."""
        entry = self._entries[ref]
        return entry.name, entry.labels

    def declared(self, ref: int) -> str:
        """What the exporter's TYPE line said when the series was new; empty when it said nothing."""
        return self._entries[ref].declared

    def lookup(self, raw: bytes) -> int | None:
        return self._refs.get(raw)

    def begin(self) -> None:
        """A new body begins."""
        self._generation += 1

    def learn(self, raw: bytes, name: str, labels: dict[str, str]) -> tuple[int, bool]:
        """Ref of a text not seen before, and whether its series is new too."""
        identity = (name, tuple(sorted(labels.items())))
        ref = self._by_identity.get(identity)
        new = ref is None
        if ref is None:
            ref = self._take_ref()
            self._entries[ref] = _Entry(name, labels, identity, self._generation)
            self._by_identity[identity] = ref
        entry = self._entries[ref]
        entry.seen = self._generation
        entry.raws.append(raw)
        self._refs[raw] = ref
        self._bytes += len(raw)
        return ref, new

    def declare(self, refs: Iterable[int], types: dict[str, str]) -> None:
        for ref in refs:
            entry = self._entries[ref]
            entry.declared = types.get(entry.name) or types.get(_family(entry.name), "")

    def touch(self, refs: Iterable[int]) -> None:
        for ref in refs:
            self._entries[ref].seen = self._generation

    def is_over(self) -> bool:
        return len(self._refs) > self._limit or self._bytes > self._limit_bytes

    def let_go(self) -> list[int]:
        """Drop what the current body did not hold, oldest first, until the limits hold again. The refs let go."""
        if not self.is_over():
            return []
        gone: list[int] = []
        unseen = [(entry.seen, ref) for ref, entry in self._entries.items() if entry.seen < self._generation]
        for _, ref in sorted(unseen):
            if not self.is_over():
                break
            self._drop(ref)
            gone.append(ref)
        self._free.extend(gone)
        return gone

    def _take_ref(self) -> int:
        if self._free:
            return self._free.pop()
        self._next += 1
        return self._next - 1

    def _drop(self, ref: int) -> None:
        entry = self._entries.pop(ref)
        del self._by_identity[entry.identity]
        for raw in entry.raws:
            del self._refs[raw]
            self._bytes -= len(raw)


def _family(name: str) -> str:
    """The name that the TYPE line of a histogram, a summary or an OpenMetrics counter carries."""
    return (
        name.rpartition("_")[0] if name.endswith(("_bucket", "_count", "_sum", "_total", "_created", "_info")) else ""
    )
