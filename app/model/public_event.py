"""The public events of `/events` (docs/events.md).

The core has other events, which are its input (`app.scheduler.adaptive.events`). Public events are its output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from app.model.value import value

FORGOTTEN_JOB: Final = "forgottenJob"


class PublicEventType(StrEnum):
    STATUS = "status"
    REQUIREMENTS = "requirements"
    GRAPH = "graph"
    SLOT_SHARE = "slot-share"
    SCALING_POLICY = "scaling-policy"
    RESCALE_BEGUN = "rescale-begun"
    RESCALE_STEP = "rescale-step"
    RESCALE_ENDED = "rescale-ended"
    NO_CHANGE = "no-change"
    FAILURE = "failure"
    RESTART = "restart"
    ATTEMPT_BEGUN = "attempt-begun"
    ATTEMPT_ENDED = "attempt-ended"
    BATCHES = "batches"
    JOB_FORGOTTEN = "job-forgotten"
    MEMBER_JOINED = "member-joined"
    MEMBER_LEFT = "member-left"


@value
class PublicEvent:
    """One of them, not yet stored. ``fields`` has the rest of its JSON, under the names that clients see."""

    type: PublicEventType
    at_ms: int
    fields: Mapping[str, Any]


@value
class StoredEvent:
    """One that is durable. ``id`` is higher than that of every event that was visible before it, of whatever job.

    ``job_id`` is None for an event of the cluster. ``type`` may be one that only a newer version knows. ``fields`` is
    the JSON text of `PublicEvent.fields`.
    """

    id: int
    job_id: str | None
    type: str
    at_ms: int
    fields: str

    @property
    def forgotten_job(self) -> str | None:
        """The job whose end in the store this event tells of."""
        if self.type != PublicEventType.JOB_FORGOTTEN:
            return None
        job_id: str = json.loads(self.fields)[FORGOTTEN_JOB]
        return job_id
