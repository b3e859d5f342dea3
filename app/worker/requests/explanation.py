"""Why a job runs as it does: what is wanted, held and in force, in numbers and in words."""

from __future__ import annotations

from app.load.sentences import load_sentences
from app.model.jobgraph import JobType
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.goal import bounds_after_rollback
from app.scheduler.adaptive.state import CreatingExecutionGraph, Executing
from app.scheduler.arbiter import Allotment
from app.scheduler.arbiter_sentences import sentences_of
from app.scheduler.explain import explain
from app.scheduler.slots import Demand
from app.worker.requests.dry_run import in_force
from app.worker.requests.long_batches import long_batch_sentences
from app.worker.views import Explanation, JobView, Supply


def _load_in_words(view: JobView, now_ms: int) -> list[str]:
    """Why the job is slow, if it is. While it is started, or rescaled by a restart, that says nothing."""
    state = view.state
    if not isinstance(state.phase, Executing) or state.graph.type is JobType.BATCH:
        return []
    upper = {vertex_id: bounds.upper for vertex_id, bounds in state.bounds}
    return load_sentences(view.load, state.graph, upper, now_ms)


def explanation(
    view: JobView,
    *,
    now_ms: int,
    supply: Supply,
    allotment: Allotment | None,
    last_batch_ms: int | None,
    granted: int = 0,
    slow_start: str = "",
) -> Explanation:
    """What is wanted, held and in force, and in words why they differ. ``allotment``: the arbiter's for this job.
    ``granted``: the slots that it was given, of which its state may not tell yet.

    ``slow_start``: as in `app.cluster.ports.DriverHost`.
    """
    state = view.state
    sentences, violations = explain(state, now_ms)
    words = list(sentences)
    if slow_start and isinstance(state.phase, CreatingExecutionGraph):
        words.append(slow_start)
    desired, declared = (
        Demand.of(state.graph, bounds_after_rollback(state)).desired,
        Demand.of(state.graph, state.bounds),
    )
    if state.queued:
        # The slots of what waits are wanted too.
        desired = max(desired, state.supply.declared)
    # Those of an attempt that is over say nothing, nor do those of one that does not run yet.
    executors = view.executors
    if executors is not None and (executors.attempt != state.attempt or state.plan is None):
        executors = None
    missing = executors.in_words(state.job_id, supply.master or "", now_ms) if executors else []
    words += missing
    words += long_batch_sentences(view, now_ms)
    words += _load_in_words(view, now_ms)
    if not view.status.is_globally_terminal and len(state.slots) < desired:
        words += [supply.in_words(len(state.slots), granted), *supply.sentences()]
    elif missing:
        words += supply.sentences()
    if not view.status.is_globally_terminal and allotment is not None and not supply.cluster_unreachable:
        held = len(state.slots)
        words += sentences_of(allotment, state.share, held=held, total=supply.total, now_ms=now_ms)
    decided = in_force(state)
    return Explanation(
        state=state,
        status=status_of(state),
        desired_slots=declared.desired,
        minimal_slots=declared.minimal,
        held_slots=len(state.slots),
        used_slots=state.plan.slot_count if state.plan else 0,
        attainable=decided
        if state.graph.runs_by_regions
        else Demand.of(state.graph, bounds_after_rollback(state)).parallelism(len(state.slots)),
        in_force=decided,
        tasks=view.load.tasks_at(decided or {}),
        sentences=tuple(words),
        violations=tuple(violations),
        last_batch_ms=last_batch_ms,
        allotment=None if view.status.is_globally_terminal else allotment,
        supply=supply,
        executors=executors,
    )
