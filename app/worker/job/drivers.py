"""The reports of drivers, and the ends of their processes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from app.cluster.ports import DriverHandle, DriverLaunchError, ExecutorCluster
from app.model.graphdoc import MAX_VERTICES
from app.model.graphdoc_program import grown
from app.model.grapherrors import GraphErrors
from app.model.jobgraph import JobGraph
from app.model.ownsettings import FIRST_EXECUTOR_S
from app.model.protocol import Report
from app.model.rescale import NOTHING_MEASURED, Measured
from app.model.secret_texts import secrets_of, without_secrets
from app.model.status import AttemptEnding
from app.model.value import evolve
from app.scheduler.adaptive import events, growth
from app.scheduler.adaptive.program_queries import absent_vertices
from app.scheduler.adaptive.state import CreatingExecutionGraph, JobState
from app.store.writes import Attempt
from app.worker.job.attempt_record import Ended, read_outcome
from app.worker.job.mailbox import RequestDecision
from app.worker.job.pace import PaceMeter, pace_of
from app.worker.job.persistence import JobWriter, StateDiverged, WriteFailed
from app.worker.refusals import Unavailable

if TYPE_CHECKING:
    from app.worker.job.worker import JobWorker

log = structlog.get_logger()

_KILL_RETRY_S = 1.0
_WRITE_RETRY_S = 1.0
_DESCRIPTORS_RETRY_S = 1.0
_FENCED_EXIT_STATUS = 3
_WHY_CHARS = 1_000

# What drivers say of a failure: their exceptions name URLs, options and values.
_FAILURE_TEXTS = ("error", "stack", "why", "user_error")
_LONG_CHARS = 100_000

T = TypeVar("T")
E = TypeVar("E", bound=events.Event)


async def once_there_are_descriptors(do: Callable[[], Awaitable[T]]) -> T:
    """What ``do`` gives, which starts a driver or writes for it. While this process (or its host) has no descriptor
    left, it is tried again: that is no failure of the job."""
    while True:
        try:
            return await do()
        except (DriverLaunchError, OSError) as error:
            cause = error.__cause__ if isinstance(error, DriverLaunchError) else error
            if not isinstance(cause, OSError) or cause.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            log.warning("a driver waits until there are descriptors", error=str(cause))
        await asyncio.sleep(_DESCRIPTORS_RETRY_S)


def with_time_for_executors(state: JobState, cluster: ExecutorCluster | None) -> JobState:
    """The drivers of the job may take longer to start by as much as they wait longer for their first executor there
    than anywhere: that is the cluster's doing, and the driver gives up by itself."""
    state = growth.as_taken_up(state)
    longer_s = 0.0 if cluster is None else cluster.first_executor_s - FIRST_EXECUTOR_S
    return evolve(state, options=replace(state.options, cluster_start_ms=round(1000 * max(0.0, longer_s))))


def _not_followed(report: Report) -> tuple[tuple[str, str], ...]:
    by_vertex = {} if isinstance(report.not_followed, str) else report.not_followed
    return tuple((vertex_id, str(sentence)) for vertex_id, sentence in sorted(by_vertex.items()))


def event_of(report: Report, attempt: int, meter: PaceMeter) -> events.Event | None:
    """The event of a report. `Attempts` reports the ends of attempts, when no process is alive any more."""
    match report.type:
        case "begun" | "running" as what:
            before = meter.before(report.plan_version)
            sizes = tuple(sorted(report.source_bytes.items()))
            return events.AttemptRunning(
                attempt, sizes, before, report.missing_executors, begun=what == "begun"
            )
        case "analysed":
            return events.GraphAnalysed(attempt, tuple(sorted(report.stateful.items())), report.fixed)
        case "repartitioned":
            return events.StateRepartitioned(attempt, tuple(sorted(report.state_partitions.items())))
        case "query-ended":
            return events.QueryEnded(attempt, report.query)
        case "batch":
            return events.BatchCompleted(
                attempt,
                report.query_id,
                report.batch_id,
                report.plan_version,
                pace=pace_of(report),
                has_rows=report.input_rows > 0,
                not_followed=_not_followed(report),
                measured=NOTHING_MEASURED if report.output_gap_ms is None else Measured.of(report),
            )
        case "plan-applied":
            return events.PlanApplied(
                attempt,
                report.plan_version,
                measured=Measured.of(report),
                before=meter.before(report.plan_version),
                missing_executors=report.missing_executors,
                not_followed=_not_followed(report),
                interrupted=report.interrupted,
            )
        case "region-finished":
            return events.RegionFinished(attempt, report.region, report.run, report.results)
        case "region-failed":
            return events.RegionFailed(
                attempt,
                report.region,
                report.run,
                report.error or "The driver reported a failed region without a message.",
                recoverable=report.recoverable,
                lost=report.lost,
                vertex=report.vertex,
                stack=report.stack,
                why=report.why,
                user_error=report.user_error,
            )
        case "failed":
            return failed_event(attempt, report, stopped=False)
        case "query-failed":
            return events.QueryFailed(
                attempt,
                report.query,
                report.run,
                report.error or "The driver reported a failed query without a message.",
                longest_batch_ms=report.longest_batch_ms,
                **_told_of_failure(report),
            )
        case "query-recovered":
            return events.QueryRecovered(attempt, report.query, report.run)
        case _:
            return None


def query_started(state: JobState, report: Report, attempt: int, refusal: str | None) -> events.Event | None:
    """The event of a query that a program has started. What a driver says of its vertices may be no graph. ``refusal``:
    why the job may not run it."""
    if state.graph.program is None or state.attempt != attempt:
        return None
    if refusal is not None:
        return events.AttemptFailed(attempt, refusal, stopped=False, recoverable=False)
    try:
        graph = grown(state.graph, report.planned)
        if len(graph.by_id.keys() - state.graph.over - absent_vertices(state)) > MAX_VERTICES:
            raise GraphErrors([f"the queries that run have more than {MAX_VERTICES} vertices."])
    except GraphErrors as error:
        told = f"The driver told of a query that cannot be part of the job: {' '.join(error.errors)}"
        return events.AttemptFailed(attempt, told, stopped=False, recoverable=False)
    numbers = tuple(report.parallelism.items())
    return events.QueryStarted(attempt, report.query, graph, numbers, begins_anew=report.begins_anew)


def outcome_event(attempt: int, report: Report) -> events.Event:
    """The end that the last word of a driver stands for: nothing of the attempt lives any more."""
    if report.type == "finished":
        return events.AttemptFinished(attempt)
    if report.type == "failed":
        return failed_event(attempt, report)
    return events.AttemptStopped(
        attempt, drained=report.drained, location=report.location, error=report.error
    )


def last_word(attempt: int, work_dir: Path) -> events.Event | None:
    """The end of the attempt in the file of its driver, which it writes if no server answers; None without a file."""
    outcome = read_outcome(work_dir)
    return None if outcome is None else outcome_event(attempt, outcome)


def failed_event(attempt: int, report: Report, *, stopped: bool = True) -> events.AttemptFailed:
    return events.AttemptFailed(
        attempt,
        report.error or "The driver reported a failure without a message.",
        stopped=stopped,
        repartition=report.repartition_failed,
        by_cluster=report.by_cluster,
        **_told_of_failure(report),
    )


def _told_of_failure(report: Report) -> dict[str, Any]:
    """The fields that events of failures have from reports as they are."""
    names = ("recoverable", "vertex", "stack", "outside", "plan_version", "at_ms", "why", "user_error")
    return {name: getattr(report, name) for name in (*names, "query_id", "batch_id", "by_files")}


def redacted(event: E, graph: JobGraph) -> E:
    """``event`` without the secrets of the job. One that is redacted already stays as it is."""
    texts: dict[str, str | None]
    match event:
        case events.AttemptFailed() | events.QueryFailed() | events.RegionFailed():
            texts = {name: getattr(event, name) for name in _FAILURE_TEXTS}
        case (
            events.AttemptStartFailed()
            | events.GlobalFailure()
            | events.AttemptStopped()
            | events.EnvironmentReady()
        ):
            texts = {"error": event.error}
        case _:
            return event
    if not any(texts.values()):
        return event
    known = secrets_of(graph)
    changed: dict[str, Any] = {
        name: without_secrets(_ends_of(text), known) for name, text in texts.items() if text
    }
    return replace(event, **changed)


def _ends_of(text: str) -> str:
    """The beginning and the end of a long text: less than that is kept, so more need not be searched."""
    return text if len(text) <= 2 * _LONG_CHARS else f"{text[:_LONG_CHARS]} ... {text[-_LONG_CHARS:]}"


def is_known_failure(state: JobState, event: events.AttemptFailed) -> bool:
    """Whether the failure is in the history: it has been answered, and only the death of its attempt is news."""
    latest = state.recovery.failures[-1] if state.recovery.failures else ()
    error = redacted(event, state.graph).error
    # The history keeps both ends of a long text.
    return any(
        each.attempt == event.attempt and each.error[:1000] == error[:1000] and not each.local
        for each in latest
    )


def how_ended(state: JobState, event: events.Event, reported: events.AttemptFailed | None) -> Ended:
    """How the attempt ended of whose end ``event`` tells. ``reported``: the failure that its driver had reported."""
    match event:
        case events.AttemptFinished():
            return Ended(AttemptEnding.FINISHED)
        case events.AttemptStopped() if reported is None:
            return Ended(AttemptEnding.STOPPED, _first_sentence(event, state))
        case events.AttemptFailed() | events.AttemptStartFailed() | events.AttemptStopped():
            return Ended(AttemptEnding.FAILED, _first_sentence(reported or event, state))
        case _:
            raise AssertionError(f"{type(event).__name__} is no end of an attempt")


def _first_sentence(
    event: events.AttemptFailed | events.AttemptStartFailed | events.AttemptStopped, state: JobState
) -> str | None:
    error = redacted(event, state.graph).error
    return None if error is None else error.partition("\n")[0][:_WHY_CHARS]


def ended_early(state: JobState, attempt: int) -> events.Event | None:
    """The event for the end of ``attempt`` if the job does not know of it."""
    if state.attempt == attempt and state.driver.alive:
        return events.AttemptStartFailed(attempt, "The driver ended before the job ran.")
    return None


def died(attempt: int, pid: int, status: int | None, was_silent: str = "") -> events.AttemptFailed:
    """The end of a driver that had not announced it. It is the job's own doing only if the process ended itself.

    ``was_silent``: why it was ended, if it lived and did not call.
    """
    by_job = status is not None and status > 0 and status != _FENCED_EXIT_STATUS
    return events.AttemptFailed(
        attempt, was_silent or ended_in_words(pid, status), stopped=True, outside=not by_job
    )


def ended_in_words(pid: int, status: int | None) -> str:
    """How a driver process ended that had not announced it. ``status`` None: it was not our child."""
    if status is None:
        how = "ended"
    elif status < 0:
        how = f"was killed by signal {-status}"
    elif status == _FENCED_EXIT_STATUS:
        how = "gave up because a newer owner or attempt exists"
    else:
        how = f"ended with exit status {status}"
    return f"The driver process {pid} {how}."


async def plan_again(worker: JobWorker, attempt: int) -> None:
    """The process for ``attempt`` is there: have its plan made again; while the store is away, wait for it."""

    def decide(state: JobState) -> RequestDecision:
        waits = isinstance(state.phase, CreatingExecutionGraph) and state.attempt == attempt
        return RequestDecision(events.DriverReady(attempt) if waits else None)

    while True:
        try:
            await worker.ask(decide)
            return
        except Unavailable as error:
            log.warning("an attempt cannot be planned again", error=str(error), retry_in_s=_WRITE_RETRY_S)
            await asyncio.sleep(_WRITE_RETRY_S)


async def write_down(writer: JobWriter, attempt: Attempt) -> None:
    """Record that an attempt has its process; while the store is away, wait for it.

    Raises:
        DriverLaunchError: the database refuses it.
        LostOwnership: another control plane owns the job.
    """
    while True:
        try:
            await writer.attempt_started(attempt)
            return
        except WriteFailed as error:
            job = log.bind(attempt=attempt.attempt, pid=attempt.pid)
            job.error("an attempt could not be recorded", error=str(error), retry_in_s=_WRITE_RETRY_S)
            await asyncio.sleep(_WRITE_RETRY_S)
        except StateDiverged as error:
            raise DriverLaunchError(f"The attempt could not be recorded: {error}") from error


async def kill_surely(handle: DriverHandle, after_s: float = 0.0) -> None:
    """Kill the driver; nothing of it lives when this returns. If it cannot be killed, this never returns.

    For ``after_s`` it may end by itself, as its orders say.
    """
    if after_s > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after_s):
                await handle.gone()
    while True:
        try:
            await handle.kill()
            return
        except DriverLaunchError as error:
            log.error("a driver cannot be ended", driver=handle.ref.driver_id, error=str(error))
            await asyncio.sleep(_KILL_RETRY_S)


async def expect_exit(handle: DriverHandle, grace_s: float) -> None:
    """Wait ``grace_s`` for a driver that has said that it ends, then kill it. Nothing of it lives when this returns."""
    try:
        async with asyncio.timeout(grace_s):
            await handle.gone()
    except TimeoutError:
        log.warning("driver said it ended but lives on; killing it", pid=handle.ref.pid)
        await kill_surely(handle)
