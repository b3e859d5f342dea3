"""Control planes that share jobs: shares and hand-overs."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from app.worker.ownership import leases as ownership
from tests.contract.members import (
    TTL_MS,
    Network,
    Server,
    body,
    hold_renewals,
    server,
    two,
    until,
)
from tests.unit.worker.fakes import FakeHost, graph


async def test_the_dead_are_followed_at_once_and_their_jobs_are_spread(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each takes its share only: one that is a round late would get nothing, and what does not run is not evened out.
    never = property(lambda _: False, lambda _, __: None)
    monkeypatch.setattr(ownership.Ownership, "_free_before", never, raising=False)
    network, dead, host = Network(), set[str](), FakeHost()
    async with (
        server(postgresql_url, tmp_path, network, 2, dead, host) as second,
        server(postgresql_url, tmp_path, network, 1, dead, host) as first,
    ):
        jobs = [await first.rig.plane.submit(graph(1), {}) for _ in range(4)]
        async with server(postgresql_url, tmp_path, network, 3, dead, host) as third:
            # None of them runs yet, so none is handed over.
            assert sum((await second.jobs()).values()) == 4
            await first.rig.plane.close()
            dead.add(first.member.member_id)
            await until(lambda: _all(second, third, jobs), "each is taken over")
            assert sorted(len(_owned(one, jobs)) for one in (second, third)) == [2, 2]


async def run(one: Server, number: int) -> str:
    """The ``number``-th job, with its first batch committed. Its driver is the last one that was started."""
    job = await one.rig.plane.submit(graph(1), {})
    await one.rig.until(lambda: len(one.rig.host.drivers) > number and one.rig.driver.spec, "it has a driver")
    await one.rig.bring_up(job, 1)
    return job


def _owned(one: Server, jobs: list[str]) -> list[str]:
    return [job for job in jobs if one.owns(job)]


def _all(second: Server, third: Server, jobs: list[str]) -> bool:
    return sorted(_owned(second, jobs) + _owned(third, jobs)) == sorted(jobs)


async def test_a_member_that_joins_gets_jobs_one_at_a_time_and_keeps_their_drivers(
    postgresql_url: str, tmp_path: Path
) -> None:
    network, dead, host = Network(), set[str](), FakeHost()
    async with server(postgresql_url, tmp_path, network, 1, dead, host) as first:
        jobs = [await run(first, number) for number in range(3)]
        pids = {job: first.rig.plane.job(job).driver_pid for job in jobs}
        slots = {job: first.rig.plane.job(job).state.slots for job in jobs}
        async with server(postgresql_url, tmp_path, network, 2, dead, host) as second:
            await until(lambda: len(_owned(second, jobs)) == 1, "a job is handed over")
            (moved,) = _owned(second, jobs)
            view = second.rig.plane.job(moved)
            assert (view.driver_pid, view.epoch) == (pids[moved], 2)
            assert view.state.slots == slots[moved], "it took its slots along"
            address = tmp_path / "jobs" / moved / "address"
            assert address.read_text().split() == [second.member.url, "2"]
            # Two and one: nothing goes to and fro.
            assert [driver.kills for driver in host.drivers] == [0, 0, 0]
            assert await second.jobs() == {1: 2, 2: 1}
            await second.rig.plane._keeper.broker.refresh()
            shown = [(one.id, one.slots, one.free_slots) for one in second.rig.plane.task_managers()]
            assert shown == [("host", 8, 5), ("host-2", 8, 8)], "they are where they were"


async def test_a_job_has_slots_of_all_servers_and_keeps_them_when_the_one_that_decides_is_lost(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()
        path = f"/jobs/{job}/resource-requirements"

        def slots(one: Server) -> set[str]:
            return {slot.id for slot in one.rig.plane.job(job).state.slots}

        async def arbiter(one: Server) -> list[int]:
            answer = (await one.http.get("/cluster/members")).json()
            return [found["seat"] for found in answer["members"] if found["isArbiter"]]

        assert await arbiter(second) == [1]
        assert (await second.http.put(path, json=body(12))).status_code == 200
        await until(lambda: len(slots(first)) == 12, "it has the slots of both")
        held = slots(first)
        assert {slot_id.rpartition("-")[0] for slot_id in held} == {"host", "host-2"}
        dry = (await second.http.put(path, params={"dryRun": "true"}, json=body(40))).json()
        assert dry["slotsAfter"] == 16
        await first.rig.plane.close()
        first.dead.add(first.member.member_id)
        await until(lambda: second.owns(job), "the job is taken over")
        await until(lambda: slots(second) == held, "with its slots")

        async def decides() -> bool:
            return await arbiter(second) == [2]

        await until(decides, "the other one decides")
        assert (await second.http.put(path, json=body(16))).status_code == 200
        await until(lambda: len(slots(second)) == 16, "the slots of the dead are not idle")
        assert held < slots(second)


async def test_a_process_that_was_stopped_asks_before_it_acts(postgresql_url: str, tmp_path: Path) -> None:
    """Its clock says that its leases may be over: no answer from memory, no order to a driver, no effect."""
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()
        release = hold_renewals(first)
        first.rig.clock.stopped_ms += TTL_MS
        assert not first.owns(job)
        second.dead.add(first.member.member_id)
        await until(lambda: second.owns(job), "the job is taken over")
        answer = await first.http.put(f"/jobs/{job}/resource-requirements", json=body(4))
        assert answer.status_code == 200, "the new owner was asked"
        assert second.rig.plane.job(job).state.requirements.version == 2
        assert first.rig.plane.job(job).state.requirements.version == 1
        release.set()
        await until(lambda: job not in first.rig.plane._keeper.jobs, "it lets go")


async def test_a_log_is_followed_through_any_server(postgresql_url: str, tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    async with two(postgresql_url, tmp_path) as (first, second, network):
        first.rig.host.prepare = lambda driver: setattr(
            driver, "ref", dataclasses.replace(driver.ref, lock_file=str(log.with_suffix(".lock")))
        )
        job = await first.rig.run()
        log.write_text("begun\n")
        path = f"/jobs/{job}/attempts/1/logs"
        first.rig.plane.logs._followers = one_at_a_time = asyncio.Semaphore(1)
        following = asyncio.create_task(second.http.get(path, params={"follow": "true"}))
        await until(one_at_a_time.locked, "it is followed where the job is")
        with log.open("a") as file:
            file.write("more, and the end")
        await second.http.patch(f"/jobs/{job}", params={"mode": "cancel"})
        answer = await following
        assert (answer.text, answer.headers["content-type"]) == (
            "begun\nmore, and the end",
            "text/plain; charset=utf-8",
        )
        network.down.add(first.member.url.removeprefix("http://"))
        assert (await second.http.get(path)).text == answer.text
        assert (await second.http.get(f"/jobs/{job}/attempts")).json()["attempts"][0]["ending"] == "STOPPED"
