"""Defects to plant into the control plane, each as a context: the simulator must find them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from app.model.protocol import Report
from app.scheduler.adaptive import timeline
from app.scheduler.batch import executing as batch_executing
from app.scheduler.batch.progress import RegionState
from app.worker.attempts import Attempts
from app.worker.control_plane import ControlPlane
from app.worker.job import Job
from app.worker.job_worker import JobWorker
from app.worker.mailbox import answer_all
from app.worker.persistence import Change


@contextlib.contextmanager
def _instead(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)


def answered_before_durable() -> contextlib.AbstractContextManager[None]:
    """A PUT is answered when it is decided, and written afterwards."""
    original = JobWorker._apply_request

    def apply(self: JobWorker, state: Any, item: Any, change: Any, answers: Any) -> Any:
        state = original(self, state, item, change, answers)
        answer_all(answers)
        return state

    return _instead(JobWorker, "_apply_request", apply)


def started_before_the_old_is_gone() -> contextlib.AbstractContextManager[None]:
    """The kill is sent and not waited for."""

    async def kill(self: Attempts) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._spawn(handle.kill())

    return _instead(Attempts, "_kill_handle", kill)


def record_never_closed() -> contextlib.AbstractContextManager[None]:
    """A rescale that succeeded is not recorded as completed."""
    return _instead(timeline, "complete_record", lambda *_args: None)


def record_closed_twice() -> contextlib.AbstractContextManager[None]:
    """A record that ended is written again with the next one, as if it had ended a moment later."""
    original = Change.add

    def add(self: Change, before: Any, after: Any, effects: Any, now_ms: int) -> None:
        original(self, before, after, effects, now_ms)
        last = before.timeline.last_completed
        if last is not None and last is not after.timeline.last_completed:
            self.records[last.number] = replace(last, end_ms=(last.end_ms or 0) + 1)

    return _instead(Change, "add", add)


def epoch_not_checked() -> contextlib.AbstractContextManager[None]:
    """A control plane that was overtaken judges the drivers of its successor."""
    original = ControlPlane._of_driver

    async def of_driver(self: ControlPlane, job_id: str, attempt: int, secret: str, epoch: int) -> Job:
        return await original(self, job_id, attempt, secret, 0)

    return _instead(ControlPlane, "_of_driver", of_driver)


def effects_before_the_commit() -> contextlib.AbstractContextManager[None]:
    """Effects are performed as soon as they are decided."""
    original = JobWorker._step

    def step(self: JobWorker, state: Any, event: Any, change: Any) -> Any:
        known = len(change.effects)
        state = original(self, state, event, change)
        self._perform_all(tuple(change.effects[known:]))
        return state

    return _instead(JobWorker, "_step", step)


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

    return _instead(Job, "take_down", take_down)


def lost_result_not_made_again() -> contextlib.AbstractContextManager[None]:
    """A region whose input is lost runs again, and the producer of the input does not."""
    original = batch_executing.availability

    def availability(progress: Any, datasets: Any, lost: Any = ()) -> Any:
        return original(progress, datasets)

    return _instead(batch_executing, "availability", availability)


def finished_regions_forgotten() -> contextlib.AbstractContextManager[None]:
    """A new driver begins from the start."""
    return _instead(batch_executing, "_interrupted", lambda region: RegionState(run=region.run))


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "a PUT is answered before it is durable": answered_before_durable,
    "a driver is started before the old one is gone": started_before_the_old_is_gone,
    "a record is never closed": record_never_closed,
    "a record is closed twice": record_closed_twice,
    "the epoch is not checked on reports": epoch_not_checked,
    "effects are performed before the commit": effects_before_the_commit,
    "reports are acknowledged before they are durable": acknowledged_before_durable,
    "a lost result is not made again": lost_result_not_made_again,
    "finished regions are run again by the next driver": finished_regions_forgotten,
}
