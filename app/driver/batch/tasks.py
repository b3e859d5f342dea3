"""How many Spark tasks of a region's run are done, of those that are known so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_OVER = frozenset({"SUCCEEDED", "FAILED"})


class StageTasks:
    """Tasks by stage, each stage once however many jobs have it."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._left: dict[int, int] = {}

    def see(self, stage_id: int, tasks: int, done: int, *, over: bool) -> None:
        """``tasks`` and ``done`` are of the latest attempt of a stage: one that repeats lost parts has fewer tasks.

        ``over``: its job has ended, so what is left will not be done (adaptive execution gives stages up).
        """
        known = max(tasks, self._known.get(stage_id, 0))
        left = max(0, tasks - done)
        self._known[stage_id], self._left[stage_id] = (known - left, 0) if over else (known, left)

    @property
    def counts(self) -> tuple[int, int]:
        """Tasks that are done, and tasks that are known."""
        known = sum(self._known.values())
        return known - sum(self._left.values()), known


class GroupTasks:
    """The tasks of the Spark jobs of one job group. ``tracker`` is Java's JavaSparkStatusTracker.

    Adaptive execution makes stages as it goes, so what is known grows. Spark forgets jobs and stages once it has had
    enough others; what was seen of them stays counted.
    """

    def __init__(self, tracker: Any, group: str) -> None:
        self._tracker = tracker
        self._group = group
        self._stages = StageTasks()
        self._over: set[int] = set()
        self._told = (0, 0)

    def news(self) -> tuple[int, int] | None:
        """Tasks that are done, and tasks that are known; None if it is what was told before."""
        for job_id in self._jobs():
            if job_id not in self._over:
                self._look_at(job_id)
        counts = self._stages.counts
        if counts == self._told:
            return None
        self._told = counts
        return counts

    def _jobs(self) -> Iterable[int]:
        found: Iterable[int] = self._tracker.getJobIdsForGroup(self._group)
        return found

    def _look_at(self, job_id: int) -> None:
        job = self._tracker.getJobInfo(job_id)
        if job is None:
            return
        # Asked before its stages are: those of a job that is over do not change any more.
        over = str(job.status()) in _OVER
        for stage_id in job.stageIds():
            stage = self._tracker.getStageInfo(stage_id)
            # One that was never submitted waits for others, or is skipped because what it would write is there: a job
            # that reads a shuffle has the stage that wrote it once more, under another id.
            if stage is not None and stage.submissionTime() > 0:
                self._stages.see(stage_id, stage.numTasks(), stage.numCompletedTasks(), over=over)
        if over:
            self._over.add(job_id)
