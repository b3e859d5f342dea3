"""What is stored of a job tells how late it is, also to a server whose clock is behind."""

from __future__ import annotations

import pytest

from app.model.value import evolve
from app.worker.job.persistence import latest_ms
from tests.parts import with_part
from tests.unit.scheduler.phases import in_phase


@pytest.mark.parametrize("instant", ["since_ms", "change_ms", "last_change_ms"])
@pytest.mark.parametrize("kind", ["WaitingForResources", "Executing"])
def test_a_wait_that_began_by_a_clock_that_was_ahead_does_not_begin_in_the_future(
    kind: str, instant: str
) -> None:
    state = in_phase(kind).state
    ahead_ms = latest_ms(state) + 1_800_000
    manager = evolve(state.phase.manager, **{instant: ahead_ms})  # type: ignore[union-attr]
    assert latest_ms(evolve(state, phase=evolve(state.phase, manager=manager))) == ahead_ms


@pytest.mark.parametrize("instant", ["phase_since_ms", "supply.changed_ms", "supply.away_since_ms"])
def test_what_was_seen_last_counts(instant: str) -> None:
    state = in_phase("Executing").state
    ahead_ms = latest_ms(state) + 1_800_000
    part, _, name = instant.partition(".")
    seen = with_part(state, part, **{name: ahead_ms}) if name else evolve(state, **{instant: ahead_ms})
    assert latest_ms(seen) == ahead_ms
