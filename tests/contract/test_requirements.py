"""PUT and GET of resource requirements as they are meant to be used: versions, keys, dry runs, reasons, races."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.api.app import create_app
from app.store import statements
from app.store.errors import OutcomeUnknown, StoreError, StoreUnavailable
from tests.contract.test_bad_requirements import GOOD, path_of
from tests.contract.world import GRAPH, World, bounds, open_world

OTHER = bounds(flights=(1, 3), delays=(1, 3), store=(1, 1))


async def test_put_is_visible_at_once_and_drives_the_job(any_world: World) -> None:
    world = any_world
    job_id = await world.running()
    pid = world.driver().ref.pid
    assert (await world.http.get(path_of(job_id))).headers["etag"] == '"1"'
    answer = await world.put(job_id, GOOD, **{"X-Slotwise-Reason": "the evening peak"})
    assert (answer.status_code, answer.json(), answer.headers["etag"]) == (200, {}, '"2"')
    shown = await world.http.get(path_of(job_id))
    assert shown.headers["etag"] == '"2"'
    vertices = {vertex["name"]: vertex["id"] for vertex in (await world.get(f"/jobs/{job_id}"))["vertices"]}
    assert shown.json() == {vertices[name]: entry for name, entry in GOOD.items()}
    await world.completed(job_id, 2)
    parallelism = {
        vertex["name"]: vertex["parallelism"] for vertex in (await world.get(f"/jobs/{job_id}"))["vertices"]
    }
    assert parallelism == {"flights": 4, "delays": 4, "store": 1}
    assert (await world.get(f"/jobs/{job_id}"))["driverPid"] == pid
    record = (await world.get(f"/jobs/{job_id}/rescales/history"))[0]
    assert record["triggerCause"] == "UPDATE_REQUIREMENT"
    assert record["terminatedReason"] == "SUCCEEDED"
    assert (record["rung"], record["requestedBy"], record["reason"]) == (
        "in-place",
        "anonymous",
        "the evening peak",
    )
    assert record["outputGapInMillis"] == 3
    entry = record["vertices"][vertices["delays"]]
    assert (entry["preRescaleParallelism"], entry["postRescaleParallelism"]) == (2, 4)


async def test_ids_in_upper_case_and_names_are_the_same_keys(world: World) -> None:
    job_id = await world.running()
    shown = await world.get(path_of(job_id))
    upper = {key.upper(): {"parallelism": {"lowerBound": 1, "upperBound": 1}} for key in shown}
    assert (await world.http.put(path_of(job_id.upper()), json=upper)).status_code == 200
    assert (await world.put(job_id, bounds(flights=(1, 1), delays=(1, 1), store=(1, 1)))).headers[
        "etag"
    ] == '"2"'
    assert (await world.http.get("/v1" + path_of(job_id) + "/")).headers["etag"] == '"2"'


async def test_an_identical_body_changes_and_records_nothing(any_world: World) -> None:
    job_id = await any_world.running()
    first = await any_world.put(job_id, GOOD)
    await any_world.completed(job_id, 2)
    before = await any_world.get(f"/jobs/{job_id}/rescales/history")
    again = await any_world.put(job_id, GOOD, **{"X-Slotwise-Reason": "another reason"})
    assert (again.status_code, again.json(), again.headers["etag"]) == (200, {}, first.headers["etag"])
    assert await any_world.get(f"/jobs/{job_id}/rescales/history") == before


@pytest.mark.parametrize("key", ["", "a" * 256, "with blank", "tab\tbed", "umläut"])
async def test_bad_idempotency_keys(world: World, key: str) -> None:
    job_id = await world.running()
    answer = await world.http.put(path_of(job_id), json=GOOD, headers={"Idempotency-Key": key.encode()})
    assert answer.status_code == 400


async def test_reason_is_free_text_of_bounded_length(world: World) -> None:
    job_id = await world.running()
    for bad in ("x" * 1001, "bell\x07"):
        answer = await world.http.put(path_of(job_id), json=GOOD, headers={"X-Slotwise-Reason": bad.encode()})
        assert answer.status_code == 400
    reason = "Größer: 高峰 🚀 'quoted\""
    await world.http.put(path_of(job_id), json=GOOD, headers={"X-Slotwise-Reason": reason.encode()})
    assert (await world.get(f"/jobs/{job_id}/rescales/history"))[0]["reason"] == reason


async def test_headers_given_twice_are_refused(world: World) -> None:
    job_id = await world.running()
    for name, values in {
        "If-Match": ('"1"', '"2"'),
        "Idempotency-Key": ("a", "b"),
        "X-Slotwise-Reason": ("a", "b"),
    }.items():
        headers = [(name, value) for value in values]
        assert (await world.http.put(path_of(job_id), json=GOOD, headers=headers)).status_code == 400


async def test_dry_run_says_what_would_happen_and_changes_nothing(any_world: World) -> None:
    world = any_world
    job_id = await world.running()
    history = await world.get(f"/jobs/{job_id}/rescales/history")
    answer = await world.http.put(path_of(job_id), json=GOOD, params={"dryRun": "true"})
    assert answer.status_code == 200
    plan = answer.json()
    ids = {name: await world.vertex(job_id, name) for name in GOOD}
    assert plan["currentParallelism"] == {ids["flights"]: 2, ids["delays"]: 2, ids["store"]: 1}
    assert plan["parallelism"] == {ids["flights"]: 4, ids["delays"]: 4, ids["store"]: 1}
    assert (plan["slotsBefore"], plan["slotsAfter"], plan["rung"], plan["refused"]) == (3, 5, "in-place", [])
    refused = await world.http.put(
        path_of(job_id), json=bounds(flights=(1, 4), delays=(3, 2), nope=(1, 1)), params={"dryRun": "true"}
    )
    assert refused.status_code == 200
    assert refused.json()["parallelism"] is None
    assert len(refused.json()["refused"]) == 3
    assert (await world.http.get(path_of(job_id))).headers["etag"] == '"1"'
    assert await world.get(f"/jobs/{job_id}/rescales/history") == history


async def test_concurrent_puts_are_put_in_order_and_none_is_refused(any_world: World) -> None:
    world = any_world
    job_id = await world.running()
    bodies = [bounds(flights=(1, 1 + number % 5), delays=(1, 4), store=(1, 1)) for number in range(40)]
    answers = await asyncio.gather(*(world.put(job_id, body) for body in bodies))
    assert {answer.status_code for answer in answers} == {200}
    versions = [int(answer.headers["etag"].strip('"')) for answer in answers]
    last = (await world.http.get(path_of(job_id))).headers["etag"]
    assert max(versions) == int(last.strip('"'))
    body = bodies[max(range(40), key=lambda index: (versions[index], index))]
    upper = body["flights"]["parallelism"]["upperBound"]
    assert (await world.get(path_of(job_id)))[await world.vertex(job_id, "flights")]["parallelism"][
        "upperBound"
    ] == upper


async def test_what_was_answered_survives_a_restart(database_url: str, tmp_path: Any) -> None:
    key = {"Idempotency-Key": "kept", "X-Slotwise-Reason": "why not"}
    async with open_world(database_url, tmp_path) as world:
        job_id = await world.running()
        await world.put(job_id, GOOD, **key)
        await world.completed(job_id, 2)
        before = await world.get(f"/jobs/{job_id}/rescales/history")
        shown = await world.get(path_of(job_id))
        for lease in await world.store.renew_leases():
            await world.store.release_lease(lease, 1)
    async with open_world(database_url, tmp_path) as world:
        assert await world.get(path_of(job_id)) == shown
        assert (await world.put(job_id, GOOD, **key)).headers["etag"] == '"2"'
        history = await world.get(f"/jobs/{job_id}/rescales/history")
        assert [record for record in history if record in before] == before


async def test_of_changes_in_doubt_only_a_submission_is_not_to_be_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await world.running()
    commit = world.store.commit
    outcomes: list[StoreError] = []

    async def doubtful(unit: Any) -> None:
        if not outcomes:
            return await commit(unit)
        raise outcomes.pop(0)

    monkeypatch.setattr(world.store, "commit", doubtful)
    outcomes += [OutcomeUnknown("The connection was lost."), StoreUnavailable("The database is away.")]
    answer = await world.http.post("/jobs", json=GRAPH)
    assert answer.status_code == 503 and "not known whether job" in answer.text
    assert "retry-after" not in answer.headers
    # A PUT names what is to be, and may be repeated.
    outcomes += [OutcomeUnknown("The connection was lost.")]
    answer = await world.put(job_id, GOOD)
    assert answer.status_code == 503 and "to see whether it was" in answer.text
    assert answer.headers["retry-after"] == "1"


async def test_readiness_follows_the_database(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await world.http.get("/health/ready")).json() == {"status": "ready", "warnings": []}

    async def refuse() -> None:
        raise StoreUnavailable("The database cannot be reached.")

    monkeypatch.setattr(world.store, "ping", refuse)
    answer = await world.http.get("/health/ready")
    assert (answer.status_code, answer.json()) == (503, {"errors": ["The database cannot be reached."]})
    assert "retry-after" in answer.headers
    assert (await world.http.get("/health/live")).status_code == 200


async def test_what_is_not_well_and_hinders_nobody_is_told_beside(world: World) -> None:
    warning = "The server meets a defect of its own when it looks at the cluster."
    info = replace(world.info, warnings=lambda: [warning])
    app = create_app(world.control_plane, info=info)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
        answer = await http.get("/health/ready")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "warnings": [warning]})


async def test_readiness_follows_the_last_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(connection: object) -> None:
        raise StoreUnavailable("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(statements, "write_and_take_back", full)
        world.store._writer.problem = StoreUnavailable("The disk is full.")
        answer = await world.http.get("/health/ready")
        assert (answer.status_code, answer.json()) == (503, {"errors": ["The disk is full."]})
    await world.submit(GRAPH)
    assert (await world.http.get("/health/ready")).status_code == 200
