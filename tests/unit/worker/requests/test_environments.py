"""What a job is to run in is looked at before it is accepted; what is laid out for that is always removed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.cluster.ports import DriverLaunchError
from app.model.environment import MODULES, EnvironmentSpec, Looked, Runtime
from app.worker.job.places import JobPlaces
from app.worker.refusals import InvalidRequest, Unavailable
from app.worker.requests.environments import Environments
from tests.unit.worker.fakes import FakeHost

SENT = Runtime(environment=EnvironmentSpec(archive="env.tar.gz"))
FILES = {"env.tar.gz": b"packed", "job.py": b"print()\n"}
LOOKED = Looked("4.3.0", frozenset(MODULES))


class Host(FakeHost):
    """Looks as a test says."""

    def __init__(self, looks: Callable[[Runtime], Awaitable[Looked]]) -> None:
        super().__init__()
        self.look = looks  # type: ignore[method-assign]


class Rig:
    def __init__(self, directory: Path, looks: Callable[[Runtime], Awaitable[Looked]]) -> None:
        self.jobs_dir = directory / "jobs"
        places = JobPlaces(self.jobs_dir, directory / "address", slots=4)
        self.environments = Environments(Host(looks), places)

    async def look(self) -> Looked:
        return await self.environments.look(SENT, FILES)

    def is_clean(self) -> bool:
        return not self.jobs_dir.is_dir() or not list(self.jobs_dir.iterdir())


async def test_the_archive_that_was_sent_lies_there_while_it_is_looked_at(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    async def looks(runtime: Runtime) -> Looked:
        seen.append(os.listdir(runtime.artifacts_dir))
        return LOOKED

    rig = Rig(tmp_path, looks)
    assert await rig.look() == LOOKED
    assert seen == [["env.tar.gz"]]
    assert rig.is_clean()


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (
            DriverLaunchError("numpy==0 was\n  not found.", recoverable=False),
            InvalidRequest,
            "numpy==0 was not found.",
        ),
        (
            DriverLaunchError("No process can be started."),
            Unavailable,
            "No process can be started. The job was not",
        ),
        (OSError(28, "No space left on device"), Unavailable, "No space left on device. Try again."),
    ],
)
async def test_what_cannot_be_had_is_refused_and_what_could_not_be_found_out_may_come_again(
    tmp_path: Path, error: Exception, kind: type[Exception], sentence: str
) -> None:
    async def looks(_: Runtime) -> Looked:
        raise error

    rig = Rig(tmp_path, looks)
    with pytest.raises(kind, match=sentence):
        await rig.look()
    assert rig.is_clean()


async def test_no_room_for_the_files_is_a_reason_to_come_again(tmp_path: Path) -> None:
    async def looks(_: Runtime) -> Looked:
        raise AssertionError

    (tmp_path / "jobs").write_bytes(b"")
    with pytest.raises(Unavailable, match="could not be looked at"):
        await Rig(tmp_path, looks).look()


class Endless:
    """A look that takes until it is given up."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def __call__(self, _: Runtime) -> Looked:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        raise AssertionError


async def test_whoever_gives_up_waiting_ends_it(tmp_path: Path) -> None:
    endless = Endless()
    rig = Rig(tmp_path, endless)
    asking = asyncio.create_task(rig.look())
    await endless.begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await endless.ended.wait()
    await rig.environments.close()
    assert rig.is_clean()


async def test_the_end_of_the_server_ends_it_and_says_so(tmp_path: Path) -> None:
    endless = Endless()
    rig = Rig(tmp_path, endless)
    asking = asyncio.create_task(rig.look())
    await endless.begun.wait()
    await rig.environments.close()
    with pytest.raises(Unavailable, match="is stopping"):
        await asking
    assert rig.is_clean()


async def test_what_a_killed_server_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    async def looks(_: Runtime) -> Looked:
        # Another server of the cluster may be at it.
        assert await rig.environments.drop_strays() == 1
        return LOOKED

    rig = Rig(tmp_path, looks)
    left, job = rig.jobs_dir / ".environment-0123", rig.jobs_dir / ("0" * 32)
    (left / "artifacts").mkdir(parents=True)
    job.mkdir()
    assert await rig.environments.drop_strays() == 0
    two_days_ago = time.time() - 2 * 86_400
    for directory in (left / "artifacts", left, job):
        os.utime(directory, (two_days_ago, two_days_ago))
    await rig.look()
    assert list(rig.jobs_dir.iterdir()) == [job]
