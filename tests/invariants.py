"""The invariants of a job's state. Tests check them after every step, also in servers of theirs (`checked_steps`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from app.model.plan import Plan
from app.model.rescale import RescaleRecord
from app.scheduler.adaptive import local_failover
from app.scheduler.adaptive.bounds_queue import DEADLINE_TIMER, due_ms
from app.scheduler.adaptive.draft import status_of, timer_at
from app.scheduler.adaptive.journal import Told, facts_of
from app.scheduler.adaptive.no_change import versions_of
from app.scheduler.adaptive.resources import WAIT_TIMER
from app.scheduler.adaptive.state import (
    Canceling,
    CreatingExecutionGraph,
    Executing,
    Failing,
    Finished,
    JobState,
    Rescaling,
    StopWithSavepoint,
    WaitingForResources,
)
from app.scheduler.adaptive.transition_manager import TIMERS
from app.scheduler.explain import violations


class InvariantViolation(AssertionError):
    """A state breaks the invariant that ``name`` names; the message says how."""

    def __init__(self, name: str, state: JobState, detail: str) -> None:
        super().__init__(
            f"{name}: {detail} (job {state.job_id}, attempt {state.attempt}, {state.phase.kind} "
            f"number {state.phase_version})"
        )
        self.name = name


def validate(state: JobState, told: Iterable[Told] = ()) -> None:
    """Check every invariant of ``state``, and of the records that have ended by what a step has ``told``.

    Raises:
        InvariantViolation: the first one that is broken.
    """
    for check in _CHECKS:
        detail = check(state)
        if detail is not None:
            raise InvariantViolation(check.__name__.lstrip("_"), state, detail)
    for record in facts_of(RescaleRecord, told):
        detail = None if record.end_ms is None else _spans_problem(record, record.end_ms)
        if detail is not None:
            raise InvariantViolation("record_is_consistent", state, detail)


def _plan_in_force_while_an_attempt_runs(state: JobState) -> str | None:
    runs = isinstance(state.phase, Executing | Rescaling | StopWithSavepoint)
    if runs and (state.plan is None or not state.driver.alive):
        return "an attempt runs, but no plan is in force or nothing is alive"
    if state.plan is not None and not state.driver.alive and not isinstance(state.phase, Finished):
        return "a plan is in force and nothing is alive"
    if state.plan is not None and state.plan != state.last_plan:
        return "the plan in force is not the last plan"
    return None


def _nothing_runs_before_its_state_is_redistributed(state: JobState) -> str | None:
    runs = isinstance(state.phase, Executing | Rescaling | StopWithSavepoint)
    if runs and state.partitions.repartition is not None and not state.partitions.repartition.late:
        return "an attempt runs, and the redistribution of its state is not done"
    return None


def _at_most_one_attempt(state: JobState) -> str | None:
    if state.driver.alive and state.driver.waits:
        return "a driver waits for an attempt while one may be alive"
    if isinstance(state.phase, CreatingExecutionGraph) and not state.driver.alive:
        return "an attempt is being started that is known to be dead"
    if state.attempt == 0 and (state.driver.alive or state.plan is not None):
        return "something runs before the first attempt"
    return None


def _nothing_held_when_over(state: JobState) -> str | None:
    phase = state.phase
    if not isinstance(phase, Finished) or not phase.status.is_globally_terminal:
        return None
    held = bool(state.slots or state.timers or state.plan or state.driver.alive or state.timeline.open)
    return "a terminated job holds slots, timers, a plan, an attempt or an open record" if held else None


def _plans_fit_graph_and_slots(state: JobState) -> str | None:
    held = state.slot_ids
    if len(held) != len(state.slots):
        return "a slot is held twice"
    for plan in state.plans:
        problem = _plan_problem(state, plan)
        if problem is not None:
            return problem
        if plan.version > state.plan_version:
            return f"plan {plan.version} is newer than the newest plan {state.plan_version}"
    phase = state.phase
    if isinstance(phase, CreatingExecutionGraph) and not phase.failure and not phase.plan.slot_ids <= held:
        return "an attempt is being started with slots that are not held"
    return None


def _plan_problem(state: JobState, plan: Plan) -> str | None:
    if [vertex for vertex, _ in plan.parallelism] != [vertex.id for vertex in state.graph.vertices]:
        return f"plan {plan.version} does not name every vertex once, in order"
    if [name for name, _ in plan.group_slots] != [name for name, _ in state.graph.groups]:
        return f"plan {plan.version} does not name every slot sharing group once, in order"
    if len(plan.slot_ids) != plan.slot_count:
        return f"plan {plan.version} uses a slot twice"
    counts = {name: len(own) for name, own in plan.group_slots}
    batch = state.graph.runs_by_regions
    for vertex in state.graph.vertices:
        parallelism = plan.parallelism_of(vertex.id)
        # Tasks of a BATCH job take turns in its slots.
        slots = vertex.max_parallelism if batch else counts[vertex.slot_sharing_group]
        if not 1 <= parallelism <= min(vertex.max_parallelism, slots):
            return f"plan {plan.version} runs {vertex.name} at {parallelism}, beyond its slots or its maximum"
    return None


def _bounds_hold_or_are_explained(state: JobState) -> str | None:
    """Promise 5: the parallelism in force is within the bounds, or the job says in words why it is not."""
    if not isinstance(state.phase, Executing) or state.plan is None or state.graph.runs_by_regions:
        return None
    bounds = state.bounds.as_dict()
    outside = any(
        not bounds[vertex].lower <= parallelism <= bounds[vertex].upper
        for vertex, parallelism in state.plan.parallelism
    )
    unheld = state.plan.slot_ids - state.slot_ids
    if (outside or unheld) and not violations(state):
        return "the plan in force is outside the bounds or the slots, and no violation is named"
    return None


def _standstill_has_a_reason(state: JobState) -> str | None:
    """A job that runs at another parallelism than its upper bounds ask for knows why it was left so. Vertices that
    need no slots get what the others leave."""
    plan = state.plan
    if not isinstance(state.phase, Executing) or plan is None or state.graph.runs_by_regions:
        return None
    most = {vertex.id: vertex.max_parallelism for vertex in state.graph.vertices}
    bounds = state.bounds.as_dict()
    counting = [pair for pair in plan.parallelism if pair[0] not in state.graph.resting]
    short = any(count != min(bounds[vertex].upper, most[vertex]) for vertex, count in counting)
    known = any(one.versions == versions_of(state) for one in state.no_change)
    return "the job does not run at its upper bounds, and no reason is known" if short and not known else None


def _deadlines_are_looked_after(state: JobState) -> str | None:
    waiting = [vertex for one in state.queued for vertex in one.vertices]
    if len(set(waiting)) < len(waiting):
        return "a vertex waits for two changes of its bounds"
    return None if timer_at(state, DEADLINE_TIMER) == due_ms(state) else "nobody looks after a deadline"


def _decisions_within_the_bounds_of_their_moment(state: JobState) -> str | None:
    """The same of a BATCH job. Other bounds do not change a decision that is made."""
    if state.batch is None:
        return None
    unmet = 0
    for vertex in state.graph.vertices:
        decision = state.batch.in_force(vertex.id)
        if decision is None or decision.lower <= decision.parallelism <= decision.upper:
            continue
        unmet += 1
        if unmet > len(violations(state)) and not isinstance(state.phase, Finished):
            return (
                f"{vertex.name} was decided to run at {decision.parallelism} within {decision.lower} to "
                f"{decision.upper}, and no violation is named"
            )
    return None


def _timers_of_this_phase(state: JobState) -> str | None:
    names = [timer.name for timer in state.timers]
    if len(set(names)) != len(names):
        return "a timer is held twice"
    if any(timer.version != state.phase_version for timer in state.timers):
        return "a timer of a phase that was left is held"
    return None


def _no_wait_is_timed_while_the_cluster_is_unreachable(state: JobState) -> str | None:
    if not isinstance(state.phase, WaitingForResources) or not state.cluster_unreachable:
        return None
    timed = {timer.name for timer in state.timers} & {WAIT_TIMER, *TIMERS}
    return f"the cluster is unreachable, and a wait for its slots ends: {sorted(timed)}" if timed else None


def _record_is_consistent(state: JobState) -> str | None:
    timeline = state.timeline
    counted = sum(count for _, count in timeline.counts)
    if counted + (1 if timeline.open else 0) != timeline.records:
        open_ones = "one is" if timeline.open else "none is"
        return f"{timeline.records} records were made, {counted} ended and {open_ones} open"
    record = timeline.open
    if record is None:
        return None
    if not record.is_open or record.end_ms is not None:
        return f"record {record.number} is ended but not closed"
    if record.requirements_uuid != state.requirements.uuid:
        return f"record {record.number} is for requirements that are not in force"
    return _spans_problem(record, max(record.start_ms, state.phase_since_ms))


def _spans_problem(record: RescaleRecord, end_ms: int | None) -> str | None:
    """The spans follow each other without gaps, from the start of the record to ``end_ms``."""
    at_ms = record.start_ms
    for span in record.spans:
        if span.enter_ms != at_ms or span.leave_ms is None or span.leave_ms < span.enter_ms:
            return f"record {record.number} has a gap or an overlap before its span {span.state}"
        at_ms = span.leave_ms
    return None if at_ms == end_ms else f"the spans of record {record.number} end at {at_ms}, not at {end_ms}"


def _status_times(state: JobState) -> str | None:
    times = dict(state.status_since_ms)
    if len(times) != len(state.status_since_ms):
        return "a status has two times"
    return None if status_of(state) in times else "the time of the current status is not known"


def _surplus_is_not_used(state: JobState) -> str | None:
    used = {slot for plan in state.plans for slot in plan.slot_ids}
    idle = {slot for slot, _ in state.supply.idle_since_ms}
    if idle & used:
        return "a slot that a plan uses counts as surplus"
    if not idle <= state.slot_ids:
        return "a slot that is not held counts as surplus"
    if idle and len(state.slots) - len(idle) < state.supply.declared:
        return "a slot inside the requirement counts as surplus"
    return None


def _stop_operation(state: JobState) -> str | None:
    stopping = isinstance(state.phase, StopWithSavepoint)
    running = state.stop is not None and state.stop.state == "IN_PROGRESS"
    return None if stopping == running else "a stop is in progress in the wrong phase, or the other way round"


def _one_trial_at_a_time(state: JobState) -> str | None:
    watch, taken = state.trial.watch, state.trial.taken_back
    if watch is not None and taken is not None:
        return "a rescale is on trial while another one is taken back"
    for good, tried in [(one.good, one.tried) for one in (watch, taken) if one is not None]:
        # What was taken back says nothing of vertices that have come since.
        named = dict(good) if taken is not None else state.graph.by_id
        names = [vertex.id for vertex in state.graph.vertices if vertex.id in named]
        if [vertex for vertex, _ in good] != names or [vertex for vertex, _ in tried] != names:
            return "a trial does not name every vertex once, in order"
        if good == tried:
            return "a rescale is on trial that changes nothing"
    return None


def _local_restarts_are_of_a_running_attempt(state: JobState) -> str | None:
    if not state.recovery.local:
        return None
    if not isinstance(state.phase, Executing | Rescaling):
        return "a query is restarted alone while no attempt runs"
    sinks = {vertex.id for vertex in state.graph.vertices if vertex.is_sink}
    if len(sinks) < 2 or len({one.query for one in state.recovery.local}) != len(state.recovery.local):
        return "a query is restarted alone twice, or is the only one"
    if not {one.query for one in state.recovery.local} <= sinks:
        return "a query is restarted alone that the job does not have"
    kept = timer_at(state, local_failover.LOCAL_TIMER) == local_failover.due_ms(state)
    return None if kept else "nobody looks after a query that is restarted alone"


def _errors_are_counted_once(state: JobState) -> str | None:
    limit = state.options.user_code_attempts
    if len({one.query_id for one in state.recovery.user_errors}) != len(state.recovery.user_errors):
        return "two errors of the user's code are counted for one query"
    over = limit and any(one.times >= limit for one in state.recovery.user_errors)
    ended = isinstance(state.phase, Failing | Canceling | Finished)
    return "the job goes on although the same error came too often" if over and not ended else None


_CHECKS: Final[tuple[Callable[[JobState], str | None], ...]] = (
    _plan_in_force_while_an_attempt_runs,
    _nothing_runs_before_its_state_is_redistributed,
    _at_most_one_attempt,
    _nothing_held_when_over,
    _plans_fit_graph_and_slots,
    _bounds_hold_or_are_explained,
    _standstill_has_a_reason,
    _deadlines_are_looked_after,
    _decisions_within_the_bounds_of_their_moment,
    _timers_of_this_phase,
    _no_wait_is_timed_while_the_cluster_is_unreachable,
    _record_is_consistent,
    _status_times,
    _surplus_is_not_used,
    _stop_operation,
    _one_trial_at_a_time,
    _local_restarts_are_of_a_running_attempt,
    _errors_are_counted_once,
)
