"""The attempts of one job: performs StartAttempt and StopAttempt, and turns what drivers do into events.

Rule: a new attempt is started only when nothing of the one before lives (promise 2). Each step is written down before
it is taken: the process is recorded before it gets the job, so after a crash at any point the process is either
known, or has no job and ends by itself.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import structlog

from app.cluster.ports import DriverHandle, DriverHost, DriverLaunchError, DriverRef
from app.model.protocol import DriverSpec, Report
from app.scheduler.adaptive.effects import StartAttempt, StopAttempt, StopMode
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStartFailed,
    AttemptStopped,
    Event,
)
from app.worker.clock import Clock

log = structlog.get_logger()

_EXIT_GRACE_S = 10.0
_FENCED_EXIT_STATUS = 3


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """An attempt as the database knows it."""

    attempt: int
    epoch: int
    ref: DriverRef
    secret_hash: str
    started_ms: int


class AttemptLog(Protocol):
    """Where attempts are written down; each call is durable when it returns."""

    async def attempt_started(self, record: AttemptRecord) -> None: ...

    async def attempt_ended(self, record: AttemptRecord) -> None: ...


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Attempts:
    """The driver side of one job."""

    def __init__(
        self,
        *,
        job_id: str,
        host: DriverHost,
        records: AttemptLog,
        clock: Clock,
        make_spec: Callable[[StartAttempt, str], DriverSpec],
        java_options: tuple[str, ...],
        work_dir: Callable[[int], Path],
        deliver: Callable[[Event], None],
    ) -> None:
        self._job_id = job_id
        self._work_dir = work_dir
        self._host = host
        self._records = records
        self._clock = clock
        self._make_spec = make_spec
        self._java_options = java_options
        self._deliver = deliver
        self._handle: DriverHandle | None = None
        self._live: AttemptRecord | None = None
        self._ended: set[int] = set()
        self._outcome: Event | None = None
        self._failure_reported = False
        self._stopping: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = log.bind(job=job_id)

    @property
    def live(self) -> AttemptRecord | None:
        """The attempt that may be writing the checkpoint, if any."""
        return self._live

    @property
    def driver_pid(self) -> int | None:
        return self._live.ref.pid if self._live else None

    def accepts(self, attempt: int, secret: str) -> bool:
        """Whether a caller is the driver of the live attempt."""
        live = self._live
        return (
            live is not None
            and live.attempt == attempt
            and secrets.compare_digest(hash_secret(secret), live.secret_hash)
        )

    # -- recovery

    async def recover(self, record: AttemptRecord | None, ended: set[int]) -> bool:
        """Take over what an earlier control plane left: adopt the driver if it lives. Whether it does.

        Otherwise the attempt is recorded as ended; the scheduler learns of it when it asks for it (`start`, `stop`)
        or through the AttemptFailed delivered here.
        """
        self._ended = set(ended)
        if record is None:
            return False
        handle = self._host.adopt(record.ref)
        if handle is None:
            self._live = record
            await self._record_end(record.attempt)
            report = read_outcome(self._work_dir(record.attempt))
            sentence = f"The driver process {record.ref.pid} ended while no control plane was running."
            self._deliver(
                _outcome_event(record.attempt, report)
                if report is not None
                else AttemptFailed(record.attempt, sentence, stopped=True)
            )
            return False
        self._take(record, handle)
        self._log.info("driver adopted", attempt=record.attempt, pid=record.ref.pid)
        return True

    # -- effects

    def start(self, effect: StartAttempt) -> None:
        """Perform StartAttempt; also again, after a crash between its commit and its end."""
        if self._live is not None and self._live.attempt == effect.attempt:
            return
        if effect.attempt in self._ended:
            self._deliver(AttemptStartFailed(effect.attempt, "The driver ended before the job ran."))
            return
        self._spawn(self._start(effect))

    def stop(self, effect: StopAttempt) -> None:
        """Perform StopAttempt. A boundary stop and a drain are orders that the driver fetches; a kill is done here."""
        live = self._live
        if live is None or live.attempt != effect.attempt:
            self._deliver(AttemptStopped(effect.attempt))
            return
        if effect.mode is StopMode.KILL and (self._stopping is None or self._stopping.done()):
            self._stopping = self._spawn(self._kill(live.attempt))

    # -- what drivers report

    def on_report(self, report: Report) -> None:
        """Take note of an end that the driver announces; the event follows when nothing of it lives any more."""
        live = self._live
        if live is None:
            return
        if report.type == "failed":
            self._failure_reported = True
        elif report.type == "stopped" and report.driver_alive:
            self._spawn(self._park(live.attempt, report))
        elif report.type in ("stopped", "finished"):
            # The report is acknowledged before the process is gone: what it said must survive a crash of ours.
            write_outcome(self._work_dir(live.attempt), report)
            self._outcome = _outcome_event(live.attempt, report)
            self._spawn(self._expect_exit())

    # -- inside

    async def _start(self, effect: StartAttempt) -> None:
        handle: DriverHandle | None = None
        try:
            handle = self._handle if effect.reuse_driver else None
            if handle is None:
                await self._end_parked()
                handle = await self._host.acquire(self._java_options)
            secret = secrets.token_urlsafe(32)
            spec = self._make_spec(effect, secret)
            record = AttemptRecord(
                effect.attempt, spec.epoch, handle.ref, hash_secret(secret), self._clock.now_ms()
            )
            spec_file = write_spec(spec)
            await self._records.attempt_started(record)
            self._take(record, handle)
            self._log.info("attempt assigned", attempt=effect.attempt, pid=handle.ref.pid)
            await handle.assign(spec_file)
        except (DriverLaunchError, OSError) as error:
            recoverable = getattr(error, "recoverable", True)
            if handle is not None:
                await handle.kill()
            await self._record_end(effect.attempt)
            self._deliver(AttemptStartFailed(effect.attempt, str(error), recoverable=recoverable))

    async def _kill(self, attempt: int) -> None:
        if self._handle is not None:
            await self._handle.kill()
            self._handle = None
        await self._record_end(attempt)
        self._deliver(AttemptStopped(attempt))

    async def _park(self, attempt: int, report: Report) -> None:
        """The driver stopped its queries and waits: its attempt is over, the process is kept for the next one."""
        handle = self._handle
        await self._record_end(attempt)
        self._handle = handle
        self._deliver(
            AttemptStopped(attempt, drained=report.drained, driver_alive=True, location=report.location)
        )

    async def _end_parked(self) -> None:
        if self._handle is not None and self._live is None:
            await self._handle.kill()
            self._handle = None

    async def _expect_exit(self) -> None:
        handle = self._handle
        if handle is None:
            return
        try:
            await asyncio.wait_for(handle.gone(), _EXIT_GRACE_S)
        except TimeoutError:
            self._log.warning("driver said it ended but lives on; killing it", pid=handle.ref.pid)
            await handle.kill()

    def _take(self, record: AttemptRecord, handle: DriverHandle) -> None:
        is_new = self._handle is not handle
        self._live, self._handle = record, handle
        self._outcome, self._failure_reported, self._stopping = None, False, None
        if is_new:
            handle.on_exit(lambda status: self._on_exit(handle, status))

    def _on_exit(self, handle: DriverHandle, status: int | None) -> None:
        if handle is self._handle and self._stopping is None:
            self._spawn(self._after_exit(handle, status))

    async def _after_exit(self, handle: DriverHandle, status: int | None) -> None:
        # Its JVM may outlive the Python process for a moment, and it is the JVM that writes the checkpoint.
        await handle.kill()
        live, self._handle = self._live, None
        if live is None or self._stopping is not None:
            return
        outcome = self._outcome
        await self._record_end(live.attempt)
        if outcome is None:
            outcome = self._unannounced_end(live, status)
        self._deliver(outcome)

    def _unannounced_end(self, live: AttemptRecord, status: int | None) -> Event:
        if self._failure_reported:
            return AttemptStopped(live.attempt)
        if status is None:
            how = "ended"
        elif status < 0:
            how = f"was killed by signal {-status}"
        elif status == _FENCED_EXIT_STATUS:
            how = "gave up because a newer owner or attempt exists"
        else:
            how = f"ended with exit status {status}"
        return AttemptFailed(live.attempt, f"The driver process {live.ref.pid} {how}.", stopped=True)

    async def _record_end(self, attempt: int) -> None:
        self._ended.add(attempt)
        if self._live is not None and self._live.attempt == attempt:
            await self._records.attempt_ended(self._live)
            self._live = None
            self._stopping = None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("an attempt's task failed", exc_info=error)

    def release(self) -> None:
        """The job is over: a driver that waits for another attempt is not needed any more."""
        self._spawn(self._end_parked())

    def cancel(self) -> None:
        """Stop working on this job without touching its driver."""
        for task in list(self._tasks):
            task.cancel()


def write_spec(spec: DriverSpec) -> Path:
    """Write the assignment for the driver, readable by its owner only: it has a secret."""
    target = Path(spec.work_dir) / "spec.json"
    _write_json(target, dataclasses.asdict(spec))
    return target


def write_outcome(work_dir: Path, report: Report) -> None:
    """Keep the last word of a driver until its process is gone."""
    _write_json(
        work_dir / "outcome.json",
        {
            "seq": report.seq,
            "at_ms": report.at_ms,
            "type": report.type,
            "drained": report.drained,
            "location": report.location,
            "error": report.error,
        },
    )


def read_outcome(work_dir: Path) -> Report | None:
    """The last word of a driver, if it had one."""
    try:
        return Report(**json.loads((work_dir / "outcome.json").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def _outcome_event(attempt: int, report: Report) -> Event:
    if report.type == "finished":
        return AttemptFinished(attempt)
    return AttemptStopped(attempt, drained=report.drained, location=report.location, error=report.error)


def _write_json(target: Path, value: object) -> None:
    """Write a file whole or not at all, readable by its owner only."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, target)
