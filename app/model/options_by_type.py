"""Which options mean nothing to a type of job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.model.jobgraph import JobType
from app.model.option_names import LOCAL_TIMEOUT
from app.model.options import option_names

_SCHEDULER: Final = "jobmanager.adaptive-scheduler."
_REGIONS: Final = ("execution.batch.adaptive.auto-parallelism.", "table.optimizer.skewed-join-optimization.")
_STREAMING_ONLY: Final = frozenset(
    name
    for name in option_names()
    if name.startswith(
        (
            "slotwise.in-place.",
            "slotwise.state.",
            "slotwise.rollback.",
            "slotwise.version.",
            _SCHEDULER + "executing.",
            _SCHEDULER + "rescale-trigger.",
        )
    )
) | {
    "scheduler-mode",
    _SCHEDULER + "submission.resource-stabilization-timeout",
    "slotwise.batch.timeout",
    "slotwise.batch.interval",
    "slotwise.batch.trigger",
    "slotwise.metrics.load",
    "slotwise.rescale.apply-timeout",
    LOCAL_TIMEOUT,
}
_BATCH_ONLY: Final = frozenset(
    name
    for name in option_names()
    if name.startswith(_REGIONS) or name == "slotwise.batch.parallelism-decider"
)


_OF_BATCH_PROGRAMS: Final = frozenset(
    name
    for name in _STREAMING_ONLY
    if name.startswith(("slotwise.in-place.", _SCHEDULER + "executing.", _SCHEDULER + "rescale-trigger."))
) | {"slotwise.rescale.apply-timeout"}
"""They say when a job is rescaled that runs; a BATCH program is, while the regions of a BATCH graph are not."""


def options_of_the_other_type(
    mapping: Mapping[str, object], job_type: JobType, *, program: bool = False
) -> list[str]:
    """A sentence for each option that means nothing to a job of ``job_type``, or to a ``program`` of it."""
    if program and job_type is JobType.BATCH:
        return [
            f"Option {name} is not for BATCH programs: they have neither regions nor micro-batches."
            for name in mapping
            if name in (_STREAMING_ONLY | _BATCH_ONLY) - _OF_BATCH_PROGRAMS
        ]
    other = JobType.STREAMING if job_type is JobType.BATCH else JobType.BATCH
    foreign = _STREAMING_ONLY if job_type is JobType.BATCH else _BATCH_ONLY
    return [
        f"Option {name} is for {other} jobs: a {job_type} job has no use for it."
        for name in mapping
        if name in foreign
    ]
