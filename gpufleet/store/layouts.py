"""What the values of a frame mean, as arrays: read once a process and layout."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from django.db import connection

from gpufleet.catalogue.values import SENTINEL_CODES, clean
from gpufleet.store.frames import FloatArray, IntArray

MAX_CACHED = 32_768  # 16,000 nodes with two targets; about 10 kB each, since equal parts are shared

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class LayoutTable:
    """The series of a layout, one place each. Arrays are read-only; `gpu_ids` has -1 where a series has no GPU.

    `low` and `high` are in raw units, NaN without a bound; `sentinels` holds SENTINEL_CODES. `places` are those of a
    canonical metric, `by_name` those of an exporter's name, each in order.
    """

    id: int
    target_id: int
    series_ids: IntArray
    gpu_ids: IntArray
    names: list[str]
    metrics: list[str]
    labels: list[Labels]
    kinds: list[str]
    units: list[str]
    scale: FloatArray
    low: FloatArray
    high: FloatArray
    sentinels: npt.NDArray[np.int8]
    places: Mapping[str, IntArray]
    by_name: Mapping[str, IntArray]

    def __len__(self) -> int:
        return len(self.names)

    def clean(self, values: FloatArray) -> FloatArray:
        """Canonical values of `values` (n, or frames x n), NaN for what is missing."""
        return clean(values, self.scale, self.low, self.high, self.sentinels)

    def clean_at(self, places: IntArray, values: FloatArray) -> FloatArray:
        """Canonical values of the series at `places`; `values` holds only these (k, or frames x k)."""
        return clean(values, self.scale[places], self.low[places], self.high[places], self.sentinels[places])

    def places_of(self, metric: str) -> IntArray:
        """Where the series of a metric are; empty when there are none."""
        return self.places.get(metric, _NOWHERE)


_NOWHERE: IntArray = np.empty(0, dtype=np.int64)
_NOWHERE.flags.writeable = False

_cache: OrderedDict[int, LayoutTable] = OrderedDict()
_shared: dict[Any, Any] = {}
_lock = Lock()

# One query for all layouts that are asked for; the series come in the order of the layout.
_READ = """
SELECT layout.id, layout.target_id, array_agg(series.id ORDER BY place), array_agg(coalesce(gpu_id, -1) ORDER BY place),
       array_agg(name ORDER BY place), array_agg(metric ORDER BY place), array_agg(labels::text ORDER BY place),
       array_agg(kind ORDER BY place), array_agg(unit ORDER BY place), array_agg(scale ORDER BY place),
       array_agg(low ORDER BY place), array_agg(high ORDER BY place), array_agg(sentinels ORDER BY place)
FROM store_layout layout
CROSS JOIN LATERAL unnest(layout.series_ids) WITH ORDINALITY AS item (series_id, place)
JOIN store_series series ON series.id = item.series_id
WHERE layout.id = ANY(%s)
GROUP BY layout.id
"""


def layout_tables(layout_ids: Sequence[int]) -> dict[int, LayoutTable]:
    """The tables of these layouts by id; no query for those at hand. A layout that is gone is left out."""
    wanted = dict.fromkeys(layout_ids)
    with _lock:
        found = {layout_id: _cache[layout_id] for layout_id in wanted if layout_id in _cache}
        for layout_id in found:
            _cache.move_to_end(layout_id)
    missing = [layout_id for layout_id in wanted if layout_id not in found]
    if missing:
        with connection.cursor() as cursor:
            cursor.execute(_READ, [missing])
            fresh = {row[0]: _table(row) for row in cursor.fetchall()}
        found.update(fresh)
        with _lock:
            _cache.update(fresh)
            while len(_cache) > MAX_CACHED:
                _cache.popitem(last=False)
    return found


def layout_table(layout_id: int) -> LayoutTable:
    """The table of one layout. Raises KeyError when there is none."""
    return layout_tables([layout_id])[layout_id]


def forget_layouts() -> None:
    """Empties the cache: after the catalogue changed, and between tests."""
    with _lock:
        _cache.clear()
        _shared.clear()


def _table(row: Sequence[Any]) -> LayoutTable:
    layout_id, target_id, series_ids, gpu_ids, names, metrics, labels, kinds, units, *numbers = row
    scale, low, high, sentinels = numbers
    codes = np.array([SENTINEL_CODES[name] for name in sentinels], dtype=np.int8)
    return LayoutTable(
        id=layout_id,
        target_id=target_id,
        series_ids=_frozen(np.array(series_ids, dtype=np.int64)),
        gpu_ids=_frozen(np.array(gpu_ids, dtype=np.int64)),
        names=_share(("list", tuple(names)), lambda _: names),
        metrics=_share(("list", tuple(metrics)), lambda _: metrics),
        labels=[_share(text, _labels) for text in labels],
        kinds=_share(("list", tuple(kinds)), lambda _: kinds),
        units=_share(("list", tuple(units)), lambda _: units),
        scale=_array(scale),
        low=_array(low),
        high=_array(high),
        sentinels=_share(("int8", codes.tobytes()), lambda _: _frozen(codes)),
        places=_share(("places", tuple(metrics)), lambda _: _places(metrics)),
        by_name=_share(("places", tuple(names)), lambda _: _places(names)),
    )


def _share(key: Any, make: Any) -> Any:
    """Nodes of a fleet are alike: equal names, labels and bounds are kept once."""
    if key not in _shared:
        if len(_shared) > 16 * MAX_CACHED:
            _shared.clear()
        _shared[key] = make(key)
    return _shared[key]


def _labels(text: str) -> Labels:
    return MappingProxyType(orjson.loads(text))


def _array(numbers: Sequence[float | None]) -> FloatArray:
    array = np.array(numbers, dtype=np.float64)  # None becomes NaN
    shared: FloatArray = _share(("float64", array.tobytes()), lambda _: _frozen(array))
    return shared


def _frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _places(metrics: Sequence[str]) -> Mapping[str, IntArray]:
    lists: dict[str, list[int]] = {}
    for place, metric in enumerate(metrics):
        lists.setdefault(metric, []).append(place)
    return MappingProxyType({metric: _frozen(np.array(places, dtype=np.int64)) for metric, places in lists.items()})
