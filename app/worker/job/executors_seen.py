"""How many executors a job has on a cluster, and how many it should have, as its driver reported last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.model.kubenames import JOB_LABEL, MASTER_PREFIX
from app.model.protocol import Report
from app.model.sentences import duration_in_words

ON_THEIR_WAY_MS: Final = 45_000
"""For how long executors may take to come before anything is wrong: as long as a plan waits for them."""


@dataclass(frozen=True, slots=True)
class ExecutorsSeen:
    """Of ``attempt``: those that are there, and those that should be. ``short_since_ms``: since when there are fewer,
    as far as it is known here; None if there are not. ``why``: what the driver says of those that get no tasks."""

    attempt: int
    present: int
    wanted: int
    short_since_ms: int | None = None
    why: str = ""

    def in_words(self, job_id: str, master: str, now_ms: int) -> list[str]:
        """What it means that there are fewer, and where to look; nothing if there are not."""
        if self.short_since_ms is None:
            return []
        why = [self.why] if self.why else []
        look = "the page of the Spark master and the logs of its workers say why"
        if master.startswith(MASTER_PREFIX):
            look = f"`kubectl describe pods --selector {JOB_LABEL}={job_id}` says why"
        since_ms = now_ms - self.short_since_ms
        if since_ms < ON_THEIR_WAY_MS:
            return [
                f"It has {self.present} of the {self.wanted} executors that it should have; "
                "others may be on their way.",
                *why,
            ]
        return [
            f"It has had {self.present} of the {self.wanted} executors that it should have for "
            f"{duration_in_words(since_ms)}: its tasks take turns in those; {look}.",
            *why,
        ]


def noted(before: ExecutorsSeen | None, attempt: int, report: Report, now_ms: int) -> ExecutorsSeen | None:
    """What is known after ``report`` of ``attempt``."""
    if before is not None and before.attempt != attempt:
        before = None
    if report.executors_wanted < 0:
        return before
    since_ms = None
    if report.executors < report.executors_wanted:
        known = None if before is None else before.short_since_ms
        since_ms = now_ms if known is None else known
    return ExecutorsSeen(attempt, report.executors, report.executors_wanted, since_ms, report.executors_why)
