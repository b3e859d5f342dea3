"""Redistribution of state: other numbers of state partitions than a job was submitted with.

It is done by the driver of an attempt, before a query is started and on a copy of its checkpoint, so the attempt before
is dead by then, and a failure leaves the state as it was. Here is decided when one begins, and what becomes of it:

* It begins with an attempt. Its numbers are durable before that is started, and stay the same for every attempt until
  the driver says that the state has them: numbers that are asked for meanwhile have to wait. An attempt of a program
  runs before that: it is done with each query that the program starts.
* It is given up if the driver says that it cannot be done, if it takes too long, or if `MAX_TRIES` attempts came to
  nothing. The job then goes on with the partitions that it had.
* What a driver finds in the checkpoint is the truth, whatever was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.model.analysis import queries
from app.model.job_state.partitions import Repartition, RepartitionRefused
from app.model.jobgraph import JobGraph
from app.model.plan import Plan
from app.model.rescale import TerminatedReason, TriggerCause
from app.model.state_partitions import (
    Numbers,
    change_in_words,
    graph_of_checkpoint,
    is_redistributed,
    numbers_of,
    partitions_of_queries,
    with_partitions,
)
from app.model.value import evolve
from app.scheduler.adaptive import timeline
from app.scheduler.adaptive.blame import capped_by_partitions
from app.scheduler.adaptive.draft import Draft, change_plans
from app.scheduler.adaptive.events import StateRepartitioned
from app.scheduler.adaptive.goal import goal_of
from app.scheduler.adaptive.program_queries import idle_keys
from app.scheduler.adaptive.state import JobState

MAX_TRIES: Final = 3
"""Attempts for one redistribution. Whatever kills a driver three times in it would do so for ever."""


def adopt_free(draft: Draft) -> None:
    """Take over numbers that need no redistribution: nothing ever ran, or no query has another number by them.

    Not those below what runs: they are taken over by the next attempt.
    """
    state, goal = draft.state, goal_of(draft).whole.graph
    if goal is state.graph or not all(allows(goal, plan) for plan in state.plans):
        return
    # What is only assumed to keep state may hide that the state of a query changes.
    is_known = not any(vertex.is_assumed for vertex in state.graph.vertices)
    if state.attempt == 0 or (is_known and not is_redistributed(state.graph, goal)):
        _adopt(draft, goal)


def begin(draft: Draft) -> None:
    """An attempt is about to be made: it is to redistribute the state, if that is asked for and was not begun. It knows
    nothing of queries that have left the graph, so nothing is left to them any more."""
    state = draft.state
    begun = state.partitions.repartition
    if begun is not None and begun.late:
        draft.set_part(
            "partitions", repartition=_left_to((key for key in begun.late if key in state.graph.by_id), begun)
        )
    goal = state.goal_graph
    if goal is state.graph:
        return
    before, after = numbers_of(state.graph), numbers_of(goal)
    _adopt(draft, goal)
    draft.set_part("partitions", repartition=Repartition(before, after, draft.now_ms), refused=None)


def leave_to_queries(draft: Draft) -> None:
    """The attempt is a program, which has begun: it is redistributed with each query that it starts."""
    begun = draft.state.partitions.repartition
    if begun is not None:
        draft.set_part("partitions", repartition=_left_to(_concerned(draft.state.graph, begun), begun))


def take_partitions_found(draft: Draft, partitions: Numbers) -> bool:
    """The driver tells what the checkpoints have. Whether it is what the graph says.

    A program may start some queries only later: then the redistribution is done when it is told of those as well.
    """
    state = draft.state
    begun = state.partitions.repartition
    numbers = dict(partitions)
    expected = partitions_of_queries(state.graph)
    as_told = all(numbers.get(key, number) == number for key, number in expected.items())
    left: Repartition | None = None
    if not as_told:
        _adopt(draft, graph_of_checkpoint(state.graph, numbers))
        timeline.note(draft, "The state was found with other partitions than expected, which count now.")
    elif begun is not None:
        left = _left_to((key for key in _concerned(state.graph, begun) if key not in numbers), begun)
        open_ = () if left is None else _open(state, left)
        done = [one for one in _open(state, begun) if one not in open_]
        if words := change_in_words(state.graph, done, dict(begun.after)):
            took_ms = max(0, draft.now_ms - begun.since_ms)
            timeline.note(draft, f"Redistributed {words} ({took_ms} ms after it was begun).")
    draft.set_part("partitions", repartition=left)
    return as_told


def take_partitions_found_late(draft: Draft, event: StateRepartitioned) -> None:
    """The same of queries that the program has started when the job ran already, or was being stopped.

    State with fewer partitions than its vertex has tasks by the plan has no more tasks than partitions: the plans say
    so from now on.
    """
    if not take_partitions_found(draft, event.partitions):
        lower_plans(draft)


def pass_over_stateless(draft: Draft) -> None:
    """Spark has said which vertices keep state: of others there is nothing to redistribute."""
    begun, graph = draft.state.partitions.repartition, draft.state.graph
    if begun is None:
        return
    before, after = (
        tuple(one for one in numbers if one[0] in graph.by_id and graph.by_id[one[0]].stateful)
        for numbers in (begun.before, begun.after)
    )
    left = evolve(begun, before=before, after=after)
    draft.set_part("partitions", repartition=left if any(_concerned(graph, left)) else None)


def is_left_to_idle(state: JobState) -> bool:
    """Whether only queries that do not run, or have left the graph, have not been redistributed yet."""
    begun = state.partitions.repartition
    if begun is None or not begun.late:
        return False
    idle, known = idle_keys(state), state.graph.by_id
    return all(key in idle or key not in known for key in begun.late)


def pass_over_idle(draft: Draft) -> None:
    """What is left to queries that do not run holds up nothing else: their state has the partitions that it had."""
    state = draft.state
    begun = state.partitions.repartition
    if begun is None or not is_left_to_idle(state):
        return
    _adopt(draft, with_partitions(state.graph, _open(state, begun)))
    draft.set_part("partitions", repartition=None)
    lower_plans(draft)


def make_way(draft: Draft) -> None:
    """The same if other numbers than now are asked for of queries that run."""
    state = draft.state
    if not is_left_to_idle(state):
        return
    idle, asked = idle_keys(state), partitions_of_queries(state.with_wanted_partitions())
    now = partitions_of_queries(state.graph)
    if any(asked[key] != number for key, number in now.items() if key not in idle):
        pass_over_idle(draft)


def give_up(draft: Draft, error: str) -> None:
    """The state keeps the partitions that it has. The record of the rescale ends; the restart has one of its own.

    If an attempt ran already, the record is that of its failure, and goes on.
    """
    state = draft.state
    begun = state.partitions.repartition
    if begun is None:
        return
    sentence = (
        f"It was not possible to redistribute {_words(state, begun)}, so the state stays as it is: {error}"
    )
    _adopt(draft, with_partitions(state.graph, _open(state, begun)))
    refused = RepartitionRefused(state.requirements.uuid, sentence)
    draft.set_part("partitions", repartition=None, refused=refused)
    if begun.late:
        timeline.note(draft, sentence)
    else:
        timeline.close_record(draft, TerminatedReason.EXCEPTION_OCCURRED, message=sentence, exception=error)
        timeline.open_record(draft, TriggerCause.RECOVERABLE_FAILOVER, message=sentence)


def failed_try(draft: Draft, error: str, *, final: bool) -> None:
    """An attempt that was to redistribute the state did not start, or ended before all of it was done. ``final``: no
    other is of use."""
    begun = draft.state.partitions.repartition
    if begun is None:
        return
    failed = begun.failed + 1
    if final or failed >= MAX_TRIES:
        give_up(draft, error if final else f"{failed} attempts at it failed, the last one so: {error}")
    else:
        draft.set_part("partitions", repartition=evolve(begun, failed=failed))


def in_words(state: JobState) -> str | None:
    """What is being redistributed, None if nothing is."""
    return None if state.partitions.repartition is None else _words(state, state.partitions.repartition)


def to_come_in_words(state: JobState) -> str | None:
    """What is to be redistributed and was not begun, None if nothing is."""
    goal = state.goal_graph
    if goal is state.graph:
        return None
    return change_in_words(state.graph, numbers_of(state.graph), dict(numbers_of(goal)))


def _words(state: JobState, begun: Repartition) -> str:
    return change_in_words(state.graph, _open(state, begun), dict(begun.after))


def _left_to(keys: Iterable[str], begun: Repartition) -> Repartition | None:
    """What is left of it for the queries of ``keys``."""
    late = tuple(keys)
    return evolve(begun, late=late) if late else None


def _concerned(graph: JobGraph, begun: Repartition) -> Iterable[str]:
    """The keys of the queries for which it is not done."""
    if begun.late:
        return begun.late
    before = partitions_of_queries(with_partitions(graph, begun.before))
    return [key for key, number in partitions_of_queries(graph).items() if before[key] != number]


def _open(state: JobState, begun: Repartition) -> Numbers:
    """What of `Repartition.before` counts as long as it is not done."""
    if not begun.late:
        return begun.before
    late = {
        vertex.id for query in queries(state.graph) if query.key in begun.late for vertex in query.stateful
    }
    return tuple(one for one in begun.before if one[0] in late)


def lower_plans(draft: Draft) -> None:
    change_plans(draft, lambda parallelism, _: capped_by_partitions(draft.state.graph, parallelism))


def allows(graph: JobGraph, plan: Plan) -> bool:
    """Whether the state has as many partitions as each vertex has tasks by ``plan``."""
    most = {vertex.id: vertex.max_parallelism for vertex in graph.vertices}
    return all(count <= most[vertex] for vertex, count in plan.parallelism)


def _adopt(draft: Draft, graph: JobGraph) -> None:
    draft.set(graph=graph)
    draft.set_part("partitions", numbers=numbers_of(graph))
