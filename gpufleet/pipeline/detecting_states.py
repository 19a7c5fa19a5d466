"""What a cycle says about the state of every node and GPU, for the ledger.

In the order of weight: maintenance, failed, unknown, degraded, healthy. A scrape that failed says unknown until a
finding says more; an open XID speaks for its GPU as long as the GPU's exporter answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpufleet.detect.findings import Finding, Status
from gpufleet.detect.windows import CLUSTER_SUBJECT, Windows, gpu_subject, node_subject

WEIGHT = ("healthy", "degraded", "unknown", "failed", "maintenance")
XID_STATE = {"critical": "failed", "warning": "degraded", "info": "healthy"}


@dataclass(frozen=True, slots=True)
class Standing:
    """An unresolved incident that has not recovered."""

    id: int
    kind: str
    subject: str
    severity: str


@dataclass(frozen=True, slots=True)
class Said:
    """A state with its reasons (stable words) and the incident behind it. `since`: Unix seconds, when it is only now
    known to have been so for a while."""

    state: str
    reasons: tuple[str, ...] = ()
    incident_id: int | None = None
    since: float | None = None


HEALTHY = Said("healthy")


@dataclass(frozen=True, slots=True)
class NodeSaid:
    """What the newest row says of node `node` (index) and of its GPUs (by index)."""

    node: int
    at: float
    said: Said
    gpus: dict[int, Said]


def states(windows: Windows, findings: Sequence[Finding], standing: Sequence[Standing]) -> list[NodeSaid]:
    """The states at the newest row; a node that was not scraped in it is left out."""
    if not len(windows.times):
        return []
    judge = _Judge(windows, findings, standing)
    return [said for node in range(len(windows.nodes)) if (said := judge.node(node)) is not None]


class _Judge:
    def __init__(self, windows: Windows, findings: Sequence[Finding], standing: Sequence[Standing]) -> None:
        self.windows = windows
        self.firing: dict[str, list[Finding]] = {}
        for finding in findings:
            if finding.status is Status.FIRING:
                self.firing.setdefault(finding.subject, []).append(finding)
        self.incident: Mapping[tuple[str, str], int] = {(one.kind, one.subject): one.id for one in standing}
        self.xids = {one.subject: one for one in standing if one.kind == "xid"}
        self.good = windows.good_for_gpus()[-1]
        self.listed = windows.gpus.listed[-1]

    def node(self, node: int) -> NodeSaid | None:
        windows = self.windows
        mine = windows.targets.node == node
        at = windows.targets.at[-1, mine & windows.targets.scraped[-1]]
        if not len(at):
            return None
        gpus = [int(gpu) for gpu in np.flatnonzero(windows.gpus.node == node)]
        if windows.maintenance[-1, node]:
            planned = Said("maintenance", ("maintenance",))
            return NodeSaid(node, float(at.min()), planned, dict.fromkeys(gpus, planned))
        common = self._common(node)
        by_gpu = {gpu: _heaviest([*self._of_gpu(gpu), *self._from_node(gpu, common)]) for gpu in gpus}
        return NodeSaid(node, float(at.min()), self._of_node(node, common, by_gpu), by_gpu)

    def _common(self, node: int) -> list[Finding]:
        """Findings about the node or the whole cluster that say something of a state."""
        found = [*self.firing.get(CLUSTER_SUBJECT, ()), *self.firing.get(node_subject(self.windows.nodes[node]), ())]
        return [finding for finding in found if finding.state]

    def _say(self, finding: Finding) -> Said:
        key = (finding.kind, finding.subject)
        known = self.windows.open.get(key)
        is_new = known is None or known.recovered_at is not None
        since = finding.first_evidence_at if is_new else None
        return Said(finding.state, (finding.kind,), self.incident.get(key), since)

    def _from_node(self, gpu: int, common: Iterable[Finding]) -> list[Said]:
        """What findings about its node say of a GPU: an exporter of those it lists, frozen values of those named."""
        uuid = self.windows.gpus.uuid[gpu]
        said = []
        for finding in common:
            named = {piece.gpu_uuid for piece in finding.evidence if piece.gpu_uuid}
            concerns = {
                "exporter_down": not self.good[gpu],
                "telemetry_frozen": uuid in named,
                "gpu_missing": False,
            }.get(finding.kind, True)
            if concerns:
                said.append(self._say(finding))
        return said

    def _of_gpu(self, gpu: int) -> list[Said]:
        subject = gpu_subject(self.windows.gpus.uuid[gpu])
        said = [self._say(finding) for finding in self.firing.get(subject, ()) if finding.state]
        xid = self.xids.get(subject)
        if xid is not None and self.good[gpu]:
            said.append(Said(XID_STATE[xid.severity], ("xid",), xid.id))
        if not self.listed[gpu]:
            said.append(Said("unknown", ("not listed" if self.good[gpu] else "no data",)))
        return said

    def _of_node(self, node: int, common: Sequence[Finding], gpus: Mapping[int, Said]) -> Said:
        said = [self._say(finding) for finding in common if finding.kind != "telemetry_frozen"]
        not_well = [one for one in gpus.values() if one.state != "healthy"]
        if gpus and all(one.state == "unknown" for one in gpus.values()):
            said.append(_heaviest(not_well))
        elif not_well:
            said.append(_joined("degraded", not_well))
        mine = self.windows.targets.node == node
        if not gpus and not self.windows.targets.good[-1, mine].any():
            said.append(Said("unknown", ("no data",)))
        return _heaviest(said)


def _heaviest(said: Sequence[Said]) -> Said:
    """The weightiest state, with the reasons of all that say the same; the first incident of these."""
    if not said:
        return HEALTHY
    state = max((one.state for one in said), key=WEIGHT.index)
    return _joined(state, [one for one in said if one.state == state])


def _joined(state: str, said: Sequence[Said]) -> Said:
    reasons = tuple(dict.fromkeys(reason for one in said for reason in one.reasons))
    incident = next((one.incident_id for one in said if one.incident_id is not None), None)
    since = min((one.since for one in said if one.since is not None), default=None)
    return Said(state, reasons, incident, since)
