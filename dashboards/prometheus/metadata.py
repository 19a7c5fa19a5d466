"""What Prometheus' metadata route tells of a metric: type, unit, and a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from django.db import connection

from gpufleet.catalogue.metrics import METRICS, rows
from gpufleet.promql.inventory import DURATION, SAMPLES, UP

_HELP: Mapping[str, str] = MappingProxyType(
    {
        **{row["field"]: row["meaning"] for row in rows("dcgm_fields.csv")},
        **{metric.name: metric.meaning for metric in METRICS.values()},
        UP: "1 when the scrape brought values, 0 when it failed.",
        DURATION: "How long the scrape took.",
        SAMPLES: "Samples that the scrape brought.",
    }
)
# One probe of each index for each name, instead of a look at all series.
_KINDS = """
SELECT asked.name, coalesce(own.kind, canonical.kind, 'gauge')
FROM unnest(%s::text[]) AS asked (name)
LEFT JOIN LATERAL (SELECT kind FROM store_series WHERE name = asked.name LIMIT 1) AS own ON true
LEFT JOIN LATERAL (SELECT kind FROM store_series WHERE metric = asked.name LIMIT 1) AS canonical ON true
"""


def metadata_of(names: Sequence[str]) -> dict[str, list[dict[str, str]]]:
    """`{name: [{type, unit, help}]}`; the unit is told for canonical names only."""
    with connection.cursor() as cursor:
        cursor.execute(_KINDS, [list(names)])
        found = cursor.fetchall()
    return {
        name: [
            {
                "type": "counter" if kind == "counter" else "gauge",
                "unit": METRICS[name].unit if name in METRICS else "",
                "help": _HELP.get(name, ""),
            }
        ]
        for name, kind in found
    }
