"""Sentences on the progress of a batch job, and on the parallelism of each vertex."""

from __future__ import annotations

from collections.abc import Sequence

from app.model.batch import LimitedBy, RegionStatus
from app.model.batch_layout import layout_of
from app.model.job_state.batch import BatchProgress, Decision, RegionState
from app.model.requirements import Requirements
from app.model.sentences import ended
from app.scheduler.adaptive.state import JobState
from app.scheduler.batch.scheduling import out_of_reach, undecided
from app.scheduler.slots import Demand


def batch_sentences(state: JobState, progress: BatchProgress, when_again: str) -> list[str]:
    """A sentence on the regions, then one per decided vertex in topological order.

    ``when_again`` says when regions that failed run again; empty if none waits for that.
    """
    finished = sum(one.status is RegionStatus.FINISHED for one in progress.regions)
    running = _named(state, progress, RegionStatus.RUNNING)
    now = f"now running: {', '.join(name for name, _ in running)}" if running else "none is running"
    sentences = [f"{finished} of {len(progress.regions)} regions are finished; {now}."]
    if when_again:
        sentences.append(_again_sentence(state, progress, when_again))
    if state.plan is not None and state.plan.slot_count < Demand.of(state.graph, state.bounds).desired:
        sentences.append(
            f"Its driver was started with {state.plan.slot_count} slot(s) and uses no others until it is started again."
        )
    sentences += _runs_again(state, running)
    for vertex in state.graph.vertices:
        decision = progress.in_force(vertex.id)
        if decision is not None:
            sentences.append(
                decision_sentence(vertex.name, decision, is_running=_is_running(progress, decision))
            )
    return sentences


def _named(state: JobState, progress: BatchProgress, status: RegionStatus) -> list[tuple[str, RegionState]]:
    """The regions of ``status``, by the names of their vertices."""
    return [
        (
            "+".join(state.graph.by_id[vertex].name for vertex in region.vertices),
            progress.regions[region.number],
        )
        for region in layout_of(state.graph).regions.all
        if progress.regions[region.number].status is status
    ]


def _runs_again(state: JobState, running: Sequence[tuple[str, RegionState]]) -> list[str]:
    """What runs for the second time or more often: that it runs says little if it has failed so far."""
    found = [f"{name} for the {region.run}. time" for name, region in running if region.run > 1]
    if not found:
        return []
    why = f" The last failure: {state.recovery.failures[-1][0].error}" if state.recovery.failures else ""
    return [f"Now running again: {', '.join(found)}.{why}"]


def _again_sentence(state: JobState, progress: BatchProgress, when_again: str) -> str:
    """After a failure: what runs again, which may be more than what failed, and why."""
    again = [name for name, region in _named(state, progress, RegionStatus.CREATED) if region.run]
    why = f": {ended(state.recovery.failures[-1][0].error)}" if state.recovery.failures else "."
    return f"{', '.join(again)} will run again after a failure{why} {when_again}"


def batch_violations(state: JobState, progress: BatchProgress) -> tuple[str, ...]:
    """A sentence for each vertex that runs, or has run, below the lower bound that its decision found, and for each
    that runs outside of bounds that were declared after its decision.

    There is one way to the former: no task can read less than one part of the inputs.
    """
    found, bounds = [], state.bounds.as_dict()
    for vertex in state.graph.vertices:
        decision = progress.in_force(vertex.id)
        if decision is None:
            continue
        now, at = bounds[vertex.id], decision.parallelism
        is_running = _is_running(progress, decision)
        if at < decision.lower and at == decision.subpartitions:
            found.append(
                f"{vertex.name} {_verb(is_running)} at {at}, below its lower bound {decision.lower}: its inputs were "
                f"written in {decision.subpartitions} parts before the bound was raised."
            )
        elif is_running and not now.lower <= at <= now.upper:
            side = (
                f"below its lower bound {now.lower}"
                if at < now.lower
                else f"above its upper bound {now.upper}"
            )
            found.append(
                f"{vertex.name} runs at {at}, {side}: that was decided before the bound was declared, and stays unless "
                "its region has to run again."
            )
    return tuple(found)


def _is_running(progress: BatchProgress, decision: Decision) -> bool:
    return progress.regions[decision.region].status is RegionStatus.RUNNING


def _verb(is_running: bool) -> str:
    return "runs" if is_running else "ran"


def scope_of_bounds(state: JobState, before: Requirements) -> str:
    """What the bounds of ``state`` change in a job that runs, and where they cannot be reached. ``before``: the former
    ones."""
    still_open, bounds = undecided(state), state.bounds
    now, was = bounds.as_dict(), before.as_dict()
    names = ", ".join(vertex.name for vertex in still_open)
    if names:
        sentence = f"The bounds count for what is not decided yet: {names}."
        fixed = [
            vertex.name
            for vertex in state.graph.vertices
            if vertex not in still_open and now[vertex.id] != was[vertex.id]
        ]
        if fixed:
            sentence += f" Decided already, and not changed by them: {', '.join(fixed)}."
    else:
        sentence = "The parallelism of every vertex is decided already, so the bounds change nothing."
    short = out_of_reach(state, before)
    if short:
        most = ", ".join(f"{vertex.name} with {parts} at most" for vertex, parts in short)
        sentence += (
            f" What some of them read is in fewer parts already, so they run with fewer tasks: {most}."
        )
    plan, needed = state.plan, Demand.of(state.graph, bounds).minimal
    if plan is not None and needed > plan.slot_count:
        sentence += (
            f" The lower bounds need {needed} slots; the driver has {plan.slot_count} until it is started again, so "
            "tasks take turns."
        )
    return sentence


def decision_sentence(name: str, decision: Decision, *, is_running: bool) -> str:
    """Why a vertex runs at its parallelism, or ran at it."""
    verb = _verb(is_running)
    bounds = f"bounds {decision.lower} to {decision.upper}"
    limit = _limit_sentence(decision)
    if decision.rule == "pipelined":
        return (
            f"{name} {verb} with at most {decision.parallelism} task(s), as Spark sees fit ({bounds}).{limit}"
        )
    no_choice = decision.lower == decision.upper
    if decision.bytes is None:
        why = "its bounds leave no choice" if no_choice else "the size of its files is not known"
        return f"{name} {verb} at {decision.parallelism}: {why} ({bounds}).{limit}"
    if no_choice:
        return (
            f"{name} {verb} at {decision.parallelism}: its bounds leave no choice ({bounds}). By its {decision.bytes} "
            f"bytes of input it would be {decision.wanted}.{limit}"
        )
    broadcast = f", {decision.broadcast_bytes} broadcast" if decision.broadcast_bytes else ""
    skew = (
        f" {len(decision.skewed)} of {decision.subpartitions} subpartitions are skewed, so Spark shuffles the "
        "rows once more and divides those if it can."
        if decision.skewed
        else ""
    )
    return (
        f"{name} {verb} at {decision.parallelism} by {decision.rule}: {decision.bytes} bytes of input{broadcast}, "
        f"{decision.volume_bytes} for each task, ask for {decision.wanted} ({bounds}).{limit}{skew}"
    )


def _limit_sentence(decision: Decision) -> str:
    """What other than the bounds led to the parallelism; empty if nothing did."""
    limit = decision.limit
    match decision.limited_by:
        case None:
            return ""
        case LimitedBy.SLOTS:
            return f" More than {limit} task(s) would only wait for slots."
        case LimitedBy.SUBPARTITIONS:
            return f" Its inputs are written in {limit} part(s), so more tasks would have nothing to read."
        case LimitedBy.OPTIONS:
            asked = decision.wanted if decision.normalized is None else decision.normalized
            raised = asked is not None and limit is not None and limit > asked
            how = f"ask for at least {limit}" if raised else f"allow {limit} at most"
            return f" The options of the job {how}."
