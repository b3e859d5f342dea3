"""The slots that queued bounds need, and which of them have theirs.

A patch has its slots when each of its vertices can have the tasks of the upper bound that it raises, or of the lower
bound if it raises only that. A bound that it lowers needs no slots, and other vertices may be short of slots. The
oldest patch is looked at first, and a later one has its slots only if the patches before it keep theirs. But a job that
cannot run by the bounds that hold, and can by queued ones, does not wait with those that it needs for that.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from app.model.job_state.changes import Change, Patch
from app.model.requirements import Bounds, Requirements
from app.model.scaling_policy import within
from app.scheduler.adaptive.state import JobState, Restarting
from app.scheduler.slots import Demand

_BASIS: Final[Callable[[JobState], tuple[object, ...]]] = operator.attrgetter(
    *("graph", "options", "requirements", "policy", "queued", "attempt", "driver.fixed"),
    *("partitions.repartition", "partitions.refused"),
)
"""What the demands depend on."""

_Known = tuple[Requirements, dict[object, Demand], dict[tuple[int, int | None], tuple[Patch, ...]]]
"""What holds without the queue; demands by patches; and by slots and cap the patches that have their slots."""


def with_patches(requirements: Requirements, patches: Iterable[Patch]) -> Requirements:
    """``requirements`` once ``patches`` are applied."""
    for one in patches:
        requirements = _replaced(requirements, one.bounds, one.partitions)
    return requirements


def before_change(requirements: Requirements, change: Change) -> Requirements:
    """``requirements`` with what was declared before ``change``."""
    return _replaced(requirements, change.former, change.former_partitions)


def before_patches(state: JobState) -> Requirements:
    """What holds if no patch of the queue is applied."""
    requirements = state.requirements
    for one in state.queued:
        if one.begun is not None:
            requirements = before_change(requirements, one.begun)
    return requirements


class QueuedSlots:
    """What a job would go for with some patches of its queue and without the others, whatever was taken back."""

    __slots__ = ("_come", "_demands", "_former", "_state")

    def __init__(self, state: JobState, known: _Known) -> None:
        self._state = state
        self._former, self._demands, self._come = known

    @classmethod
    def of(cls, state: JobState) -> QueuedSlots:
        """A step asks for the same again and again, so the last answers are kept."""
        basis, last = _BASIS(state), _last[0]
        if last is None or not all(map(operator.is_, last[0], basis)):
            last = _last[0] = (basis, (before_patches(state), {}, {}))
        return cls(state, last[1])

    def demand(self, patches: Sequence[Patch]) -> Demand:
        """What the job would go for if these were applied, and no others."""
        key = tuple([(one.version, one.bounds, one.partitions) for one in patches])
        found = self._demands.get(key)
        if found is None:
            found = self._demands[key] = self._worked_out(with_patches(self._former, patches))
        return found

    def demand_with(self, patch: Patch) -> Demand:
        """The same with those that are applied, and ``patch``."""
        return self.demand((*self._applied(patch), patch))

    def with_their_slots(self) -> tuple[Patch, ...]:
        """The patches that have their slots now, applied or not."""
        key = (self._state.usable_slots, self._state.share.cap)
        if key not in self._come:
            self._come[key] = self._with_their_slots()
        return self._come[key]

    def _with_their_slots(self) -> tuple[Patch, ...]:
        queued, usable = self._state.queued, self._state.usable_slots
        found = needed = () if self.least_without() is None else self._needed_to_run()
        for one in queued:
            tried = (*found, one)
            if one not in needed and self._suffices(tried, usable, without=needed):
                found = tried
        return found

    def _needed_to_run(self) -> tuple[Patch, ...]:
        """The patches without which the job cannot run, the oldest first where others would do."""
        needed = self._state.queued
        for one in reversed(needed):
            others = tuple([each for each in needed if each is not one])
            if self.demand(others).minimal <= self._state.usable_slots:
                needed = others
        return needed

    def least_without(self) -> int | None:
        """The slots that the job needs without the queue, if it cannot have them and can run by the whole queue."""
        least, whole = self.demand(()).minimal, self.demand(self._state.queued).minimal
        return least if whole <= self._state.usable_slots < least else None

    def needed(self, patch: Patch) -> int:
        """With how many slots ``patch`` has its own, if whatever else waits goes on waiting."""
        tried = (*self._applied(patch), patch)
        goal = self.demand(tried)
        counts = range(goal.minimal, self._most(goal))
        return counts.start + bisect_left(counts, True, key=lambda count: self._suffices(tried, count))

    def is_met(self, patch: Patch, parallelism: Mapping[str, int]) -> bool:
        """Whether a job that runs at ``parallelism`` has what ``patch``, which was applied, asks for."""
        goal = self._worked_out(self._state.requirements)
        least = self._targets(patch, goal)
        return all(
            vertex in parallelism and least.get(vertex, 0) <= parallelism[vertex] <= goal.bounds[vertex].upper
            for vertex, _ in patch.bounds
        )

    def declared(self, desired: int, minimal: int) -> tuple[int, int]:
        """The slots that are worth having, and those that the job cannot do without, by the bounds that hold, which ask
        for ``desired`` and ``minimal``, and by those that are queued."""
        whole = self.demand(self._state.queued)
        return max(desired, whole.desired), min(minimal, whole.minimal, self.demand(()).minimal)

    def _applied(self, patch: Patch) -> list[Patch]:
        return [one for one in self._state.queued if one.begun is not None and one.version != patch.version]

    def _worked_out(self, requirements: Requirements) -> Demand:
        state = self._state
        declared, graph = within(state.policy, state.graph, requirements), state.graph
        given_up = requirements.same_as(state.requirements) and state.is_repartition_given_up
        if state.partitions.repartition is None and not given_up:
            graph = state.with_wanted_partitions(declared)
        return Demand.of(graph, declared)

    def _suffices(self, patches: Sequence[Patch], slots: int, without: Sequence[Patch] = ()) -> bool:
        """Whether each of ``patches`` but those of ``without`` has its slots if all of them are applied."""
        goal = self.demand(patches)
        least: dict[str, int] = {}
        for one in patches:
            if one not in without:
                least |= self._targets(one, goal)
        now = goal.parallelism(slots) if least else {}
        return now is not None and all(now[vertex] >= count for vertex, count in least.items())

    def _targets(self, patch: Patch, goal: Demand) -> dict[str, int]:
        """The parallelism that ``patch`` has to lead to, of each vertex of which it raises a bound. ``goal``: what the
        job goes for once it is applied."""
        before, raised = self.demand(()).bounds, {}
        for vertex, _ in patch.bounds:
            now, was = goal.bounds[vertex], before[vertex]
            if now.upper > was.upper or now.lower > was.lower:
                raised[vertex] = now.upper if now.upper > was.upper else now.lower
        if not raised:
            return raised
        most = goal.parallelism(self._most(goal))
        assert most is not None
        return {vertex: min(count, most[vertex]) for vertex, count in raised.items()}

    def _most(self, goal: Demand) -> int:
        """The slots of the upper bounds, as far as the cap allows them."""
        return self._state.share.within_cap(goal.desired, goal.minimal)


_last: list[tuple[tuple[object, ...], _Known] | None] = [None]


def is_on_its_way(state: JobState, one: Patch) -> bool:
    """Whether a plan that has what ``one``, which was applied, asks for is coming, or the job is being stopped for
    it."""
    target = state.phase.target if isinstance(state.phase, Restarting) else None
    if target is None and (plan := state.coming_plan) is not None:
        target = plan.parallelism
    return target is not None and QueuedSlots.of(state).is_met(one, dict(target))


def _replaced(
    requirements: Requirements,
    bounds: Sequence[tuple[str, Bounds]],
    partitions: Sequence[tuple[str, int]],
) -> Requirements:
    new = dict(bounds)
    others = [pair for pair in requirements.state_partitions if pair[0] not in new]
    return Requirements(
        requirements.uuid,
        requirements.version,
        tuple([(vertex, new.get(vertex, own)) for vertex, own in requirements.bounds]),
        requirements.requested_by,
        requirements.reason,
        (*others, *partitions),
    )
