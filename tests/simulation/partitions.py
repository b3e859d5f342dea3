"""What a driver of the simulated world does about state partitions, modelled after `app.driver.repartition`: on copies,
which take the places of the checkpoints one after another; and what must hold of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from app.model.graphdoc import read_graph
from app.model.jobgraph import JobGraph
from app.scheduler.adaptive.state import CreatingExecutionGraph, Finished, JobState
from tests.simulation.growing import Program
from tests.simulation.growth_graph import flows_of
from tests.simulation.jobs import STATEFUL
from tests.simulation.programs import ProgramQuery
from tests.simulation.rules import partitions

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.process import SimAttempt, SimProcess


@dataclass(slots=True)
class Checkpoint:
    """The checkpoint of a job. ``owner``: what owner.json says. ``writers``: processes that may write it now.
    ``partitions``: of the state of each query that has any. ``late``: what those have to get that are started
    later. ``untold``: the queries that were redistributed by a driver which has not told it yet, and may be dead."""

    job_id: str
    owner: tuple[int, int, SimProcess] | None = None
    writers: dict[SimProcess, None] = field(default_factory=dict)
    batches: int = 0
    side_batches: int = 0
    partitions: dict[str, int] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    untold: set[str] = field(default_factory=set)


async def give_partitions(attempt: SimAttempt) -> str | None:
    """Redistribute the state if that is ordered, and report what there is. Why it was not possible, if so.

    In some worlds without some queries, or without any: they are started late. So are all those of a program.
    """
    checkpoint = attempt.checkpoint
    graph = _analysed(read_graph(attempt.spec["graph"]))
    if graph.program is None:
        stateful = {vertex.id: vertex.max_parallelism for vertex in graph.vertices if vertex.stateful}
        attempt.report("analysed", stateful=stateful)
    wanted = partitions(graph)
    for key, number in wanted.items():
        # A query that never ran has as many as it is started with.
        checkpoint.partitions.setdefault(key, number)
    first = list(wanted)[: attempt.world.seed % 2 if attempt.world.seed % 3 == 2 else None]
    if graph.program is not None:
        first = []
    checkpoint.late = {key: number for key, number in wanted.items() if key not in first}
    return await _give(attempt, {key: wanted[key] for key in first})


def _analysed(graph: JobGraph) -> JobGraph:
    """What Spark says of ``graph``."""
    vertices = [
        replace(one, stateful=one.name in STATEFUL) if one.is_assumed else one for one in graph.vertices
    ]
    return replace(graph, vertices=tuple(vertices))


async def give_first(attempt: SimAttempt, queries: Sequence[ProgramQuery]) -> str | None:
    """The same of the queries that a program starts first."""
    late = attempt.checkpoint.late
    wanted = {query.key: late[query.key] for query in queries if query.key in late}
    attempt.checkpoint.late = {key: number for key, number in late.items() if key not in wanted}
    return await _give(attempt, wanted)


async def give_late(attempt: SimAttempt) -> str | None:
    """The same of the queries that are started late, some time later."""
    side = attempt.side
    late, wanted = attempt.checkpoint.late, attempt.checkpoint.late
    if isinstance(side, Program):
        # A program says when, if it starts them at all.
        wanted = {query.key: late[query.key] for query in side.waiting}
    if not wanted or attempt.world.rng.random() < 0.7:
        return None
    attempt.checkpoint.late = {key: number for key, number in late.items() if key not in wanted}
    attempt.world.oracles.count("late query")
    refused = await _give(attempt, wanted)
    if isinstance(side, Program) and not refused:
        side.start_waiting(wanted)
    return refused


async def _give(attempt: SimAttempt, wanted: dict[str, int]) -> str | None:
    world, rng, checkpoint = attempt.world, attempt.world.rng, attempt.checkpoint
    found = {key: checkpoint.partitions[key] for key in wanted}
    if attempt.spec["repartition"] and found != wanted:
        check_order(attempt, wanted)
        world.oracles.count("redistribution begun")
        begun_s = world.now_s
        try:
            await asyncio.sleep(rng.uniform(0.1, 6.0) if rng.random() < 0.9 else rng.uniform(10, 100))
        finally:  # also if it took too long, and the driver was killed
            world.oracles.trials.redistributed(attempt.job_id, world.now_s - begun_s)
        if world.chance(0.15):
            world.oracles.count("redistribution refused")
            return "Spark could not redistribute the state."
        if world.chance(0.2):
            world.tell(f"{attempt}: dies while it redistributes the state")
            attempt.process.kill_python()
            await asyncio.sleep(60)
        check_writer(attempt)
        for key, number in wanted.items():
            # Another driver that died here has left it half done.
            checkpoint.partitions[key] = number
            checkpoint.untold.add(key)
            await asyncio.sleep(rng.uniform(0, 0.5))
        world.oracles.count("redistribution done")
        if world.chance(0.1):
            attempt.process.kill_python()
            await asyncio.sleep(60)
        found = dict(wanted)
    # A program that has started none of them says nothing.
    is_said = attempt.spec["repartition"] and (wanted or "script" not in attempt.spec["graph"])
    if is_said or found != wanted:
        attempt.report("repartitioned", state_partitions=found)
    else:
        checkpoint.untold.difference_update(found)
    return None


def check_order(attempt: SimAttempt, wanted: dict[str, int]) -> None:
    """A number that was begun is seen through before another one is, unless it was given up."""
    oracles = attempt.world.oracles
    state = oracles.truth(attempt.job_id).state
    assert state is not None
    begun = state.partitions.repartition
    if state.attempt == attempt.number and isinstance(state.phase, CreatingExecutionGraph):
        oracles.check(
            begun is not None and wanted.items() <= partitions(_analysed(state.graph)).items(),
            "redistribution",
            f"{attempt} redistributes to {wanted}, and that is not durable: {begun}",
        )


def check_writer(attempt: SimAttempt) -> None:
    """Nobody else may write the checkpoint when another one takes its place."""
    writers = list(attempt.checkpoint.writers)
    attempt.world.oracles.check(
        writers == [attempt.process], "promise 2", f"{attempt} replaces the checkpoint; writers: {writers}"
    )


def check_redistribution(oracles: Oracles, job_id: str, before: JobState | None, state: JobState) -> None:
    """What is being redistributed stays the same until it is done or given up; a job that runs knows its state."""
    truth = oracles.truth(job_id)
    begun, now = truth.repartition, state.partitions.repartition
    checkpoint = oracles.world.checkpoints.get(job_id)
    found = known_partitions(checkpoint, state) if checkpoint is not None else {}
    if begun is not None and now is not None:
        # What turns out to have no state is left out.
        gone = {one.id for one in state.graph.vertices if not one.stateful}
        same = all(
            [one for one in was if one[0] not in gone] == list(is_now)
            for was, is_now in ((begun.before, now.before), (begun.after, now.after))
        )
        # Of several steps in one commit only the last one is seen: the next attempt may have begun another one.
        is_done = now.before == begun.after and found == partitions(_with(state.graph, dict(begun.after)))
        oracles.check(same or is_done, "redistribution", f"{begun} became {now} before it was done")
    # A version that is taken back takes what was given up with it: whoever starts next tells what the state has.
    taken_back = before is not None and before.versions.current != state.versions.current
    given_up = state.partitions.refused is not None or taken_back
    if begun is not None and now is None and not given_up:
        expected = partitions(state.graph)
        oracles.check(
            isinstance(state.phase, Finished) or found == expected,
            "redistribution",
            f"{begun} of {job_id[-2:]} counts as done; the state has {found}, the job thinks {expected}",
        )
    if now is not None and (before is None or before.attempt != state.attempt):
        oracles.check(
            state.graph.by_id.keys() >= set(now.late),
            "redistribution",
            f"attempt {state.attempt} of {job_id[-2:]} begins, and {now} is left to queries that have left the graph",
        )
    truth.repartition = now


def known_partitions(checkpoint: Checkpoint, state: JobState) -> dict[str, int]:
    """What there is of the state of each query that the job knows: a program may have started others, or not have
    started one whose state is to be redistributed, or was without anybody being told."""
    unknown = set(state.partitions.repartition.late if state.partitions.repartition is not None else ())
    if state.graph.program is not None:
        unknown |= checkpoint.untold.difference(state.driver.started)
    asked = partitions(state.graph)
    found = {
        key: number for key, number in checkpoint.partitions.items() if key in asked and key not in unknown
    }
    return {**{key: asked[key] for key in unknown if key in asked}, **found}


def without_late(state: JobState) -> JobGraph:
    """The graph of the job, if what is left to queries that have not been started is passed over for a new version."""
    begun, graph = state.partitions.repartition, state.graph
    if begun is None:
        return graph
    late = {vertex for key, flow in flows_of(graph).items() if key in begun.late for vertex, _ in flow}
    return _with(graph, {vertex: number for vertex, number in begun.before if vertex in late})


def _with(graph: JobGraph, numbers: dict[str, int]) -> JobGraph:
    """``graph`` with these numbers of state partitions."""
    vertices = [
        replace(one, max_parallelism=numbers.get(one.id, one.max_parallelism)) for one in graph.vertices
    ]
    return replace(graph, vertices=tuple(vertices))
