"""The whole simulated fleet at an instant: which bytes, or which failure, an exporter answers with."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import floor, isinf
from typing import Any, TypeVar

import numpy as np

from gpufleet.core.times import from_unix, rfc3339
from gpufleet.simulator import dcgm
from gpufleet.simulator.faults import Fault, FaultError, make_fault
from gpufleet.simulator.fleet import Node, make_nodes
from gpufleet.simulator.node_exporter import Host, NodeText
from gpufleet.simulator.workload import EPOCH, FloatArray, Workload

KEPT_INSTANTS = 16
KEPT_TEMPLATES = 4_096
MAX_FAULTS = 10_000
EXPORTERS = {"dcgm": 9400, "node": 9100}  # with the port that each has on a real node
Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Answer:
    """A body, or the way (`mode`) in which none comes."""

    body: bytes = b""
    mode: str = ""


class World:
    def __init__(self, nodes: int = 63, gpus: int = 8, seed: int = 1, faults: Iterable[Fault] = ()) -> None:
        self.seed, self.gpus = seed, gpus
        self.nodes: Mapping[str, Node] = {node.name: node for node in make_nodes(nodes, gpus, seed)}
        self.workload = Workload(np.repeat([node.spare for node in self.nodes.values()], gpus), seed)
        self.faults: dict[str, Fault] = {}
        self._by_node: dict[str, list[Fault]] = {}
        for fault in faults:
            self._add(fault)
        self._numbers = itertools.count(1)
        self._texts = {name: NodeText(node) for name, node in self.nodes.items()}
        self._instants: OrderedDict[float, FloatArray] = OrderedDict()
        self._hosts: OrderedDict[float, tuple[FloatArray, FloatArray]] = OrderedDict()
        self._templates: OrderedDict[tuple[str, tuple[int, ...], str], tuple[str, str]] = OrderedDict()

    def _add(self, fault: Fault) -> None:
        self.faults[fault.id] = fault
        self._by_node.setdefault(fault.node, []).append(fault)

    def inject(self, given: Mapping[str, Any], now: float) -> Fault:
        """Adds a fault. Raises KeyError for an unknown node, FaultError for anything else impossible."""
        name = given.get("node")
        if not isinstance(name, str) or name not in self.nodes:
            raise KeyError(f"no node {name!r}")
        if len(self.faults) >= MAX_FAULTS:
            raise FaultError(f"at most {MAX_FAULTS} faults")
        fault = make_fault(given, f"f{next(self._numbers)}", now, self.gpus)
        self._add(fault)
        return fault

    def repair(self, fault_id: str, now: float) -> Fault:
        """Ends a fault at `now` unless it ended before; one that has not begun never will. Raises KeyError."""
        fault = self.faults[fault_id]
        fault.end = min(fault.end, max(now, fault.onset))
        return fault

    def answer(self, name: str, exporter: str, t: float) -> Answer:
        """What `exporter` ('dcgm' or 'node') of a node answers at `t`. Raises KeyError for an unknown node."""
        node = self.nodes[name]
        faults = self._by_node.get(name, ())
        for fault in faults:
            if not fault.holds(t):
                continue
            if fault.kind.name == "node_down":
                return Answer(mode="hang" if fault.mode == "hang" else "refused")
            if fault.kind.name == "exporter_down" and fault.exporter in (exporter, "both"):
                body = self._body(node, exporter, t, faults) if fault.mode == "cut_off" else b""
                return Answer(body, fault.mode)
        return Answer(self._body(node, exporter, t, faults))

    def _body(self, node: Node, exporter: str, t: float, faults: Iterable[Fault]) -> bytes:
        stuck = [f.onset for f in faults if f.kind.name == "frozen" and f.holds(t) and f.exporter in (exporter, "both")]
        at = min([t, *stuck])
        return self._dcgm(node, at) if exporter == "dcgm" else self._node(node, at)

    def _dcgm(self, node: Node, t: float) -> bytes:
        faults = [f for f in self._by_node.get(node.name, ()) if f.kind.gpu]
        values = self._values(node, float(floor(t)), faults)  # collected once a second
        hidden = {f.slot for f in faults if f.hides_gpu() and f.holds(t)}
        slots = tuple(slot for slot in range(self.gpus) if slot not in hidden)
        text, quiet = self._template(node, slots, t)
        if len(slots) < self.gpus:
            values = values[:, slots]
        tail = dcgm.xid_lines(node, slots, faults, t) if any(f.xid for f in faults) else quiet
        return (text % tuple(values.ravel().tolist()) + tail).encode()

    def _values(self, node: Node, t: float, faults: list[Fault]) -> FloatArray:
        first = node.index * self.gpus
        values = self._instant(t)[:, first : first + self.gpus]
        if not faults:
            return values
        values = values.copy()
        for fault in faults:
            dcgm.suffer(values, fault, node, self.workload, t)
        for slot in {f.slot for f in faults}:
            back = max((f.end for f in faults if f.slot == slot and f.hides_gpu() and f.end < t + 1), default=None)
            if back is not None:
                then = dcgm.healthy(self.workload, back)[:, first : first + self.gpus].copy()
                for fault in faults:
                    dcgm.suffer(then, fault, node, self.workload, back)
                dcgm.restart_counters(values[:, slot], then[:, slot])
        return values

    def _instant(self, t: float) -> FloatArray:
        return _kept(self._instants, t, KEPT_INSTANTS, lambda: dcgm.healthy(self.workload, t))

    def _template(self, node: Node, slots: tuple[int, ...], t: float) -> tuple[str, str]:
        key = (node.name, slots, dcgm.job(node, t))
        return _kept(
            self._templates,
            key,
            KEPT_TEMPLATES,
            lambda: (dcgm.template(node, slots, t), dcgm.xid_lines(node, slots, (), t)),
        )

    def _node(self, node: Node, t: float) -> bytes:
        second = float(floor(t))
        load, work = _kept(
            self._hosts, second, KEPT_INSTANTS, lambda: (self.workload.load(second), self.workload.work(second))
        )
        first = node.index * self.gpus
        host = Host(t, min(1.0, float(load[first])), float(work[first]), second - EPOCH)
        return self._texts[node.name].render(host)

    def targets(self, address: str) -> list[dict[str, Any]]:
        """file_sd groups, one a node and exporter."""
        return [
            {"targets": [address], "labels": {
                "node": node.name, "rack": node.rack, "switch": node.switch, "cluster": "sim", "job": exporter,
                "instance": f"{node.name}:{EXPORTERS[exporter]}",  # as if each exporter had a port of its own
                "__metrics_path__": f"/nodes/{node.name}/{exporter}/metrics"}}
            for node in self.nodes.values() for exporter in EXPORTERS
        ]  # fmt: skip

    def truth(self) -> list[dict[str, Any]]:
        """Every fault, in the order of onset, with what was wrong and the right action."""
        return [self._told(fault) for fault in sorted(self.faults.values(), key=lambda f: (f.onset, f.id))]

    def _told(self, fault: Fault) -> dict[str, Any]:
        gpu = self.nodes[fault.node].gpus[fault.slot] if fault.kind.gpu else None
        onset = rfc3339(from_unix(fault.onset))
        return {
            "id": fault.id, "node": fault.node, "slot": gpu.slot if gpu else None, "uuid": gpu.uuid if gpu else None,
            "kind": fault.kind.name, "class": fault.kind.klass, "onset": onset, "onset_unix": fault.onset,
            "xid": fault.xid or None, "xid_at": onset if fault.xid else None, "action": fault.action(),
            "mode": fault.mode if fault.kind.name in ("exporter_down", "node_down") else None, "origin": fault.origin,
            "exporter": fault.exporter if fault.kind.name in ("exporter_down", "frozen") else None,
            "vanish": fault.hides_gpu() if fault.kind.gpu else None,
            "repaired_at": None if isinf(fault.end) else rfc3339(from_unix(fault.end)),
            "repaired_unix": None if isinf(fault.end) else fault.end,
        }  # fmt: skip


def _kept(kept: OrderedDict[Key, Value], key: Key, most: int, make: Callable[[], Value]) -> Value:
    value = kept.get(key)
    if value is None:
        value = kept[key] = make()
        if len(kept) > most:
            kept.popitem(last=False)
    return value
