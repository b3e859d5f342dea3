"""The refusal of an event that does not fit: nothing was changed, and the exception tells the job's story."""

from __future__ import annotations

from app.scheduler.adaptive.state import JobState


class InvalidTransition(Exception):
    """An event does not fit the phase the job is in. Nothing was changed.

    ``story`` is what the caller knows of the job's latest (phase, event) pairs, oldest first.
    """

    def __init__(
        self,
        reason: str,
        *,
        job_id: str,
        phase: str,
        phase_version: int,
        event: str,
        attempt: int,
        story: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(
            f"{reason} (job {job_id}, attempt {attempt}, phase {phase} number {phase_version}, event {event})"
        )
        self.reason = reason
        self.job_id = job_id
        self.phase = phase
        self.phase_version = phase_version
        self.event = event
        self.attempt = attempt
        self.story = story


def refusal(state: JobState, event_kind: str, reason: str) -> InvalidTransition:
    """The exception for an event that does not fit ``state``."""
    return InvalidTransition(
        reason,
        job_id=state.job_id,
        phase=state.phase.kind,
        phase_version=state.phase_version,
        event=event_kind,
        attempt=state.attempt,
    )
