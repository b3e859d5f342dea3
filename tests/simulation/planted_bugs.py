"""Defects to plant into the control plane, each as a context: the simulator must find them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from app.model.protocol import Report
from app.scheduler.adaptive import repartition, timeline, trial
from app.scheduler.adaptive.draft import Draft
from app.worker.control_plane import ControlPlane
from app.worker.job.attempts import Attempts
from app.worker.job.job import Job
from app.worker.job.mailbox import answer_all
from app.worker.job.persistence import StepChanges
from app.worker.job.worker import JobWorker
from tests.parts import with_part
from tests.simulation import (
    clusters,
    events_told,
    planted_batch_bugs,
    planted_growth_bugs,
    planted_local_bugs,
    planted_member_bugs,
    planted_rule_bugs,
    planted_standstill_bugs,
    policies,
    reachability,
    shares,
    taking_up,
    told,
)
from tests.simulation.planted_batch_bugs import instead


def answered_before_durable() -> contextlib.AbstractContextManager[None]:
    """A PUT is answered when it is decided, and written afterwards."""
    original = JobWorker._apply_request

    def apply(self: JobWorker, state: Any, item: Any, change: Any, answers: Any) -> Any:
        state = original(self, state, item, change, answers)
        answer_all(answers)
        return state

    return instead(JobWorker, "_apply_request", apply)


def answers_read_from_the_database() -> contextlib.AbstractContextManager[None]:
    """The answer to a repeated PUT is read from the database, which has not all of it."""
    return instead(JobWorker, "knows_answer", lambda _self, _key: False)


def started_before_the_old_is_gone() -> contextlib.AbstractContextManager[None]:
    """The kill is sent and not waited for."""

    async def kill(self: Attempts, after_s: float = 0.0) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._spawn(handle.kill())

    return instead(Attempts, "_kill_handle", kill)


def record_never_closed() -> contextlib.AbstractContextManager[None]:
    """A rescale that succeeded is not recorded as completed."""
    return instead(timeline, "complete_record", lambda *_args: None)


def record_closed_twice() -> contextlib.AbstractContextManager[None]:
    """A record that ended is written again with the next one, as if it had ended a moment later."""
    original = StepChanges.add

    def add(self: StepChanges, before: Any, event: Any, after: Any, *rest: Any) -> None:
        original(self, before, event, after, *rest)
        last = before.timeline.last_completed
        if last is not None and last is not after.timeline.last_completed:
            self.records[last.number] = replace(last, end_ms=(last.end_ms or 0) + 1)

    return instead(StepChanges, "add", add)


def epoch_not_checked() -> contextlib.AbstractContextManager[None]:
    """A control plane that was overtaken judges the drivers of its successor."""
    original = ControlPlane._of_driver

    async def of_driver(self: ControlPlane, job_id: str, attempt: int, secret: str, epoch: int) -> Job:
        return await original(self, job_id, attempt, secret, 0)

    return instead(ControlPlane, "_of_driver", of_driver)


def effects_before_the_commit() -> contextlib.AbstractContextManager[None]:
    """Effects are performed as soon as they are decided."""
    original = JobWorker._step

    def step(self: JobWorker, state: Any, event: Any, change: Any) -> Any:
        known = len(change.effects)
        state = original(self, state, event, change)
        self._perform_all(tuple(change.effects[known:]))
        return state

    return instead(JobWorker, "_step", step)


def acknowledged_before_durable() -> contextlib.AbstractContextManager[None]:
    """Reports of drivers are acknowledged when they arrive."""
    original = Job.take_down

    async def take_down(self: Job, attempt: int, reports: list[Report]) -> int:
        async def nothing() -> None:
            return None

        settle, self.worker.settle = self.worker.settle, nothing  # type: ignore[method-assign]
        try:
            return await original(self, attempt, reports)
        finally:
            self.worker.settle = settle  # type: ignore[method-assign]

    return instead(Job, "take_down", take_down)


def redistribution_taken_for_done() -> contextlib.AbstractContextManager[None]:
    """Once an attempt was made at a redistribution of state, it counts as done."""

    def failed_try(draft: Draft, _error: str, *, final: bool) -> None:
        draft.set_part("partitions", repartition=None)

    return instead(repartition, "failed_try", failed_try)


def redistribution_done_without_late_queries() -> contextlib.AbstractContextManager[None]:
    """It counts as done when the driver first tells of the state of queries, although some are started later."""
    return instead(repartition, "_concerned", lambda _graph, _begun: ())


def redistribution_changes_its_mind() -> contextlib.AbstractContextManager[None]:
    """A redistribution that was begun and not done gives way to other numbers."""
    original = repartition.begin

    def begin(draft: Draft) -> None:
        begun, draft.state = (
            draft.state.partitions.repartition,
            with_part(draft.state, "partitions", repartition=None),
        )
        original(draft)
        if draft.state.partitions.repartition is None:
            draft.set_part("partitions", repartition=begun)

    return instead(repartition, "begin", begin)


def never_taken_back() -> contextlib.AbstractContextManager[None]:
    """A job that fails after a rescale is started at the same parallelism, as often as the strategy allows."""
    return instead(trial, "_rescale_to_blame", lambda *_args, **_more: None)


def taken_back_for_a_moment() -> contextlib.AbstractContextManager[None]:
    """Whatever happens to the slots, what was taken back is tried again."""

    def lift(draft: Any) -> None:
        if draft.state.trial.taken_back is not None:
            trial.allow_retry(draft)

    return instead(trial, "allow_retry_if_cluster_changed", lift)


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "a PUT is answered before it is durable": answered_before_durable,
    "an answer is read again by who gave it": answers_read_from_the_database,
    "a driver is started before the old one is gone": started_before_the_old_is_gone,
    "a record is never closed": record_never_closed,
    "a record is closed twice": record_closed_twice,
    "the epoch is not checked on reports": epoch_not_checked,
    "effects are performed before the commit": effects_before_the_commit,
    "reports are acknowledged before they are durable": acknowledged_before_durable,
    "a redistribution counts as done when its driver died": redistribution_taken_for_done,
    "a redistribution counts as done before a late query has it": redistribution_done_without_late_queries,
    "a redistribution that was begun changes its mind": redistribution_changes_its_mind,
    "a bad rescale is not taken back": never_taken_back,
    "a bad rescale is tried again and again": taken_back_for_a_moment,
    **planted_batch_bugs.PLANTED,
    **shares.PLANTED,
    **policies.PLANTED,
    **reachability.PLANTED,
    **planted_member_bugs.PLANTED,
    **planted_local_bugs.PLANTED,
    **clusters.PLANTED,
    **planted_rule_bugs.PLANTED,
    **planted_growth_bugs.PLANTED,
    **planted_standstill_bugs.PLANTED,
    **told.PLANTED,
    **events_told.PLANTED,
    **taking_up.PLANTED,
}
