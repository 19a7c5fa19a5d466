"""An hour and a quarter of made-up scrapes, the same ones wherever they are loaded: gaps, resets, failures, NaN.

Prometheus, the store and the evaluator's own memory are all given these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from gpufleet.promql.storage import MemoryStorage
from gpufleet.promql.vectors import NAME, STALE, Samples

T0 = 1_796_126_400_000  # 2026-12-01 12:00:00 UTC, in milliseconds
INTERVAL = 15_000
SCRAPES = 300
SECOND = 1_000

SeriesKey = tuple[str, tuple[tuple[str, str], ...]]  # name, labels of the exporter


@dataclass(frozen=True, slots=True)
class Scrape:
    """`values` is None when the scrape failed; `at` in milliseconds."""

    at: int
    values: dict[SeriesKey, float] | None


@dataclass(slots=True)
class ScrapedTarget:
    """`labels` are those that every series of the target carries besides its own."""

    node: str
    job: str
    instance: str
    rack: str
    scrapes: list[Scrape] = field(default_factory=list)

    @property
    def labels(self) -> dict[str, str]:
        return {"node": self.node, "job": self.job, "instance": self.instance, "rack": self.rack, "cluster": "default"}


def scraped_targets() -> list[ScrapedTarget]:
    """Three targets: a sound one; one that fails for five minutes; one that nobody scrapes for eight minutes."""
    chance = np.random.default_rng(20261201)
    targets = [
        ScrapedTarget("gpu-001", "dcgm", "gpu-001:9400", "R01"),
        ScrapedTarget("gpu-002", "dcgm", "gpu-002:9400", "R01"),
        ScrapedTarget("gpu-003", "spare", "gpu-003:9400", "R02"),
    ]
    for number, target in enumerate(targets):
        columns = _columns(number, chance)
        jitter = chance.integers(0, 40, SCRAPES)
        for scrape in range(SCRAPES):
            at = T0 + scrape * INTERVAL + number * 2_137 + int(jitter[scrape])
            if number == 2 and 120 <= scrape < 152:
                continue
            failed = number == 1 and (80 <= scrape < 100 or scrape == 200)
            listed = {key: float(column[scrape]) for key, column in columns.items() if column[scrape] != GONE}
            target.scrapes.append(Scrape(at, None if failed else listed))
    return targets


GONE = -12345.0  # stands for "not listed in this scrape"


def _columns(number: int, chance: np.random.Generator) -> dict[SeriesKey, np.ndarray]:
    at = np.arange(SCRAPES)
    found: dict[SeriesKey, np.ndarray] = {}
    for gpu in range(3):
        labels = {"gpu": str(gpu), "device": f"nvidia{gpu}"}
        found[_key("temp", labels)] = np.round(55 + 8 * np.sin(at / 11 + gpu) + chance.normal(0, 2, SCRAPES))
        found[_key("watts", labels)] = np.round(700 + 200 * np.sin(at / 7 + number) + chance.normal(0, 25, SCRAPES), 3)
        energy = np.cumsum(np.round(chance.uniform(9e6, 11e6, SCRAPES))) + 2e10
        energy[170 + gpu :] -= energy[170 + gpu] - 5e6 if gpu < 2 else 0
        found[_key("energy_total", labels)] = energy
        for kind in ("sbe", "dbe"):
            errors = np.cumsum(chance.poisson(0.05 if kind == "dbe" else 0.6, SCRAPES)).astype(float)
            for begins in chance.integers(20, SCRAPES, 2).tolist():
                errors[begins:] -= errors[begins] - (begins % 3)
            found[_key("errors_total", {**labels, "kind": kind})] = errors
        flaky = np.round(chance.uniform(0, 10, SCRAPES), 2)
        flaky[(at // (9 + gpu)) % 3 == 1] = GONE
        found[_key("flaky", labels)] = flaky
    blank = np.round(chance.normal(0, 5, SCRAPES), 1)
    blank[at % 17 < 3] = np.nan
    found[_key("blank", {})] = blank
    strange = chance.normal(0, 1, SCRAPES)
    strange[at % 13 == 0], strange[at % 29 == 0], strange[at % 31 == 0] = np.inf, -np.inf, 0.0
    found[_key("strange", {"kind": "wild"})] = strange
    found[_key("steady", {})] = np.full(SCRAPES, 42.5)
    found |= _histogram(chance)
    version = np.where(at < 140 + 10 * number, 1.0, GONE)
    found[_key("driver_info", {"version": "570.1", "model": "B200"})] = version
    found[_key("driver_info", {"version": "580.2", "model": "B200"})] = np.where(version == GONE, 1.0, GONE)
    return found


def _histogram(chance: np.random.Generator) -> dict[SeriesKey, np.ndarray]:
    bounds = (0.1, 0.5, 1.0, 2.5, 10.0, np.inf)
    seconds = chance.exponential(1.0, (SCRAPES, 7))
    counts = [np.cumsum((seconds <= bound).sum(axis=1)).astype(float) for bound in bounds]
    spelt = ["0.1", "0.5", "1", "2.5", "10", "+Inf"]
    found = {_key("wait_bucket", {"le": le}): count for le, count in zip(spelt, counts, strict=True)}
    found[_key("wait_count", {})] = counts[-1]
    found[_key("wait_sum", {})] = np.cumsum(seconds.sum(axis=1))
    return found


def _key(name: str, labels: dict[str, str]) -> SeriesKey:
    return name, tuple(sorted(labels.items()))


def series_of(target: ScrapedTarget) -> list[SeriesKey]:
    return sorted({key for scrape in target.scrapes for key in scrape.values or ()})


def samples_of(target: ScrapedTarget) -> Samples:
    """All series of a target with staleness markers where a scrape failed or no longer listed them, and `up`."""
    keys = series_of(target)
    values = np.empty((len(keys) + 1, len(target.scrapes)))
    for column, scrape in enumerate(target.scrapes):
        for row, key in enumerate(keys):
            values[row, column] = STALE[0]
            if scrape.values is not None and key in scrape.values:
                values[row, column] = scrape.values[key]
        values[-1, column] = float(scrape.values is not None)
    labels = [{NAME: name, **dict(own), **target.labels} for name, own in keys]
    times = np.array([scrape.at for scrape in target.scrapes], dtype=np.int64)
    return Samples([*labels, {NAME: "up", **target.labels}], times, values)


def in_memory() -> MemoryStorage:
    return MemoryStorage([samples_of(target) for target in scraped_targets()])


def rounds() -> Iterator[list[tuple[dict[str, str], int, float]]]:
    """Everything in order of time, (labels, milliseconds, value): a marker only where a series ends, as a scraper."""
    everything = [samples_of(target) for target in scraped_targets()]
    alive: set[tuple[int, int]] = set()
    for number in sorted(
        {(int(at), which, column) for which, one in enumerate(everything) for column, at in enumerate(one.times)}
    ):
        at, which, column = number
        batch = []
        for row, labels in enumerate(everything[which].labels):
            value = everything[which].values[row : row + 1, column]
            is_end = value.view(np.int64)[0] == STALE.view(np.int64)[0]
            if not is_end or (which, row) in alive:
                batch.append((dict(labels), at, value))
            (alive.discard if is_end else alive.add)((which, row))
        yield batch
