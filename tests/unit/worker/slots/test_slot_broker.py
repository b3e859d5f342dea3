"""The broker of a control plane that shares its slots with nobody: what it knows of jobs that it takes up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.cluster.ports import Offer
from app.cluster.slot_pool import SlotPool
from app.model import ids
from app.scheduler.adaptive.events import SlotsChanged
from app.scheduler.adaptive.state import JobState
from app.store.errors import StoreUnavailable
from app.worker.slots.broker import OwnBroker
from app.worker.views import RequirementsUpdate
from tests.parts import with_part
from tests.unit.scheduler.driving import Job, slots
from tests.unit.worker.fakes import FakeClock, rig_on

RICH, POOR = ids.derive_id("job", "rich"), ids.derive_id("job", "poor")


@pytest.fixture
def pool() -> SlotPool:
    return SlotPool({"tm": 4}, holding_ms=1_000)


@pytest.fixture
def broker(pool: SlotPool) -> OwnBroker:
    return OwnBroker(pool, FakeClock(), lambda _: None)


def rich(changed_ms: int = 0, allowed: int | None = None) -> JobState:
    """It runs in three of four slots, which it has had since ``changed_ms``."""
    state = Job(upper=4).run(held=3).state
    return with_part(replace(state, job_id=RICH), "supply", changed_ms=changed_ms, allowed=allowed)


def poor() -> JobState:
    """It runs in the fourth, and would have more."""
    state = Job(upper=4).run(held=1).do(SlotsChanged(slots(1, first=3))).state
    return replace(state, job_id=POOR, slots=slots(1, first=3))


@pytest.mark.parametrize(("changed_ms", "allowed"), [(500, None), (0, 2)])
def test_a_job_that_is_taken_up_has_held_its_slots_since_it_got_them(
    pool: SlotPool, broker: OwnBroker, changed_ms: int, allowed: int | None
) -> None:
    broker.restore(rich(changed_ms))
    broker.restore(poor())
    pool.review(1_200)
    assert broker.granted(RICH).allowed == allowed


def test_a_job_that_is_to_give_slots_back_hears_so_before_anybody_has_looked_at_all_claims(
    broker: OwnBroker,
) -> None:
    state = rich(allowed=2)
    broker.restore(state)
    assert broker.granted(RICH).allowed == 2 and not broker.grants_differ(state)
    assert broker.grants_differ(with_part(state, "supply", allowed=None)), "the number alone is news"


def test_a_job_that_can_be_read_again_has_the_slots_of_its_state_and_no_others(
    pool: SlotPool, broker: OwnBroker
) -> None:
    broker.keep(RICH, slots(4))
    assert pool.free == 0
    broker.restore(rich())
    assert broker.granted(RICH).slots == slots(3) and pool.free == 1


async def test_a_slot_that_was_given_and_lost_before_either_was_written_is_given_again(
    sqlite_url: str, tmp_path: Path
) -> None:
    """Nothing is written of it: what was given is lost again when the store is back."""
    async with rig_on(sqlite_url, tmp_path) as rig:
        few, more = Offer((("host", 1),)), Offer((("host", 1), ("other", 1)))
        rig.plane.take_offer(few)
        job = await rig.run()
        await rig.plane.update_requirements(
            job, RequirementsUpdate({name: (1, 4) for name in ("events", "counts", "store")})
        )
        broker, worker = rig.plane._keeper.broker, rig.plane._keeper.jobs[job].worker
        rig.fail_commits(StoreUnavailable("The disk is full."))
        for offer, held in ((more, 2), (few, 1)):
            rig.plane.take_offer(offer)
            await rig.until(lambda held=held: len(broker.granted(job).slots) == held, "the pool knows it")
        rig.fail_commits(None)
        await worker.settle()
        assert len(rig.plane.job(job).state.slots) == 1
        rig.plane.take_offer(more)
        assert broker.pool.total == 2, "nothing is kept back for a job that has given it up"
        await rig.until(lambda: len(rig.plane.job(job).state.slots) == 2, "the job has it")
