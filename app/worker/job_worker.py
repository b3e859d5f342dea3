"""The worker of one job: mailbox in, `step()`, one transaction, effects out.

Everything that can change a job goes through its mailbox. The worker takes what has gathered there, runs the core
over it, and writes the new state, the records and the effects in one transaction; only then is the new state the
state, are the effects performed and are clients answered. So requests that arrive while a transaction is being
written share the next one, in order, and nobody is ever told something that a crash could undo.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import Event, TimerFired
from app.scheduler.adaptive.state import JobState
from app.scheduler.adaptive.step import InvalidTransition, step
from app.scheduler.adaptive.validate import validate
from app.worker.clock import Clock
from app.worker.persistence import Change, JobWriter, LostOwnership, WriteFailed
from app.worker.views import ControlPlaneError, StateConflict, Unavailable

log = structlog.get_logger()

_MAX_EVENTS_PER_TRANSACTION = 256
_STORY_LENGTH = 32
_WRITE_RETRY_S = (0.1, 0.5, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a request decided, seeing the state that is current when its turn comes.

    ``event`` None: nothing is to be done. ``answer`` goes to the client once everything is durable.
    ``idempotency_key`` with its fingerprint is remembered in the same transaction.
    """

    event: Event | None
    answer: Any = None
    idempotency: tuple[str, str] | None = None


@dataclass(slots=True)
class _Request:
    decide: Callable[[JobState], Verdict]
    future: asyncio.Future[Any]


class EffectPerformer(Protocol):
    def __call__(self, job_id: str, effect: Effect) -> None: ...


class JobWorker:
    """One job. ``state`` is always the last durable one."""

    def __init__(
        self,
        state: JobState,
        *,
        writer: JobWriter,
        clock: Clock,
        perform: EffectPerformer,
        on_change: Callable[[JobState, JobState], None],
        on_lost: Callable[[str], None],
        validate_states: bool = False,
    ) -> None:
        self.state = state
        self._writer = writer
        self._clock = clock
        self._perform = perform
        self._on_change = on_change
        self._on_lost = on_lost
        self._validate = validate_states
        self._mailbox: deque[Event | _Request] = deque()
        self._running: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms: int | None = None
        self._story: deque[str] = deque(maxlen=_STORY_LENGTH)
        self._failed_writes = 0
        self._closed = False
        self._log = log.bind(job=state.job_id)

    @property
    def job_id(self) -> str:
        return self.state.job_id

    @property
    def story(self) -> tuple[str, ...]:
        """The last events and what they led to, oldest first."""
        return tuple(self._story)

    def deliver(self, event: Event) -> None:
        """Put a fact into the mailbox."""
        if self._closed:
            return
        self._mailbox.append(event)
        self._wake()

    async def ask(self, decide: Callable[[JobState], Verdict]) -> Any:
        """Let ``decide`` see the state when its turn comes; its answer, once what it caused is durable.

        Raises:
            ControlPlaneError: ``decide`` refused, the job's state forbids it, or it could not be written.
        """
        if self._closed:
            raise Unavailable("This control plane does not own the job any more. Try again in a moment.")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._mailbox.append(_Request(decide, future))
        self._wake()
        return await future

    def start(self, pending: tuple[Effect, ...]) -> None:
        """Take up the work after a restart: perform again what was written but perhaps not done, and arm timers."""
        for effect in pending:
            self._perform(self.job_id, effect)
        self._arm_timer()

    def close(self) -> None:
        """Take nothing more; waiting clients are told to try again."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._mailbox:
            item = self._mailbox.popleft()
            if isinstance(item, _Request):
                _refuse(item, Unavailable("This control plane is stopping. Try again in a moment."))

    async def settle(self) -> None:
        """Wait until what is in the mailbox now has been dealt with."""
        if self._running is not None:
            await asyncio.shield(self._running)

    # -- inside

    def _wake(self) -> None:
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._mailbox and not self._closed:
                await self._one_transaction()
        except Exception:
            self._log.exception("the worker of a job failed", story=list(self._story))
            raise
        finally:
            self._running = None
            if self._mailbox and not self._closed:
                self._wake()

    async def _one_transaction(self) -> None:
        items = [self._mailbox.popleft() for _ in range(min(len(self._mailbox), _MAX_EVENTS_PER_TRANSACTION))]
        before = self.state
        change = Change()
        answers: list[tuple[_Request, Any]] = []
        state = before
        for item in items:
            state = self._apply(state, item, change, answers)
        if state is before and change.is_empty:
            _answer(answers)
            return
        try:
            await self._writer.write(before, state, change)
        except LostOwnership as error:
            self._log.error("ownership lost", error=str(error))
            _refuse_all(
                answers, Unavailable("Another control plane owns the job now. Try again in a moment.")
            )
            self.close()
            self._on_lost(self.job_id)
            return
        except WriteFailed as error:
            await self._put_back(items, answers, error)
            return
        self._failed_writes = 0
        self.state = state
        self._on_change(before, state)
        for effect in change.effects:
            self._perform(self.job_id, effect)
        self._writer.performed()
        self._arm_timer()
        _answer(answers)

    def _apply(
        self, state: JobState, item: Event | _Request, change: Change, answers: list[tuple[_Request, Any]]
    ) -> JobState:
        event: Event | None
        if isinstance(item, _Request):
            try:
                verdict = item.decide(state)
            except ControlPlaneError as error:
                _refuse(item, error)
                return state
            event, answer = verdict.event, verdict.answer
            if verdict.idempotency is not None:
                change.idempotency.append((*verdict.idempotency, answer))
        else:
            event, answer = item, None
        if event is not None:
            try:
                state = self._step(state, event, change)
            except InvalidTransition as error:
                if isinstance(item, _Request):
                    _refuse(item, StateConflict(f"{error.reason}."))
                    return state
                self._log.warning("event refused", error=str(error), story=list(self._story))
        if isinstance(item, _Request):
            answers.append((item, answer))
        return state

    def _step(self, state: JobState, event: Event, change: Change) -> JobState:
        now_ms = self._clock.now_ms()
        new, effects = step(state, event, now_ms)
        if new is state and not effects:
            return state
        if new.phase_version != state.phase_version:
            self._story.append(f"{type(event).__name__}: {state.phase.kind} -> {new.phase.kind}")
            self._log.info(
                "state",
                attempt=new.attempt,
                rescale=new.timeline.open.uuid if new.timeline.open else None,
                event=type(event).__name__,
                source=state.phase.kind,
                target=new.phase.kind,
            )
        else:
            self._story.append(type(event).__name__)
        if self._validate:
            validate(new)
        change.add(state, new, effects, now_ms)
        if new.timeline.closed:
            new = replace(new, timeline=replace(new.timeline, closed=()))
        return new

    async def _put_back(
        self, items: list[Event | _Request], answers: list[tuple[_Request, Any]], error: WriteFailed
    ) -> None:
        """Nothing happened: clients are told so; facts are kept and tried again, since they stay true."""
        delay_s = _WRITE_RETRY_S[min(self._failed_writes, len(_WRITE_RETRY_S) - 1)]
        self._failed_writes += 1
        self._log.error("state could not be written", error=str(error), retry_in_s=delay_s)
        _refuse_all(answers, Unavailable(f"{error} Nothing was changed; try again."))
        facts = [item for item in items if not isinstance(item, _Request)]
        self._mailbox.extendleft(reversed(facts))
        await asyncio.sleep(delay_s)

    def _arm_timer(self) -> None:
        at_ms = min((timer.at_ms for timer in self.state.timers), default=None)
        if at_ms == self._timer_at_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at_ms = at_ms
        if at_ms is not None and not self._closed:
            delay_s = max(0, at_ms - self._clock.now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at_ms = None, None
        now_ms = self._clock.now_ms()
        for timer in self.state.timers:
            if timer.at_ms <= now_ms:
                self.deliver(TimerFired(timer.name, timer.version))
        # A clock that was set back finds nothing due yet: wait for the rest. Due ones re-arm after their transaction.
        if not self._mailbox:
            self._arm_timer()


def _answer(answers: list[tuple[_Request, Any]]) -> None:
    for request, answer in answers:
        if not request.future.done():
            request.future.set_result(answer)


def _refuse(request: _Request, error: Exception) -> None:
    if not request.future.done():
        request.future.set_exception(error)


def _refuse_all(answers: list[tuple[_Request, Any]], error: Exception) -> None:
    for request, _ in answers:
        _refuse(request, error)
