"""Changes real and made-up bodies at random and reads each of them cold, warm and again: all three must say the same.

    python bench/fuzz_exposition.py [--inputs 1000000] [--seed 1] [--corpus FOLDER] [--guided]

Stops at the first difference or foreign exception and prints the input. Prints the slowest input at the end. The seed
of a run is all that is needed to repeat it. `--guided` lets atheris (`pip install atheris`) choose the inputs by the
code that they reach, in place of chance.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import tracemalloc
from pathlib import Path
from types import FunctionType

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpufleet.scrape import body_layout, careful, exposition, series_cache, stamps
from gpufleet.scrape.exposition import ExpositionError, Parsed, SeriesCache, read

NOW = 1_773_144_000.0
MAX_SAMPLES = 200
LONGEST = 2_000
WORDS = [
    *(
        b'a{b="1"} 1\n',
        b"a 1\n",
        b'{"q",x="y"} 2\n',
        b"# EOF\n",
        b"# TYPE a counter\n",
        b"NaN",
        b"+Inf",
        b"1e400",
        b"1_0",
    ),
    *(
        b" 1773144000000",
        b" 1773144000.5",
        b' # {t="x"} 1',
        b'\\"',
        b"\\n",
        b"\r\n",
        b"\t",
        b"\x00",
        b"\xff",
        b'="',
        b"{",
        b"}",
    ),
]
SEEDS = [
    b'# HELP a b\n# TYPE a gauge\na{gpu="0",UUID="GPU-1"} 41\na{gpu="1",UUID="GPU-2"} 42.5\nb 7\n# EOF\n',
    b'DCGM_FI_DEV_XID_ERRORS{gpu="3",err_msg="x \\"y\\" z"} 79\nnode_load1 0.5 1773144000000\n',
]


def mutated(chance: random.Random, body: bytes) -> bytes:
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(body))
        to = min(len(body), at + chance.choice((0, 0, 1, 3, 20)))
        piece = chance.choice(WORDS) if chance.random() < 0.7 else chance.randbytes(chance.randint(1, 4))
        if chance.random() < 0.2:
            piece = body[chance.randint(0, len(body)) :][: chance.randint(1, 60)]
        body = body[:at] + piece + body[to:]
    return body[:LONGEST]


def said(body: bytes, cache: SeriesCache) -> object:
    """What a reading says, in a form that does not depend on the cache."""
    try:
        parsed = read(body, cache, scraped_at=NOW, max_samples=MAX_SAMPLES)
    except ExpositionError as error:
        return error.reason
    return (*described(parsed, cache), parsed.at, parsed.accepted, parsed.reasons, parsed.first_bad_line)


def described(parsed: Parsed, cache: SeriesCache) -> tuple[object, object]:
    values = np.where(parsed.values == 0, 0.0, parsed.values)  # -0 and 0 are one number
    series = {repr(cache.series(ref)): repr(value) for ref, value in zip(parsed.refs.tolist(), values, strict=True)}
    stamped = sorted((repr(cache.series(sample.ref)), repr(sample.value + 0.0), sample.at) for sample in parsed.stamped)
    return series, stamped


class Trial:
    """Reads one body after another in every way, and remembers the slowest and the hungriest."""

    def __init__(self) -> None:
        self.warm = SeriesCache(limit=500)
        self.inputs = 0
        self.slowest, self.slow_body = 0.0, b""
        self.hungriest, self.hungry_body = 0.0, b""
        self.start = time.perf_counter()

    def take(self, body: bytes) -> None:
        self.inputs += 1
        before = time.process_time()
        cold = said(body, SeriesCache())
        took = time.process_time() - before
        if took > self.slowest:
            # Once more: the collector of garbage may have come in between.
            before = time.process_time()
            said(body, SeriesCache())
            took = min(took, time.process_time() - before)
            self.slowest, self.slow_body = max((self.slowest, self.slow_body), (took, body))
        if self.inputs % 500 == 0 and len(body) > 1_000:
            self._weigh(body)
        for turn in ("warm", "again"):
            assert said(body, self.warm) == cold, (turn, self.inputs, body)
        if self.inputs % 10_000 == 0:
            rate = self.inputs / (time.perf_counter() - self.start)
            print(f"{self.inputs} inputs, {rate:.0f} a second, {len(self.warm)} series kept", flush=True)

    def _weigh(self, body: bytes) -> None:
        tracemalloc.start()
        said(body, SeriesCache())
        peak = tracemalloc.get_traced_memory()[1] / len(body)
        tracemalloc.stop()
        self.hungriest, self.hungry_body = max((self.hungriest, self.hungry_body), (peak, body))

    def report(self) -> None:
        print(
            f"{self.inputs} inputs, no difference; slowest {self.slowest * 1e3:.2f} ms of CPU for "
            f"{len(self.slow_body)} bytes ({self.slow_body[:60]!r}); most memory {self.hungriest:.1f} times "
            f"{len(self.hungry_body)} bytes",
            flush=True,
        )


def guided(trial: Trial, inputs: int, seed: int, corpus: Path | None) -> None:
    import atheris

    for module in (exposition, careful, series_cache, body_layout, stamps):
        for name, found in vars(module).items():
            if isinstance(found, FunctionType) and found.__module__ == module.__name__:
                setattr(module, name, atheris.instrument_func(found))

    def one(body: bytes) -> None:
        trial.take(body[:LONGEST])
        if trial.inputs >= inputs:
            trial.report()
            os._exit(0)

    folders = [str(corpus)] if corpus else []
    atheris.Setup([sys.argv[0], f"-seed={seed}", f"-max_len={LONGEST}", "-print_final_stats=1", *folders], one)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--guided", action="store_true")
    options = parser.parse_args()
    trial = Trial()
    if options.guided:
        guided(trial, options.inputs, options.seed, options.corpus)
        return
    chance = random.Random(options.seed)
    paths = sorted(path for path in options.corpus.rglob("*") if path.is_file()) if options.corpus else []
    pool = SEEDS + [path.read_bytes()[:LONGEST] for path in paths]
    for number in range(1, options.inputs + 1):
        trial.take(mutated(chance, chance.choice(pool)))
        if number % 10_000 == 0:
            pool = [*pool[: len(SEEDS) + len(paths)], *(mutated(chance, seed) for seed in pool[:50])]
    trial.report()


if __name__ == "__main__":
    main()
