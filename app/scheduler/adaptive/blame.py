"""The trial of a rescale: its length, the comparison, and the limits after the rescale was taken back (ADR 20).

A rescale is on trial from the moment its plan is on its way until a batch is committed after the watch period. If the
job fails of itself in that time, or its throughput collapses, the parallelism before comes back into force, and the job
runs at no more until other bounds are declared. The requirements stay as they were declared.

A failure that was there before is not the rescale's: a job that has never committed a batch has nothing to go back to,
and what it has failed with lately, while nothing was on trial, is not blamed on a rescale that came since. Nor are
files of the input or of the checkpoint that are damaged or gone: no parallelism makes them whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from app.model.job_state.changes import Pace, Parallelism, TakenBack, Watch
from app.model.job_state.failures import Failure
from app.model.jobgraph import JobGraph, JobType
from app.model.rescale import TriggerCause
from app.model.value import evolve
from app.scheduler.adaptive.state import CreatingExecutionGraph, JobState

WARM_UP_BATCHES: Final = 2
"""The first batches of a query at another parallelism start Python processes and compile: they are not counted."""

LEAST_BATCHES: Final = 3
MOST_BATCHES: Final = 5
"""The number of latest batches from which the pace of a query is computed."""

LATELY_MS: Final = 3_600_000
"""For so long a failure counts as one that the job had before."""

_PASSING: Final = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b0x[0-9a-f]+|@[0-9a-f]+\b|[0-9]+", re.IGNORECASE
)
"""UUIDs of queries, addresses of objects as Python and Java print them, numbers."""


def last_taken_back(state: JobState) -> TakenBack | None:
    """What was taken back, and holds now or comes back with the bounds before those that are not in force yet."""
    begun = [one.begun for one in state.queued]
    kept = [change.taken_back for change in (*begun, state.open_change) if change is not None]
    return next((one for one in (state.trial.taken_back, *kept) if one is not None), None)


def capped_by_partitions(graph: JobGraph, parallelism: Parallelism) -> Parallelism:
    """``parallelism`` as far as the state of ``graph`` has the partitions for it: those do not come back."""
    return tuple((vertex, min(count, graph.by_id[vertex].max_parallelism)) for vertex, count in parallelism)


def is_watched(state: JobState) -> bool:
    """Whether rescales of the job are put on trial. A BATCH job is not rescaled."""
    return state.options.rollback_watch_ms > 0 and state.graph.type is JobType.STREAMING


def is_over(watch: Watch, at_ms: int) -> bool:
    """Whether the watch period has passed, and not before the first batch: until then only time has passed."""
    return watch.ran and at_ms >= watch.until_ms


def ran_as_before(state: JobState, plan_version: int) -> bool:
    """Whether what failed ran at what the job would go back to: with nothing on trial, and no plan on its way there.

    ``plan_version``: as in `trial_of`. It may be that of a plan which another one has replaced on its way.
    """
    last, coming, taken = state.last_plan, state.coming_plan, state.trial.taken_back
    if last is None:
        return True
    if taken is not None:
        # An attempt may run at more: it was started, or was sent a plan, for bounds that were withdrawn since.
        good = dict(taken.good)
        ran = [pair for plan in state.plans if plan_version in (0, plan.version) for pair in plan.parallelism]
        return bool(ran) and all(count <= good.get(vertex, count) for vertex, count in ran)
    if state.trial.watch is not None:
        return False
    if 0 < plan_version <= last.version:
        return True
    if coming is None:
        # A newer plan was on its way when the attempt was told to stop.
        return plan_version == 0
    return plan_version in (0, coming.version) and coming.parallelism == last.parallelism


def is_excused(state: JobState, failure: Failure) -> bool:
    """Whether no rescale can be to blame: the failure is about files, or the job has failed in the same way lately, in
    an earlier attempt or in a query that ran on alone.

    Numbers, UUIDs and addresses do not count: ports, batches, runs and objects differ each time.
    """

    def same(other: Failure) -> bool:
        earlier = other.attempt < state.attempt or other.local
        recent = other.at_ms >= failure.at_ms - LATELY_MS
        return earlier and recent and not other.on_trial and _essence(other) == _essence(failure)

    return failure.by_files or any(same(other) for group in state.recovery.failures for other in group)


def _essence(failure: Failure) -> tuple[str | None, str]:
    return failure.vertex, _PASSING.sub("0", failure.error)


def trial_of(state: JobState, at_ms: int, plan_version: int = 0) -> Watch | None:
    """What a failure at ``at_ms`` is to be blamed on; None if no rescale is on trial.

    ``plan_version``: the newest plan that the job had begun a batch with, 0 if unknown. A plan that is on its way is
    not to blame if nothing ran at it; if it is, its watch has not begun.
    """
    if not is_watched(state) or state.trial.taken_back is not None or state.last_plan is None:
        return None
    watch, coming = state.trial.watch, state.coming_plan
    starting = isinstance(state.phase, CreatingExecutionGraph)
    if watch is not None and is_over(watch, at_ms) and not starting:
        watch = None
    good = capped_by_partitions(state.graph, state.last_plan.parallelism if watch is None else watch.good)
    if coming is None or 0 < plan_version < coming.version:
        if watch is None or watch.tried == good:
            return None
        return evolve(watch, good=good)
    if coming.parallelism == good or (watch is None and state.trial.unproven):
        return None
    if watch is not None and coming.parallelism == watch.tried:
        return evolve(watch, good=good)
    return Watch(good, coming.parallelism, *record_of(state), since_ms=at_ms, until_ms=at_ms)


def record_of(state: JobState) -> tuple[int, TriggerCause]:
    """The record of the rescale whose plan is on its way or has just come into force."""
    record = state.timeline.open or state.timeline.last_completed
    return (0, TriggerCause.UPDATE_REQUIREMENT) if record is None else (record.number, record.cause)


def slots_for(state: JobState, parallelism: Parallelism) -> int:
    """The slots that ``parallelism`` takes; vertices that have come since take none."""
    counts = dict(parallelism)
    return sum(max(counts.get(vertex, 1) for vertex in members) for _, members in state.graph.groups)


def parallelism_filled_from(parallelism: Parallelism, whole: Parallelism) -> Parallelism:
    """``parallelism``, and for vertices that have come since what ``whole`` says."""
    known = dict(parallelism)
    return tuple((vertex, known.get(vertex, count)) for vertex, count in whole)


# ---- throughput


def is_raise(good: Parallelism, tried: Parallelism) -> bool:
    """Whether no vertex runs at less. Less parallelism is meant to have less throughput: it cannot be blamed for it."""
    before = dict(good)
    return all(count >= before[vertex] for vertex, count in tried)


def watch_with_batch(watch: Watch, pace: Pace) -> Watch:
    """``watch`` with one batch more; of each query the latest ones are kept."""
    own = [one for one in watch.after if one.query_id == pace.query_id]
    if len(own) >= WARM_UP_BATCHES + MOST_BATCHES:
        # The first ones stay as marks that the warm-up is over.
        gone = own[WARM_UP_BATCHES]
        kept = list(watch.after)
        kept.remove(gone)
        return evolve(watch, after=(*kept, pace))
    return evolve(watch, after=(*watch.after, pace))


def collapse(watch: Watch, least: float) -> tuple[float, float] | None:
    """(before, after) in rows per busy second if the job's pace has fallen below ``least`` times what it was.

    None as long as there is not enough to tell: each query that was measured before has to have run some batches since,
    with more rows waiting at its sources each time.
    """
    before = after = 0.0
    for own in watch.before:
        since = [one for one in watch.after if one.query_id == own.query_id][WARM_UP_BATCHES:]
        if len(since) < LEAST_BATCHES:
            return None
        before += per_second([own])
        after += per_second(since)
    return (before, after) if watch.before and after < least * before else None


def per_second(paces: Sequence[Pace]) -> float:
    return sum(one.rows for one in paces) * 1000 / max(1, sum(one.busy_ms for one in paces))
