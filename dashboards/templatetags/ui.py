"""How numbers, ages and states are written on pages: at most two units of age, three digits of a value."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from dashboards.addresses import gpu_address, incident_address, node_address
from gpufleet.core.times import from_unix, rfc3339
from gpufleet.pipeline.retrying import Try

register = template.Library()

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
BAR_STATES = ("healthy", "degraded", "failed", "unknown", "maintenance")
BAR_FILL = {
    "healthy": "f-ok",
    "degraded": "f-risk",
    "failed": "f-fail",
    "unknown": "hx-n",
    "maintenance": "f-maint",
}
REASON_WORDS = {
    "never_judged": "not judged yet",
    "not_judged_lately": "no verdict lately",
    "no_data_yet": "no data yet",
    "data_too_old": "the data is too old",
}
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
def short_age_at(instant: datetime | None, now: datetime) -> str:
    """One unit, for tiles."""
    return " ".join(age_at(instant, now).split(" ")[:2])


@register.filter
def age_at(instant: datetime | None, now: datetime) -> str:
    return age(None if instant is None else (now - instant).total_seconds())


@register.filter
def clock(instant: datetime) -> str:
    return f"{instant:%H:%M:%S}"


@register.filter
def clock_of(seconds: float) -> str:
    """Of Unix seconds."""
    return clock(from_unix(seconds))


@register.filter
def try_waits(tried: Try | None, now: datetime) -> bool:
    """Whether the outcome of a target's try is still to come."""
    return tried is not None and tried.probed is None and not tried.is_lost(now)


@register.filter
def iso(instant: datetime) -> str:
    return rfc3339(instant)


@register.filter
def thousands(number: int) -> str:
    return f"{number:,}"


@register.filter
def node_url(name: str) -> str:
    return node_address(name)


@register.filter
def gpu_url(uuid: str) -> str:
    return gpu_address(uuid)


@register.filter
def incident_url(incident_id: int) -> str:
    return incident_address(incident_id)


@register.simple_tag(takes_context=True)
def query(context: template.Context, **changes: object) -> SafeString:
    """The page's own address with parameters changed; None takes one away. The time range and filters are kept."""
    request = context["request"]
    kept = request.GET.copy()
    for name, value in changes.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = str(value)
    encoded = kept.urlencode()
    return format_html("{}{}", request.path, f"?{encoded}" if encoded else "")


@register.simple_tag
def proportion(states: dict[str, int], total: int) -> SafeString:
    """The bars of a proportion bar, `total` units wide; a state that exists keeps at least a hundredth of the width."""
    shown = [state for state in BAR_STATES if states[state]]
    least, gap = total / 100, total / 250
    room = total - gap * max(0, len(shown) - 1)
    widths = [max(least, states[state] / max(1, total) * room) for state in shown]
    excess = sum(widths) - room
    if widths and excess > 0:
        widths[widths.index(max(widths))] -= excess
    x, parts = 0.0, []
    for state, width in zip(shown, widths, strict=True):
        parts.append((BAR_FILL[state], round(x, 2), round(width, 2)))
        x += width + gap
    return format_html_join("", '<rect class="{}" x="{}" width="{}" height="4"/>', parts)


@register.filter
def tenth(number: float) -> float:
    return round(number / 10, 2)


@register.filter
def reason_words(reason: str) -> str:
    """A reason of the ledger or of ours as words; an incident's own text stays as it is."""
    return REASON_WORDS.get(reason, reason.replace("_", " "))
