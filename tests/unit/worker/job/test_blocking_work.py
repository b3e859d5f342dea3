"""Work that waits for the disk is done beside the event loop, and in the same order as before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.store.errors import OutcomeUnknown, StoreUnavailable
from app.worker.job import attempts
from app.worker.job import files as job_files
from app.worker.refusals import Unavailable, UnknownJob
from app.worker.requests import submission
from tests.unit.worker.fakes import Rig, graph, rig_on


class Slow:
    """Stands in for a function that blocks: it does not return before `open` is set."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self.real = real
        self.open = threading.Event()
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread(), "the event loop would be held up"
        self.calls += 1
        assert self.open.wait(20)
        return self.real(*args, **kwargs)


async def ended(rig: Rig) -> str:
    job = await rig.run()
    await rig.plane.cancel(job)
    await rig.until_kind(job, "Finished")
    (rig.places.checkpoint_dir(job) / "offsets").mkdir(parents=True)
    return job


def aside(rig: Rig, job: str) -> Path:
    return rig.places.jobs_dir / f".forgotten-{job}"


async def test_the_files_of_a_forgotten_job_are_removed_in_the_background(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await ended(rig)
        slow = Slow(job_files.remove_tree)
        monkeypatch.setattr(job_files, "remove_tree", slow)
        try:
            async with asyncio.timeout(20):
                await rig.plane.forget(job)
            assert not rig.places.job_dir(job).exists() and aside(rig, job).exists()
            with pytest.raises(UnknownJob):
                rig.plane.job(job)
        finally:
            slow.open.set()
        await rig.until(lambda: not aside(rig, job).exists(), "the removal")


async def test_a_job_that_cannot_be_forgotten_keeps_its_files(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await ended(rig)

        async def away(_job_id: str) -> bool:
            raise StoreUnavailable("The disk is full.")

        with monkeypatch.context() as patched, pytest.raises(Unavailable, match="The disk is full"):
            patched.setattr(rig.store, "forget", away)
            await rig.plane.forget(job)
        assert (rig.places.checkpoint_dir(job) / "offsets").exists()
        await rig.plane.forget(job)
        assert not rig.places.job_dir(job).exists()


@pytest.mark.parametrize("stored", [True, False])
async def test_a_start_ends_what_was_cut_off(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await ended(rig)
        forget = rig.store.forget

        async def doubtful(job_id: str) -> bool:
            if not stored:
                await forget(job_id)
            raise OutcomeUnknown("The connection was lost.")

        monkeypatch.setattr(rig.store, "forget", doubtful)
        with pytest.raises(Unavailable):
            await rig.plane.forget(job)
        assert aside(rig, job).exists()
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        await again.until(lambda: not aside(rig, job).exists(), "the end")
        assert (rig.places.checkpoint_dir(job) / "offsets").exists() is stored
        assert again.is_served(job) if stored else not rig.places.job_dir(job).exists()


async def test_artifacts_are_written_beside_the_event_loop_and_before_the_job_is_stored(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        slow = Slow(submission.write_artifacts)
        monkeypatch.setattr(submission, "write_artifacts", slow)
        listed = replace(graph(), artifacts=("f.py",))
        submitting = asyncio.create_task(rig.plane.submit(listed, {"f.py": b"x = 1\n"}))
        try:
            await rig.until(lambda: slow.calls == 1 or submitting.done())
            assert await rig.store.list_jobs() == []
        finally:
            slow.open.set()
        job = await submitting
        assert (rig.places.artifacts_dir(job) / "f.py").exists()


async def test_an_assignment_is_written_beside_the_event_loop(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        slow = Slow(attempts.write_spec)
        monkeypatch.setattr(attempts, "write_spec", slow)
        job = await rig.plane.submit(graph(), {})
        try:
            await rig.until(lambda: slow.calls == 1 or (rig.host.drivers and rig.driver.spec))
            assert await rig.store.attempts(job) == []
        finally:
            slow.open.set()
        await rig.bring_up(job, 1)


async def test_a_last_word_is_acknowledged_when_it_is_kept_and_only_once_taken(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        slow = Slow(attempts.write_outcome)
        monkeypatch.setattr(attempts, "write_outcome", slow)
        words = rig.driver.report("batch", query_id="q", batch_id=1), rig.driver.report("finished")
        sending = [asyncio.create_task(rig.send(job, *words)) for _ in range(2)]
        try:
            await rig.until(lambda: slow.calls == 1 or any(task.done() for task in sending))
            assert not any(task.done() for task in sending)
        finally:
            slow.open.set()
        assert await asyncio.gather(*sending) == [words[-1].seq] * 2
        assert slow.calls == 1, "a repeat of a report waits for the first, and is skipped"
        rig.driver.die(0)
        await rig.until_kind(job, "Finished")
        assert rig.plane.job(job).status == "FINISHED"


async def test_a_driver_that_ends_while_its_last_word_is_written_has_said_it(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        slow = Slow(attempts.write_outcome)
        monkeypatch.setattr(attempts, "write_outcome", slow)
        sending = asyncio.create_task(rig.report(job, "finished"))
        try:
            await rig.until(lambda: slow.calls == 1 or sending.done())
            rig.driver.die(0)
            await rig.until_kind(job, "Finished")
            assert rig.plane.job(job).status == "FINISHED"
        finally:
            slow.open.set()
        with pytest.raises(Unavailable, match="ended meanwhile"):
            await sending
