"""A file of a SQLite database is removed or replaced under a server: nothing that was acknowledged is lost."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import event

from app.store.errors import OutcomeUnknown, StoreUnavailable
from app.store.store import Store
from tests.unit.store import samples

pytestmark = pytest.mark.asyncio

JOB = samples.job_id(1)


async def stored_seq(store: Store) -> int:
    found = await store.load_job(JOB)
    assert found is not None
    return found.seq


async def test_a_database_file_that_was_moved_away_takes_no_writes(sqlite_url: str, tmp_path: Path) -> None:
    """SQLite itself goes on writing into a file that no restart would find."""
    store = await Store.open(sqlite_url, "me")
    try:
        await store.commit(samples.creation())
        path, elsewhere = tmp_path / "slotwise.db", tmp_path / "elsewhere.db"
        path.rename(elsewhere)
        unit = samples.put(JOB, 2)
        with pytest.raises(StoreUnavailable, match=f"{path} was removed or replaced"):
            await store.commit(unit)
        path.write_bytes(b"")
        with pytest.raises(StoreUnavailable, match="was removed or replaced"):
            await store.claim_leases()
        path.unlink()
        elsewhere.rename(path)
        await store.commit(unit)
        assert await stored_seq(store) == 2
    finally:
        await store.close()


async def test_a_database_by_a_link_is_looked_after_by_both_of_its_paths(
    sqlite_url: str, tmp_path: Path
) -> None:
    """SQLite has the log beside the file that the link leads to."""
    link, real = tmp_path / "slotwise.db", tmp_path / "disk" / "real.db"
    real.parent.mkdir()
    link.symlink_to(real)
    store = await Store.open(sqlite_url, "me")
    try:
        await store.commit(samples.creation())
        for path in (link, real):
            elsewhere = path.with_name("elsewhere")
            path.rename(elsewhere)
            with pytest.raises(StoreUnavailable, match=f"{link} was removed|{real} was removed"):
                await store.commit(samples.put(JOB, 2))
            elsewhere.rename(path)
        await store.commit(samples.put(JOB, 2))
        log = real.with_name("real.db-wal")
        log.unlink()
        with pytest.raises(StoreUnavailable, match=f"{log} was removed or replaced .* is safe in {link}"):
            await store.commit(samples.put(JOB, 3))
        assert await stored_seq(store) == 2
    finally:
        await store.close()


def seq_after_a_kill(path: Path, place: Path) -> int:
    """The job's stored state by what a start finds when the server was killed now: the files at the paths."""
    place.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, place / file.name)
    with contextlib.closing(sqlite3.connect(place / path.name)) as connection:
        return int(connection.execute("SELECT seq FROM job_states").fetchone()[0])


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_log_that_was_removed_under_a_server_loses_nothing_that_was_acknowledged(
    sqlite_url: str, tmp_path: Path, suffix: str, replaced: bool
) -> None:
    store = await Store.open(sqlite_url, "me")
    path = tmp_path / "slotwise.db"
    file = tmp_path / f"slotwise.db{suffix}"
    try:
        await store.commit(samples.creation())
        await store.commit(samples.put(JOB, 2))
        await store.check_writes()
        file.unlink()
        if replaced:
            file.write_bytes(b"")
        with pytest.raises(StoreUnavailable, match=f"{file} was removed or replaced .* Restart the server"):
            await store.check_writes()
        for _ in range(2):
            with pytest.raises(
                StoreUnavailable, match=f"{file} was removed or replaced .* is safe in {path}"
            ):
                await store.commit(samples.put(JOB, 3))
        assert await stored_seq(store) == 2
        assert seq_after_a_kill(path, tmp_path / "later") == 2
    finally:
        await store.close()
    store = await Store.open(sqlite_url, "next")
    try:
        assert await stored_seq(store) == 2
    finally:
        await store.close()


async def test_a_log_that_is_removed_during_a_commit_loses_nothing_that_was_acknowledged(
    sqlite_url: str, tmp_path: Path
) -> None:
    path, log = tmp_path / "slotwise.db", tmp_path / "slotwise.db-wal"
    store = await Store.open(sqlite_url, "me")
    try:
        await store.commit(samples.creation())
        event.listen(store._writer.engine, "commit", lambda _connection: log.unlink())
        await store.commit(samples.put(JOB, 2))
        assert seq_after_a_kill(path, tmp_path / "later") == 2
        with pytest.raises(StoreUnavailable, match=f"{log} was removed or replaced"):
            await store.commit(samples.put(JOB, 3))
    finally:
        await store.close()


async def test_a_database_that_is_removed_during_a_commit_leaves_it_in_doubt(
    sqlite_url: str, tmp_path: Path
) -> None:
    store = await Store.open(sqlite_url, "me")
    try:
        await store.commit(samples.creation())
        event.listen(store._writer.engine, "commit", lambda _connection: (tmp_path / "slotwise.db").unlink())
        with pytest.raises(OutcomeUnknown, match=r"slotwise\.db was removed or replaced"):
            await store.commit(samples.put(JOB, 2))
    finally:
        await store.close()


async def test_a_log_that_is_put_back_is_written_on(sqlite_url: str, tmp_path: Path) -> None:
    log, elsewhere = tmp_path / "slotwise.db-wal", tmp_path / "elsewhere"
    store = await Store.open(sqlite_url, "me")
    try:
        await store.commit(samples.creation())
        log.rename(elsewhere)
        with pytest.raises(StoreUnavailable, match=f"{log} was removed or replaced"):
            await store.commit(samples.put(JOB, 2))
        elsewhere.rename(log)
        await store.commit(samples.put(JOB, 2))
        await store.check_writes()
        assert seq_after_a_kill(tmp_path / "slotwise.db", tmp_path / "later") == 2
    finally:
        await store.close()


async def test_a_connection_that_was_dropped_is_no_reason_to_make_the_log_anew(
    sqlite_url: str, tmp_path: Path
) -> None:
    store = await Store.open(sqlite_url, "me")
    try:
        await store.commit(samples.creation())
        store._writer.drop_connection()
        await store.commit(samples.put(JOB, 2))
        store._writer.drop_connection()
        (tmp_path / "slotwise.db-wal").unlink()
        with pytest.raises(StoreUnavailable, match="was removed or replaced"):
            await store.commit(samples.put(JOB, 3))
        assert not (tmp_path / "slotwise.db-wal").exists()
    finally:
        await store.close()
