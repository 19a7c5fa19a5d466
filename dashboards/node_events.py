"""What happened on a node, as its page lists it: the same thing on several GPUs at once is one line."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from gpufleet.fleet.models import Node, NodeEvent

MOST_EVENTS = 160
MOST_LINES = 20


@dataclass(slots=True)
class EventLine:
    """`count`: how often it happened; `slots`: the GPUs it happened on, by their place in the node now."""

    at: datetime
    kind: str
    xid: int | None
    text: str
    count: int = 0
    slots: list[int] = field(default_factory=list)

    @property
    def where(self) -> str:
        """`g3`, `g0 and g5`, or `8 GPUs`."""
        if not self.slots:
            return ""
        if len(self.slots) > 2:
            return f"{len(self.slots)} GPUs"
        return " and ".join(f"g{slot}" for slot in sorted(self.slots))


def read_events(node: Node, slots: dict[int, int]) -> list[EventLine]:
    """The newest lines. `slots`: GPU key to slot. One query."""
    lines: dict[tuple[datetime, str, int | None, str], EventLine] = {}
    for event in NodeEvent.objects.filter(node=node).order_by("-at", "id")[:MOST_EVENTS]:
        key = (event.at.replace(microsecond=0), event.kind, event.xid, event.text)
        line = lines.setdefault(key, EventLine(event.at, event.kind, event.xid, event.text))
        line.count += event.count
        if event.gpu_id in slots:
            line.slots.append(slots[event.gpu_id])
    return list(lines.values())[:MOST_LINES]
