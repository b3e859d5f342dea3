"""A job that is stored and cannot be read: what clients are told of it, what they can do, and that others go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from app.api.app import create_app
from app.api.info import ServerInfo
from app.plugins.livy.numbers import ADD_NUMBER
from app.plugins.livy.router import Livy
from app.settings import Settings
from app.store.store import Store
from app.worker.ownership import leases as ownership
from app.worker.ownership import unreadable
from app.worker.views import RequirementsUpdate
from tests.contract.members import Server, two, until
from tests.unit.worker.fakes import Rig, graph, rig_on

WIDER = RequirementsUpdate({name: (1, 4) for name in ("events", "counts", "store")})

# Where the damage is: a rule of today that a stored graph breaks, a field of tomorrow, or nonsense.
DAMAGE = {
    "a graph that is refused today": (
        "jobs",
        "document",
        '{"name": "counts", "type": "OTHER", "vertices": []}',
    ),
    "a graph that is no JSON": ("jobs", "document", '{"name": "cou'),
    "a graph of another shape": ("jobs", "document", "[1, 2]"),
    "options": ("jobs", "options", '{"restart_strategy": 7}'),
    "a state": ("job_states", "state", '{"phase": {"kind": "OfTomorrow"}}'),
}


async def rewrite(store: Store, job: str, table: str, column: str, value: str) -> str:
    """Returns what was there before."""

    def change(connection: Any) -> str:
        who = {"job": job}
        before = connection.execute(
            text(f"SELECT {column} FROM {table} WHERE job_id = :job"), who
        ).scalar_one()
        connection.execute(
            text(f"UPDATE {table} SET {column} = :it WHERE job_id = :job"), {**who, "it": value}
        )
        return str(before)

    return await store.write(change)


async def another(rig: Rig) -> str:
    """A second job that runs."""
    job = await rig.plane.submit(graph(2), {})
    await rig.until(lambda: len(rig.host.drivers) == 2 and rig.driver.spec is not None)
    await rig.bring_up(job, 1)
    return job


@asynccontextmanager
async def served(rig: Rig) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(data_dir=rig.places.jobs_dir.parent, slots=8)
    app = create_app(rig.plane, info=ServerInfo("0.1.0", 8, "http://localhost", settings), plugins=[Livy()])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        yield http


async def test_a_livy_batch_that_cannot_be_read_has_a_state_and_can_be_ended(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.plane.submit(graph(2), {}, rows=[ADD_NUMBER])
        await rig.bring_up(job, 1)
        await rig.plane.close()
        await rewrite(rig.store, job, *DAMAGE["a state"])
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again, served(again) as http:
        assert (await http.get("/batches/1/state")).json() == {"id": 1, "state": "running"}
        assert (await http.get("/batches/1")).status_code == 409
        (listed,) = (await http.get("/batches")).json()["sessions"]
        assert (listed["id"], listed["name"], listed["state"], listed["appId"]) == (
            1,
            "counts",
            "running",
            job,
        )
        assert (await http.delete("/batches/1")).json() == {"msg": "deleted"}
        assert (await http.get("/batches/1/state")).json()["state"] == "killed"


@pytest.mark.parametrize("what", DAMAGE)
async def test_it_is_listed_explained_canceled_and_forgotten(
    database_url: str, tmp_path: Path, what: str
) -> None:
    table, column, value = DAMAGE[what]
    async with rig_on(database_url, tmp_path) as rig:
        job = await rig.run()
        driver = rig.driver
        other = await another(rig)
        await rig.plane.update_requirements(job, WIDER)
        await rig.plane.close()
        await rewrite(rig.store, job, table, column, value)
    async with rig_on(database_url, tmp_path, host=rig.host) as again, served(again) as http:
        assert again.kind(other) == "Executing", "the other job is served"
        listed = {one["id"]: one for one in (await http.get("/jobs")).json()["jobs"]}
        assert listed[other] == {"id": other, "status": "RUNNING"}
        assert (listed[job]["status"], bool(listed[job]["unreadable"])) == ("RUNNING", True)
        shown = {one["jid"]: one for one in (await http.get("/jobs/overview")).json()["jobs"]}
        assert (shown[job]["name"], shown[job]["state"], shown[job]["tasks"]["total"]) == (
            "counts",
            "RUNNING",
            0,
        )
        assert list(shown) == [other, job] and "unreadable" not in shown[other]
        assert (await http.get("/overview")).json()["jobs-running"] == 2
        for method, path in (("GET", ""), ("GET", "/plan"), ("POST", "/stop"), ("GET", "/explanation")):
            answer = await http.request(method, f"/jobs/{job}{path}")
            assert answer.status_code == 409, (path, answer.text)
            (sentence,) = answer.json()["errors"]
            assert sentence.startswith(f"Job {job} cannot be read by this server: ") and "ancel" in sentence
            assert listed[job]["unreadable"] in sentence
        assert (await http.get(f"/jobs/{job}/status")).json() == {"status": "RUNNING"}
        put = await http.put(f"/jobs/{job}/resource-requirements", json={})
        assert put.status_code in (400, 409)
        (warning,) = (await http.get("/health/ready")).json()["warnings"]
        assert warning.startswith("1 job(s) cannot be read") and job in warning
        refused = await http.delete(f"/jobs/{job}")
        assert refused.status_code == 409 and "while it is RUNNING" in refused.text
        assert not driver.dead.is_set(), "its driver is left alone"
        for _ in range(2):
            assert (await http.patch(f"/jobs/{job}?mode=cancel")).status_code == 202
        assert driver.dead.is_set() and [one.state for one in await again.store.attempts(job)] == ["DEAD"]
        listed = {one["id"]: one for one in (await http.get("/jobs")).json()["jobs"]}
        assert (listed[job]["status"], bool(listed[job]["unreadable"])) == ("CANCELED", True)
        assert all(one.reason is not None for one in await again.store.rescales(job)), (
            "no record is left open"
        )
        assert (await http.delete(f"/jobs/{job}")).status_code == 200
        assert [one["id"] for one in (await http.get("/jobs")).json()["jobs"]] == [other]
        assert (await http.get("/health/ready")).json()["warnings"] == []
        assert (await http.get(f"/jobs/{job}")).status_code == 404
        assert again.kind(other) == "Executing" and not rig.driver.dead.is_set()


async def test_one_that_has_ended_is_listed_and_forgotten(database_url: str, tmp_path: Path) -> None:
    async with rig_on(database_url, tmp_path) as rig:
        job = await rig.run()
        await rig.plane.cancel(job)
        await rig.until(lambda: rig.kind(job) == "Finished")
        await rewrite(rig.store, job, *DAMAGE["a state"])
    async with rig_on(database_url, tmp_path) as again, served(again) as http:
        (listed,) = (await http.get("/jobs")).json()["jobs"]
        assert listed["status"] == "CANCELED" and listed["unreadable"]
        assert (await http.patch(f"/jobs/{job}?mode=cancel")).status_code == 202
        assert "DELETE" in (await http.get(f"/jobs/{job}")).json()["errors"][0]
        assert (await http.delete(f"/jobs/{job}")).status_code == 200
        assert (await http.get("/jobs")).json() == {"jobs": []}


async def test_its_slots_are_not_given_to_others(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path, slots=4) as rig:
        job = await rig.run(3)
        await rewrite(rig.store, job, *DAMAGE["a graph that is refused today"])
    async with rig_on(sqlite_url, tmp_path, slots=4, host=rig.host) as again:
        other = await again.plane.submit(graph(4), {})
        await again.until(lambda: again.plane.job(other).state.slots)
        assert len(again.plane.job(other).state.slots) == 1
        await again.plane.cancel(job)
        await again.until(lambda: len(again.plane.job(other).state.slots) == 4, "its slots are free then")


@pytest.mark.parametrize("how", ["it is deleted", "it has ended"])
async def test_its_slots_are_free_when_its_row_says_so(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(unreadable, "LOOK_AGAIN_S", 0.01)
    async with rig_on(sqlite_url, tmp_path, slots=4) as rig:
        job = await rig.run(3)
        before = await rewrite(rig.store, job, *DAMAGE["a graph that is refused today"])
    async with rig_on(sqlite_url, tmp_path, slots=4, host=rig.host) as again:
        other = await again.plane.submit(graph(4), {})
        await again.until(lambda: again.plane.job(other).state.slots)
        ends = how == "it has ended"
        by_hand = "UPDATE job_states SET status = 'CANCELED', ended_ms = 1" if ends else "DELETE FROM jobs"
        statement = text(f"{by_hand} WHERE job_id = :job")
        await again.store.write(lambda connection: connection.execute(statement, {"job": job}) and None)
        if ends:
            await rewrite(again.store, job, "jobs", "document", before)
        await again.until(lambda: len(again.plane.job(other).state.slots) == 4, "its slots are free then")
        assert again.plane.unreadable_jobs() == []


async def test_it_is_served_when_its_row_is_put_right(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unreadable, "LOOK_AGAIN_S", 0.01)
    async with rig_on(database_url, tmp_path) as rig:
        job = await rig.run()
        before = await rewrite(rig.store, job, *DAMAGE["a graph that is refused today"])
    async with rig_on(database_url, tmp_path, host=rig.host) as again:
        assert [one.job_id for one in again.plane.unreadable_jobs()] == [job]
        await rewrite(again.store, job, "jobs", "document", before)
        await again.until(lambda: again.plane.unreadable_jobs() == [], "it is read again")
        await again.until(lambda: again.is_served(job), "it is served")
        assert again.kind(job) == "Executing" and rig.driver.kills == 0


@pytest.mark.parametrize(("table", "column"), [("jobs", "submitted_ms"), ("job_states", "seq")])
async def test_text_in_a_column_of_numbers_is_damage_of_one_job(
    sqlite_url: str, tmp_path: Path, table: str, column: str
) -> None:
    """SQLite takes it. Lists of all jobs are answered all the same."""
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        other = await another(rig)
        await rewrite_text(rig.store, job, table, column)
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again, served(again) as http:
        listed = {one["id"]: one for one in (await http.get("/jobs")).json()["jobs"]}
        assert listed[job]["unreadable"] == f"A row in {table} has no whole number in {column}."
        assert "unreadable" not in listed[other] and again.kind(other) == "Executing"
        for path in ("/jobs/overview", "/overview", "/taskmanagers", f"/jobs/{job}/status"):
            assert (await http.get(path)).status_code == 200
        assert (await http.get(f"/jobs/{job}")).status_code == 409
        assert (await http.patch(f"/jobs/{job}?mode=cancel")).status_code == 202
        assert (await http.delete(f"/jobs/{job}")).status_code == 200


async def test_an_ended_job_without_an_instant_of_its_end_is_listed_and_forgotten(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        await rig.plane.cancel(job)
        await rig.until(lambda: rig.kind(job) == "Finished")
        await rewrite_text(rig.store, job, "job_states", "ended_ms")
    async with rig_on(sqlite_url, tmp_path) as again, served(again) as http:
        (listed,) = (await http.get("/jobs/overview")).json()["jobs"]
        assert (listed["state"], listed["end-time"]) == ("CANCELED", -1) and listed["unreadable"]
        assert (await http.delete(f"/jobs/{job}")).status_code == 200


async def rewrite_text(store: Store, job: str, table: str, column: str) -> None:
    change = text(f"UPDATE {table} SET {column} = 'today' WHERE job_id = :job").bindparams(job=job)
    await store.write(lambda connection: connection.execute(change))


# ---- several servers


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

        async def cannot(job_ids: Any) -> Any:
            return [replace(each, damage="A field of tomorrow.") for each in await read(job_ids)]

        monkeypatch.setattr(old.rig.store, "load_jobs", cannot)
        load_again(old, job)
        await until(lambda: new.owns(job), "the other one takes it")
        assert new.rig.kind(job) == "Executing" and not new.rig.driver.dead.is_set()
        for server in (old, new):
            answer = await server.http.get(f"/jobs/{job}")
            assert answer.status_code == 200 and answer.json()["state"] == "RUNNING"
            (listed,) = (await server.http.get("/jobs")).json()["jobs"]
            assert (listed["status"], "unreadable" in listed) == ("RUNNING", server is old)
            assert (await server.http.get("/health/ready")).json()["warnings"] == [], "somebody serves it"


async def test_it_does_not_go_to_and_fro_between_servers_that_cannot(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first one does not hand its second job over while the test prepares it, or damages the other one.
    monkeypatch.setattr(ownership, "IMBALANCE", 3)
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()
        other = await another(first.rig)
        before = await rewrite(first.rig.store, job, *DAMAGE["a graph that is refused today"])

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
        # One of them is replaced by one that can read it: here, by a row that can be read.
        await rewrite(first.rig.store, job, "jobs", "document", before)
        await second.rig.plane._keeper.unreadable.read_again(job)
        await until(lambda: second.owns(job), "who can read it takes it")
        assert second.rig.kind(job) == "Executing"


async def nobodys(lease: Any) -> bool:
    return str((await lease())[0]).endswith("/nobody")


async def test_any_of_them_cancels_it(postgresql_url: str, tmp_path: Path) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, _):
        job = await first.rig.run()
        driver = first.rig.driver
        await rewrite(first.rig.store, job, *DAMAGE["a state"])
        load_again(first, job)
        await unreadable_to(second, job)
        answer = await first.http.patch(f"/jobs/{job}?mode=cancel")
        assert answer.status_code == 202 and driver.dead.is_set(), answer.text
        for server in (first, second):
            (listed,) = (await server.http.get("/jobs")).json()["jobs"]
            assert listed["status"] == "CANCELED" and listed["unreadable"]
        assert (await second.http.delete(f"/jobs/{job}")).status_code == 200
        for server in (first, second):
            assert (await server.http.get("/jobs")).json()["jobs"] == []
            assert (await server.http.get(f"/jobs/{job}")).status_code == 404
