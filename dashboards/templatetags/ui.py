"""How numbers, ages and states are written on pages: at most two units of age, three digits of a value."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from gpufleet.core.times import rfc3339

register = template.Library()

STATES = ("healthy", "degraded", "failed", "unknown", "maintenance", "out_of_service")
STATE_GLYPH = {
    "healthy": ("ok", "c-ok"),
    "degraded": ("risk", "c-risk"),
    "failed": ("fail", "c-fail"),
    "unknown": ("unk", "t2"),
    "maintenance": ("maint", "c-maint"),
    "out_of_service": ("out", "t3"),
}
STATE_CLASS = {
    "healthy": "",
    "degraded": "deg",
    "failed": "down",
    "unknown": "unk",
    "maintenance": "mt",
    "out_of_service": "out",
}
SEVERITY_GLYPH = {"critical": ("crit", "c-fail"), "warning": ("risk", "c-risk"), "info": ("min", "t2")}
AGE_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


@register.simple_tag
def glyph(name: str, classes: str = "") -> SafeString:
    """A shape of the sprite in partials/glyphs.html; always beside a word or a label."""
    return format_html('<svg class="g {}" aria-hidden="true"><use href="#g-{}"/></svg>', classes, name)


@register.simple_tag
def state_glyph(state: str, classes: str = "") -> SafeString:
    name, colour = STATE_GLYPH[state]
    return glyph(name, f"{colour} {classes}".strip())


@register.simple_tag
def severity_glyph(severity: str, classes: str = "") -> SafeString:
    name, colour = SEVERITY_GLYPH[severity]
    return glyph(name, f"{colour} {classes}".strip())


@register.filter
def state_class(state: str) -> str:
    return STATE_CLASS[state]


@register.filter
def state_words(state: str) -> str:
    return state.replace("_", " ")


@register.filter
def age(seconds: float | None) -> str:
    """`53 s`, `6 m`, `1 h 18 m`, `2 d 3 h`; a dash when it is not known."""
    if seconds is None:
        return "–"
    left = max(0, int(seconds))
    for place, (unit, size) in enumerate(AGE_UNITS):
        if left >= size or unit == "s":
            first, rest = divmod(left, size)
            if unit in ("s", "m"):
                return f"{first} {unit}"
            smaller, smaller_size = AGE_UNITS[place + 1]
            second = rest // smaller_size
            return f"{first} {unit} {second} {smaller}" if second else f"{first} {unit}"
    return "0 s"


@register.filter
def age_at(instant: datetime | None, now: datetime) -> str:
    return age(None if instant is None else (now - instant).total_seconds())


@register.filter
def clock(instant: datetime) -> str:
    return f"{instant:%H:%M:%S}"


@register.filter
def iso(instant: datetime) -> str:
    return rfc3339(instant)


@register.filter
def thousands(number: int) -> str:
    return f"{number:,}"
