"""The attempts of one job: performs StartAttempt and StopAttempt, and turns what drivers do into events.

Rule 1: a new attempt is started only when nothing of the one before lives.
Rule 2: each step is written down before it is taken. The process is recorded before it gets the job, so after a crash
at any point the process is either known, or has no job and ends by itself.
Rule 3: an attempt ends once, by one event, in the transaction that records it as dead.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import structlog

from app.cluster.driverlogs import end_of_log
from app.cluster.ports import DriverHandle, DriverHost, DriverLaunchError
from app.model.protocol import Registration, Report
from app.scheduler.adaptive import events
from app.scheduler.adaptive.effects import StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.state import StopWithSavepoint
from app.store.writes import Attempt, DescribeDriver, Write
from app.worker.job import drivers
from app.worker.job.attempt_record import described, hash_secret, ref_of, write_outcome, write_spec
from app.worker.job.persistence import LostOwnership
from app.worker.job.silence import Silence

if TYPE_CHECKING:
    from app.worker.job.job import Job

log = structlog.get_logger()

_EXIT_GRACE_S = 10.0


class Attempts:
    """The driver side of one job."""

    def __init__(self, job: Job, host: DriverHost) -> None:
        self._job, self._host = job, host
        self._writer, self._clock = job.writer, job.clock
        _ = job.java_options  # What cannot be read is found when the job is built.
        self._handle: DriverHandle | None = None
        self._exited: DriverHandle | None = None
        self._adopted = False
        self._live: Attempt | None = None
        self._recorded: Attempt | None = None
        self._parked: Attempt | None = None
        self._last_ended = 0
        self._outcome: events.Event | None = None
        self._failure: events.AttemptFailed | None = None
        self._starting_attempt = 0
        self._starting: asyncio.Task[None] | None = None
        self._killing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._calls = 0
        self._was_silent = ""
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._log = log.bind(job=job.job_id)

    @property
    def current(self) -> Attempt | None:
        """The attempt whose driver is listened to: the live one, or one that is over and waits for the next."""
        return self._live or self._parked

    @property
    def is_settled(self) -> bool:
        """Whether an attempt is live and nothing is being started or ended."""
        return self._live is not None and self._starting is None and self._killing is None

    @property
    def driver_pid(self) -> int | None:
        return self._live.pid if self._live else None

    def _is_live(self, attempt: int) -> bool:
        return self._live is not None and self._live.attempt == attempt

    @property
    def spark_ui(self) -> str | None:
        return self._live.ui_url if self._live else None

    def accepts(self, attempt: int, secret: str) -> bool:
        """Whether a caller is the driver of the `current` attempt."""
        caller = self.current
        return (
            caller is not None
            and caller.attempt == attempt
            and secrets.compare_digest(hash_secret(secret), caller.secret_hash)
        )

    def is_parked(self, attempt: int) -> bool:
        """Whether the driver of ``attempt`` waits for another one. It may not have heard yet that we know."""
        return self._parked is not None and self._parked.attempt == attempt

    # -- recovery

    def recover(self, record: Attempt | None, last_ended: Attempt | None) -> bool:
        """Take over what an earlier control plane left: adopt the driver of ``record`` if it lives. Whether it does.

        Otherwise its end is delivered: by its last word if it had one.
        """
        if last_ended is not None:
            self._last_ended = last_ended.attempt
        if record is None:
            if last_ended is not None:
                self._end_leftover(last_ended)
            return False
        handle = self._host.adopt(ref_of(record))
        self._recorded = record
        outcome = drivers.last_word(record.attempt, self._job.attempt_dir(record.attempt))
        if handle is None:
            sentence = f"The driver process {record.pid} ended while no control plane was running."
            gone = events.AttemptFailed(record.attempt, sentence, stopped=True, outside=True)
            self._end(record.attempt, outcome or gone)
            return False
        self._take(record, handle, adopted=True)
        self._log.info("driver adopted", attempt=record.attempt, pid=record.pid)
        if outcome is not None:
            self._outcome = outcome
            self._spawn(self._expect_exit())
        return True

    def _end_leftover(self, ended: Attempt) -> None:
        """A driver that waited for its next attempt cannot get one any more, and holds its lock until it is gone."""
        if (handle := self._host.adopt(ref_of(ended))) is not None:
            self._handle, self._adopted = handle, True
            self._spawn(self._end_parked())

    # -- effects

    def start(self, effect: StartAttempt) -> None:
        """Perform StartAttempt; also again, after a crash between its commit and its end."""
        attempt = effect.attempt
        if self._is_live(attempt) or self._starting_attempt == attempt:
            return
        if attempt <= self._last_ended:
            self._job.deliver(lambda state: drivers.ended_early(state, attempt))
            return
        self._starting_attempt = attempt
        self._starting = self._spawn(self._start(effect))

    def stop(self, effect: StopAttempt) -> None:
        """Perform StopAttempt. A boundary stop and a drain are orders that the driver fetches; a kill is done here.

        An attempt that has not got its driver yet is given up, whatever the mode.
        """
        attempt = effect.attempt
        if self._killing is not None:
            return
        if self._starting is not None and self._starting_attempt == attempt:
            self._killing = self._spawn(self._abandon_start(attempt, self._starting))
        elif not self._is_live(attempt):
            self._job.deliver(events.AttemptStopped(attempt))
        elif effect.mode is StopMode.KILL:
            self._killing = self._spawn(self._kill(attempt))

    # -- what drivers report

    async def keep_last_word(self, report: Report) -> None:
        """Before `on_report`: it is acknowledged before the process is gone, so it must survive a crash of ours.

        Raises:
            OSError: what the driver said could not be kept; it must not be acknowledged.
        """
        live = self._live
        if live is not None and report.type in ("stopped", "finished") and not report.driver_alive:
            # The process may end while this is written, and then this is how it ended.
            self._outcome = drivers.outcome_event(live.attempt, report)
            await asyncio.to_thread(write_outcome, self._job.attempt_dir(live.attempt), report)

    def asked_for_orders(self) -> None:
        """By this the driver is known to live."""
        self._calls += 1

    def registered(self, attempt: int, registration: Registration) -> None:
        """Take note of what the driver of ``attempt`` says of itself, and again once its program has a session."""
        live = self._live
        is_news = live is not None and (live.host is None or (not live.ui_url and registration.ui_url))
        if live is not None and live.attempt == attempt and is_news:
            self._live = self._recorded = told = described(live, registration)
            row = DescribeDriver(attempt, told.host or "", told.spark_version or "", told.ui_url)
            self._job.deliver(lambda _: None, row)

    def on_report(self, report: Report) -> None:
        """Take note of an end that the driver announces; the event follows when nothing of it lives any more."""
        live = self._live
        if live is None:
            return
        if report.type == "failed":
            self._failure = drivers.failed_event(live.attempt, report)
        elif report.type == "stopped" and report.driver_alive and report.error is not None:
            event = events.AttemptStopped(live.attempt, driver_alive=True, error=report.error)
            # The drain could not be carried out and the attempt runs on: of interest to the drain only.
            self._job.deliver(lambda state: event if isinstance(state.phase, StopWithSavepoint) else None)
        elif report.type == "stopped" and report.driver_alive:
            self._park(live.attempt, report)
        elif report.type in ("stopped", "finished"):
            self._spawn(self._expect_exit())

    # -- inside: starting

    async def _start(self, effect: StartAttempt) -> None:
        """A task of its own; when it is canceled `_abandon_start` cleans up."""
        try:
            is_used = await self._prepare(reuse=effect.reuse_driver)
            await drivers.plan_again(self._job.worker, effect.attempt)
            handle = self._handle
            assert handle is not None
            secret, ref = secrets.token_urlsafe(32), handle.ref
            spec = self._job.make_spec(effect, secret)
            record = Attempt(
                effect.attempt,
                spec.epoch,
                ref.driver_id,
                hash_secret(secret),
                self._clock.now_ms(),
                pid=ref.pid,
                pid_started_at=ref.pid_started_at,
                lock_file=ref.lock_file,
                runs_on=self._job.runs_on,
                log_from=await asyncio.to_thread(end_of_log, ref.lock_file) if is_used else 0,
                plan_version=spec.plan_version,
                parallelism=tuple(sorted(spec.parallelism.items())),
            )
            spec_file = await drivers.once_there_are_descriptors(lambda: asyncio.to_thread(write_spec, spec))
            self._recorded = record
            await drivers.write_down(self._writer, record)
            self._take(record, handle, adopted=False)
            self._log.info("attempt assigned", attempt=effect.attempt, pid=handle.ref.pid)
            await handle.assign(spec_file)
        except (DriverLaunchError, OSError) as error:
            await self._kill_handle()
            recoverable = getattr(error, "recoverable", True)
            self._end(
                effect.attempt, events.AttemptStartFailed(effect.attempt, str(error), recoverable=recoverable)
            )
        except LostOwnership as error:
            # The worker's write finds out whose the job is: if it is another's, it is let go of.
            self._log.error("ownership lost", error=str(error))
            await self._kill_handle()
            self._end(effect.attempt, events.AttemptStartFailed(effect.attempt, str(error)))
        if self._starting_attempt == effect.attempt:
            self._starting = None

    async def _prepare(self, *, reuse: bool) -> bool:
        """A process without a job, and nothing else alive. Whether it ran the attempt before."""
        if not reuse or self._live is not None or self._adopted or self._handle is self._exited:
            await self._kill_handle()
        is_used = self._handle is not None
        if not is_used:
            await self._job.cleared()
            handle = await drivers.once_there_are_descriptors(self._acquire)
            self._handle, self._adopted = handle, False
            handle.on_exit(lambda status: self._on_exit(handle, status))
        return is_used

    async def _acquire(self) -> DriverHandle:
        working_dir = await asyncio.to_thread(self._job.make_working_dir)
        return await self._host.acquire(self._job.java_options, self._job.runtime, working_dir)

    def _take(self, record: Attempt, handle: DriverHandle, *, adopted: bool) -> None:
        self._live, self._handle, self._adopted = record, handle, adopted
        self._parked = None
        self._outcome, self._failure, self._was_silent = None, None, ""
        if self._job.silence is not None:
            self._watching = self._spawn(self._end_if_silent(record, handle, self._job.silence))
        if adopted:
            handle.on_exit(lambda status: self._on_exit(handle, status))

    # -- inside: ending

    def _end(self, attempt: int, event: events.Event) -> None:
        """The end of ``attempt``, unless it has ended before: nothing of it writes any more."""
        if attempt <= self._last_ended:
            return
        rows: tuple[Write, ...] = ()
        if self._recorded is not None and self._recorded.attempt == attempt:
            # A driver that never got this attempt may have failed in the one before.
            reported = self._failure if self._failure and self._failure.attempt == attempt else None
            ended = drivers.how_ended(self._job.state, event, reported)
            rows = (self._writer.attempt_ended(self._recorded, ended),)
            self._recorded = None
        if self._is_live(attempt):
            self._live = None
            if self._watching is not None:
                self._watching.cancel()
        self._last_ended = attempt
        if isinstance(event, events.AttemptFailed):
            # Its driver may have reported it before, to us or to a control plane before us.
            self._job.deliver(
                lambda state: (
                    events.AttemptStopped(attempt) if drivers.is_known_failure(state, event) else event
                ),
                *rows,
            )
        else:
            self._job.deliver(event, *rows)

    async def _abandon_start(self, attempt: int, starting: asyncio.Task[None]) -> None:
        try:
            starting.cancel()
            await asyncio.wait([starting])
            self._starting = None
            await self._kill_handle()
            self._end(attempt, events.AttemptStopped(attempt))
        finally:
            self._killing = None

    async def _kill(self, attempt: int) -> None:
        try:
            await self._kill_handle(self._job.tidy_up_s())
            said = self._outcome
            ended = (
                said
                if isinstance(said, events.AttemptFinished | events.AttemptStopped)
                else events.AttemptStopped(attempt)
            )
            self._end(attempt, ended)
        finally:
            self._killing = None

    def _park(self, attempt: int, report: Report) -> None:
        """The driver stopped its queries and waits: its attempt is over, the process is kept for the next one.

        One that was adopted cannot be given another job: the pipe to it was lost with the control plane before. Nor
        can one that is being killed, or has died since it said so.
        """
        if self._killing is not None or self._handle is self._exited:
            self._outcome = drivers.outcome_event(attempt, report)
        elif self._adopted:
            self._killing = self._spawn(self._kill(attempt))
        else:
            self._parked = self._live
            self._end(
                attempt,
                events.AttemptStopped(attempt, report.drained, driver_alive=True, location=report.location),
            )

    async def _end_if_silent(self, record: Attempt, handle: DriverHandle, silence: Silence) -> None:
        self._was_silent = await silence.reached(self._calls_expected, self._job.address_file)
        self._log.warning("a driver is silent", attempt=record.attempt, why=self._was_silent)
        await drivers.kill_surely(handle)

    def _calls_expected(self) -> int | None:
        """How often the driver has asked for orders; None if it need not. One that has never registered may still
        start, for which its job has a time limit; one that has told of its end goes; and drivers may have gone over to
        another server as long as this one is not sure of its leases."""
        live = self._live
        has_registered = live is not None and live.host is not None
        ends = self._outcome is not None or self._failure is not None
        return self._calls if has_registered and not ends and self._writer.is_sure() else None

    async def _expect_exit(self) -> None:
        if self._handle is not None:
            said, grace_s = self._outcome, _EXIT_GRACE_S
            if isinstance(said, events.AttemptStopped) and said.drained:
                # Its program may handle the stop. The timer of the stop ends that if it takes too long.
                grace_s = max(grace_s, self._job.state.options.stop_timeout_ms / 1000)
            await drivers.expect_exit(self._handle, grace_s)

    def _on_exit(self, handle: DriverHandle, status: int | None) -> None:
        if handle is self._handle:
            self._exited = handle
            self._spawn(self._after_exit(handle, status))

    async def _after_exit(self, handle: DriverHandle, status: int | None) -> None:
        busy = [task for task in (self._starting, self._killing) if task is not None]
        if busy:
            await asyncio.wait(busy)
        # Its JVM may outlive the Python process for a moment, and it is the JVM that writes the checkpoint.
        await drivers.kill_surely(handle)
        live = self._live
        if live is not None and self._outcome is None and self._failure is None:
            # It may have written a last report that was not received.
            outcome = await asyncio.to_thread(
                drivers.last_word, live.attempt, self._job.attempt_dir(live.attempt)
            )
            if outcome is not None and self._is_live(live.attempt):
                self._outcome = outcome
        if handle is not self._handle:
            return
        self._handle = None
        live = self._live
        if live is not None:
            crash = (
                None
                if self._failure is not None
                else drivers.died(live.attempt, live.pid or 0, status, self._was_silent)
            )
            self._end(live.attempt, self._outcome or crash or events.AttemptStopped(live.attempt))

    async def _kill_handle(self, after_s: float = 0.0) -> None:
        """End the process, if there is one; when this returns nothing of it lives."""
        handle = self._handle
        if handle is not None:
            await drivers.kill_surely(handle, after_s)
            if handle is self._handle:
                self._handle = None

    async def _end_parked(self) -> None:
        if self._live is None and self._starting is None:
            self._parked = None
            await self._kill_handle()

    def release(self) -> None:
        """The job is over: a driver that waits for another attempt is not needed any more."""
        self._spawn(self._end_parked())

    def cancel(self) -> None:
        """Stop working on this job without touching its driver. One that got no job is ended."""
        for task in list(self._tasks):
            task.cancel()
        if self._live is None and self._handle is not None:
            self._spawn(drivers.kill_surely(self._handle))

    async def quiet(self) -> None:
        """Wait until everything that was begun here is over."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("an attempt's task failed", exc_info=error)
