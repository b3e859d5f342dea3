"""Committing units of work: what is written, in what order, and who hears of a failure."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.model.plan import Rung
from app.model.rescale import TerminatedReason
from app.model.status import AttemptEnding, AttemptState, JobStatus
from app.plugins.livy.numbers import ADD_NUMBER, page_of_numbers
from app.store import statements
from app.store.errors import (
    ConstraintViolated,
    JobExists,
    KeyUsed,
    LeaseLost,
    StateConflict,
    StoreError,
    StoreUnavailable,
)
from app.store.store import Store
from app.store.writes import (
    AcknowledgeReports,
    AddArtifact,
    AddIdempotencyKey,
    AddRequirements,
    AddSubmissionKey,
    DescribeDriver,
    PutAttempt,
    PutRescale,
    SaveState,
    UnitOfWork,
)
from tests import stored
from tests.unit.store import samples
from tests.unit.store.conftest import Opener

pytestmark = pytest.mark.asyncio

JOB = samples.job_id(1)


@asynccontextmanager
async def writer_held(store: Store) -> AsyncIterator[None]:
    """Within it the writer is busy, so that whatever is committed meanwhile is queued and becomes one group."""
    busy, release = threading.Event(), threading.Event()

    def hold(_connection: Any) -> None:
        busy.set()
        assert release.wait(30)

    holding = asyncio.create_task(store.write(hold))
    await asyncio.to_thread(busy.wait, 30)
    try:
        yield
    finally:
        release.set()
        await holding


async def commit_together(store: Store, *units: UnitOfWork) -> list[BaseException | None]:
    """The outcome of each unit when all wait for the writer at the same time."""
    async with writer_held(store):
        tasks = [asyncio.create_task(store.commit(unit)) for unit in units]
        while store._writer._queue.qsize() < len(units):
            await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_everything_of_a_unit_is_found_by_another_store(open_store: Opener) -> None:
    first = await open_store("owner-1")
    await first.commit(samples.creation())
    unit = samples.put(JOB, 2).add(
        PutAttempt(samples.attempt()),
        AddArtifact("code.py", b"\x00\xff"),
        AddIdempotencyKey("key", "hash", 2, True, samples.NOW_MS),
    )
    await first.commit(unit)
    await first.close()

    second = await open_store("owner-2")
    (found,) = await second.load_live_jobs()
    assert found == await second.load_job(JOB)
    assert found.state(samples.GRAPH) == samples.state(JOB, version=2)
    assert found.options() == samples.OPTIONS
    assert (found.seq, found.document, found.summary.status) == (2, '{"name": "sample"}', JobStatus.RUNNING)
    assert found.attempt == samples.attempt()
    assert found.lease is not None and (found.lease.owner, found.lease.epoch) == ("owner-1", 1)
    assert await stored.requirements(second, JOB) == [
        samples.requirements(JOB, 2),
        samples.requirements(JOB, 1),
    ]
    assert await second.rescales(JOB) == [
        samples.record(JOB, 2),
        samples.record(JOB, 1, reason=TerminatedReason.RESOURCE_REQUIREMENTS_UPDATED),
    ]
    assert await second.artifacts(JOB) == {"code.py": b"\x00\xff"}
    assert await second.answer(JOB, "key") == ("hash", 2, True)
    assert await second.answer(JOB, "another key") is None


async def test_units_that_wait_together_share_one_transaction(store: Store) -> None:
    for number in range(1, 21):
        await store.commit(samples.creation(number))
    before = store._writer.groups
    outcomes = await commit_together(store, *(samples.put(samples.job_id(n), 2) for n in range(1, 21)))
    assert outcomes == [None] * 20
    assert store._writer.groups == before + 1
    assert [job.seq for job in await store.load_live_jobs()] == [2] * 20


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (samples.put(samples.job_id(9), 2, epoch=7), LeaseLost),
        (samples.put(samples.job_id(99), 2), LeaseLost),
        (samples.put(samples.job_id(9), 5), StateConflict),
        (
            UnitOfWork(samples.job_id(9), 1).add(PutRescale(samples.record(samples.job_id(9), 2))),
            ConstraintViolated,
        ),
        (samples.creation(9), JobExists),
    ],
    ids=[
        "other epoch",
        "unknown job",
        "state skipped",
        "second open record",
        "job exists",
    ],
)
async def test_a_bad_unit_fails_alone(
    store: Store, bad: UnitOfWork, error: type[Exception], place: int
) -> None:
    for number in (1, 2, 3, 4, 9):
        await store.commit(samples.creation(number))
    units = [samples.put(samples.job_id(number), 2) for number in (1, 2, 3, 4)]
    units.insert(place, bad)
    outcomes = await commit_together(store, *units)
    assert isinstance(outcomes.pop(place), error)
    assert outcomes == [None] * 4
    assert [job.seq for job in await store.load_live_jobs()] == [2, 2, 2, 2, 1]


async def test_a_refused_unit_leaves_nothing_behind(store: Store) -> None:
    await store.commit(samples.creation())
    before = await store.load_job(JOB)
    unit = UnitOfWork(JOB, 1).add(
        SaveState(2, samples.state(JOB, version=2), JobStatus.RUNNING),
        AddRequirements(samples.requirements(JOB, 2), 0),
        PutRescale(samples.record(JOB, 2)),
    )
    with pytest.raises(ConstraintViolated):
        await store.commit(unit)
    assert await store.load_job(JOB) == before
    assert len(await stored.requirements(store, JOB)) == 1


async def test_units_of_one_job_are_written_in_order_and_the_last_state_stays(store: Store) -> None:
    await store.commit(samples.creation())
    before = store._writer.groups
    outcomes = await commit_together(store, *(samples.put(JOB, seq) for seq in range(2, 12)))
    assert outcomes == [None] * 10
    assert store._writer.groups == before + 1
    found = await store.load_job(JOB)
    assert found is not None and found.seq == 11
    assert found.state(samples.GRAPH) == samples.state(JOB, version=11)
    assert [record.number for record in await store.rescales(JOB)] == list(range(11, 0, -1))
    assert [record.is_open for record in await store.rescales(JOB)] == [True] + [False] * 10
    assert len(await stored.requirements(store, JOB)) == 11


async def test_a_job_may_be_created_and_go_on_in_the_same_group(store: Store) -> None:
    outcomes = await commit_together(store, samples.creation(), samples.put(JOB, 2), samples.finish(JOB, 3))
    assert outcomes == [None] * 3
    found = await store.load_job(JOB)
    assert found is not None and found.summary.status is JobStatus.FINISHED


async def test_what_builds_upon_a_refused_unit_is_refused_too(store: Store) -> None:
    await store.commit(samples.creation())
    await store.commit(UnitOfWork(JOB, 1).add(AddIdempotencyKey("key", "hash", 1, True, 0)))
    refused = samples.put(JOB, 2).add(AddIdempotencyKey("key", "hash", 2, True, 0))
    outcomes = await commit_together(store, refused, samples.put(JOB, 3))
    assert [type(outcome) for outcome in outcomes] == [ConstraintViolated, StateConflict]
    found = await store.load_job(JOB)
    assert found is not None and found.seq == 1


async def test_a_unit_that_is_committed_again_is_applied_once(store: Store) -> None:
    created, changed = samples.creation().add(ADD_NUMBER), samples.put(JOB, 2)
    for unit in (created, created, changed, changed):
        await store.commit(unit)
    assert await store.read(page_of_numbers, 0, 9) == (1, {JOB: 1})
    found = await store.load_job(JOB)
    assert found is not None and found.seq == 2
    assert len(await store.rescales(JOB)) == 2


async def test_one_of_the_submissions_with_a_key_is_stored(store: Store) -> None:
    first = samples.creation().add(AddSubmissionKey("me", "key", "document", "files"))
    second = samples.creation(2).add(AddSubmissionKey("me", "key", "other", "files"))
    of_another = samples.creation(3).add(AddSubmissionKey("you", "key", "other", "files"))
    outcomes = await commit_together(store, first, second, of_another)
    assert [type(outcome) for outcome in outcomes] == [type(None), KeyUsed, type(None)]
    # One that is in doubt is committed again, and is its own.
    await store.commit(first)
    with pytest.raises(KeyUsed):
        await store.commit(second)
    assert await store.load_job(samples.job_id(2)) is None
    assert await store.submission("me", "key") == (JOB, "document", "files")
    assert await store.submission("you", "other") is None


async def test_another_unit_with_the_same_state_number_is_refused(store: Store) -> None:
    await store.commit(samples.creation())
    await store.commit(samples.put(JOB, 2))
    with pytest.raises(StateConflict, match=f"State 2 of job {JOB} .*holds state 2, and state 1 is expected"):
        await store.commit(samples.put(JOB, 2))


async def test_a_job_that_exists_is_not_created_again(store: Store) -> None:
    await store.commit(samples.creation())
    with pytest.raises(JobExists, match=JOB):
        await store.commit(samples.creation())


async def test_a_record_that_ended_is_never_changed(store: Store) -> None:
    await store.commit(samples.creation())
    ended = samples.record(JOB, 1, reason=TerminatedReason.SUCCEEDED)
    await store.commit(UnitOfWork(JOB, 1).add(PutRescale(ended)))
    for other in (
        samples.record(JOB, 1),
        replace(ended, output_gap_ms=1),
        replace(ended, rung=Rung.NEW_DRIVER),
    ):
        with pytest.raises(ConstraintViolated, match="never changed"):
            await store.commit(UnitOfWork(JOB, 1).add(PutRescale(other)))
        # Also when both come in one group, where rows of one record are merged.
        fresh = samples.record(JOB, 2, reason=TerminatedReason.SUCCEEDED)
        number = fresh.number + (await store.rescales(JOB))[0].number
        fresh = replace(fresh, number=number, uuid=f"{number:032x}")
        outcomes = await commit_together(
            store,
            UnitOfWork(JOB, 1).add(PutRescale(fresh)),
            UnitOfWork(JOB, 1).add(PutRescale(replace(fresh, output_gap_ms=1))),
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), ConstraintViolated]
    assert (await store.rescales(JOB))[-1] == ended


async def test_one_attempt_may_live_and_the_next_starts_when_it_is_dead(store: Store) -> None:
    await store.commit(samples.creation())
    await store.commit(samples.starts(JOB, 1))
    with pytest.raises(ConstraintViolated):
        await store.commit(samples.starts(JOB, 2))
    await store.commit(UnitOfWork(JOB, 1).add(AcknowledgeReports(1, 17)))
    told = DescribeDriver(1, "build", "4.3.0", "http://127.0.0.1:4040")
    await store.commit(UnitOfWork(JOB, 1).add(told, DescribeDriver(9, "no such attempt", "", None)))
    (living,) = await store.attempts(JOB)
    assert living.acknowledged == 17
    assert (living.host, living.spark_version, living.ui_url) == ("build", "4.3.0", "http://127.0.0.1:4040")
    assert living.parallelism == samples.attempt().parallelism
    failed = {"ending": AttemptEnding.FAILED, "ended_why": "It broke: \ufffd."}
    dead = replace(living, state=AttemptState.DEAD, ended_ms=samples.NOW_MS, **failed)
    await store.commit(
        UnitOfWork(JOB, 1).add(
            PutAttempt(replace(dead, ended_why="It broke: \x00.")), PutAttempt(samples.attempt(2))
        )
    )
    assert await store.attempts(JOB) == [dead, samples.attempt(2)]
    found = await store.load_job(JOB)
    assert found is not None and found.attempt == samples.attempt(2)


async def test_texts_that_a_database_cannot_hold_are_made_readable(store: Store) -> None:
    await store.commit(samples.creation())
    record = replace(samples.record(JOB, 1), request_reason="a\x00b\udcff", message="\x00")
    await store.commit(UnitOfWork(JOB, 1).add(PutRescale(record)))
    (found,) = await store.rescales(JOB)
    assert (found.request_reason, found.message) == ("a\ufffdb?", "\ufffd")


async def test_a_caller_that_stops_waiting_does_not_take_his_unit_back(store: Store) -> None:
    await store.commit(samples.creation())
    async with writer_held(store):
        task = asyncio.create_task(store.commit(samples.put(JOB, 2)))
        while not store._writer._queue.qsize():
            await asyncio.sleep(0)
        task.cancel()
    await store.commit(samples.put(JOB, 3))
    found = await store.load_job(JOB)
    assert found is not None and found.seq == 3


async def test_close_finishes_what_is_queued_and_refuses_the_rest(open_store: Opener) -> None:
    store = await open_store()
    await store.commit(samples.creation())
    async with writer_held(store):
        queued = asyncio.create_task(store.commit(samples.put(JOB, 2)))
        while not store._writer._queue.qsize():
            await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
    await asyncio.gather(queued, closing)
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.commit(samples.put(JOB, 3))
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.load_live_jobs()
    found = await (await open_store("owner-2")).load_job(JOB)
    assert found is not None and found.seq == 2


async def test_concurrent_jobs_and_readers_see_whole_steps_only(store: Store) -> None:
    jobs = [samples.job_id(number) for number in range(1, 17)]
    done = False

    async def write(number: int) -> None:
        await store.commit(samples.creation(number))
        for seq in range(2, 14):
            await store.commit(samples.put(samples.job_id(number), seq))

    async def read() -> int:
        looks = 0
        while not done:
            for found in await store.load_live_jobs():
                state = found.state(samples.GRAPH)
                assert state.plan_version == found.seq
                looks += 1
        return looks

    readers = [asyncio.create_task(read()) for _ in range(2)]
    await asyncio.gather(*(write(number) for number in range(1, 17)))
    done = True
    assert all(await asyncio.gather(*readers))
    for job in jobs:
        records = await store.rescales(job)
        assert [record.number for record in records] == list(range(13, 0, -1))
        assert sum(record.is_open for record in records) == 1


async def test_an_inline_store_needs_no_thread(open_store: Opener) -> None:
    # Those of the test before may still be ending.
    before = set(threading.enumerate())
    store = await open_store(inline=True)
    await store.commit(samples.creation())
    with pytest.raises(LeaseLost):
        await store.commit(samples.put(JOB, 2, epoch=2))
    await store.commit(samples.put(JOB, 2))
    found = await store.load_job(JOB)
    assert found is not None and found.seq == 2
    assert set(threading.enumerate()) <= before


async def test_rows_that_fail_late_fail_like_the_first(open_store: Opener) -> None:
    """SQLite looks for the second row when it is asked for it."""
    store = await open_store()
    values = statements.Statement("SELECT CAST(json(column1) AS TEXT) FROM (VALUES ", "(?)", ") AS v")
    if store.database.dialect == "postgresql":
        values = statements.Statement("SELECT CAST(column1 AS json) FROM (VALUES ", "(?)", ") AS v")
    with pytest.raises(StoreError, match="refused a statement"):
        await store.write(statements.fetch, values, [("1",), ("{",)])
    assert await store.write(statements.fetch, values, [("1",)])
