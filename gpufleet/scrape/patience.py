"""Leaves sick targets in peace: an exporter that hangs is asked less and less often, and not waited for as long.

Only failures that cost the node something count: a time-out or an answer that breaks off. Who refuses a connection
at once is asked at the full pace, so that its return is seen in the next cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpufleet.scrape import failures

SICK = frozenset({failures.TIMEOUT, failures.CUT_OFF})
PATIENT_AFTER = 4  # failures in a row at the full pace
LONGEST_SECONDS = 60.0
SHORT_SECONDS = 2.0  # for one that hung the last time: the others of its shard wait for it
WHOLE_EVERY = 4  # of its failures: then it has the whole time, so that one that has only become slow is seen again


@dataclass(slots=True)
class _Illness:
    failures: int
    reason: str
    ask_again_in: int  # a cycle's number


class Patience:
    """What a process knows of its targets' illnesses; lost with the process, and then learnt again."""

    def __init__(self, interval_seconds: float) -> None:
        self._longest = max(1, int(LONGEST_SECONDS // interval_seconds))
        self._ill: dict[int, _Illness] = {}
        self._slowest: dict[int, float] = {}  # of good answers that took long, the newest

    def resting(self, target_id: int, cycle: int) -> str:
        """The reason why a target is left in peace in this cycle; empty: ask it."""
        ill = self._ill.get(target_id)
        # A number far ahead is of a clock that was set back since.
        if ill is None or not 0 < ill.ask_again_in - cycle <= self._longest:
            return ""
        return ill.reason

    def seconds(self, target_id: int, whole: float) -> float:
        """How long to wait for a target; `whole` for one that is well."""
        ill = self._ill.get(target_id)
        if ill is None or ill.reason != failures.TIMEOUT or ill.failures % WHOLE_EVERY == 0:
            return whole
        return min(whole, max(SHORT_SECONDS, 2 * self._slowest.get(target_id, 0.0)))

    def note(self, target_id: int, reason: str, duration_seconds: float, cycle: int) -> None:
        """How asking in this cycle went."""
        if not reason and duration_seconds > SHORT_SECONDS / 2:
            self._slowest[target_id] = duration_seconds
        if reason not in SICK:
            self._ill.pop(target_id, None)
            return
        ill = self._ill.setdefault(target_id, _Illness(0, reason, cycle))
        ill.failures += 1
        ill.reason = reason
        doublings = min(max(0, ill.failures - PATIENT_AFTER), 16)
        ill.ask_again_in = cycle + min(2**doublings, self._longest)
