"""kill -9: what was acknowledged is there, what is there is whole, and the next process goes on from it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from app.store.errors import LeaseLost, StoreUnavailable
from app.store.leases import LeaseHeld
from app.store.store import Store
from tests import stored
from tests.unit.store import samples
from tests.unit.store.conftest import Opener

ROOT = Path(__file__).parents[3]
JOBS = 8
KILLS = 3
ACKNOWLEDGED_BEFORE_KILL = 60

# Commits for all jobs at the same time, and says on stdout what was acknowledged: "<job> <state number>".
CHILD = """
import asyncio, os, sys
from app.store.errors import StoreUnavailable
from app.store.store import Store
from tests.unit.store import samples

async def main(url, owner, jobs):
    store = await Store.open(url, owner, lease_ttl_ms=-1)

    async def work(number):
        job = samples.job_id(number)
        found = await store.load_job(job)
        if found is None:
            seq, epoch = 1, 1
            await store.commit(samples.creation(number))
        else:
            seq, epoch = found.seq, (await store.acquire_lease(job)).epoch
        while True:
            os.write(1, f"{number} {seq}\\n".encode())
            seq += 1
            try:
                await store.commit(samples.put(job, seq, epoch=epoch))
            except StoreUnavailable:
                # Paused within a transaction, which the database has ended since.
                await store.commit(samples.put(job, seq, epoch=epoch))

    await asyncio.gather(*(work(number) for number in range(1, jobs + 1)))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def acknowledged_until_killed(url: str, owner: str) -> Counter[int]:
    """Run a child, kill it at any moment, and return the last acknowledged state number of each job."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, url, owner, str(JOBS)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stderr is not None
    watchdog = threading.Timer(60, child.kill)
    watchdog.start()
    try:
        lines = [child.stdout.readline() for _ in range(ACKNOWLEDGED_BEFORE_KILL)]
        child.send_signal(signal.SIGKILL)
        # What was written into the pipe before the kill was acknowledged too; its last line may be torn.
        rest = child.stdout.read()
    finally:
        watchdog.cancel()
        child.kill()
        child.wait()
        errors = child.stderr.read()
        child.stdout.close()
        child.stderr.close()
    assert all(lines), f"the child ended by itself: {errors}"
    last: Counter[int] = Counter()
    for line in [*lines, *(part for part in rest.splitlines(keepends=True) if part.endswith("\n"))]:
        number, seq = line.split()
        last[int(number)] = max(last[int(number)], int(seq))
    return last


@pytest.mark.asyncio
async def test_what_was_acknowledged_survives_kill_9(database_url: str) -> None:
    last: Counter[int] = Counter()
    for kill in range(KILLS):
        last |= await asyncio.to_thread(acknowledged_until_killed, database_url, f"child-{kill}")
    store = await Store.open(database_url, "the next one")
    try:
        jobs = {job.job_id: job for job in await store.load_live_jobs()}
        assert len(last) == JOBS and set(jobs) == {samples.job_id(number) for number in last}
        for number, seq in last.items():
            job_id = samples.job_id(number)
            found = jobs[job_id]
            # One more may be durable that was not answered before the kill; per kill, since each child goes on from it.
            assert seq <= found.seq <= seq + 1, f"job {number}"
            # And each step is whole: its state and its records.
            assert found.state(samples.GRAPH).plan_version == found.seq
            records = await store.rescales(job_id)
            assert [record.number for record in records] == list(range(found.seq, 0, -1))
            assert [record.is_open for record in records] == [True] + [False] * (found.seq - 1)
            assert [found.version for found in await stored.requirements(store, job_id)] == list(
                range(found.seq, 0, -1)
            )
    finally:
        await store.close()


def test_a_child_that_is_killed_leaves_a_sound_file(sqlite_url: str, tmp_path: Path) -> None:
    acknowledged_until_killed(sqlite_url, "child")
    connection = sqlite3.connect(tmp_path / "slotwise.db")
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        connection.close()


@pytest.mark.asyncio
async def test_a_commit_is_on_the_disk_when_it_is_acknowledged(open_store: Opener) -> None:
    """A kill cannot show this, only a power failure could: the settings that promise it are in force."""
    store = await open_store()
    if store.database.dialect == "sqlite":
        wanted = {"PRAGMA journal_mode": "wal", "PRAGMA synchronous": 2, "PRAGMA foreign_keys": 1}
    else:
        wanted = {"SHOW synchronous_commit": "on", "SHOW transaction_isolation": "read committed"}
    for question, answer in wanted.items():
        assert await store.write(lambda c, q: c.exec_driver_sql(q).scalar_one(), question) == answer


@pytest.mark.asyncio
async def test_on_postgresql_an_owner_that_is_paused_beyond_its_lease_writes_nothing(
    postgresql_url: str,
) -> None:
    """SIGSTOP, another control plane takes over, SIGCONT: the sleeper finds itself fenced."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD.replace("lease_ttl_ms=-1", "lease_ttl_ms=200"), postgresql_url, "paused", "1",
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    job_id = samples.job_id(1)
    store = await Store.open(postgresql_url, "heir")
    try:
        assert child.stdout is not None and child.stderr is not None
        for _ in range(5):
            async with asyncio.timeout(30):
                assert await child.stdout.readline()
        os.kill(child.pid, signal.SIGSTOP)
        epoch = await taken_over(store, job_id)
        assert epoch == 2
        before = await store.load_job(job_id)
        assert before is not None
        os.kill(child.pid, signal.SIGCONT)
        async with asyncio.timeout(30):
            errors = (await child.communicate())[1].decode()
        assert LeaseLost.__name__ in errors
        assert await store.load_job(job_id) == before
        await store.commit(samples.put(job_id, before.seq + 1, epoch=epoch))
    finally:
        if child.returncode is None:
            child.kill()
            await child.communicate()
        await store.close()


async def taken_over(store: Store, job_id: str, *, deadline_s: float = 90.0) -> int:
    """The epoch under which ``store`` owns the job, once its owner's time is over.

    An owner that was paused within a transaction has locked his lease, until the database ends his session (30 s).
    """
    deadline = asyncio.get_running_loop().time() + deadline_s
    while True:
        try:
            return (await store.acquire_lease(job_id)).epoch
        except (LeaseHeld, StoreUnavailable) as error:
            assert asyncio.get_running_loop().time() < deadline, f"not owned after {deadline_s} s: {error}"
            await asyncio.sleep(0.02)
