"""A job that is stored and cannot be read: what becomes of it, what clients are told, and that other jobs go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from app.store import codec
from app.store.store import Store
from app.worker.views import RequirementsUpdate
from tests.unit.worker.fakes import Rig, graph, rig_on

WIDER = RequirementsUpdate({name: (1, 4) for name in ("events", "counts", "store")})

CANCEL = "?mode=cancel"

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


def newer_than_this(state: str) -> str:
    """``state`` as a newer version would have written it, whatever has changed in it."""
    return state.replace(f'{{"format":{codec.FORMAT},', f'{{"format":{codec.FORMAT + 1},', 1)


async def write_as_newer(store: Store, job: str) -> str:
    """Returns the state that was there before."""
    before = await document_of(store, job, "job_states", "state")
    await rewrite(store, job, "job_states", "state", newer_than_this(before))
    return before


async def listed(http: httpx.AsyncClient) -> dict[str, Any]:
    return {one["id"]: one for one in (await http.get("/jobs")).json()["jobs"]}


async def until_failed(rig: Rig, job: str) -> None:
    def is_failed() -> bool:
        return any(one.job_id == job and one.status == "FAILED" for one in rig.plane.unreadable_jobs())

    await rig.until(is_failed, "it is FAILED")


async def document_of(store: Store, job: str, table: str, column: str) -> str:
    def read(connection: Any) -> str:
        query = text(f"SELECT {column} FROM {table} WHERE job_id = :job")
        return str(connection.execute(query, {"job": job}).scalar_one())

    return await store.read(read)


# ---- damaged rows


async def test_a_damaged_livy_batch_has_a_state(sqlite_url: str, tmp_path: Path) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.plane.submit(graph(2), {}, rows=[ADD_NUMBER])
        await rig.bring_up(job, 1)
        await rig.plane.close()
        await rewrite(rig.store, job, *DAMAGE["a state"])
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again, served(again) as http:
        await until_failed(again, job)
        assert (await http.get("/batches/1/state")).json() == {"id": 1, "state": "dead"}
        assert (await http.get("/batches/1")).status_code == 409
        (only,) = (await http.get("/batches")).json()["sessions"]
        assert (only["id"], only["name"], only["state"], only["appId"]) == (1, "counts", "dead", job)


@pytest.mark.parametrize("what", DAMAGE)
async def test_a_damaged_job_is_failed_once_its_driver_is_gone_and_its_row_is_kept(
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
    driver.hold_kill = asyncio.Event()
    async with rig_on(database_url, tmp_path, host=rig.host) as again, served(again) as http:
        assert again.kind(other) == "Executing", "the other job is served"
        await again.until(lambda: driver.kills > 0, "its driver is being ended")
        found = await listed(http)
        assert found[other] == {"id": other, "status": "RUNNING"}
        assert (found[job]["status"], bool(found[job]["unreadable"])) == ("RUNNING", True)
        shown = {one["jid"]: one for one in (await http.get("/jobs/overview")).json()["jobs"]}
        assert (shown[job]["name"], shown[job]["state"], shown[job]["tasks"]["total"]) == (
            "counts",
            "RUNNING",
            0,
        )
        assert list(shown) == [other, job] and "unreadable" not in shown[other]
        assert (await http.get("/overview")).json()["jobs-running"] == 2
        calls = (("GET", ""), ("GET", "/plan"), ("POST", "/stop"), ("GET", "/explanation"), ("PATCH", CANCEL))
        for method, path in calls:
            answer = await http.request(method, f"/jobs/{job}{path}")
            assert answer.status_code == 409, (path, answer.text)
            (sentence,) = answer.json()["errors"]
            assert sentence.startswith(f"Job {job} cannot be read by this server: ")
            assert found[job]["unreadable"] in sentence and "the job is FAILED" in sentence
        assert (await http.get(f"/jobs/{job}/status")).json() == {"status": "RUNNING"}
        put = await http.put(f"/jobs/{job}/resource-requirements", json={})
        assert put.status_code in (400, 409)
        (warning,) = (await http.get("/health/ready")).json()["warnings"]
        assert warning.startswith("1 job(s) cannot be read") and job in warning
        refused = await http.delete(f"/jobs/{job}")
        assert refused.status_code == 409 and "while it is RUNNING" in refused.text
        driver.hold_kill.set()
        await until_failed(again, job)
        assert driver.dead.is_set() and [one.state for one in await again.store.attempts(job)] == ["DEAD"]
        assert await document_of(again.store, job, table, column) == value, "the row is kept"
        found = await listed(http)
        assert (found[job]["status"], bool(found[job]["unreadable"])) == ("FAILED", True)
        (event,) = [one for one in await status_events(again.store, job) if one["status"] == "FAILED"]
        assert event["cause"] == f"What is stored of the job is damaged: {found[job]['unreadable']}"
        assert all(one.reason is not None for one in await again.store.rescales(job)), (
            "no record is left open"
        )
        (sentence,) = (await http.get(f"/jobs/{job}")).json()["errors"]
        assert sentence.endswith("It is FAILED, and its row is kept until DELETE forgets it.")
        assert (await http.delete(f"/jobs/{job}")).status_code == 200
        assert [one["id"] for one in (await http.get("/jobs")).json()["jobs"]] == [other]
        assert (await http.get("/health/ready")).json()["warnings"] == []
        assert (await http.get(f"/jobs/{job}")).status_code == 404
        assert again.kind(other) == "Executing" and not rig.driver.dead.is_set()


async def status_events(store: Store, job: str) -> list[dict[str, Any]]:
    def read(connection: Any) -> list[dict[str, Any]]:
        query = text("SELECT fields FROM events WHERE job_id = :job AND type = 'status'")
        return [json.loads(row.fields) for row in connection.execute(query, {"job": job})]

    return await store.read(read)


async def test_a_server_that_is_started_again_ends_what_the_one_before_could_not(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        driver = rig.driver
        await rig.plane.close()
        await rewrite(rig.store, job, *DAMAGE["a state"])
    driver.hold_kill = asyncio.Event()
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as second:
        await second.until(lambda: driver.kills > 0, "its driver is being ended")
    assert not driver.dead.is_set()
    driver.hold_kill.set()
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as third:
        await until_failed(third, job)
        assert driver.dead.is_set()


async def test_a_job_that_has_ended_and_is_damaged_is_listed_and_forgotten(
    database_url: str, tmp_path: Path
) -> None:
    async with rig_on(database_url, tmp_path) as rig:
        job = await rig.run()
        await rig.plane.cancel(job)
        await rig.until(lambda: rig.kind(job) == "Finished")
        await rewrite(rig.store, job, *DAMAGE["a state"])
    async with rig_on(database_url, tmp_path) as again, served(again) as http:
        (only,) = (await http.get("/jobs")).json()["jobs"]
        assert only["status"] == "CANCELED" and only["unreadable"]
        assert (await http.patch(f"/jobs/{job}?mode=cancel")).status_code == 409
        assert "DELETE" in (await http.get(f"/jobs/{job}")).json()["errors"][0]
        assert (await http.delete(f"/jobs/{job}")).status_code == 200
        assert (await http.get("/jobs")).json() == {"jobs": []}


async def test_its_slots_are_not_given_to_others_before_its_driver_is_gone(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path, slots=4) as rig:
        job = await rig.run(3)
        driver = rig.driver
        await rewrite(rig.store, job, *DAMAGE["a graph that is refused today"])
    driver.hold_kill = asyncio.Event()
    async with rig_on(sqlite_url, tmp_path, slots=4, host=rig.host) as again:
        other = await again.plane.submit(graph(4), {})
        await again.until(lambda: driver.kills > 0 and again.plane.job(other).state.slots)
        assert len(again.plane.job(other).state.slots) == 1
        driver.hold_kill.set()
        await again.until(lambda: len(again.plane.job(other).state.slots) == 4, "its slots are free then")


# ---- rows of a newer version


async def test_a_job_that_a_newer_version_has_written_is_left_alone(
    database_url: str, tmp_path: Path
) -> None:
    async with rig_on(database_url, tmp_path, slots=4) as rig:
        job = await rig.run(3)
        driver = rig.driver
        await rig.plane.close()
        before = await write_as_newer(rig.store, job)
    async with rig_on(database_url, tmp_path, slots=4, host=rig.host) as again, served(again) as http:
        found = await listed(http)
        assert (found[job]["status"], found[job]["unreadable"]) == (
            "RUNNING",
            "A newer version of Slotwise has written it.",
        )
        for method, path in (("GET", ""), ("POST", "/stop"), ("PATCH", CANCEL)):
            answer = await http.request(method, f"/jobs/{job}{path}")
            assert answer.status_code == 409, (path, answer.text)
            assert "Start a server of the version that wrote it." in answer.text
        assert (await http.delete(f"/jobs/{job}")).status_code == 409
        other = await again.plane.submit(graph(4), {})
        await asyncio.sleep(1)
        assert driver.kills == 0 and [one.state for one in await again.store.attempts(job)] == ["LIVE"]
        assert len(again.plane.job(other).state.slots) == 1, "it keeps its slots"
    async with rig_on(database_url, tmp_path, slots=4, host=rig.host) as newer:
        # To it, what is written is readable.
        await rewrite(newer.store, job, "job_states", "state", before)
    async with rig_on(database_url, tmp_path, slots=4, host=rig.host) as newer:
        assert newer.kind(job) == "Executing" and driver.kills == 0


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
        found = await listed(http)
        assert found[job]["unreadable"] == f"A row in {table} has no whole number in {column}."
        assert "unreadable" not in found[other] and again.kind(other) == "Executing"
        for path in ("/jobs/overview", "/overview", "/taskmanagers", f"/jobs/{job}/status"):
            assert (await http.get(path)).status_code == 200
        assert (await http.get(f"/jobs/{job}")).status_code == 409
        await until_failed(again, job)
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
        (only,) = (await http.get("/jobs/overview")).json()["jobs"]
        assert (only["state"], only["end-time"]) == ("CANCELED", -1) and only["unreadable"]
        assert (await http.delete(f"/jobs/{job}")).status_code == 200


async def rewrite_text(store: Store, job: str, table: str, column: str) -> None:
    change = text(f"UPDATE {table} SET {column} = 'today' WHERE job_id = :job").bindparams(job=job)
    await store.write(lambda connection: connection.execute(change))
