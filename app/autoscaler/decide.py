"""The decision: new upper bounds from a snapshot of a job and a policy, with the reason in words.

Pure: equal snapshots and policies give equal decisions, without I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, replace

from app.autoscaler.batch_time import Demand, Limits, fitting_tasks, longest_query_ms, slots_of
from app.autoscaler.effect import (
    HELD_MS,
    brought_nothing,
    gain_of,
    held_back,
    is_declared,
    is_in_force,
    is_measured,
    is_past,
    step_up,
)
from app.autoscaler.policy import Policy, Range
from app.autoscaler.seen import (
    Action,
    Decision,
    Held,
    Load,
    Memory,
    Point,
    Recommendation,
    Snapshot,
    StepUp,
    Vertex,
    learned,
    own_ms,
)
from app.model.requirements import Bounds
from app.model.scaling_policy import NO_LIMITS

QUIET_LEAST_MS = 30_000
"""Batches that stay away for less long, or for less than five times the last one, are not missed."""
FIGURE_MOST = 1e15
"""No load has a figure as high as this, or a rate as low as one by it; what is computed from finite ones may not be
finite."""
UNSEEN_MS = 60_000
"""So long, or three looks, may pass beside the time after a change without a recommendation: rescales take time."""


def decide(seen: Snapshot, policy: Policy) -> Decision:
    """What to declare now. The lower bounds stay as they are, and no upper bound goes below them."""
    period = policy.period(seen.now_ms)
    if period is not None and period.pause:
        return _nothing(seen, "The schedule pauses the autoscaler now.")
    if (seen.status, seen.scheduler_state) != ("RUNNING", "Executing"):
        return _nothing(seen, f"The job is {seen.status} ({seen.scheduler_state}), not in a steady run.")
    if seen.taken_back is not None:
        return _nothing(
            seen,
            f"The last rescale was taken back, and nothing is changed while that holds: {seen.taken_back} Declare "
            "other bounds, or these again with --retry.",
        )
    limits = limits_of(seen, policy)
    outside = {
        each.id: limits[each.id].clamp(each.effective.upper)
        for each in seen.vertices
        if limits[each.id].clamp(each.effective.upper) != each.effective.upper and not _asks_for_state(each)
    }
    if outside:
        reason = f"The limits of the policy ask for it: {_changes(seen, outside)}."
        return _act(policy, Decision(Action.SCALE, reason, outside, memory=seen.memory))
    trouble = _no_figures(seen, policy)
    if trouble is not None or seen.load is None:
        return _nothing(seen, trouble or "Nothing was measured yet.")
    return _by_load(seen, seen.load, policy, limits)


def limits_of(seen: Snapshot, policy: Policy) -> dict[str, Limits]:
    """Per vertex id. The declared lower bound and the max parallelism go before the policy. The operator's floor and
    ceiling go before all of them: an upper bound beyond would change nothing."""
    period = policy.period(seen.now_ms)
    found = {}
    for vertex in seen.vertices:
        own = policy.vertices.get(vertex.name, Range())
        base = policy.parallelism
        least = _first(period.min if period else None, base.min, 1)
        most = _first(period.max if period else None, base.max, vertex.most)
        most = min(most, _first(own.max, vertex.most), vertex.most)
        least = min(max(least, own.min or 1), most)
        own_limits = Bounds(max(least, vertex.lower), max(most, vertex.lower))
        allowed = vertex.operator.within(own_limits, vertex.most)
        found[vertex.id] = Limits(allowed.lower, allowed.upper)
    return found


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _no_figures(seen: Snapshot, policy: Policy) -> str | None:
    """Why nothing can be decided by the load; None if it can."""
    ran_ms = seen.now_ms - seen.changed_ms
    if ran_ms < policy.stabilization_ms:
        return (
            f"The job has run for {ran_ms / 1000:.0f} s since its last change, start or takeover: nothing is decided "
            f"before {policy.stabilization_ms / 1000:.0f} s."
        )
    load = seen.load
    if load is None or load.length_ms <= 0:
        return "Nothing was measured yet since the last rescale, start or takeover."
    figures = [value for value in astuple(load) if value is not None]
    figures += [value for each in seen.vertices for value in (each.busy_ms, each.skew)]
    if 0 < load.rows_per_second < 1 / FIGURE_MOST or not all(
        abs(value) < FIGURE_MOST and (value >= 0 or value == load.growth_per_second) for value in figures
    ):
        return "A figure of the load is not a number that can be: nothing is decided by it."
    if not seen.is_idle and seen.quiet_ms > max(QUIET_LEAST_MS, 5 * load.batch_ms):
        return (
            f"No batch was committed for {seen.quiet_ms / 1000:.0f} s: one takes long, or hangs, or a source does not "
            "answer, and nothing says which."
        )
    if load.rows_per_second <= 0 and (load.backlog_rows or load.arrival_per_second):
        return "Rows wait at the sources, but none was processed: nothing says how long a row takes."
    if load.rows_per_second > 0 and not any(each.busy_ms for each in seen.vertices):
        return "Rows were processed, but Spark reported no task times, so the time per row is not known."
    return None


def _by_load(seen: Snapshot, load: Load, policy: Policy, limits: Mapping[str, Limits]) -> Decision:
    wanted_per_second = load.arrival_per_second + (load.backlog_rows or 0.0) * 1000 / policy.catch_up_ms
    memory = _remembered(seen, load)
    limits = _within_parts(limits, seen)
    if memory.held is not None:
        limits = _within_held(limits, memory.held, seen)
    demand = _demand_of(seen, load, policy, wanted_per_second, memory)
    fit = fitting_tasks(demand, limits, policy.target_utilization)
    now_used = demand.utilization({each.id: each.parallelism for each in seen.vertices})
    window_ms = policy.scale_down_window_ms
    history = (*_recent(seen, policy), Recommendation(seen.now_ms, fit))
    free = [each for each in seen.vertices if not _asks_for_state(each)]
    upper = {each.id: each.effective.upper for each in seen.vertices}
    higher = {each.id: fit[each.id] for each in free if fit[each.id] > upper[each.id]}
    highest = {name: max(one.tasks.get(name, most) for one in history) for name, most in upper.items()}
    lower = {each.id: highest[each.id] for each in free if highest[each.id] < upper[each.id]}
    load_words = _load_words(load, policy, wanted_per_second, now_used)
    load_words += _operators_part(seen, demand, policy, fit)
    memory, judged = _judged(seen, load, policy, memory)

    def decision(action: Action, words: str, asked: Mapping[str, int], then: Mapping[str, int]) -> Decision:
        expected = demand.utilization(then)
        found = Decision(
            action,
            f"{load_words} {words}",
            asked,
            now_used,
            expected,
            wanted_per_second,
            replace(memory, recommended=history),
        )
        return _act(policy, found)

    if now_used > policy.max_utilization:
        if judged is not None and brought_nothing(judged, seen, load):
            memory = held_back(memory, judged, seen.now_ms)
            back = {name: limits[name].clamp(own) for name, own in judged.before.items() if name in upper}
            return decision(Action.SCALE, _step_back(seen, judged, load, back), back, upper | back)
        if memory.step is not None and is_in_force(memory.step, seen):
            return decision(Action.NONE, "What the last step has brought is not known yet.", {}, fit)
        if higher:
            then = upper | higher
            words = (
                f"That is more than {_percent(policy.max_utilization)}: {_changes(seen, higher)}, which should make it "
                f"{_percent(demand.utilization(then))}."
            )
            memory = replace(memory, step=step_up(seen, load, higher, now_used, demand.utilization(then)))
            return decision(Action.SCALE, words, higher, then)
        return decision(Action.NONE, _no_more(seen, limits, memory.held), {}, fit)
    if not lower:
        is_lower = any(fit[each.id] < upper[each.id] for each in free)
        higher_words = f"A higher parallelism was recommended within the last {window_ms / 1000:.0f} s."
        return decision(Action.NONE, higher_words if is_lower else "The parallelism fits.", {}, fit)
    then = upper | lower
    watched_ms = seen.now_ms - history[0].at_ms
    if watched_ms < window_ms:
        words = (
            f"Fewer tasks would do, but that has been seen for {watched_ms / 1000:.0f} s of the "
            f"{window_ms / 1000:.0f} s that it takes."
        )
        return decision(Action.NONE, words, {}, then)
    words = (
        f"No more was recommended for {window_ms / 1000:.0f} s: {_changes(seen, lower)}, which should make it "
        f"{_percent(demand.utilization(then))}."
    )
    return decision(Action.SCALE, words, lower, then)


def _demand_of(
    seen: Snapshot, load: Load, policy: Policy, wanted_per_second: float, memory: Memory
) -> Demand:
    factor = wanted_per_second / load.rows_per_second if load.rows_per_second > 0 else 0.0
    # Where batches are full, there are as many as the rows need: what their tasks cost is part of what rows cost.
    own_part_ms = (
        0.0 if load.backlog_rows else own_ms(memory.profile, longest_query_ms(seen), load.batch_ms_per_second)
    )
    return Demand(seen, load, factor, policy.batch_ms, own_part_ms)


def _judged(seen: Snapshot, load: Load, policy: Policy, memory: Memory) -> tuple[Memory, StepUp | None]:
    """The last step up, if it can be judged now, and the memory without it then, or if it counts no more."""
    step = memory.step
    if step is None or not is_declared(step, seen) or is_past(step, seen, policy):
        return replace(memory, step=None), None
    if not is_in_force(step, seen) or not is_measured(seen, load, policy):
        return memory, None
    return replace(memory, step=None), step


def _step_back(seen: Snapshot, step: StepUp, load: Load, back: Mapping[str, int]) -> str:
    return (
        f"More tasks brought {_percent(max(0.0, gain_of(step, load)))} more rows per second of batches, and "
        f"{_percent(step.expected_gain)} were expected: {_changes(seen, back)}, and no more for "
        f"{HELD_MS // 60_000} min."
    )


def _asks_for_state(vertex: Vertex) -> bool:
    """More state partitions are asked for by its upper bound: that is for the one to change who declared it."""
    return vertex.upper > vertex.most


def _remembered(seen: Snapshot, load: Load) -> Memory:
    """With what this moment says of the tasks."""
    memory = seen.memory
    if memory.attempt != seen.attempt:
        memory = replace(memory, profile=(), attempt=seen.attempt, step=None, held=None)
    if memory.held is not None and memory.held.until_ms <= seen.now_ms:
        memory = replace(memory, held=None)
    busy_ms = longest_query_ms(seen)
    if load.backlog_rows or busy_ms <= 0:
        return memory
    tasks = sum(each.busy_ms * each.parallelism for each in seen.vertices) / sum(
        each.busy_ms for each in seen.vertices
    )
    point = Point(load.rows_per_second / tasks, busy_ms, seen.now_ms)
    return replace(memory, profile=learned(memory.profile, point))


def _recent(seen: Snapshot, policy: Policy) -> tuple[Recommendation, ...]:
    """What was recommended in the window, with the last one before it. It begins anew where nothing could be said for
    longer than after a change."""
    window_ms = policy.scale_down_window_ms
    newest_ms = max((each.at_ms for each in seen.memory.recommended), default=0)
    if window_ms == 0 or seen.now_ms - newest_ms > policy.stabilization_ms + max(
        UNSEEN_MS, 3 * policy.interval_ms
    ):
        return ()
    inside = [each for each in seen.memory.recommended if each.at_ms > seen.now_ms - window_ms]
    before = [each for each in seen.memory.recommended if each.at_ms <= seen.now_ms - window_ms][-1:]
    return (*before, *inside)


def _within_parts(limits: Mapping[str, Limits], seen: Snapshot) -> dict[str, Limits]:
    """``limits``, with no more tasks of a vertex for which a batch has too few parts already."""
    return {
        each.id: limits[each.id]
        if each.working is None or each.working >= each.parallelism
        else _at_most(limits[each.id], each.effective.upper)
        for each in seen.vertices
    }


def _at_most(limits: Limits, most: int) -> Limits:
    return Limits(limits.least, max(limits.least, min(limits.most, most)))


def _within_held(limits: Mapping[str, Limits], held: Held, seen: Snapshot) -> dict[str, Limits]:
    """``limits``, with no more tasks than those after which more have brought nothing, or than are declared."""
    upper = {each.id: each.effective.upper for each in seen.vertices}
    return {
        vertex_id: _at_most(own, max(held.upper[vertex_id], upper[vertex_id]))
        if vertex_id in held.upper
        else own
        for vertex_id, own in limits.items()
    }


def _no_more(seen: Snapshot, limits: Mapping[str, Limits], held: Held | None) -> str:
    short = [each for each in seen.vertices if each.parallelism < min(each.effective.upper, each.most)]
    if short:
        told = ", ".join(f"{each.name} has {each.parallelism} of {each.effective.upper}" for each in short)
        return f"The job lacks slots, not bounds: {told} tasks."
    narrow = [one for one in seen.vertices if one.working is not None and one.working < one.parallelism]
    if narrow:
        told = " and ".join(
            f"{one.name} ran as {one.working} of its {one.parallelism} tasks" for one in narrow
        )
        return f"In the last batch {told}: it had too few files or partitions for more."
    if seen.slots is not None and _slots_declared(seen) >= seen.slots:
        return f"The cluster has {seen.slots} slots, which is as many as the bounds ask for."
    if held is not None and any(each.id in held.upper for each in seen.vertices):
        return "More tasks were tried, and brought nothing."
    if all(each.effective.upper >= limits[each.id].most for each in seen.vertices):
        return "All vertices are at the limits of the policy, at the operator's ceiling, or at their max parallelism."
    return (
        "More tasks would save no time: the longest task of a vertex, or planning and committing, takes it."
    )


def _slots_declared(seen: Snapshot) -> int:
    return slots_of(seen.vertices, {each.id: each.effective.upper for each in seen.vertices})


def _operators_part(seen: Snapshot, demand: Demand, policy: Policy, fit: Mapping[str, int]) -> str:
    """What the operator's floors and ceilings have made of the recommendation; empty if nothing."""
    if not any(each.operator for each in seen.vertices):
        return ""
    free = replace(seen, vertices=tuple(replace(each, operator=NO_LIMITS) for each in seen.vertices))
    without = fitting_tasks(demand, limits_of(free, policy), policy.target_utilization)
    told = ""
    for each in seen.vertices:
        asked, held = without[each.id], fit[each.id]
        word, limit = ("ceiling", each.operator.ceiling) if asked > held else ("floor", each.operator.floor)
        if asked != held == limit:
            told += f" The operator's {word} holds {each.name} at {held}: without it, {asked} would be recommended."
    return told


def _load_words(load: Load, policy: Policy, wanted_per_second: float, used: float) -> str:
    parts = [f"{_number(load.arrival_per_second)} rows/s arrive"]
    if load.growth_per_second is None and load.backlog_rows is None:
        parts = [f"{_number(load.rows_per_second)} rows/s are processed, the backlog is not known"]
    elif load.backlog_rows:
        waits = f"{_number(load.backlog_rows)} wait, to be worked off in {policy.catch_up_ms / 1000:.0f} s"
        parts.append(f"{waits}: {_number(wanted_per_second)} rows/s")
    return f"{', '.join(parts)}. The parallelism in force needs {_percent(used)} of the time for them."


def _changes(seen: Snapshot, upper: Mapping[str, int]) -> str:
    """`slow from 2 to 4 tasks, store from 1 to 4`"""

    def told(vertex: Vertex) -> str:
        return f"{vertex.name} from {vertex.upper} to {upper[vertex.id]}"

    return "at most so many tasks of " + ", ".join(told(each) for each in seen.vertices if each.id in upper)


def _nothing(seen: Snapshot, reason: str) -> Decision:
    return Decision(Action.NONE, reason, memory=seen.memory)


def _act(policy: Policy, found: Decision) -> Decision:
    if found.action is not Action.SCALE or not policy.recommend_only:
        return found
    # Nothing is declared that could be judged later.
    memory = replace(found.memory, step=None, held=None)
    return replace(
        found, action=Action.RECOMMEND, reason=f"{found.reason} It is only recommended.", memory=memory
    )


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.1f}"
