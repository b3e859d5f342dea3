"""Created: the job is durable, and not scheduled yet."""

from __future__ import annotations

from app.model.rescale import TriggerCause
from app.scheduler.adaptive import pending, repartition, resources, timeline
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import BoundsUpdated, RequirementsUpdated, StartScheduling
from app.scheduler.adaptive.starting import enter_waiting


def created_start(draft: Draft, event: StartScheduling) -> None:
    timeline.open_record(draft, TriggerCause.INITIAL_SCHEDULE, start_ms=draft.state.phase_since_ms)
    enter_waiting(draft)


def created_bounds(draft: Draft, event: BoundsUpdated) -> None:
    declared, was = draft.state.requirements, pending.before(draft.state)
    if isinstance(event, RequirementsUpdated):
        pending.overtake(draft, event)
    resources.take_bounds(draft, event)
    if isinstance(event, RequirementsUpdated):
        pending.begin(draft, declared, was, event)
    repartition.adopt_free(draft)
