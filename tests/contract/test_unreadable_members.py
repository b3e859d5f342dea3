"""A job that cannot be read, with several servers that share it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.worker.ownership import leases as ownership
from tests.contract.members import Server, two, until
from tests.contract.test_unreadable import (
    DAMAGE,
    another,
    newer_than_this,
    rewrite,
    until_failed,
    write_as_newer,
)


async def unreadable_to(one: Server, job: str) -> None:
    def is_told() -> bool:
        return any(each.job_id == job for each in one.rig.plane.unreadable_jobs())

    await until(is_told, "it cannot be read")


def load_again(one: Server, job: str) -> None:
    """It goes on from what the database says."""
    one.rig.plane._keeper.diverged(job)


async def test_a_server_that_can_read_it_takes_it(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is of an older version: it cannot read what the second one can."""
    async with two(postgresql_url, tmp_path) as (old, new, _):
        job = await old.rig.run()
        read = old.rig.store.load_jobs

        async def as_newer(job_ids: Any) -> Any:
            return [
                replace(each, state_text=newer_than_this(each.state_text)) for each in await read(job_ids)
            ]

        monkeypatch.setattr(old.rig.store, "load_jobs", as_newer)
        load_again(old, job)
        await until(lambda: new.owns(job), "the other one takes it")
        assert new.rig.kind(job) == "Executing" and not new.rig.driver.dead.is_set()
        for server in (old, new):
            answer = await server.http.get(f"/jobs/{job}")
            assert answer.status_code == 200 and answer.json()["state"] == "RUNNING"
            (only,) = (await server.http.get("/jobs")).json()["jobs"]
            assert (only["status"], "unreadable" in only) == ("RUNNING", server is old)
            assert (await server.http.get("/health/ready")).json()["warnings"] == [], "somebody serves it"


async def test_it_does_not_go_to_and_fro_between_servers_that_cannot(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first one does not hand its second job over while the test prepares it, or changes the other one.
    monkeypatch.setattr(ownership, "IMBALANCE", 3)
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()
        other = await another(first.rig)
        await write_as_newer(first.rig.store, job)

        async def lease() -> tuple[str, int]:
            def read(connection: Any) -> tuple[str, int]:
                query = text("SELECT owner, epoch FROM leases WHERE job_id = :job")
                owner, epoch = connection.execute(query, {"job": job}).one()
                return str(owner), int(epoch)

            return await first.rig.store.read(read)

        load_again(first, job)
        await unreadable_to(first, job)
        await unreadable_to(second, job)
        await until(lambda: nobodys(lease), "it is given up")
        given_up = await lease()
        assert given_up[1] <= 4, "each has tried once"
        for server in (first, second, first, second):
            # Another round of claims and renewals.
            await server.cluster._ownership._renew()
            (warning,) = (await server.http.get("/health/ready")).json()["warnings"]
            assert job in warning
            assert (await server.http.get(f"/jobs/{job}")).status_code == 409
            assert (await server.http.get(f"/jobs/{other}")).status_code == 200
        assert await lease() == given_up
        assert first.rig.host.drivers[0].kills == 0


async def nobodys(lease: Any) -> bool:
    return str((await lease())[0]).endswith("/nobody")


async def test_whoever_owns_a_damaged_job_ends_it_and_all_show_it(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()
        driver = first.rig.driver
        await rewrite(first.rig.store, job, *DAMAGE["a state"])
        load_again(first, job)
        await until_failed(first.rig, job)
        assert driver.dead.is_set()
        for server in (first, second):
            (only,) = (await server.http.get("/jobs")).json()["jobs"]
            assert only["status"] == "FAILED" and only["unreadable"]
        assert (await second.http.delete(f"/jobs/{job}")).status_code == 200
        for server in (first, second):
            assert (await server.http.get("/jobs")).json()["jobs"] == []
            assert (await server.http.get(f"/jobs/{job}")).status_code == 404


async def test_a_damaged_job_whose_server_has_gone_is_ended_by_the_next_one(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()
        driver = first.rig.driver
        driver.hold_kill = asyncio.Event()
        await rewrite(first.rig.store, job, *DAMAGE["a state"])
        load_again(first, job)
        await until(lambda: driver.kills > 0, "its driver is being ended")
        (only,) = (await second.http.get("/jobs")).json()["jobs"]
        assert only["status"] == "RUNNING" and only["unreadable"]
        await first.rig.plane.close()
        await first.rig.store.expire_leases()
        driver.hold_kill.set()
        await until_failed(second.rig, job)
        assert driver.dead.is_set()
