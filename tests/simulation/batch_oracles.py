"""What must hold for batch jobs in the simulated world, by what really happened to their regions and results.

* A region never starts before its inputs are complete, never partly, and each of its runs once.
* A region that runs or is finished runs again only if it must: its driver died, it failed, a result that somebody who
  runs again has to read is gone, or what it read is made anew.
* A result is given up, and removed, only when all its readers are finished.
* A job that is FINISHED has run every region to its end, each on the final results of the others.
* A decision is within the bounds of its moment, or below them for want of parts to read, and the job says so.
* Every job ends, and FINISHED unless a client or a driver said otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.model.batch import RegionOrder, RegionStatus, Result
from app.model.jobgraph import Partitioner
from app.model.status import JobStatus
from app.scheduler.adaptive.state import CreatingExecutionGraph, Finished
from tests.simulation.rules import bounds_now, comes_back, declared_within, groups_of, least_slots

if TYPE_CHECKING:
    from app.model.job_state.batch import BatchProgress
    from app.scheduler.adaptive.state import JobState
    from tests.simulation.oracles import Oracles
    from tests.simulation.process import SimAttempt
    from tests.simulation.rules import Layout
    from tests.simulation.world import World


def check_start(attempt: SimAttempt, order: RegionOrder) -> None:
    """A driver starts to run ``order``."""
    world, oracles = attempt.world, attempt.world.oracles
    oracles.count("region")
    state = oracles.truth(attempt.job_id).state
    assert state is not None
    layout, name = world.disk.layout(state), f"run {order.run} of region {order.region}"
    oracles.check(
        (attempt.job_id, order.region, order.run) not in world.disk.started,
        "regions",
        f"{name} of {attempt.job_id[-2:]} starts a second time",
    )
    # Orders may be old when they arrive, so the region may be over by now; but it was started once.
    assert state.batch is not None
    known = state.batch.regions[order.region].run >= order.run
    oracles.check(known, "effects after the commit", f"{name} is not durable")
    oracles.check(
        order.region < len(layout.regions)
        and tuple(order.parallelism) == layout.regions[order.region]
        and {(read.vertex_id, read.producer): read.result.dataset for read in order.reads}
        == layout.edges[order.region],
        "regions",
        f"{name} is not one, or starts partly: {order}; regions: {layout.regions}",
    )
    _check_outputs(layout, order, oracles)
    for read in order.reads:
        producer = layout.producer[read.result.dataset]
        oracles.check(
            (attempt.job_id, producer, read.result.run) in world.disk.ended,
            "regions",
            f"{name} starts before run {read.result.run} of region {producer}, which it reads, has ended",
        )
    # Only the latest decisions are kept; an order may be older than all of them.
    decided = {one.vertex_id: one.parallelism for one in state.batch.decisions if one.run == order.run}
    oracles.check(
        all(decided.get(vertex, count) == count for vertex, count in order.parallelism.items()),
        "promise 5",
        f"{name} runs at {order.parallelism}, decided was {decided}",
    )


def _check_outputs(layout: Layout, order: RegionOrder, oracles: Oracles) -> None:
    """It is to leave what others read, each dataset once, and laid out as they ask for."""
    wanted = [layout.datasets[one] for one in layout.leaves[order.region]]
    told = {one.dataset: (one.producer, one.partitioner, one.keys) for one in order.outputs}
    oracles.check(
        len(told) == len(order.outputs)
        and told == {one.id: (one.producer, one.partitioner, one.keys) for one in wanted},
        "results",
        f"region {order.region} is to leave {told}, and others read {wanted}",
    )


def check_removed(attempt: SimAttempt, path: str) -> None:
    """A driver removes a result."""
    state = attempt.world.oracles.truth(attempt.job_id).state
    if state is None or state.batch is None or isinstance(state.phase, Finished):
        return
    needed = any(one.path == path for one in state.batch.results)
    attempt.world.oracles.check(not needed, "results", f"{path} is removed and may still be read")


def check_progress(world: World, before: JobState | None, after: JobState) -> None:
    """A state of a batch job became durable."""
    if before is None:
        return
    if (
        isinstance(after.phase, CreatingExecutionGraph)
        and after.attempt > before.attempt
        and (after.requirements, after.policy) == (before.requirements, before.policy)
    ):
        least = least_slots(after.graph, bounds_now(after.graph, after.requirements, None, after.policy))
        # Slots may have come in the transaction that made it durable, after the plan was made.
        if comes_back(before, least) or comes_back(after, least):
            least = groups_of(after.graph)
        world.oracles.check(
            after.phase.plan.slot_count >= least,
            "slots",
            f"an attempt starts with {after.phase.plan.slot_count} slots and needs {least}",
        )
    if after.batch is None or after.batch is before.batch:
        return
    regions, rules = len(after.batch.regions), len(world.disk.layout(after).regions)
    if regions != rules:
        world.oracles.check(
            False, "regions", f"job {after.job_id[-2:]} has {regions} regions instead of {rules}"
        )
        return
    _check_inputs(world, after, after.batch)
    _check_decisions(world, before, after, after.batch)
    if before.batch is not None:
        _check_again(world, before, before.batch, after, after.batch)
        _check_given_up(world, before, before.batch, after.batch)


def _check_decisions(world: World, before: JobState, after: JobState, progress: BatchProgress) -> None:
    """By the requirements that are durable, and by what was really written."""
    old = before.batch.decisions if before.batch is not None else ()
    made = [one for one in progress.decisions if one not in old]
    if not made:
        return
    oracles, layout = world.oracles, world.disk.layout(after)
    stored = oracles.truth(after.job_id).stored
    # A state that becomes durable may be several steps later than the one before.
    versions = range(before.requirements.version, after.requirements.version + 1)
    policies = oracles.policies.between(after.job_id, before.policy.version, after.policy.version)
    results = {one.dataset: len(one.bytes_of) for one in progress.results}
    for decision in made:
        name = after.graph.by_id[decision.vertex_id].name
        wanted = [
            declared_within(after.graph, stored[version], policy)[decision.vertex_id]
            for version in versions
            if version in stored
            for policy in policies
        ]
        if any(one.lower <= decision.parallelism <= one.upper for one in wanted):
            continue
        oracles.count("bound out of reach")
        parts = [
            results[one.id]
            for one in layout.datasets.values()
            if decision.vertex_id in one.readers and one.partitioner is Partitioner.HASH
        ]
        oracles.check(
            decision.parallelism == min(parts, default=0),
            "promise 5",
            f"{name} was decided to run at {decision.parallelism}; {wanted} was declared",
        )


def _check_inputs(world: World, state: JobState, progress: BatchProgress) -> None:
    """What runs, or has run, reads what the newest runs of its producers have left."""
    disk, layout = world.disk, world.disk.layout(state)
    there = {one.dataset: one.run for one in progress.results}
    for number, region in enumerate(progress.regions):
        used = disk.started.get((state.job_id, number, region.run), {})
        for dataset in layout.reads[number]:
            made = progress.regions[layout.producer[dataset]]
            if region.status is RegionStatus.RUNNING:
                world.oracles.check(
                    made.status is RegionStatus.FINISHED
                    and there.get(dataset) == made.run
                    and (state.job_id, layout.producer[dataset], made.run) in disk.ended,
                    "regions",
                    f"region {number} runs and its input {dataset} is not complete",
                )
            elif region.status is RegionStatus.FINISHED:
                world.oracles.check(
                    used.get(dataset) == made.run and made.status is RegionStatus.FINISHED,
                    "regions",
                    f"region {number} is finished and has read run {used.get(dataset)} of {dataset}, of which "
                    f"run {made.run} counts",
                )


def _check_again(
    world: World, before: JobState, progress: BatchProgress, after: JobState, now: BatchProgress
) -> None:
    allowed: set[int] | None = None
    for number, was in enumerate(progress.regions):
        region = now.regions[number]
        if was.status is RegionStatus.CREATED or (
            region.run == was.run and region.status is not RegionStatus.CREATED
        ):
            continue
        if was.status is RegionStatus.RUNNING and was.attempt < after.attempt:
            world.oracles.count("region interrupted")
            continue
        if was.status is RegionStatus.FINISHED:
            world.oracles.count("region again")
        if allowed is None:
            allowed = _must_run_again(world, before, progress)
        world.oracles.check(
            number in allowed, "regions", f"region {number}, {was.status.lower()}, is run again for nothing"
        )


def _must_run_again(world: World, state: JobState, progress: BatchProgress) -> set[int]:
    """From the regions that failed: who made what they cannot read, and who reads what is made anew; and so on."""
    disk, layout = world.disk, world.disk.layout(state)
    there = {one.dataset: one for one in progress.results}
    found: set[int] = set()
    to_visit = [
        number
        for number, one in enumerate(progress.regions)
        if one.status is RegionStatus.RUNNING and (state.job_id, number, one.run) in disk.failed
    ]
    while to_visit:
        number = to_visit.pop()
        if number in found:
            continue
        found.add(number)
        to_visit += [
            layout.producer[dataset]
            for dataset in layout.reads[number]
            if _is_gone(world, state, progress, dataset, there.get(dataset))
        ]
        to_visit += [
            reader
            for dataset in layout.leaves[number]
            for reader in layout.readers[dataset]
            if progress.regions[reader].status is not RegionStatus.CREATED
        ]
    return found


def _is_gone(
    world: World, state: JobState, progress: BatchProgress, dataset: str, result: Result | None
) -> bool:
    """Whether a result was lost or given up, or is being given up since all its readers have ended."""
    disk = world.disk
    return (
        result is None
        or result.path in disk.deleted
        or all(
            (state.job_id, reader, progress.regions[reader].run) in disk.ended
            for reader in disk.layout(state).readers[dataset]
        )
    )


def _check_given_up(world: World, before: JobState, progress: BatchProgress, now: BatchProgress) -> None:
    layout = world.disk.layout(before)
    kept = {(one.dataset, one.run) for one in now.results}
    for result in progress.results:
        if (result.dataset, result.run) in kept:
            continue
        producer = layout.producer[result.dataset]
        again = now.regions[producer].status is RegionStatus.CREATED or now.regions[producer].run > result.run
        read = all(
            now.regions[reader].status is RegionStatus.FINISHED for reader in layout.readers[result.dataset]
        )
        world.oracles.check(again or read, "results", f"{result.path} is given up and is still to be read")


def check_end(world: World, state: JobState) -> None:
    """A batch job is over, and the world is at rest."""
    assert isinstance(state.phase, Finished)
    truth, status = world.oracles.truth(state.job_id), state.phase.status
    if status is JobStatus.FINISHED:
        regions = state.batch.regions if state.batch else ()
        unended = [
            number
            for number, one in enumerate(regions)
            if (state.job_id, number, one.run) not in world.disk.ended
        ]
        complete = bool(regions) and all(one.status is RegionStatus.FINISHED for one in regions)
        world.oracles.check(
            complete and not unended, "the end", f"job {state.job_id[-2:]} is FINISHED; open: {unended}"
        )
    else:
        world.oracles.check(
            truth.may_end_otherwise,
            "the end",
            f"job {state.job_id[-2:]} is {status} and nobody asked for it: {state.phase}",
        )
    if not truth.end_counted:
        truth.end_counted = True
        world.oracles.count(f"batch job {status}")
