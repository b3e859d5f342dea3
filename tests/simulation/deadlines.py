"""Clients that give their bounds a deadline, and cancel rescales, while everything goes wrong; and what must hold then.

A ledger follows the queue of each job by what becomes durable, by docs/rescale.md: each version of the requirements
must be what its client asked for, but for what waits; and whatever else changes must be bounds that have waited and are
applied now, or come back.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, Final

from app.model.job_state.changes import Patch
from app.model.jobgraph import JobGraph, JobType
from app.model.requirements import Bounds, OnTimeout, Requirements
from app.model.rescale import TerminalState, TriggerCause
from app.scheduler.adaptive.state import JobState
from app.worker.requests.requirements import RescaleCancellation
from app.worker.views import GivenDeadline
from tests.simulation.goals import Holds, asks_for, needs_of, with_bounds
from tests.simulation.ledger import Ledger, Waiting
from tests.simulation.rules import bounds_now, least_slots, parallelism

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.plane import Incarnation
    from tests.simulation.truth import JobTruth

ROLLED_BACK: Final = "The deadline of version "
"""What the reason of requirements begins with that came back at a deadline, or of which bounds were dropped then."""

WAITS_AGAIN: Final = "The slots of the bounds of "
"""The same of bounds that were applied, and whose slots went."""

CANCELED: Final = "cancel-"

_OVER = ("Canceling", "Failing", "Finished")
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


class Deadlines:
    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        self._ledgers: dict[str, Ledger] = {}

    def ledger(self, job_id: str) -> Ledger:
        return self._ledgers.setdefault(job_id, Ledger())

    def cancel(self, job_id: str, mark: str, truth: JobTruth) -> Request | None:
        """A request to cancel a rescale that somebody asked for: the one that goes on, or the newest one."""
        asked = [one for one in truth.records.values() if one.cause is TriggerCause.UPDATE_REQUIREMENT]
        if not asked:
            return None
        record = max(asked, key=lambda one: (one.is_open, one.number))
        self.ledger(job_id).canceled[mark] = record.number

        async def cancel(plane: Incarnation) -> None:
            asked = RescaleCancellation(record.uuid, requested_by="bob", reason=mark)
            await plane.plane.cancel_rescale(job_id, asked)
            self._oracles.count("rescale canceled")
            kept = any(one.reason == mark for one in truth.stored.values())
            self._oracles.check(kept, "deadlines", f"{mark} was answered, and its bounds are not back")

        return self._oracles.told.heard(mark, cancel)

    # -- what becomes durable

    def is_first(self, job_id: str, mark: str) -> bool:
        """Whether the requirements with this mark are those of the PUT itself. Those of bounds that have waited have it
        too."""
        return mark not in self.ledger(job_id).known

    def moved(self, job_id: str) -> None:
        """The graph is another one, or bounds were lowered: what waits is cut to it."""
        self.ledger(job_id).is_moved = True

    def stored(
        self, job_id: str, truth: JobTruth, wanted: Requirements, state: JobState, *, alone: bool
    ) -> None:
        """``wanted`` follows the newest requirements, in the commit of ``state``; ``alone``: no others do in that."""
        ledger, mark, before = self.ledger(job_id), wanted.reason or "", truth.stored[wanted.version - 1]
        what = f"version {wanted.version} of job {job_id[-2:]}"
        if ledger.is_moved or not (ledger.wishes or ledger.patches or ledger.canceled):
            self._note_last(ledger, before, wanted)
            ledger.known.add(mark)
            ledger.queued[wanted.version] = ledger.waiting | {
                vertex: own for one in state.queued for vertex, own in one.bounds
            }
            return
        held = before.as_dict()
        changed = {vertex for vertex, own in wanted if own != held[vertex]}
        asked = truth.attempted.get(mark)
        passed_over: Holds = {}
        # What is applied, or put back, is no change that somebody could cancel.
        by_queue: set[str] = set()
        if asked is not None and mark not in ledger.known:
            ledger.known.add(mark)
            new = self._declared(ledger, mark, wanted, before, asked, truth.numbered.get(mark, set()), state)
            passed_over = {
                vertex: held[vertex] for vertex in changed - new if asked.get(vertex) == held[vertex]
            }
            if mark in ledger.wishes:
                by_queue = {one for one in changed & new if wanted[one] != asked[one]}
            changed -= new
            at_once = [
                one for one in ledger.patches if one.version == wanted.version and one.former is not None
            ]
            if at_once and alone and state.phase.kind not in _OVER:
                self._may_begin(truth, at_once[0], wanted, state, what)
        elif mark.startswith(ROLLED_BACK):
            changed -= self._rolled_back(ledger, wanted, what)
        elif mark in ledger.canceled:
            changed -= self._canceled(ledger, mark, wanted, changed)
        by_queue |= changed
        changed -= self._wait_again(ledger, wanted, changed)
        for one in ledger.patches:
            vertices = one.bounds.keys() & changed
            if one.former is None and vertices and one.bounds.items() <= wanted.as_dict().items():
                one.former = {vertex: held[vertex] for vertex in one.bounds}
                changed -= one.bounds.keys()
                self._oracles.count(f"applied, {one.on_timeout}")
                known = next((each for each in state.queued if each.version == one.version), None)
                if asked is None and mark not in ledger.known:
                    # Something else came back in the same step.
                    begun = None if known is None else known.begun
                    one.former = dict(one.bounds if begun is None else begun.former)
                elif alone and one.on_timeout is OnTimeout.ROLLBACK:
                    # At its deadline COMMIT asks for no slots.
                    self._may_begin(truth, one, wanted, state, what)
        by_queue -= changed
        self._check(
            not changed, f"{what} has other bounds for {changed}, which nobody asked for: {ledger.patches}"
        )
        self._note_last(ledger, before, wanted, by_queue)
        ledger.queued[wanted.version] = ledger.waiting | passed_over

    def may_move(self, truth: JobTruth, vertex: str) -> set[Bounds]:
        """The bounds that ``vertex`` may have got besides, in the step in which the graph has changed."""
        found: set[Bounds] = set()
        for one in [] if truth.state is None else self.ledger(truth.state.job_id).patches:
            found |= {each[vertex] for each in (one.bounds, one.former or {}) if vertex in each}
        return found

    def queued(self, job_id: str, wanted: Requirements) -> Holds:
        """What waited behind this version of the requirements."""
        return self.ledger(job_id).queued.get(wanted.version, {})

    def _declared(
        self,
        ledger: Ledger,
        mark: str,
        wanted: Requirements,
        before: Requirements,
        asked: Holds,
        numbered: set[str],
        state: JobState,
    ) -> set[str]:
        """A PUT: the vertices of which it says something new. ``numbered``: as in `JobTruth`."""
        held, now, waiting = before.as_dict(), wanted.as_dict(), ledger.waiting
        numbers, were = dict(wanted.state_partitions), dict(before.state_partitions)
        own = {vertex for one in state.queued if one.version == wanted.version for vertex in one.vertices}
        patched = {vertex for one in ledger.patches for vertex in one.bounds}
        queued = {vertex for one in state.queued for vertex in one.vertices}
        # Of a vertex with the bounds that hold, or wait, the number of its partitions may be what is new.
        new = {
            vertex
            for vertex, bounds in asked.items()
            if bounds not in (held[vertex], waiting.get(vertex))
            or (
                numbers.get(vertex) != were.get(vertex)
                and (vertex not in patched or vertex in numbered - queued)
            )
            or vertex in own
        }
        on_timeout = ledger.wishes.get(mark)
        if on_timeout is not None:
            # What waits takes the place of what was applied and was not in force: that is put back.
            for one in ledger.patches:
                held |= {vertex: own for vertex, own in (one.former or {}).items() if vertex in new}
        ledger.leave_out(new)
        for one in list(ledger.patches):
            # So it may be of what waits for partitions.
            known = next((each for each in state.queued if each.version == one.version), None)
            if one.former is None and known is not None and known.vertices < one.bounds.keys():
                ledger.leave_out(one.bounds.keys() - known.vertices)
        if on_timeout is None or not new:
            return new
        bounds = {vertex: asked[vertex] for vertex in new}
        patch = Waiting(wanted.version, bounds, on_timeout)
        if bounds.items() <= now.items():
            patch.former = {vertex: held[vertex] for vertex in new}
        ledger.patches.append(patch)
        return new

    def _rolled_back(self, ledger: Ledger, wanted: Requirements, what: str) -> set[str]:
        found = re.match(rf"{ROLLED_BACK}(\d+) passed", wanted.reason or "")
        one = next((one for one in ledger.patches if found and one.version == int(found[1])), None)
        self._check(
            one is not None and one.on_timeout is OnTimeout.ROLLBACK,
            f"{what} drops what does not wait: {one}",
        )
        if one is None:
            return set()
        self._oracles.count("rolled back")
        return self._comes_back(ledger, one, wanted, what)

    def _canceled(self, ledger: Ledger, mark: str, wanted: Requirements, changed: set[str]) -> set[str]:
        """What comes back by the cancellation ``mark``, of what has ``changed``."""
        number = ledger.canceled[mark]
        # By one change several patches may have been applied.
        back: set[str] = set()
        for one in [one for one in ledger.patches if number in one.records]:
            back |= self._comes_back(ledger, one, wanted, mark)
        now = {vertex for vertex, own in wanted if own == ledger.last.get(vertex)}
        for one in list(ledger.patches):
            # What is applied may be by chance what was before the last change of its vertices.
            if one.former is not None and one.bounds.keys() <= now and one.bounds.keys() & changed:
                ledger.patches.remove(one)
        return back | now

    def _wait_again(self, ledger: Ledger, wanted: Requirements, changed: set[str]) -> set[str]:
        """The vertices of what was applied and is put back, as its slots have gone."""
        back: set[str] = set()
        for one in ledger.patches:
            if (
                one.former is not None
                and one.former.keys() & changed
                and one.former.items() <= wanted.as_dict().items()
            ):
                back |= one.former.keys()
                one.former = None
                self._oracles.count("waits again")
        return back

    def _comes_back(self, ledger: Ledger, one: Waiting, wanted: Requirements, what: str) -> set[str]:
        ledger.patches.remove(one)
        if one.former is None:
            return set()
        self._check(
            one.former.items() <= wanted.as_dict().items(), f"{what} has {wanted}: {one.former} was before"
        )
        return set(one.former)

    @staticmethod
    def _note_last(
        ledger: Ledger, before: Requirements, wanted: Requirements, by_queue: Collection[str] = ()
    ) -> None:
        held = before.as_dict()
        numbers = {one for one, _ in {*before.state_partitions} ^ {*wanted.state_partitions}}
        for vertex, own in wanted:
            if vertex in held and vertex not in by_queue and (own != held[vertex] or vertex in numbers):
                ledger.last[vertex] = held[vertex]

    def saved(self, job_id: str, before: JobState | None, state: JobState) -> None:
        """The queue of a state that became durable is that of the ledger."""
        ledger = self.ledger(job_id)
        moved, ledger.is_moved = ledger.is_moved, False
        if before is None or not ledger.wishes:
            return
        if state.phase.kind in _OVER:
            ledger.patches = []
        if moved or _is_moved(before.graph, state.graph):
            self._follow(ledger, state)
        queue = {one.version: one for one in state.queued}
        what = f"job {job_id[-2:]}"
        strange = queue.keys() - {one.version for one in ledger.patches}
        self._check(not strange, f"{what} has {strange} in its queue, which does not wait: {ledger.patches}")
        left = []
        for one in ledger.patches:
            known = queue.get(one.version)
            if known is None:
                self._is_gone(what, before, state, one)
                continue
            left.append(one)
            one.records |= {known.record, known.first_record}
            self._check(
                (dict(known.bounds), known.begun is not None) == (one.bounds, one.former is not None),
                f"{what} has {known} in its queue, and not {one}",
            )
            self._is_not_completed(what, job_id, known)
        ledger.patches = left

    @staticmethod
    def _follow(ledger: Ledger, state: JobState) -> None:
        """The graph has changed: what is left of each patch is what the state says."""
        queue = {one.version: one for one in state.queued}
        ledger.patches = [one for one in ledger.patches if one.version in queue]
        # Declared in the same commit, behind the change of the graph.
        known = {one.version for one in ledger.patches}
        ledger.patches += [
            Waiting(one.version, dict(one.bounds), one.deadline.on_timeout)
            for one in state.queued
            if one.version not in known
        ]
        for one in ledger.patches:
            known = queue[one.version]
            one.bounds = dict(known.bounds)
            one.former = None if known.begun is None else dict(known.begun.former)

    def _is_gone(self, what: str, before: JobState, state: JobState, one: Waiting) -> None:
        """What is not in the queue any more holds, and came into force, or was tried and taken back; or its time was
        over."""
        self._oracles.count(f"a wait for {one.on_timeout} is over")
        held = state.requirements.as_dict()
        holds = one.bounds.items() <= held.items()
        self._check(holds, f"{what}: version {one.version} waits no longer, and nothing came of it")
        if one.former is None or one.on_timeout is OnTimeout.COMMIT or state.trial.taken_back is not None:
            return
        if one.former == one.bounds:
            # Others had taken their place, and were not in force: what it asks for is what held before these.
            return
        if (state.plan_version, state.num_rescales) > (before.plan_version, before.num_rescales):
            # Of several steps in one commit only the last one is seen.
            return
        cap = state.share.cap
        before_it = with_bounds(state.requirements, one.former)
        if cap is not None and cap < least_slots(
            state.graph, bounds_now(state.graph, before_it, None, state.policy)
        ):
            # What held before does not come back.
            return
        plans = [one for one in (state.plan, before.plan) if one is not None]
        graph, goal = asks_for(state, state.requirements)
        needs = needs_of(state, graph, goal, asks_for(state, before_it)[1], one.bounds)
        self._check(
            any(
                all(count <= dict(plan.parallelism)[vertex] for vertex, count in needs.items())
                for plan in plans
            ),
            f"{what}: version {one.version} waits no longer, and its plan is not in force",
        )

    def _is_not_completed(self, what: str, job_id: str, one: Patch) -> None:
        """The record of bounds that still wait is not that of a change that succeeded."""
        record = None if one.begun else self._oracles.truth(job_id).records.get(one.record)
        if record is None:
            return
        self._oracles.count(f"bounds wait, and their record is {record.terminal_state or 'open'}")
        self._check(
            record.terminal_state is not TerminalState.COMPLETED or record.end_ms != record.start_ms,
            f"{what}: version {one.version} still waits, and its record is {record}",
        )

    def _may_begin(
        self, truth: JobTruth, one: Waiting, wanted: Requirements, state: JobState, what: str
    ) -> None:
        """Bounds are not applied before their slots are there, unless the job cannot run without them."""
        assert one.former is not None
        former = with_bounds(wanted, one.former)
        for known in (state, truth.state):
            if known is None or known.graph is not state.graph:
                continue
            held = bounds_now(known.graph, former, None, known.policy)
            least, cap = least_slots(known.graph, held), known.share.cap
            if known.usable_slots < least or (cap is not None and cap < least):
                return
            graph, goal = asks_for(known, wanted)
            now = parallelism(graph, goal, known.usable_slots) or {}
            needs = needs_of(known, graph, goal, asks_for(known, former)[1], one.bounds)
            if all(now.get(vertex, 0) >= count for vertex, count in needs.items()):
                return
        self._check(False, f"{what} applies {one}, and its slots are not there: {state.usable_slots}")

    def _check(self, condition: bool, detail: str) -> None:
        self._oracles.check(condition, "deadlines", detail)


def _is_moved(before: JobGraph, after: JobGraph) -> bool:
    """Whether there are other vertices, or it is known now which of them keep state."""
    return [(one.id, one.is_assumed) for one in before.vertices] != [
        (one.id, one.is_assumed) for one in after.vertices
    ]
