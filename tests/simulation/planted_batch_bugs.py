"""Defects to plant into the scheduler of batch jobs and into the slots that jobs share; see `planted_bugs`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from app.cluster import slot_pool
from app.cluster.slot_pool import SlotPool
from app.model.batch import RegionStatus
from app.model.batch_layout import layout_of
from app.model.job_state.batch import RegionState
from app.model.plan import Slot
from app.model.requirements import Bounds
from app.model.value import evolve
from app.scheduler import explain
from app.scheduler.adaptive import slot_declaration
from app.scheduler.adaptive.state import JobState
from app.scheduler.arbiter import Allotment, Why
from app.scheduler.batch import executing, orders, scheduling
from app.scheduler.step import TABLE
from app.worker.job import orders as worker_orders
from tests import invariants


@contextlib.contextmanager
def instead(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)


def lost_result_not_made_again() -> contextlib.AbstractContextManager[None]:
    """A region whose input is lost runs again, and the producer of the input does not."""
    original = executing.availability

    def availability(progress: Any, datasets: Any, lost: Any = ()) -> Any:
        return original(progress, datasets)

    return instead(executing, "availability", availability)


def finished_regions_forgotten() -> contextlib.AbstractContextManager[None]:
    """A new driver begins from the start."""
    return instead(executing, "_interrupted", lambda region: RegionState(run=region.run))


def started_on_old_results() -> contextlib.AbstractContextManager[None]:
    """What is made again counts as complete meanwhile."""
    original = executing._reset

    def reset(draft: Any, event: Any) -> None:
        results = draft.state.batch.results
        original(draft, event)
        draft.set(batch=evolve(draft.state.batch, results=results))

    return instead(executing, "_reset", reset)


def started_partly() -> contextlib.AbstractContextManager[None]:
    """The last vertex of a region is left out."""
    original = orders._order

    def order(*args: Any) -> Any:
        made = original(*args)
        kept = list(made.parallelism.items())[:-1]
        return replace(made, parallelism=dict(kept)) if kept else made

    return instead(orders, "_order", order)


def producers_run_again() -> contextlib.AbstractContextManager[None]:
    """A region that fails takes along those that it reads from, whose results are there."""
    original = executing.regions_to_restart

    def regions_to_restart(regions: Any, *args: Any) -> Any:
        found = original(regions, *args)
        producers = [regions.by_vertex[vertex] for region in found for vertex in region.inputs]
        return tuple(sorted({*found, *producers}, key=lambda region: region.number))

    return instead(executing, "regions_to_restart", regions_to_restart)


def readers_not_run_again() -> contextlib.AbstractContextManager[None]:
    """Who has read a result that is made anew keeps what it made of the old one."""
    original = executing.regions_to_restart

    def regions_to_restart(regions: Any, failed: Any, is_available: Any, has_started: Any) -> Any:
        return original(regions, failed, is_available, lambda _region: False)

    return instead(executing, "regions_to_restart", regions_to_restart)


def told_to_run_what_is_finished() -> contextlib.AbstractContextManager[None]:
    """A region that reads nothing stays in the orders when it is finished, for the next driver to run."""
    original = orders.region_orders

    def region_orders(state: Any) -> Any:
        made = original(state)
        if not made:
            return made
        layout, progress = layout_of(state.graph), state.batch
        results = {one.dataset: one for one in progress.results}
        finished = [
            orders._order(state, progress, region, layout, results)
            for region in layout.regions.all
            if not region.inputs and progress.regions[region.number].status is RegionStatus.FINISHED
        ]
        return (*finished, *made)

    return instead(worker_orders, "region_orders", region_orders)


def given_up_after_the_first_reader() -> contextlib.AbstractContextManager[None]:
    """A result is removed as soon as one of its readers is finished."""

    def without_unneeded(draft: Any, progress: Any) -> Any:
        layout = layout_of(draft.state.graph)
        finished = {n for n, one in enumerate(progress.regions) if one.status is RegionStatus.FINISHED}
        read = {
            one.id
            for one in layout.datasets
            if any(layout.regions.by_vertex[reader].number in finished for reader in one.readers)
        }
        return evolve(progress, results=tuple(one for one in progress.results if one.dataset not in read))

    return instead(executing, "_without_unneeded", without_unneeded)


@contextlib.contextmanager
def waits_for_ever() -> Iterator[None]:
    """The end of a region's backoff starts nothing."""
    key = ("Executing", "TimerFired")
    original = TABLE[key]
    TABLE[key] = replace(original, batch=lambda draft, event: draft.disarm(event.name))
    try:
        yield
    finally:
        TABLE[key] = original


def first_bounds_count_for_ever() -> contextlib.AbstractContextManager[None]:
    """What a PUT asks for is kept and shown, and decisions go by the bounds of the submission."""
    original = scheduling.decision_for

    def decision_for(state: Any, vertex: Any, _bounds: Any, *args: Any, **more: Any) -> Any:
        return original(state, vertex, Bounds(vertex.lower_bound, vertex.parallelism), *args, **more)

    return instead(scheduling, "decision_for", decision_for)


@contextlib.contextmanager
def bound_out_of_reach_unsaid() -> Iterator[None]:
    """A vertex runs below its lower bound, and no violation is named. Nor does the core check itself."""
    unchecked = tuple(one for one in invariants._CHECKS if "decisions" not in one.__name__)
    with (
        instead(explain, "batch_violations", lambda _state, _progress: ()),
        instead(invariants, "_CHECKS", unchecked),
    ):
        yield


def slots_dealt_one_by_one() -> contextlib.AbstractContextManager[None]:
    """Each job gets a slot in turn, so that each may hold half of what the others need."""

    def dealt(claims: Any, total: int, **_times: int) -> dict[str, Allotment]:
        allowed = {claim.job_id: claim.held for claim in claims}
        left, before = total - sum(allowed.values()), -1
        while left and left != before:
            before = left
            for claim in claims:
                if left and allowed[claim.job_id] < claim.desired:
                    allowed[claim.job_id] += 1
                    left -= 1
        return {job_id: Allotment(count, count, Why.SHARE) for job_id, count in allowed.items()}

    return instead(slot_pool, "arbitrate", dealt)


def slots_not_given_back() -> contextlib.AbstractContextManager[None]:
    """The slots of a job that is over are lost."""

    def forget(self: Any, job_id: str) -> None:
        self._holders.pop(job_id, None)

    return instead(SlotPool, "forget", forget)


def slots_kept_from_others() -> contextlib.AbstractContextManager[None]:
    """A job that runs gives nothing back, whoever needs it."""
    return instead(JobState, "usable_slots", property(lambda state: len(state.slots)))


def slots_in_use_given_back() -> contextlib.AbstractContextManager[None]:
    """What others are to have goes back while tasks still run in it."""

    def least_needed(state: Any, count: int) -> list[Slot]:
        return list(state.slots[:count])

    return instead(slot_declaration, "_least_needed", least_needed)


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "a lost result is not made again": lost_result_not_made_again,
    "finished regions are run again by the next driver": finished_regions_forgotten,
    "a region starts while what it reads is made again": started_on_old_results,
    "a region starts partly": started_partly,
    "a failed region takes its producers along": producers_run_again,
    "readers of what is made anew are not run again": readers_not_run_again,
    "a driver is told to run what is finished": told_to_run_what_is_finished,
    "a result is given up before its last reader": given_up_after_the_first_reader,
    "a failed region waits for ever": waits_for_ever,
    "decisions go by the bounds of the submission": first_bounds_count_for_ever,
    "a bound that is out of reach is not named": bound_out_of_reach_unsaid,
    "slots are dealt one by one": slots_dealt_one_by_one,
    "slots are not given back": slots_not_given_back,
    "slots are kept from others": slots_kept_from_others,
    "slots in use are given back": slots_in_use_given_back,
}
