"""XID happenings as node events: written once each, whoever sees them how often."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from django.db import connection

from gpufleet.catalogue.xids import xid
from gpufleet.core.times import from_unix
from gpufleet.detect.xid_events import XidEvent
from gpufleet.pipeline.windows_subjects import Subjects

_INSERT = """
INSERT INTO fleet_nodeevent (node_id, gpu_id, at, kind, xid, count, source, text, fingerprint)
SELECT node_id, gpu_id, at, 'xid', xid, count, 'scrape', text, fingerprint
FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[], %s::int[], %s::int[], %s::text[], %s::text[])
     AS event (node_id, gpu_id, at, xid, count, text, fingerprint)
ON CONFLICT (fingerprint) DO NOTHING
RETURNING fingerprint
"""


def record_xids(cluster_id: int, subjects: Subjects, events: Sequence[XidEvent]) -> set[str]:
    """Writes the happenings that are not there yet; returns the occurrences of those. At most one query."""
    if not events:
        return set()
    occurrences = [event.occurrence(subjects.gpu_uuids[event.gpu]) for event in events]
    prints = {fingerprint(cluster_id, occurrence): occurrence for occurrence in occurrences}
    columns: list[Any] = [
        [int(subjects.node_ids[subjects.gpu_node[event.gpu]]) for event in events],
        [int(subjects.gpu_ids[event.gpu]) for event in events],
        [from_unix(event.at) for event in events],
        [event.code for event in events],
        [event.count for event in events],
        [xid(event.code).summary[:1024] for event in events],
        [fingerprint(cluster_id, occurrence) for occurrence in occurrences],
    ]
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, columns)
        return {prints[row[0]] for row in cursor.fetchall()}


def fingerprint(cluster_id: int, occurrence: str) -> str:
    return sha256(f"{cluster_id}:{occurrence}".encode()).hexdigest()
