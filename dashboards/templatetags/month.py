"""How availability is written: percent cut and never rounded up, seconds as hours."""

from __future__ import annotations

from decimal import ROUND_DOWN, Decimal

from django import template

register = template.Library()


@register.filter
def percent(ratio: float | None) -> str:
    """A ratio as percent, cut to two digits; a dash when nothing is known."""
    return "–" if ratio is None else f"{(Decimal(repr(ratio)) * 100).quantize(Decimal('0.01'), ROUND_DOWN)} %"


@register.filter
def hours(seconds: float) -> str:
    """Seconds as hours with one digit; what is lost but less than that says so."""
    if 0 < seconds < 180:
        return "< 0.1"
    return f"{seconds / 3600:,.1f}"
