"""The worker of one job: mailbox in, `step()`, one transaction, effects out.

Everything that can change a job goes through its mailbox. The worker takes what has gathered there, runs the core
over it, and writes the new state, the records and the effects in one transaction; only then is the new state the
state, are the effects performed and are clients answered. So requests that arrive while a transaction is being
written share the next one, in order, and nobody is ever told something that a crash could undo.

When the store is away, clients are told to try again, and facts are kept until it is back. When the lease is lost,
or the database has another state than this one, nothing more is done here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog

from app.scheduler.adaptive.draft import InvalidTransition
from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import Event, GlobalFailure, TimerFired
from app.scheduler.adaptive.state import JobState
from app.scheduler.step import step
from app.store.writes import Write
from app.worker.job.drivers import redacted
from app.worker.job.mailbox import (
    EventSource,
    Fact,
    IdempotencyKey,
    Request,
    RequestDecision,
    answer_all,
    first_answer,
    refuse,
    refuse_all,
)
from app.worker.job.persistence import LostOwnership, StateDiverged, StepChanges, WriteFailed
from app.worker.job.step_log import log_regions, log_transition
from app.worker.refusals import ControlPlaneError, StateConflict, Unavailable
from app.worker.views import RequirementsResult

if TYPE_CHECKING:
    from app.worker.job.job import Job

log = structlog.get_logger()

_MAX_ITEMS_PER_TRANSACTION = 256
_STORY_LENGTH = 32
_WRITE_RETRY_S = (0.1, 0.5, 2.0, 5.0)
_USELESS_TIMER_RETRY_S = 1.0
_ANSWERS_KEPT = 1000
_CLOSED = "This control plane does not serve the job now. Try again in a moment."
_UNSURE = "This server was suspended or disconnected for a while, and is checking which jobs it still owns. Try again."
_DEFECT = (
    "The request met an internal error of the control plane, which its log describes. Nothing was changed."
)


class JobWorker:
    """One job. ``state`` is always the last durable one."""

    def __init__(self, state: JobState, job: Job) -> None:
        self.state = state
        self._job, self._writer, self._clock = job, job.writer, job.clock
        self._acknowledged_durably = (0, 0)
        self._answers: OrderedDict[str, tuple[str, RequirementsResult]] = OrderedDict()
        self._mailbox: deque[Fact | Request] = deque()
        self._running: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms: int | None = None
        self._useless_timers: frozenset[tuple[str, int]] = frozenset()
        self._story: deque[str] = deque(maxlen=_STORY_LENGTH)
        self._failed_writes = 0
        self._asked = asyncio.Event()
        self._closed = False
        self._log = log.bind(job=state.job_id)

    @property
    def job_id(self) -> str:
        return self.state.job_id

    def deliver(self, source: EventSource, *rows: Write) -> None:
        """Put a fact into the mailbox. ``rows`` become durable with what follows from it."""
        if self._closed:
            return
        self._mailbox.append(Fact(source, rows))
        self._wake()

    async def ask(
        self, decide: Callable[[JobState], RequestDecision], key: IdempotencyKey | None = None
    ) -> Any:
        """Let ``decide`` see the state when its turn comes; its answer, once what it caused is durable.

        A request whose ``key`` was answered before gets that answer again, and ``decide`` is not called.

        Raises:
            ControlPlaneError: ``decide`` refused, the job's state forbids it, or it could not be written.
        """
        if self._closed:
            raise Unavailable(_CLOSED)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._mailbox.append(Request(decide, future, key))
        self._asked.set()
        self._wake()
        return await future

    async def settle(self) -> None:
        """Returns when everything that is in the mailbox now is durable, with what follows from it.

        Raises:
            Unavailable: it could not be written yet; it is kept and tried again.
        """
        await self.ask(lambda _state: RequestDecision(None))

    def knows_answer(self, key: str) -> bool:
        return key in self._answers

    def remember_answer(self, key: str, request_hash: str, answer: RequirementsResult) -> None:
        """Keep the durable answer to the request with this Idempotency-Key."""
        self._answers[key] = (request_hash, answer)
        while len(self._answers) > _ANSWERS_KEPT:
            self._answers.popitem(last=False)

    def start(self, pending: tuple[Effect, ...]) -> None:
        """Take up the work after a restart: do what the state asks for, and arm timers."""
        self._perform_all(pending)
        self._arm_timer()

    def close(self) -> None:
        """Accept nothing more; waiting clients get an answer to try again."""
        self._closed = True
        self._asked.set()
        if self._timer is not None:
            self._timer.cancel()
        while self._mailbox:
            item = self._mailbox.popleft()
            if isinstance(item, Request):
                refuse(item, Unavailable(_CLOSED))

    async def ended(self) -> None:
        """Returns when a closed worker has finished the transaction that it was writing."""
        if self._running is not None:
            await asyncio.wait([self._running])

    # -- inside

    def _wake(self) -> None:
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._mailbox and not self._closed:
                await self._one_transaction()
        finally:
            self._running = None
            if self._mailbox and not self._closed:
                self._wake()

    async def _one_transaction(self) -> None:
        items = [self._mailbox.popleft() for _ in range(min(len(self._mailbox), _MAX_ITEMS_PER_TRANSACTION))]
        before = self.state
        change = StepChanges()
        answers: list[tuple[Request, Any]] = []
        state = before
        for item in items:
            state = self._apply(state, item, change, answers)
        if not self._mailbox and (taken := self._job.acknowledged) != self._acknowledged_durably:
            change.acknowledged = taken
        if state is before and change.is_empty:
            answer_all(answers) if self._writer.is_sure() else refuse_all(answers, Unavailable(_UNSURE))
            self._job.changed(state, state)
            self._arm_timer()
            return
        try:
            await self._writer.write(before, state, change, lambda doubt: self._tell_doubt(answers, doubt))
        except LostOwnership as error:
            self._log.error("ownership lost", error=str(error))
            refuse_all(answers, Unavailable("Another control plane owns the job now. Try again in a moment."))
            self._give_up(self._job.lost)
        except StateDiverged as error:
            self._log.error("the database refuses the state", error=str(error), story=list(self._story))
            refuse_all(answers, Unavailable(f"{error} The job is loaded again; try again in a moment."))
            self._give_up(self._job.diverged)
        except WriteFailed as error:
            await self._put_back(items, answers, error)
        except Exception:
            self._log.exception("a transaction of a job met a defect", story=list(self._story))
            refuse_all(answers, Unavailable(_DEFECT))
            self._give_up(self._job.diverged)
        else:
            self._written(before, state, change)
            answer_all(answers)

    def _written(self, before: JobState, state: JobState, change: StepChanges) -> None:
        self._failed_writes, self.state = 0, state
        self._acknowledged_durably = change.acknowledged or self._acknowledged_durably
        for key, (request_hash, answer) in change.answers.items():
            self.remember_answer(key, request_hash, answer)
        if self._closed:
            # The next owner of the job does what the state asks for.
            return
        self._job.changed(before, state)
        if change.effects and not self._writer.is_sure():
            # Stopped after the write for so long that the job may be another's: its owner reads them off the state.
            self._log.warning("effects are left to the owner", effects=len(change.effects))
            self._give_up(self._job.diverged)
            return
        self._perform_all(tuple(change.effects))
        self._useless_timers = frozenset()
        self._arm_timer()

    def _perform_all(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            try:
                self._job.perform(effect)
            except Exception:
                self._log.exception("an effect could not be performed", effect=type(effect).__name__)

    def _give_up(self, tell: Callable[[], None]) -> None:
        self.close()
        tell()

    def _tell_doubt(self, answers: list[tuple[Request, Any]], doubt: str) -> None:
        self._log.error("it is not known whether a state was written", error=doubt)
        refuse_all(answers, Unavailable(f"{doubt} Read the job again to see whether it was."))

    def _apply(
        self,
        state: JobState,
        item: Fact | Request,
        change: StepChanges,
        answers: list[tuple[Request, Any]],
    ) -> JobState:
        try:
            if isinstance(item, Request):
                return self._apply_request(state, item, change, answers)
            return self._apply_fact(state, item, change)
        except Exception as error:
            # A step that fails has changed nothing, but what it was told is lost: the job is told so, and restarts.
            self._log.exception("a step failed", story=list(self._story))
            if isinstance(item, Request):
                refuse(item, Unavailable(_DEFECT))
                return state
            try:
                sentence = (
                    f"The scheduler met an internal error ({type(error).__name__}); its log describes it."
                )
                return self._step(state, GlobalFailure(sentence), change)
            except Exception:
                self._log.exception("nor can the job be restarted")
                return state

    def _apply_request(
        self, state: JobState, item: Request, change: StepChanges, answers: list[tuple[Request, Any]]
    ) -> JobState:
        key = item.key
        try:
            if key is not None:
                known = change.answers.get(key.key) or self._answers.get(key.key)
                if known is not None:
                    answers.append((item, first_answer(key, known)))
                    return state
            decision = item.decide(state)
            if decision.event is not None:
                place = len(change.rows)
                state = self._step(state, decision.event, change)
                change.rows[place:place] = decision.rows
        except ControlPlaneError as error:
            refuse(item, error)
        except InvalidTransition as error:
            refuse(item, StateConflict(f"{error.reason}."))
        else:
            if key is not None:
                change.answers[key.key] = (key.request_hash, decision.answer)
            answers.append((item, decision.answer))
        return state

    def _apply_fact(self, state: JobState, item: Fact, change: StepChanges) -> JobState:
        change.rows.extend(item.rows)
        event = item.source(state) if callable(item.source) else item.source
        if event is None:
            return state
        try:
            return self._step(state, event, change)
        except InvalidTransition as error:
            self._log.warning("event refused", error=str(error), story=list(self._story))
            return state

    def _step(self, state: JobState, event: Event, change: StepChanges) -> JobState:
        now_ms = self._clock.now_ms()
        event = redacted(event, state.graph)
        new, effects, told = step(state, event, now_ms)
        if new is state and not effects:
            return state
        if new.phase_version != state.phase_version:
            self._story.append(f"{type(event).__name__}: {state.phase.kind} -> {new.phase.kind}")
            log_transition(self._log, type(event).__name__, state, new)
        else:
            self._story.append(type(event).__name__)
        log_regions(self._log, state, new)
        change.add(state, event, new, effects, told, now_ms)
        return new

    async def _put_back(
        self, items: list[Fact | Request], answers: list[tuple[Request, Any]], error: WriteFailed
    ) -> None:
        """Nothing happened: clients get this answer; facts are kept and tried again, because they stay true."""
        delay_s = _WRITE_RETRY_S[min(self._failed_writes, len(_WRITE_RETRY_S) - 1)]
        self._failed_writes += 1
        self._log.error("state could not be written", error=str(error), retry_in_s=delay_s)
        refuse_all(answers, Unavailable(f"{error} Nothing was changed; try again."))
        if self._closed:
            return
        facts = [item for item in items if isinstance(item, Fact)]
        self._mailbox.extendleft(reversed(facts))
        # A client that asks meanwhile is not kept waiting: whether the store is back is tried at once.
        self._asked.clear()
        if not any(isinstance(item, Request) for item in self._mailbox):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._asked.wait()

    def _arm_timer(self) -> None:
        if self._closed:
            return
        at_ms = min((timer.at_ms for timer in self.state.timers), default=None)
        if at_ms == self._timer_at_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at_ms = at_ms
        if at_ms is not None:
            delay_s = max(0, at_ms - self._clock.now_ms()) / 1000
            if self._useless_timers:
                delay_s = max(delay_s, _USELESS_TIMER_RETRY_S)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at_ms = None, None
        now_ms = self._clock.now_ms()
        due = [timer for timer in self.state.timers if timer.at_ms <= now_ms]
        # One that leads to nothing must not fire again and again without a pause.
        self._useless_timers = frozenset((timer.name, timer.version) for timer in due)
        for timer in due:
            self.deliver(TimerFired(timer.name, timer.version))
        if not due:
            self._arm_timer()
