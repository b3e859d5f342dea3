"""What a PUT would do, without doing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from app.cluster.slot_pool import SlotPool
from app.model.batch import RegionStatus
from app.model.plan import Rung, rung_between
from app.model.requirements import Bounds, Deadline, OnTimeout, Requirements
from app.model.scaling_policy import differences, within
from app.model.state_partitions import Numbers, change_in_words, is_redistributed, numbers_of
from app.model.value import evolve
from app.scheduler.adaptive import bounds_declared, goal
from app.scheduler.adaptive.goal import bounds_after_rollback
from app.scheduler.adaptive.queued_slots import QueuedSlots
from app.scheduler.adaptive.state import JobState
from app.scheduler.batch.explain import scope_of_bounds
from app.scheduler.batch.scheduling import progress_of
from app.scheduler.slots import Demand
from app.worker.requests.declared import refusal_by_cap
from app.worker.requests.requirements import is_another_try, reactive_sentence
from app.worker.views import DryRun, Supply

_NO_DEADLINE: Final = "These bounds are declared already and wait for no deadline: this one has no effect."
_NO_OTHER_DEADLINE: Final = (
    "This deadline has no effect: to give these bounds another one, cancel the rescale that waits and declare them "
    "again."
)
_TAKEN_BACK: Final = (
    "These bounds were tried and taken back: they change nothing unless the request is a retry."
)
_WAIT_ALREADY: Final = "These bounds wait for their deadline already: declared again they change nothing."


def dry_run(
    state: JobState,
    bounds: dict[str, Bounds],
    numbers: Numbers,
    errors: Sequence[str],
    *,
    reach: Callable[[int, int], int],
    retry: bool = False,
    supply: Supply | None = None,
    on_timeout: OnTimeout | None = None,
    before: JobState | None = None,
) -> DryRun:
    """What declaring ``bounds``, and ``numbers`` of state partitions, would lead to with the slots that exist now.

    ``reach``: to how many slots the job comes that wants so many, and cannot do without so many. ``retry``: what was
    taken back would be tried again. ``supply``: what there is, to say why there is no more.
    ``on_timeout``: what is to happen at the deadline that they have. ``before``: with the scaling policy that counts
    now, if ``state`` has another one.
    """
    current, slots_before = in_force(state), state.plan.slot_count if state.plan else 0
    if errors:
        return DryRun(bounds, None, current, slots_before, None, None, refused=tuple(errors))
    version = state.requirements.version + 1
    asked = Requirements("", version, tuple(bounds.items()), state_partitions=numbers)
    same = not bounds_declared.changed_by(state, asked)
    # What waits already waits on.
    declared = bounds_declared.bounds_to_count(state, asked)
    wanted, now = within(state.policy, state.graph, declared), (before or state).bounds
    if state.options.is_reactive and not (same and (retry or before is not None)):
        refused: str | None = reactive_sentence(state)
    else:
        refused = refusal_by_cap(state, bounds_declared.bounds_with_queue(state, asked))
    if refused is not None:
        return DryRun(bounds, None, current, slots_before, None, None, refused=(refused,))
    others = wanted.bounds != now.bounds or not same
    held_back = state.trial.taken_back is not None and not (retry or others)
    unchanged = same and not retry and not is_another_try(state)
    if held_back:
        wanted = bounds_after_rollback(evolve(state, requirements=declared))
    graph = state.with_wanted_partitions(wanted)
    demand = Demand.of(graph, wanted)
    desired, minimal = demand.desired, demand.minimal
    reachable = min(desired, reach(desired, minimal))
    parallelism = demand.parallelism(reachable)
    short_of = () if supply is None or reachable >= desired else supply.sentences()
    if state.graph.runs_by_regions and (state.plan is not None or parallelism is not None):
        return _dry_run_of_batch(state, now, bounds, declared, reachable, short_of)
    sentences = list(differences(state.policy, state.graph, declared))
    same_again = unchanged and before is None
    sentences += [_TAKEN_BACK] if held_back else _wait_already(state, asked, declared) if same_again else []
    if parallelism is None:
        would = "would keep running as it is until more appear" if current else "would wait for more"
        sentences.append(_too_few(state, minimal, reachable, would))
    elif reachable < desired:
        by_cap = f" (its cap is {state.share.cap})" if reachable == state.share.cap else ""
        sentences.append(f"The upper bounds need {desired} slots; {reachable} can be had now{by_cap}.")
    sentences += [*short_of, *_waits(state, asked, on_timeout, reachable, unchanged=unchanged)]
    rung = _rung(state, current, parallelism)
    if supply is not None and supply.cluster_unreachable and rung not in (None, Rung.IN_PLACE):
        what = "The job would start" if current is None else "What needs a restart would be done"
        sentences.append(f"{what} when the cluster is reachable again.")
    if parallelism is not None and is_redistributed(state.graph, graph):
        rung = rung if current is None else Rung.STATE_REPARTITION
        change = change_in_words(state.graph, numbers_of(state.graph), dict(numbers_of(graph)))
        sentences.append(f"The job would be drained and restarted, to redistribute {change}.")
    elif parallelism is not None and parallelism == current:
        sentences.append("The parallelism in force would not change.")
    slots_after = None if parallelism is None else _slots_of(state, parallelism)
    return DryRun(bounds, parallelism, current, slots_before, slots_after, rung, explanation=tuple(sentences))


def short_of_slots(state: JobState, pool: SlotPool) -> str | None:
    """The sentence that the lower bounds in force need more slots than there are; None if they do not."""
    if state.plan is None and state.last_plan is None:
        # A new job has declared what its bounds need.
        minimal = desired = state.supply.minimal
    else:
        demand = Demand.of(state.graph, bounds_after_rollback(state))
        minimal, desired = demand.minimal, demand.desired
    if state.usable_slots >= minimal:
        return None
    if state.plan is None:
        # What could be had is asked of all jobs, and many may be waiting.
        if (total := pool.total) >= minimal:
            return None
        return f"The lower bounds need {minimal} slots; there are {total}, so the job waits for more."
    reachable = pool.attainable_slots(state.job_id, desired, minimal)
    then = "keeps running as it is until more appear"
    return _too_few(state, minimal, reachable, then) if reachable < minimal else None


def _too_few(state: JobState, minimal: int, reachable: int, then: str) -> str:
    runs = state.plan is not None and goal.comes_back_below(state, minimal)
    again = "; after a failure it starts again with what there is" if runs else ""
    return f"The lower bounds need {minimal} slots; {reachable} can be had now, so the job {then}{again}."


def _wait_already(state: JobState, asked: Requirements, declared: Requirements) -> list[str]:
    """What becomes of the bounds that wait if ``asked`` changes nothing. ``declared``: what holds."""
    told = [_WAIT_ALREADY] if asked.bounds != declared.bounds else []
    own = asked.as_dict()
    for one in state.queued:
        others = [vertex for vertex, bounds in one.bounds if own[vertex] != bounds]
        if one.begun is None and others:
            names = ", ".join(state.graph.by_id[vertex].name for vertex in others)
            told.append(
                f"Other bounds of {names}, of version {one.version}, wait for their deadline: to drop them, cancel "
                "their rescale."
            )
    return told


def _waits(
    state: JobState, asked: Requirements, on_timeout: OnTimeout | None, reachable: int, *, unchanged: bool
) -> list[str]:
    """What a deadline means for bounds that need more slots than can be had. ``unchanged``: they are declared."""
    if unchanged:
        in_vain = _NO_OTHER_DEADLINE if state.queued else _NO_DEADLINE
        return [] if on_timeout is None else [in_vain]
    if on_timeout is None:
        return []
    names = ", ".join(state.graph.by_id[one].name for one in bounds_declared.kept_waiting(state, asked))
    told = [f"The deadline does not count for {names}, whose bounds have one already."] if names else []
    patch = bounds_declared.patch_of(asked, Deadline(0, on_timeout), bounds_declared.changed_by(state, asked))
    if not patch.bounds or reachable >= (needed := QueuedSlots.of(state).needed(patch)):
        return told
    then = "this would be done" if on_timeout is OnTimeout.COMMIT else "they would be dropped"
    return [*told, f"The bounds would wait until the job may use {needed} slots; at the deadline {then}."]


def _dry_run_of_batch(
    state: JobState,
    now: Requirements,
    bounds: dict[str, Bounds],
    wanted: Requirements,
    reachable: int,
    short_of: Sequence[str],
) -> DryRun:
    """Other bounds start nothing anew, and count for what is not decided yet: before the job runs, for everything.
    ``now``: those that count now."""
    told = differences(state.policy, state.graph, wanted)
    if state.plan is None:
        sentence = "Each vertex is decided when its region starts, within its bounds."
        return DryRun(
            bounds, {}, None, 0, reachable, Rung.NEW_DRIVER, explanation=(sentence, *told, *short_of)
        )
    slots, decided = state.plan.slot_count, in_force(state)
    sentence = scope_of_bounds(evolve(state, requirements=wanted), now)
    return DryRun(bounds, decided, decided, slots, slots, None, explanation=(sentence, *told))


def in_force(state: JobState) -> dict[str, int] | None:
    """Of a BATCH job: what is decided. None if no plan is in force."""
    if state.plan is None:
        return None
    if not state.graph.runs_by_regions:
        return dict(state.plan.parallelism)
    return progress_of(state).parallelism(RegionStatus.RUNNING, RegionStatus.FINISHED)


def _rung(state: JobState, current: dict[str, int] | None, target: dict[str, int] | None) -> Rung | None:
    if target is None:
        return None
    return Rung.NEW_DRIVER if current is None else rung_between(state.graph, current, target)


def _slots_of(state: JobState, parallelism: dict[str, int]) -> int:
    return sum(max(parallelism[vertex] for vertex in members) for _, members in state.graph.groups)
