"""An attempt runs on another cluster than jobs do now: it is started anew where they run."""

from __future__ import annotations

from app.model.jobgraph import JobType
from app.model.plan import Rung
from app.model.rescale import TriggerCause
from app.scheduler.adaptive import rollback, timeline
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import StopMode
from app.scheduler.adaptive.events import AttemptMisplaced
from app.scheduler.adaptive.restarting import stop_or_go_on
from app.scheduler.adaptive.starting import enter_waiting
from app.scheduler.adaptive.state import CreatingExecutionGraph, Rescaling, Restarting


def creating_misplaced(draft: Draft, event: AttemptMisplaced) -> None:
    """It is killed, and the next attempt starts where jobs run now. One that is given up is being killed already."""
    phase = draft.state.phase
    assert isinstance(phase, CreatingExecutionGraph)
    if phase.failure is None:
        timeline.note(draft, event.why)
        enter_waiting(draft, exception=event.why)


def running_misplaced(draft: Draft, event: AttemptMisplaced) -> None:
    """The attempt ends at a batch boundary, and the next one starts on another cluster at the same parallelism, if the
    slots are there. No failure, so no restart strategy and no backoff. The runs of a BATCH job have no such boundary.
    """
    rollback.prove(draft)
    if draft.state.timeline.open is None:
        timeline.open_record(draft, TriggerCause.RECOVERABLE_FAILOVER, message=event.why)
    else:
        timeline.note(draft, event.why)
    state, phase = draft.state, draft.state.phase
    plan = phase.target if isinstance(phase, Rescaling) else state.plan
    assert plan is not None
    streaming = state.graph.type is JobType.STREAMING
    draft.enter(Restarting(backoff_ms=0, target=plan.parallelism if streaming else None), event.why)
    draft.set(num_restarts=state.num_restarts + 1, rung=Rung.NEW_DRIVER)
    stop_or_go_on(draft, StopMode.BOUNDARY if streaming else StopMode.KILL)
