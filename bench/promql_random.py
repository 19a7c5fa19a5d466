"""Random PromQL, for a comparison with Prometheus: expressions that nobody would think of.

Left out is where 2.42 has no answer to compare with: `topk` and `bottomk` over computed values (their order, and so who
wins among equals, is random there), `predict_linear` with `@` (over a range its window slides away from the instant
that was named), and dates of infinities.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

SELECTORS = (
    "temp",
    "watts",
    "energy_total",
    "errors_total",
    "flaky",
    "blank",
    "strange",
    "driver_info",
    "up",
    "wait_bucket",
    "wait_sum",
    "steady",
    'temp{gpu="1"}',
    'flaky{node=~"gpu-00[12]"}',
    'errors_total{kind!="sbe"}',
    'watts{rack="R01",gpu!~"2"}',
    '{job="spare",gpu="0"}',
)
RANGES = ("20s", "1m", "95s", "5m", "17m")
OVER = (
    *("rate", "irate", "increase", "delta", "idelta", "deriv", "changes", "resets"),
    *(f"{name}_over_time" for name in ["avg", "min", "max", "sum", "count", "last", "stddev", "stdvar", "present"]),
)
ONE = ("abs", "ceil", "floor", "sgn", "sqrt", "ln", "exp", "round", "timestamp", "sort", "absent", "-")
AGGREGATIONS = ("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar")
LABELS = ("node", "gpu", "rack", "kind", "le", "job")
ARITHMETIC = ("+", "-", "*", "/", "%", "^")
COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")


def expressions(seed: int, many: int) -> Iterator[str]:
    chance = random.Random(seed)
    for _ in range(many):
        yield _vector(chance, chance.randint(1, 4))


def _vector(chance: random.Random, depth: int) -> str:
    if depth <= 0:
        return chance.choice(SELECTORS) + chance.choice(["", "", "", " offset 2m", " offset -40s", " @ 1796128000"])
    return chance.choice((_one, _over, _aggregated, _binary, _binary, _set, _scalar, _labelled, _ranked))(
        chance, depth - 1
    )


def _one(chance: random.Random, depth: int) -> str:
    return f"{chance.choice(ONE)}({_vector(chance, depth)})"


def _over(chance: random.Random, depth: int) -> str:
    length = chance.choice(RANGES)
    if depth > 1 and chance.random() < 0.5:
        window = f"({_vector(chance, depth - 1)})[{length}:{chance.choice(['15s', '1m', '47s'])}]"
    else:
        window = f"{chance.choice(SELECTORS)}[{length}]"
    window += chance.choice(["", "", " offset 1m", " @ end()"])
    match chance.randrange(8):
        case 0:
            return f"quantile_over_time({chance.choice(['0.5', '0.9', '0', '1', '-1'])}, {window})"
        case 1:
            return f"predict_linear({window.removesuffix(' @ end()')}, 120)"
    return f"{chance.choice(OVER)}({window})"


def _by(chance: random.Random) -> str:
    labels = ", ".join(chance.sample(LABELS, chance.randint(0, 3)))
    return chance.choice(["", f"by ({labels})", f"without ({labels})"])


def _aggregated(chance: random.Random, depth: int) -> str:
    return f"{chance.choice(AGGREGATIONS)} {_by(chance)} ({_vector(chance, depth)})"


def _ranked(chance: random.Random, depth: int) -> str:
    inner = _vector(chance, depth)
    match chance.randrange(4):
        case 0:
            return f"quantile {_by(chance)} ({chance.choice(['0.5', '0.9', '0.01'])}, {inner})"
        case 1:
            return f'count_values {_by(chance)} ("value", round({inner}))'
        case 2:
            return f"histogram_quantile({chance.choice(['0.5', '0.99'])}, {inner})"
    return f"{chance.choice(['topk', 'bottomk'])} {_by(chance)} ({chance.randint(1, 4)}, {chance.choice(SELECTORS)})"


def _matching(chance: random.Random) -> str:
    labels = ", ".join(chance.sample(LABELS, chance.randint(1, 3)))
    group = chance.choice(["", "", "group_left ()", "group_right ()", f"group_left ({chance.choice(LABELS)})"])
    return chance.choice(["", f"on ({labels}) {group}", f"ignoring ({labels}) {group}"])


def _binary(chance: random.Random, depth: int) -> str:
    left, right = _vector(chance, depth), _vector(chance, depth)
    if chance.random() < 0.5:
        return f"({left}) {chance.choice(ARITHMETIC)} {_matching(chance)} ({right})"
    return f"({left}) {chance.choice(COMPARISONS)} {chance.choice(['', 'bool'])} {_matching(chance)} ({right})"


def _set(chance: random.Random, depth: int) -> str:
    labels = ", ".join(chance.sample(LABELS, chance.randint(0, 2)))
    how = chance.choice(["", f"on ({labels})", f"ignoring ({labels})"])
    return f"({_vector(chance, depth)}) {chance.choice(['and', 'or', 'unless'])} {how} ({_vector(chance, depth)})"


def _scalar(chance: random.Random, depth: int) -> str:
    number = chance.choice(["2", "0.5", "-1", "NaN", "Inf", "scalar(steady)", "time()", "55"])
    op = chance.choice((*ARITHMETIC, *COMPARISONS, "> bool", "== bool"))
    sides = [f"({_vector(chance, depth)})", number]
    chance.shuffle(sides)
    return f"{sides[0]} {op} {sides[1]}"


def _labelled(chance: random.Random, depth: int) -> str:
    inner = _vector(chance, depth)
    if chance.random() < 0.5:
        return f'label_join({inner}, "{chance.choice(LABELS)}", "-", "node", "gpu")'
    return f'label_replace({inner}, "{chance.choice(LABELS)}", "x$1", "node", "gpu-(.*)")'
