"""The fold: legal order, and properties over random sequences."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from incident_findings import START

from gpufleet.incidents.lifecycle import AFTER_RESOLVED, STEPS, Event, IllegalEvent, State, apply, fold

OCCURRED = {"evidence": [{"signal": "x", "at": 0.0}], "event_at": START.isoformat()}
STATEMENT = {
    "severity": "warning",
    "title": "t",
    "recommended_action": "none",
    "rule": "r",
    "paged": True,
    "needs_person": False,
}
DETAILS: dict[str, dict[str, Any]] = {
    "opened": {**STATEMENT, **OCCURRED, "first_evidence_at": START.isoformat()},
    "extended": {**OCCURRED, "occurrence": "a"},
    "relapsed": OCCURRED,
    "escalated": {**STATEMENT, "severity": "critical", "evidence": []},
    "snoozed": {"until": (START + timedelta(hours=1)).isoformat()},
    "labelled": {"label": "real"},
    "linked": {"parent_id": 7},
    "assigned": {"assignee": "ana"},
}


def event(verb: str, second: int = 0, actor: str = "ana") -> Event:
    return Event(verb, START + timedelta(seconds=second), actor, "api", DETAILS.get(verb, {}))


def test_begins_with_opened_and_only_once() -> None:
    with pytest.raises(IllegalEvent, match="begins with 'opened'"):
        apply(State(), event("acknowledged"))
    with pytest.raises(IllegalEvent, match="once"):
        fold([event("opened"), event("opened")])


def test_unknown_verb_is_refused() -> None:
    with pytest.raises(IllegalEvent, match="no verb"):
        fold([event("opened"), event("deleted")])


@pytest.mark.parametrize("verb", sorted(set(STEPS) - AFTER_RESOLVED - {"opened"}))
def test_after_resolved_it_must_be_reopened_first(verb: str) -> None:
    with pytest.raises(IllegalEvent, match="after it was resolved"):
        fold([event("opened"), event("resolved"), event(verb)])


def test_open_incident_cannot_be_reopened() -> None:
    with pytest.raises(IllegalEvent, match="only a resolved"):
        fold([event("opened"), event("reopened")])


@given(st.lists(st.sampled_from(sorted(set(STEPS) - {"opened"})), max_size=30))
def test_any_legal_order_keeps_the_invariants(verbs: list[str]) -> None:
    state = fold([event("opened")])
    opened_at, count, occurrences = state.opened_at, 1, 1
    for second, verb in enumerate(verbs, 1):
        try:
            state = apply(state, event(verb, second))
        except IllegalEvent:
            continue
        count += 1
        occurrences += verb in ("extended", "relapsed")
    assert (state.version, state.opened_at, state.occurrences) == (count, opened_at, occurrences)
    assert (state.acknowledged_at is None) == (state.acknowledged_by == "")
    assert state.status in ("open", "acknowledged", "resolved")
    assert state.paged
