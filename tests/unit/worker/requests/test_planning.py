"""The planning of a program: the driver is ended and the files are removed, whatever happens."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from app.cluster.ports import DriverRef
from app.model.graphdoc_program import parse_program
from app.model.planned import Planned
from app.worker.job.places import JobPlaces
from app.worker.refusals import Unavailable
from app.worker.requests.planning import Planner
from tests.unit.worker.fakes import FakeDriver, FakeHost

PROGRAM = parse_program(
    {
        "name": "words",
        "script": "job.py",
        "args": ["--password", "hunter22"],
        "config": {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": 3},
    }
)
FILES = {"job.py": b"print()\n"}
PATIENCE_S = 10.0


class Host(FakeHost):
    """Notes what it is asked for. ``when_assigned`` is called with each driver that got its assignment."""

    def __init__(self, log_file: Path) -> None:
        super().__init__()
        self.java_options: list[tuple[str, ...]] = []
        self.log_file = log_file
        self.prepare = self._prepare
        self.when_assigned: Any = lambda driver: None

    def _prepare(self, driver: FakeDriver) -> None:
        driver.ref = dataclasses.replace(driver.ref, lock_file=str(self.log_file.with_suffix(".lock")))
        usual = driver.assign

        async def assign(spec_file: Path) -> None:
            await usual(spec_file)
            self.when_assigned(driver)

        driver.assign = assign  # type: ignore[method-assign]

    async def acquire(
        self, java_options: tuple[str, ...] = (), runtime: object = None, home: Path | None = None
    ) -> Any:
        self.java_options.append(java_options)
        return await super().acquire(java_options, runtime, home)


class Rig:
    def __init__(self, directory: Path, limit_s: float = PATIENCE_S) -> None:
        self.jobs_dir = directory / "jobs"
        self.host = Host(directory / "driver-1.log")
        places = JobPlaces(self.jobs_dir, directory / "address", slots=4, private=(directory,))
        self.planner = Planner(self.host, places, limit_s=limit_s)

    async def plan(self) -> Planned:
        return await self.planner.plan(PROGRAM, FILES)

    def is_clean(self) -> bool:
        left = list(self.jobs_dir.iterdir()) if self.jobs_dir.exists() else []
        return not left and all(driver.dead.is_set() for driver in self.host.drivers)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def reached(probe: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not probe():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def test_the_driver_gets_what_only_a_new_jvm_can_take(rig: Rig) -> None:
    rig.host.when_assigned = lambda driver: driver.die(0)
    planned = await rig.plan()
    assert (
        planned.error
        == "The program could not be planned. The driver process 1001 ended with exit status 0 without a plan."
    )
    assert rig.host.java_options == [("-Xmx2g",)]
    [driver] = rig.host.drivers
    assert driver.spec is not None
    assert driver.spec["private"] == [str(rig.jobs_dir.parent)]
    assert rig.is_clean()


async def test_a_driver_that_dies_is_told_of_with_the_last_line_of_its_log(rig: Rig) -> None:
    rig.host.log_file.write_text("first\nOutOfMemoryError with --password=hunter22 \n\n")
    rig.host.when_assigned = lambda driver: driver.die(-9)
    error = (await rig.plan()).error
    assert error is not None
    assert error.startswith(
        "The program could not be planned. The driver process 1001 was killed by signal 9"
    )
    assert error.endswith("The last line of its log: OutOfMemoryError with --password=******")
    assert rig.is_clean()


async def test_a_program_that_does_not_come_to_its_queries(tmp_path: Path) -> None:
    rig = Rig(tmp_path, limit_s=0.05)
    error = (await rig.plan()).error
    assert error is not None
    assert "not planned within 0.05 s (planning_timeout_seconds)" in error
    assert rig.host.drivers[0].kills == 1
    assert rig.is_clean()


async def test_no_driver_is_a_reason_to_come_again(rig: Rig) -> None:
    rig.host.refuse = "No process can be started."
    with pytest.raises(Unavailable, match="No process can be started"):
        await rig.plan()
    assert rig.is_clean()


async def test_no_room_for_the_files_is_a_reason_to_come_again(rig: Rig) -> None:
    rig.jobs_dir.write_bytes(b"")
    with pytest.raises(Unavailable, match="could not be planned"):
        await rig.plan()
    assert not rig.host.drivers


async def test_whoever_gives_up_waiting_ends_the_driver_for_certain(rig: Rig) -> None:
    hold = asyncio.Event()
    rig.host.when_assigned = lambda driver: setattr(driver, "hold_kill", hold)
    asking = asyncio.create_task(rig.plan())
    await reached(lambda: rig.host.drivers and rig.host.drivers[0].spec)
    asking.cancel()
    await reached(lambda: rig.host.drivers[0].kills)
    # He who gives up twice does not stop it.
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not rig.is_clean()
    hold.set()
    await rig.planner.close()
    assert rig.is_clean()


async def test_who_waits_for_his_turn_is_let_go_at_the_end(rig: Rig) -> None:
    asking = [asyncio.create_task(rig.plan()) for _ in range(4)]
    await reached(lambda: len(rig.host.drivers) == 2 and all(driver.spec for driver in rig.host.drivers))
    await rig.planner.close()
    for each in asking:
        with pytest.raises(Unavailable, match="is stopping"):
            await each
    assert len(rig.host.drivers) == 2
    assert rig.is_clean()


async def test_the_process_is_written_down_before_it_gets_its_assignment(rig: Rig) -> None:
    seen: list[DriverRef] = []

    def look(driver: FakeDriver) -> None:
        [directory] = rig.jobs_dir.iterdir()
        seen.append(DriverRef(**json.loads((directory / "driver.json").read_text())))
        driver.die(0)

    rig.host.when_assigned = look
    await rig.plan()
    assert seen == [rig.host.drivers[0].ref]


async def test_a_stray_is_removed_with_its_driver(rig: Rig) -> None:
    driver = await rig.host.acquire()
    left = rig.jobs_dir / ".planning-1"
    left.mkdir(parents=True)
    (left / "driver.json").write_text(json.dumps(dataclasses.asdict(driver.ref)))
    broken = rig.jobs_dir / ".planning-2"
    broken.mkdir()
    (broken / "driver.json").write_text("{")
    assert await rig.planner.drop_strays() == 0
    for directory in (left, broken):
        os.utime(directory, (time.time() - 60,) * 2)
    assert await rig.planner.drop_strays() == 2
    assert driver.kills == 1
    assert rig.is_clean()
