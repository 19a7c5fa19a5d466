"""Numbers as Prometheus spells them."""

from __future__ import annotations

from decimal import Decimal


def spelling(value: float) -> str:
    """The shortest text that reads as the same number, never with an exponent: for labels."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    text = format(Decimal(text), "f") if "e" in text else text
    return text.removesuffix(".0")
