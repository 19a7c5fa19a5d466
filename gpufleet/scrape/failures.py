"""Why a scrape failed: the exact words that frames, pages, the API and the rules use."""

from __future__ import annotations

TIMEOUT = "timeout"
REFUSED = "refused"
UNREACHABLE = "unreachable"
DNS = "dns"
TLS = "tls"
CUT_OFF = "cut off"
TOO_LARGE = "too large"
BAD_PACKING = "bad packing"
NOT_AN_EXPOSITION = "not an exposition"
REDIRECTED = "redirected"
TOO_MANY_SAMPLES = "too many samples"
TOO_MANY_SERIES = "too many series"
NO_GPU_SAMPLES = "no GPU samples"
NO_SAMPLES = "no samples"
HTTP_STATUS = "http status"
UNAUTHORISED = "unauthorised"
FORBIDDEN_ADDRESS = "forbidden address"
STALE = "stale values"
COLLECTOR = "collector"

REASONS = frozenset(
    {
        *(TIMEOUT, REFUSED, UNREACHABLE, DNS, TLS, CUT_OFF, TOO_LARGE, BAD_PACKING, NOT_AN_EXPOSITION, REDIRECTED),
        *(TOO_MANY_SAMPLES, TOO_MANY_SERIES, NO_GPU_SAMPLES, NO_SAMPLES, HTTP_STATUS, UNAUTHORISED),
        *(FORBIDDEN_ADDRESS, STALE, COLLECTOR),
    }
)


class ScrapeFailed(Exception):
    """One scrape failed. `reason` is one of REASONS, `detail` says more in a few words."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail[:255].replace("\0", "")  # PostgreSQL keeps none
