"""Created: the job is durable, and not scheduled yet."""

from __future__ import annotations

from app.model.rescale import TriggerCause
from app.scheduler.adaptive import repartition, resources, timeline
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import BoundsUpdated, StartScheduling
from app.scheduler.adaptive.starting import enter_waiting


def created_start(draft: Draft, event: StartScheduling) -> None:
    timeline.open_record(draft, TriggerCause.INITIAL_SCHEDULE, start_ms=draft.state.phase_since_ms)
    enter_waiting(draft)


def created_bounds(draft: Draft, event: BoundsUpdated) -> None:
    resources.take_bounds(draft, event)
    repartition.adopt_free(draft)
