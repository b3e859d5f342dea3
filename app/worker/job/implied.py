"""The effects that the state of a job asks for. A control plane that takes over a job performs them (ADR 42)."""

from __future__ import annotations

from app.scheduler.adaptive.effects import Effect, StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.state import (
    Canceling,
    CreatingExecutionGraph,
    Executing,
    Failing,
    Finished,
    JobState,
    Rescaling,
    Restarting,
    StopWithSavepoint,
)


def implied_effects(state: JobState) -> tuple[Effect, ...]:
    """What a state asks to be done about its attempt."""
    phase = state.phase
    kill = StopAttempt(state.attempt, StopMode.KILL)
    if isinstance(phase, CreatingExecutionGraph):
        return (StartAttempt(state.attempt, phase.plan),) if phase.failure is None else (kill,)
    if isinstance(phase, StopWithSavepoint):
        return ()
    if isinstance(phase, Restarting):
        if phase.stopped:
            return ()
        if phase.drain and not phase.kill:
            return (StopAttempt(state.attempt, StopMode.DRAIN),)
        return (
            (kill,)
            if phase.target is None or phase.kill
            else (StopAttempt(state.attempt, StopMode.BOUNDARY),)
        )
    if isinstance(phase, Canceling | Failing):
        return (kill,)
    if isinstance(phase, Executing | Rescaling | Finished):
        return ()
    return (kill,) if state.attempt_alive else ()
