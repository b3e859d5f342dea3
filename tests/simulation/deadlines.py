"""Clients that give their bounds a deadline, and cancel rescales, while everything goes wrong; and what must hold then.

What holds until a deadline is kept in a ledger of what clients were told, by docs/rescale.md: the bounds of each vertex
before the first of those that wait. Which changes wait is worked out here from what each of them raises.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from app.model.jobgraph import JobGraph, JobType
from app.model.requirements import Bounds, OnTimeout, Requirements
from app.model.rescale import TerminalState, TriggerCause
from app.scheduler.adaptive.pending_state import Pending
from app.scheduler.adaptive.state import JobState
from app.worker.requests.requirements import RescaleCancellation
from app.worker.views import GivenDeadline
from tests.simulation import versions
from tests.simulation.rules import bounds_now, declared_within, least_slots, most_slots, parallelism

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.plane import Incarnation
    from tests.simulation.truth import JobTruth

ROLLED_BACK: Final = "The deadline of version "
"""What the reason of requirements begins with that came back at a deadline."""

_OVER = ("Canceling", "Failing", "Finished")
Holds = dict[str, Bounds]
Request = Callable[["Incarnation"], Coroutine[Any, Any, Any]]


class Wishes:
    """Which PUTs of one job have a deadline, and which rescales are canceled; drawn apart from everything else."""

    def __init__(self, seed: int, number: int, graph: JobGraph) -> None:
        self._rng = random.Random(f"deadlines/{seed}/{number}")
        self._may = graph.type is JobType.STREAMING and self._rng.random() < 0.3

    def deadline(self, ledger: Ledger, mark: str) -> GivenDeadline | None:
        """That of the PUT with this mark."""
        if not self._may or self._rng.random() < 0.3:
            return None
        wait_ms = self._rng.choice((500, 5_000, 30_000))
        ledger.wishes[mark] = self._rng.choice(tuple(OnTimeout))
        return GivenDeadline(ledger.wishes[mark], wait_ms=wait_ms)

    def cancel(self, oracles: Oracles, job_id: str, mark: Callable[[str], str]) -> Request | None:
        if not self._may or self._rng.random() >= 0.3:
            return None
        return oracles.deadlines.cancel(job_id, mark("cancel"), oracles.truth(job_id))


@dataclass
class Ledger:
    """Of one job. ``wishes``: what each PUT asks for in case of a timeout, by mark. ``former``: of each version of the
    bounds, what may come back for the vertices that it changed; ``partitions``: of their state. ``last``: the version
    that changed a vertex last. ``or_else``: what may come back in the place of ``former``, if a wait has ended in the
    very commit.
    ``waiting``: by vertex, the version with a deadline that it waits for."""

    wishes: dict[str, OnTimeout] = field(default_factory=dict)
    former: dict[int, dict[str, Bounds]] = field(default_factory=dict)
    partitions: dict[int, dict[str, int | None]] = field(default_factory=dict)
    or_else: dict[int, dict[str, Bounds]] = field(default_factory=dict)
    on_timeout: dict[int, OnTimeout] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)


class Deadlines:
    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        self._ledgers: dict[str, Ledger] = {}

    def ledger(self, job_id: str) -> Ledger:
        return self._ledgers.setdefault(job_id, Ledger())

    def cancel(self, job_id: str, mark: str, truth: JobTruth) -> Request | None:
        """A request to cancel the rescale that somebody asked for: the one that goes on, or the newest one."""
        asked = [one for one in truth.records.values() if one.cause is TriggerCause.UPDATE_REQUIREMENT]
        if not asked:
            return None
        uuid = max(asked, key=lambda one: (one.is_open, one.number)).uuid

        async def cancel(plane: Incarnation) -> None:
            asked = RescaleCancellation(uuid, requested_by="bob", reason=mark)
            await plane.plane.cancel_rescale(job_id, asked)
            self._oracles.count("rescale canceled")
            kept = any(one.reason == mark for one in truth.stored.values())
            self._oracles.check(kept, "deadlines", f"{mark} was answered, and its bounds are not back")

        return self._oracles.told.heard(mark, cancel)

    # -- what becomes durable

    def stored(self, job_id: str, truth: JobTruth, wanted: Requirements, *, comes_back: bool) -> None:
        """``wanted`` follows the newest requirements. ``comes_back``: because of a deadline, or somebody canceled."""
        ledger, version, before = self.ledger(job_id), wanted.version, truth.stored[wanted.version - 1]
        numbers, were, had = dict(wanted.state_partitions), dict(before.state_partitions), before.as_dict()
        if (wanted.reason or "").startswith(versions.REASON):
            # Another version of the job takes the state as it is. That is nobody's wish, and nothing to go back to.
            were = numbers
            for since in ledger.waiting.values():
                ledger.partitions[since] = dict.fromkeys(ledger.partitions[since])
        changed = [
            vertex
            for vertex, bounds in wanted
            if vertex in had and (before[vertex] != bounds or were.get(vertex) != numbers.get(vertex))
        ]
        for vertex, _ in wanted:
            if vertex not in had:
                ledger.last.pop(vertex, None)
        if comes_back:
            self._came_back(job_id, ledger, wanted, changed)
        on_timeout = ledger.wishes.get(wanted.reason or "")
        former, partitions = {}, {}
        over = self._due_commits(truth)
        ledger.or_else[version] = {one: before[one] for one in changed if ledger.waiting.get(one) in over}
        for vertex in changed:
            since = ledger.waiting.pop(vertex, None)
            former[vertex] = before[vertex] if since is None else ledger.former[since][vertex]
            partitions[vertex] = were.get(vertex) if since is None else ledger.partitions[since][vertex]
            ledger.last[vertex] = version
            # What goes back to what held has nothing to wait for.
            goes_back = (wanted[vertex], numbers.get(vertex)) == (former[vertex], partitions[vertex])
            if on_timeout is not None and not goes_back:
                ledger.waiting[vertex] = version
        ledger.former[version], ledger.partitions[version] = former, partitions
        if on_timeout is not None:
            ledger.on_timeout[version] = on_timeout

    def _due_commits(self, truth: JobTruth) -> set[int]:
        """The versions whose bounds were to come into force at a deadline that has passed, and waited when the job was
        saved last."""
        waiting = [] if truth.state is None else truth.state.pending
        now_ms = self._oracles.world.wall_ms
        due = [one for one in waiting if one.deadline and one.deadline.at_ms <= now_ms and not one.begun]
        return {one.version for one in due if one.deadline and one.deadline.on_timeout is OnTimeout.COMMIT}

    def _came_back(self, job_id: str, ledger: Ledger, wanted: Requirements, changed: list[str]) -> None:
        what = f"version {wanted.version} of job {job_id[-2:]}"
        since = {ledger.last.get(vertex, 0) for vertex in changed}
        self._oracles.check(len(since) <= 1, "deadlines", f"{what} takes back several versions: {since}")
        state = self._oracles.truth(job_id).state
        for vertex in changed:
            allowed = ledger.former.get(ledger.last.get(vertex, 0), {}).get(vertex)
            some = [allowed, ledger.or_else.get(ledger.last.get(vertex, 0), {}).get(vertex)]
            if allowed is not None and state is not None and vertex in state.graph.by_id:
                # Another version of the job, which has come into force since, may have fewer state partitions.
                most = state.graph.by_id[vertex].max_parallelism
                some.append(Bounds(min(allowed.lower, most), min(allowed.upper, most)))
            self._oracles.check(
                wanted[vertex] in some,
                "deadlines",
                f"{what} has {wanted[vertex]} for {vertex[-4:]}: {allowed} was before",
            )
        if (wanted.reason or "").startswith(ROLLED_BACK):
            self._oracles.count("rolled back")
            asked = {ledger.on_timeout.get(version) for version in since}
            self._oracles.check(
                asked <= {OnTimeout.ROLLBACK}, "deadlines", f"{what} came back, asked for: {asked}"
            )

    def saved(self, job_id: str, before: JobState | None, state: JobState) -> None:
        ledger = self.ledger(job_id)
        if before is None or not ledger.wishes:
            return
        self._nothing_else_completes_them(job_id, state)
        waits = {vertex: one.version for one in state.pending if one.deadline for vertex in one.vertices}
        for vertex, version in list(ledger.waiting.items()):
            if waits.get(vertex) == version:
                continue
            del ledger.waiting[vertex]
            if vertex not in state.graph.by_id:
                # Its query ended long ago.
                continue
            on_timeout = ledger.on_timeout[version]
            self._oracles.count(f"a wait for {on_timeout} is over")
            what = f"job {job_id[-2:]}: {vertex[-4:]} waits no longer for the deadline of version {version}"
            self._oracles.check(
                self._may_end(state, before, vertex, on_timeout, ledger.former[version][vertex]),
                "deadlines",
                f"{what}, and nothing came of it",
            )
        self._nothing_is_begun(job_id, before, state)

    def _nothing_else_completes_them(self, job_id: str, state: JobState) -> None:
        """The record of bounds that still wait is not that of a change that succeeded."""
        records = self._oracles.truth(job_id).records
        for one in state.pending:
            record = records.get(one.record) if one.deadline is not None and not one.begun else None
            if record is None:
                continue
            self._oracles.count(f"bounds wait, and their record is {record.terminal_state or 'open'}")
            self._oracles.check(
                record.terminal_state is not TerminalState.COMPLETED,
                "deadlines",
                f"job {job_id[-2:]}: version {one.version} still waits, and its record is {record}",
            )

    @staticmethod
    def _may_end(
        state: JobState, before: JobState, vertex: str, on_timeout: OnTimeout, former: Bounds
    ) -> bool:
        """Whether a wait may end without that its bounds were replaced: what they ask for is on its way or in force, or
        was tried and taken back, or the job is over. With COMMIT it may always, at its time."""
        if on_timeout is OnTimeout.COMMIT or state.phase.kind in _OVER or state.taken_back is not None:
            return True
        if (state.plan_version, state.num_rescales) > (before.plan_version, before.num_rescales):
            # Of several steps in one commit only the last one is seen.
            return True
        graph, asked = asks_for(state, [])
        own = bounds_now(state.graph, _with(state.requirements, {vertex: former}), None, state.policy)
        least, most = _what_it_needs(state, graph, asked, vertex, own[vertex]) or 0, asked[vertex].upper
        plans = [getattr(state.phase, "target", None), getattr(state.phase, "plan", None), state.last_plan]
        ways = [dict(one if isinstance(one, tuple) else one.parallelism) for one in plans if one is not None]
        return any(least <= one[vertex] <= most for one in ways)

    def _nothing_is_begun(self, job_id: str, before: JobState, state: JobState) -> None:
        """Before all slots are there no plan is made by bounds that wait."""
        ledger, plan = self.ledger(job_id), getattr(state.phase, "target", None)
        if plan is None or isinstance(plan, tuple) or plan.version <= before.plan_version:
            return
        held = self.holding(state)
        if held is None or state.usable_slots < least_slots(state.graph, held):
            # By the former bounds it could not run.
            return
        short = {one.version for one in _short_of_slots(state, state.usable_slots)}
        for vertex, version in ledger.waiting.items():
            of_version = [one for one, since in ledger.waiting.items() if since == version]
            if version not in short and any(_is_redistributed(state, one) for one in of_version):
                # It is brought as far as the partitions allow, and then they are redistributed.
                continue
            limit = max(held[vertex].upper, ledger.former[version][vertex].upper)
            self._oracles.check(
                dict(plan.parallelism)[vertex] <= limit,
                "deadlines",
                f"job {job_id[-2:]}: {vertex[-4:]} waits, at most at {limit}, and is brought to {plan.parallelism}",
            )

    # -- what holds

    def holding(self, state: JobState) -> Holds | None:
        """The bounds that hold while all that may wait for a deadline do, by what the job says of them; None if none
        may."""
        waiting = _waiting(state)
        return bounds_while(state, waiting) if waiting else None

    def least(self, state: JobState, goal: Holds) -> int:
        """The slots that the job cannot do without: those of the new, the former, or the bounds in force will do. The
        last are neither of the others if only some of the changes need no slots."""
        least, held = least_slots(state.graph, goal), self.holding(state)
        if held is None:
            return least
        return min(least, least_slots(state.graph, held), least_slots(state.graph, self.in_force(state)))

    def allowed(self, state: JobState, slots: int, usable: int) -> dict[str, int] | None:
        """The parallelism that so many slots allow, of which so many may be used."""
        return parallelism(state.graph, bounds_while(state, _waiting_now(state, usable)), slots)

    def in_force(self, state: JobState) -> Holds:
        """The bounds that hold now."""
        return bounds_while(state, _waiting_now(state, state.usable_slots))

    def counting(self, state: JobState) -> int:
        """The slots that the bounds need which hold now, with the state partitions that they ask for."""
        return least_slots(*asks_for(state, _waiting_now(state, state.usable_slots)))


def goal_of(state: JobState) -> Holds:
    """What the job goes for: what was declared, within its policy, but for what was taken back."""
    back = None if state.taken_back is None else dict(state.taken_back.good)
    return bounds_now(state.graph, state.requirements, back, state.policy)


def bounds_while(state: JobState, waiting: Sequence[Pending], graph: JobGraph | None = None) -> Holds:
    """What the job goes for while the changes ``waiting`` wait: the bounds before them, and what was taken back then,
    but for the vertices of changes that wait no longer. ``graph``: with other state partitions."""
    kept = [one.taken_back.good for one in waiting if one.taken_back is not None]
    counting = {vertex for one in state.pending if one not in waiting for vertex in one.vertices}
    back = {vertex: count for vertex, count in kept[0] if vertex not in counting} if kept else None
    if state.taken_back is not None:
        back = dict(state.taken_back.good)
    return bounds_now(graph or state.graph, _before(state, waiting), back, state.policy)


def _waiting(state: JobState) -> Sequence[Pending]:
    if state.taken_back is not None:
        return ()
    return [one for one in state.pending if one.deadline is not None]


def _short_of_slots(state: JobState, usable: int) -> list[Pending]:
    """The changes that wait on if so many slots may be used."""
    left = list(_waiting(state))
    for one in _waiting(state):
        if _all_have(state, fewer := [other for other in left if other is not one], usable):
            left = fewer
    return left


def _waiting_now(state: JobState, usable: int) -> list[Pending]:
    """The same, but that a job which can run by the new bounds only does not wait."""
    left = _short_of_slots(state, usable)
    least, former = least_slots(*asks_for(state, [])), least_slots(state.graph, bounds_while(state, left))
    return [] if least <= usable < former else left


def _is_redistributed(state: JobState, vertex: str) -> bool:
    """Whether what is declared of a vertex asks for other partitions of its state than there are."""
    own, upper = state.graph.by_id[vertex], state.requirements[vertex].upper
    number = dict(state.requirements.state_partitions).get(vertex, own.max_parallelism)
    return own.stateful and max(number, upper) != own.max_parallelism


def _with(requirements: Requirements, bounds: Holds) -> Requirements:
    return replace(requirements, bounds=tuple((one, bounds.get(one, own)) for one, own in requirements))


def _before(state: JobState, waiting: Sequence[Pending]) -> Requirements:
    former = {vertex: bounds for one in waiting for vertex, bounds in one.former}
    numbers = [pair for pair in state.requirements.state_partitions if pair[0] not in former]
    numbers += [pair for one in waiting for pair in one.former_partitions]
    return replace(_with(state.requirements, former), state_partitions=tuple(numbers))


def asks_for(state: JobState, waiting: Sequence[Pending]) -> tuple[JobGraph, Holds]:
    """What the job asks for while ``waiting`` wait, with the state partitions that are asked for: for each vertex with
    state at least as many as its upper bound. Not while a redistribution is under way or given up, nor while all wait
    that may."""
    graph, refused = state.graph, state.repartition_refused
    given_up = refused is not None and refused.requirements_uuid == state.requirements.uuid
    all_wait = bool(waiting) and len(waiting) == len(_waiting(state))
    if state.repartition is None and not given_up and not all_wait:
        wanted = _before(state, waiting)
        upper = {one: own.upper for one, own in declared_within(graph, wanted, state.policy).items()}
        number = dict(wanted.state_partitions)
        vertices = [
            replace(one, max_parallelism=max(number.get(one.id, one.max_parallelism), upper[one.id]))
            if one.stateful
            else one
            for one in graph.vertices
        ]
        graph = replace(graph, vertices=tuple(vertices))
    return graph, bounds_while(state, waiting, graph)


def _what_it_needs(state: JobState, graph: JobGraph, asked: Holds, vertex: str, former: Bounds) -> int | None:
    """The least parallelism of a vertex that has what is asked of it: the bound that was raised, the upper one before
    the lower one, as far as the cap allows it. None if neither was."""
    now, cap = asked[vertex], state.share.cap
    raised = [high for high, low in ((now.upper, former.upper), (now.lower, former.lower)) if high > low]
    if not raised:
        return None
    most = most_slots(graph, asked)
    full = parallelism(graph, asked, most if cap is None else min(most, max(cap, least_slots(graph, asked))))
    assert full is not None
    return min(raised[0], full[vertex])


def _all_have(state: JobState, left: Sequence[Pending], usable: int) -> bool:
    """Whether the slots are enough for each change but those of ``left``."""
    graph, asked = asks_for(state, left)
    now, former = parallelism(graph, asked, usable) or {}, bounds_while(state, _waiting(state))
    changed = [vertex for one in _waiting(state) if one not in left for vertex in one.vertices]
    needs = {vertex: _what_it_needs(state, graph, asked, vertex, former[vertex]) for vertex in changed}
    return all(need is None or now.get(vertex, 0) >= need for vertex, need in needs.items())
