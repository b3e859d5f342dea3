"""What is read back: lists, pages of the history, summaries, and what retention leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.model.rescale import RescaleRecord, TerminalState, TerminatedReason, TriggerCause
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.store.errors import StateConflict, StoreUnavailable
from app.store.queries import RescalePage
from app.store.store import Store
from app.store.writes import AddIdempotencyKey, AddScalingPolicy, PutRescale, UnitOfWork
from tests import stored
from tests.unit.store import samples

pytestmark = pytest.mark.asyncio

JOB = samples.job_id(1)
REASONS = (
    TerminatedReason.SUCCEEDED,
    TerminatedReason.EXCEPTION_OCCURRED,
    TerminatedReason.RESOURCE_REQUIREMENTS_UPDATED,
)


async def with_history(store: Store, ended: int) -> list[RescaleRecord]:
    """JOB with ``ended`` records that ended in turn in each terminal state after 100, 200 ... ms, and an open one."""
    await store.commit(samples.creation())
    causes = list(TriggerCause)
    records = [
        replace(
            samples.record(JOB, number, reason=REASONS[number % 3], took_ms=100 * number),
            cause=causes[number % 4],
        )
        for number in range(1, ended + 1)
    ]
    records.append(samples.record(JOB, ended + 1))
    for record in records:
        await store.commit(UnitOfWork(JOB, 1).add(PutRescale(record)))
    return records


async def test_jobs_are_listed_newest_first(store: Store) -> None:
    for number in range(1, 8):
        await store.commit(samples.creation(number))
    await store.commit(samples.finish(samples.job_id(4), 2))
    everything = await store.list_jobs()
    assert [job.job_id for job in everything] == [samples.job_id(number) for number in range(7, 0, -1)]
    assert [job.job_id for job in await store.list_jobs(ended=True)] == [samples.job_id(4)]
    assert len(await store.list_jobs(ended=False)) == 6


async def test_only_jobs_that_have_not_ended_are_loaded_to_go_on(store: Store) -> None:
    for number in (1, 2, 3):
        await store.commit(samples.creation(number))
    await store.commit(samples.finish(samples.job_id(2), 2))
    assert [job.job_id for job in await store.load_live_jobs()] == [samples.job_id(1), samples.job_id(3)]
    ended = await store.load_job(samples.job_id(2))
    assert ended is not None and ended.summary.ended_ms == samples.NOW_MS + 2
    assert await store.load_job(samples.job_id(9)) is None


async def test_the_history_is_paged_newest_first_and_filtered(store: Store) -> None:
    records = await with_history(store, 12)
    newest_first = records[::-1]
    assert await store.rescales(JOB) == newest_first
    assert await store.rescales(JOB, RescalePage(limit=4)) == newest_first[:4]
    assert await store.rescales(JOB, RescalePage(limit=4, after=newest_first[3].number)) == newest_first[4:8]
    failed = RescalePage(state=TerminalState.FAILED)
    assert await store.rescales(JOB, failed) == [
        r for r in newest_first if r.terminal_state is TerminalState.FAILED
    ]
    both = RescalePage(cause=TriggerCause.INITIAL_SCHEDULE, state=TerminalState.COMPLETED)
    assert [record.number for record in await store.rescales(JOB, both)] == [12]
    assert await store.rescales(samples.job_id(2)) == []


async def test_a_record_is_found_by_its_uuid_and_its_job(store: Store) -> None:
    records = await with_history(store, 3)
    assert await store.rescale(JOB, records[1].uuid) == records[1]
    assert await store.rescale(samples.job_id(2), records[1].uuid) is None
    assert await store.rescale(JOB, "0" * 32) is None


async def test_durations_are_of_the_records_that_are_kept(store: Store) -> None:
    records = await with_history(store, 9)
    assert (await store.rescale_durations(JOB))[TerminalState.FAILED] == [100, 400, 700]

    assert await store.prune(JOB, keep=4, older_than_ms=0) == 6
    assert await store.rescale_durations(JOB) == {
        TerminalState.FAILED: [700],
        TerminalState.IGNORED: [800],
        TerminalState.COMPLETED: [900],
    }
    assert await store.rescales(JOB) == records[:5:-1]


async def test_retention_by_age_never_removes_an_open_record(store: Store) -> None:
    records = await with_history(store, 5)
    assert records[2].end_ms is not None
    assert await store.prune(JOB, keep=9, older_than_ms=records[2].end_ms) == 2
    assert await store.prune(JOB, keep=0, older_than_ms=2**60) == 3
    assert await store.rescales(JOB) == [records[-1]]


async def test_old_requests_are_removed_but_never_the_newest_requirements(store: Store) -> None:
    await store.commit(samples.creation())
    for seq in range(2, 7):
        key = AddIdempotencyKey(f"key-{seq}", "hash", seq, True, samples.NOW_MS + seq)
        await store.commit(samples.put(JOB, seq).add(key))
    # Older than version 4: keys 2 and 3, and versions 1 to 3.
    older_than_ms = samples.NOW_MS + 4
    assert await store.prune_idempotency_keys(JOB, older_than_ms=older_than_ms) == 2
    assert await store.prune_versions(JOB, keep=1, older_than_ms=older_than_ms, most=100) == 3
    assert [found.version for found in await stored.requirements(store, JOB)] == [6, 5, 4]
    assert await store.answer(JOB, "key-3") is None
    assert await store.answer(JOB, "key-4") is not None
    await store.prune_versions(JOB, keep=0, older_than_ms=2**60, most=100)
    assert [found.version for found in await stored.requirements(store, JOB)] == [6]


async def test_old_scaling_policies_are_removed_with_old_requirements_but_never_the_newest(
    store: Store,
) -> None:
    await store.commit(samples.creation())
    policies = [
        ScalingPolicy(version, FloorCeiling(None, version), changed_ms=samples.NOW_MS + version)
        for version in range(2, 7)
    ]
    for seq, policy in enumerate(policies, 2):
        await store.commit(samples.put(JOB, seq).add(AddScalingPolicy(policy)))
    assert await store.scaling_policies(JOB) == policies[::-1]
    assert await store.scaling_policies(JOB, limit=2, after=6) == policies[3:1:-1]
    # Older than version 4: policies 2 and 3, and requirements 1 to 3.
    older_than_ms = samples.NOW_MS + 4
    assert await store.prune_versions(JOB, keep=1, older_than_ms=older_than_ms, most=100) == 5
    assert [found.version for found in await store.scaling_policies(JOB)] == [6, 5, 4]
    await store.prune_versions(JOB, keep=9, older_than_ms=0, most=1)
    assert await store.scaling_policies(JOB) == policies[-1:]


async def test_a_job_is_forgotten_whole_once_it_has_ended(store: Store) -> None:
    await with_history(store, 3)
    await store.commit(samples.creation(2))
    await store.commit(samples.starts(JOB))
    with pytest.raises(StateConflict, match="has not ended"):
        await store.forget(JOB)
    # It ends with its record still open, which only a defect can bring about; it goes all the same.
    unit = samples.finish(JOB, 2)
    unit.writes.pop()
    await store.commit(unit)
    assert await store.forget(JOB)
    assert not await store.forget(JOB)
    assert await store.load_job(JOB) is None
    assert await store.rescales(JOB) == []
    for table in ("job_states", "leases", "requirements", "rescales", "attempts"):
        rows = await store.read(
            lambda c, name: c.exec_driver_sql(
                f"SELECT count(*) FROM {name} WHERE job_id = '{JOB}'"
            ).scalar_one(),
            table,
        )
        assert rows == 0, table
    assert await store.load_job(samples.job_id(2)) is not None


async def test_a_reader_cannot_write(store: Store) -> None:
    await store.commit(samples.creation())
    with pytest.raises(StoreUnavailable, match="read-only"):
        await store.read(lambda c: c.exec_driver_sql("DELETE FROM jobs"))
    assert await store.load_job(JOB) is not None
