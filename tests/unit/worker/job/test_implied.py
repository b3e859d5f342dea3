"""What a state asks to be done about its attempt, when nobody knows what was done before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from app.model.value import evolve
from app.scheduler.adaptive.effects import Effect, StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.events import AttemptMisplaced
from app.scheduler.adaptive.state import JobState, Restarting, WaitingForResources
from app.worker.job.orders import implied_effects
from tests.unit.scheduler.driving import Job
from tests.unit.scheduler.phases import IN_PHASE, in_phase

KILL = StopAttempt(1, StopMode.KILL)
ENDS = ("Restarting", "Failing", "Canceling")


@pytest.mark.parametrize("kind", [one for one in IN_PHASE if one != "CreatingExecutionGraph"])
def test_an_attempt_that_is_to_end_is_killed_and_no_other_is_touched(kind: str) -> None:
    assert implied_effects(in_phase(kind).state) == ((KILL,) if kind in ENDS else ())


def test_one_that_is_being_started_is_started() -> None:
    job = in_phase("CreatingExecutionGraph")
    assert implied_effects(job.state) == (StartAttempt(1, job.effect(StartAttempt).plan),)


@pytest.mark.parametrize(
    ("restarting", "effects"),
    [
        (Restarting(0, target=()), (StopAttempt(1, StopMode.BOUNDARY),)),
        (Restarting(0, target=(), drain=True), (StopAttempt(1, StopMode.DRAIN),)),
        (Restarting(0, drain=True), (StopAttempt(1, StopMode.DRAIN),)),
        (Restarting(0, target=(), drain=True, stopped=True), ()),
        (Restarting(0, target=(), kill=True), (KILL,)),
        (Restarting(0, drain=True, kill=True), (KILL,)),
    ],
)
def test_one_that_is_restarted_stops_as_its_restart_says(
    restarting: Restarting, effects: tuple[Effect, ...]
) -> None:
    assert implied_effects(evolve(in_phase("Executing").state, phase=restarting)) == effects


def given_up(job: Job) -> JobState:
    state = job.do(AttemptMisplaced(job.state.attempt, "It runs elsewhere.")).state
    assert isinstance(state.phase, WaitingForResources) and state.driver.alive
    return state


def start_timed_out(job: Job) -> JobState:
    return job.wait(job.state.options.start_timeout_ms).state


@pytest.mark.parametrize("become", [given_up, start_timed_out])
def test_one_that_was_given_up_is_killed(become: Callable[[Job], JobState]) -> None:
    assert implied_effects(become(in_phase("CreatingExecutionGraph"))) == (KILL,)
