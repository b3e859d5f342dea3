"""Sentences on the slots and parallelism that a job wants, holds and uses, and on the differences."""

from __future__ import annotations

from typing import Final

from app.model.job_state.batch import REGION_TIMER
from app.model.job_state.no_change import NoChange, NoChangeReason
from app.model.plan import change_in_words, parallelism_in_words
from app.model.scaling_policy import differences
from app.model.sentences import duration_in_words, ended, hint, shown
from app.scheduler.adaptive import (
    goal,
    local_failover,
    queue_words,
    repartition,
    repeated_errors,
    restart_strategy,
)
from app.scheduler.adaptive.blame import is_over
from app.scheduler.adaptive.draft import timer_at
from app.scheduler.adaptive.last_failure import last_failure
from app.scheduler.adaptive.no_change import versions_of
from app.scheduler.adaptive.program_queries import absent_vertices
from app.scheduler.adaptive.state import (
    Canceling,
    Created,
    CreatingExecutionGraph,
    Executing,
    Failing,
    Finished,
    JobState,
    Rescaling,
    Restarting,
    RetryingExecutionGraphCreation,
    StopWithSavepoint,
    WaitingForResources,
)
from app.scheduler.adaptive.transition_manager import TIMERS
from app.scheduler.batch.explain import batch_sentences, batch_violations
from app.scheduler.slots import Demand


def explain(state: JobState, now_ms: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(sentences, violations): what is wanted, held and in force; and each bound that does not hold, and why."""
    sentences = [
        *_mode(state),
        *_policy_sentences(state),
        _slots_sentence(state),
        *_phase_sentences(state, now_ms),
        *_not_got_over(state, now_ms),
        *_unreachable(state, now_ms),
    ]
    if not isinstance(state.phase, Finished):
        sentences.extend([*_version_sentences(state, now_ms), *_trial_sentences(state, now_ms)])
        sentences.extend(queue_words.in_words(state, now_ms))
        sentences.extend([*local_failover.in_words(state, now_ms), *repeated_errors.in_words(state)])
        sentences.extend(restart_strategy.in_words(state, now_ms))
    if state.plan is not None and isinstance(state.phase, Executing) and state.batch is None:
        sentences.extend(_difference(state, now_ms))
    sentences.extend(_state_partitions(state))
    if state.supply.idle_since_ms:
        since = min(since for _, since in state.supply.idle_since_ms)
        left_ms = since + state.options.slot_idle_timeout_ms - now_ms
        sentences.append(
            f"{len(state.supply.idle_since_ms)} surplus slot(s) are given back in {duration_in_words(left_ms)}."
        )
    if state.stop is not None and state.stop.error is not None:
        sentences.append(f"The last stop could not be completed: {state.stop.error}")
    return tuple(sentences), violations(state)


def _state_partitions(state: JobState) -> list[str]:
    """What becomes of the partitions of the state, if anything is to."""
    if isinstance(state.phase, Finished | Canceling | Failing):
        return []
    begun, to_come = repartition.in_words(state), repartition.to_come_in_words(state)
    if begun is not None:
        when = "is under way"
        if state.partitions.repartition is not None and state.partitions.repartition.late:
            when = "is done when the program starts its query"
        sentences = [
            f"A redistribution {when}: {begun}. Requests for other numbers wait until it is complete."
        ]
        if state.partitions.repartition is not None and state.partitions.repartition.failed:
            sentences.append(f"{state.partitions.repartition.failed} attempt(s) at it failed.")
        return sentences
    if to_come:
        return [f"A redistribution is to come, with a drain and a restart: {to_come}."]
    refused = state.partitions.refused
    if refused is not None and state.is_repartition_given_up:
        return [f"{ended(refused.error)} To try it again, declare the same requirements again."]
    return []


def violations(state: JobState) -> tuple[str, ...]:
    """A sentence for each bound or slot with which the plan in force is not in line, and why it is kept.

    Of a BATCH job: for each bound that did not hold when a decision was made.
    """
    plan = state.plan
    if isinstance(state.phase, Finished):
        return ()
    if state.batch is not None:
        return batch_violations(state, state.batch)
    if plan is None or state.graph.runs_by_regions:
        return ()
    found = []
    reason, counting = _why_kept(state), state.bounds.as_dict()
    for vertex, parallelism in plan.parallelism:
        bounds, name = counting[vertex], state.graph.by_id[vertex].name
        if parallelism < bounds.lower:
            found.append(f"{name} runs at {parallelism}, below its lower bound {bounds.lower}: {reason}")
        elif parallelism > bounds.upper:
            found.append(f"{name} runs at {parallelism}, above its upper bound {bounds.upper}: {reason}")
    if missing := plan.slot_ids - state.slot_ids:
        found.append(f"{len(missing)} slot(s) of the plan in force are not held any more: {reason}")
    return tuple(found)


def _mode(state: JobState) -> list[str]:
    if not state.options.is_reactive:
        return []
    return ["The job runs in reactive mode: it takes whatever slots there are, up to its max parallelism."]


def _policy_sentences(state: JobState) -> list[str]:
    """Which vertices have other bounds than were declared, and whose doing it is."""
    policy = state.policy
    told = list(differences(policy, state.graph, state.requirements))
    if told:
        by = f", by {policy.requested_by}" if policy.requested_by else ""
        told.append(
            f"The scaling policy is version {policy.version}{by}{f': {policy.reason}' if policy.reason else '.'}"
        )
    return told


def _version_sentences(state: JobState, now_ms: int) -> list[str]:
    """What is to become of a version on trial, or of one whose environment is being built."""
    one = state.versions.replacement
    if one is not None and one.stage == "Builds":
        return [
            f"What version {one.number} is to run in is being built. Version {one.before} stays in force until then."
        ]
    if one is None or not state.versions.is_on_trial:
        return []
    when = ""
    if state.is_before_query:
        when = ", for a time that begins with the first query of the program"
    elif one.until_ms is not None:
        when = f" for {duration_in_words(one.until_ms - now_ms)} at most"
    return [
        f"Version {one.number} of the job is on trial{when}: if it fails, version {one.before} comes back."
    ]


def _trial_sentences(state: JobState, now_ms: int) -> list[str]:
    """What was taken back, why, what is in force instead and what would change that; or what is on trial."""
    taken, watch = state.trial.taken_back, state.trial.watch
    if taken is not None:
        number = f"Rescale {taken.record}" if taken.record else "The rescale"
        change = change_in_words(state.graph, taken.good, taken.tried)
        again = (
            "It is tried again when other bounds are declared, or the same ones with slotwise require --retry"
            + (", or after slots were lost." if not taken.cause.is_asked else ".")
        )
        return [
            f"{number} ({change}) was taken back {duration_in_words(now_ms - taken.at_ms)} ago: {taken.why}",
            f"The job runs at {parallelism_in_words(state.graph, taken.good)} at most, whatever its bounds ask "
            f"for. {again}",
        ]
    # That of a program begins with its first query.
    if watch is None or is_over(watch, now_ms) or state.plan is None or state.is_before_query:
        return []
    left_ms = watch.until_ms - now_ms
    span = f"for {duration_in_words(left_ms)} more" if left_ms > 0 else "until a batch has been committed"
    falls = state.options.rollback_min_throughput if watch.before else 0
    also = f", or if its throughput falls below {falls:g} of what it was," if falls else ""
    return [
        f"The last rescale is on trial {span}: if the job fails{also} it goes back to "
        f"{parallelism_in_words(state.graph, watch.good)}."
    ]


def _why_kept(state: JobState) -> str:
    if isinstance(state.phase, Rescaling):
        return "another plan is being applied."
    if not isinstance(state.phase, Executing):
        return "the attempt is being ended."
    last = _last_look(state)
    return "the change waits for its time." if last is None else last.message[0].lower() + last.message[1:]


def _last_look(state: JobState) -> NoChange | None:
    """Why the scheduler left the job as it is when it looked last, if that still counts."""
    last = state.no_change[-1] if state.no_change else None
    return last if last is not None and last.versions == versions_of(state) else None


def _slots_sentence(state: JobState) -> str:
    demand, used = Demand.of(state.graph, state.bounds), state.plan.slot_count if state.plan else 0
    return (
        f"The bounds want {demand.desired} slot(s) and need at least {demand.minimal}; the job holds "
        f"{len(state.slots)} and uses {used}."
    )


def _phase_sentences(state: JobState, now_ms: int) -> list[str]:
    phase = state.phase
    match phase:
        case Created():
            return ["The job is submitted and not scheduled yet."]
        case WaitingForResources():
            return _waiting_sentences(state, phase, now_ms)
        case CreatingExecutionGraph():
            return [_creating_sentence(state, phase)]
        case RetryingExecutionGraphCreation():
            return [
                f"The last start failed: {ended(phase.error)} {_timer(state, 'backoff', now_ms, 'It is tried again')}"
            ]
        case Executing():
            return _executing_sentences(state, now_ms)
        case Rescaling():
            return _rescaling_sentences(state, phase)
        case StopWithSavepoint():
            return ["The job stops after the batch in flight, and is then finished."]
        case Restarting():
            return _restarting_sentences(state, phase, now_ms)
        case Failing():
            return [f"The job fails; what is left of it is being killed: {phase.failure.error}"]
        case Canceling():
            return ["The job is being canceled; what is left of it is being killed."]
        case Finished():
            return [f"The job is over: {phase.status}.{f' {phase.cause}' if phase.cause else ''}"]


def _executing_sentences(state: JobState, now_ms: int) -> list[str]:
    if state.batch is not None:
        when_again = _timer(state, REGION_TIMER, now_ms, "The next start is")
        return batch_sentences(state, state.batch, when_again)
    assert state.plan is not None
    idle = {
        "that have ended": state.graph.over,
        "that the program has not started in this attempt": absent_vertices(state),
    }
    running = [
        pair for pair in state.plan.parallelism if not any(pair[0] in vertices for vertices in idle.values())
    ]
    sentences = [
        f"The job runs at {parallelism_in_words(state.graph, running)}."
        if running
        else "No query of it runs."
    ]
    if state.is_before_query:
        which = "a query" if state.graph.awaits_query else f"a query in attempt {state.attempt}"
        sentences = [f"The program runs, and has not started {which} yet."]
    for how, vertices in idle.items():
        sinks = [each.name for each in state.graph.vertices if each.is_sink and each.id in vertices]
        if sinks:
            sentences.append(f"Queries {how}: {', '.join(sinks[:10])}{' ...' * (len(sinks) > 10)}.")
    known = () if state.graph.awaits_query else state.graph.by_name
    for bounds in state.graph.bounds[:20]:
        if bounds.vertex not in known:
            near = hint(bounds.vertex, known)
            sentences.append(f"The bounds of {shown(bounds.vertex)} wait for a vertex of this name.{near}")
    return sentences


def _creating_sentence(state: JobState, phase: CreatingExecutionGraph) -> str:
    if phase.failure is not None:
        return f"Attempt {state.attempt} did not start and is being killed: {phase.failure.error}"
    if state.graph.runs_by_regions:
        return f"The driver of attempt {state.attempt} is being started with {phase.plan.slot_count} slot(s)."
    planned = parallelism_in_words(state.graph, phase.plan.parallelism)
    begun = f"The driver of attempt {state.attempt} is being started with {planned}."
    if goal.comes_back(state):
        needed = Demand.of(state.graph, state.bounds).minimal
        begun += f" Its lower bounds need {needed} slots; it ran with fewer, so it starts with what there is."
    elif (
        phase.plan.slot_count < state.declared_within_cap
        and state.options.submission_stabilization_ms is None
    ):
        begun += (
            " It does not wait for more slots, as Flink's would for 10 s: they are added in place when they come "
            "(jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout)."
        )
    if (change := repartition.in_words(state)) is not None:
        return (
            f"The driver of attempt {state.attempt} redistributes {change}, and then runs {planned}. A failure leaves "
            "the state as it was."
        )
    return begun


def _not_got_over(state: JobState, now_ms: int) -> list[str]:
    """Why the attempt before failed, where the phase does not say so."""
    failure = last_failure(state)
    if failure is None or isinstance(state.phase, Restarting | RetryingExecutionGraphCreation):
        return []
    if state.batch is not None and isinstance(state.phase, Executing):
        return []
    ago = duration_in_words(now_ms - failure.at_ms)
    return [f"Attempt {failure.attempt} failed {ago} ago: {failure.error}"]


def _rescaling_sentences(state: JobState, phase: Rescaling) -> list[str]:
    target = parallelism_in_words(state.graph, phase.target.parallelism)
    sentences = [f"The job is being rescaled in place to {target}; it takes effect at the next micro-batch."]
    if phase.sent > 1:
        sentences.append(f"The plan was sent {phase.sent} times.")
    if phase.ignored:
        sentences.append(
            "The driver commits batches at an older plan; its queries are restarted if it goes on so."
        )
    return sentences


def _unreachable(state: JobState, now_ms: int) -> list[str]:
    """What it means for the job that the cluster is unreachable."""
    if state.supply.away_since_ms is None or isinstance(state.phase, Finished | Canceling | Failing):
        return []
    since = f"The cluster has been unreachable for {duration_in_words(now_ms - state.supply.away_since_ms)}"
    if state.plan is not None:
        return [
            f"{since}: the job keeps the slots that it has, and nothing is begun that would restart it until the "
            "cluster is reachable again."
        ]
    if state.driver.alive:
        return [f"{since}: a start that fails meanwhile is tried again, and does not count."]
    return [
        f"{since}: the job is started when it is reachable again, and the time until then does not count."
    ]


def _waiting_sentences(state: JobState, phase: WaitingForResources, now_ms: int) -> list[str]:
    if state.driver.alive:
        return [
            f"Attempt {state.attempt} was given up and is being killed; no other is started before it is dead."
        ]
    if state.cluster_unreachable:
        return ["The job waits for its slots."]
    if len(state.slots) < state.supply.minimal:
        missing = state.supply.minimal - len(state.slots)
        limit = _timer(state, "wait-timeout", now_ms, "The wait counts as a failed start")
        if limit:
            limit += (
                f" How often a start is tried: {restart_strategy.describe(state.options.creation_retry)}."
            )
        return [f"The job waits for {missing} more slot(s), without which it cannot run. {limit}".rstrip()]
    stable = _timer(state, "stabilization", now_ms, "It starts with what it holds")
    coming = state.supply.coming
    rest = f"{coming} slot(s) that others give back" if coming else "the rest of the slots that it wants"
    return [f"The job could run and waits for {rest}. {stable}".rstrip()]


def _restarting_sentences(state: JobState, phase: Restarting, now_ms: int) -> list[str]:
    why = f"after a failure: {ended(phase.failures[0].error)}" if phase.failures else "because of a rescale."
    if phase.target is not None:
        why = f"for a rescale to {parallelism_in_words(state.graph, phase.target)}."
    done = (
        _timer(state, "backoff", now_ms, "It is started again")
        if phase.stopped
        else "The attempt is being stopped first."
    )
    return [f"The job restarts {why} {done}".rstrip()]


def _difference(state: JobState, now_ms: int) -> list[str]:
    """Why a running job is left as it is, where no other sentence says so."""
    last = _last_look(state)
    if last is None or last.reason in _TOLD_ELSEWHERE:
        return []
    due_ms = [timer.at_ms for timer in state.timers if timer.name in TIMERS]
    when = ""
    if due_ms and last.reason in (NoChangeReason.COOLDOWN, NoChangeReason.STABILIZATION):
        when = f" Its next step is due in {duration_in_words(due_ms[0] - now_ms)} or with a batch."
    return [f"{last.message}{when}"]


def _timer(state: JobState, name: str, now_ms: int, what: str) -> str:
    at_ms = timer_at(state, name)
    return "" if at_ms is None else f"{what} in {duration_in_words(at_ms - now_ms)}."


_TOLD_ELSEWHERE: Final = (
    NoChangeReason.TAKEN_BACK,
    NoChangeReason.DEADLINE,
    NoChangeReason.REPARTITION_REFUSED,
    NoChangeReason.BOUNDS_MET,
)
