"""The scaling policy over REST: durable, versioned, with a history, in force at once, refused in clear sentences."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.contract.test_slot_share import graph
from tests.contract.world import GRAPH, World, bounds, eventually, open_world

FULL = {"allVertices": {"floor": None, "ceiling": 3}, "vertices": {}}
NONE = {"allVertices": {"floor": None, "ceiling": None}, "vertices": {}}


def path_of(job_id: str) -> str:
    return f"/jobs/{job_id}/scaling-policy"


async def declare(world: World, job_id: str, body: Any, **headers: str) -> httpx.Response:
    return await world.http.put(path_of(job_id), json=body, headers=headers)


async def in_force(world: World, job_id: str, wanted: list[int]) -> None:
    """The job comes to run at ``wanted``, in the order of its vertices."""

    async def there() -> bool:
        vertices = (await world.get(f"/jobs/{job_id}/explanation"))["vertices"].values()
        return [vertex["inForce"] for vertex in vertices] == wanted

    await eventually(there, f"the job runs at {wanted}")


async def test_a_policy_is_read_set_and_removed_with_its_version_and_leaves_a_history(
    any_world: World,
) -> None:
    world = any_world
    job_id = await world.running(graph("one", 4))
    read = await world.http.get(path_of(job_id))
    assert (read.json(), read.headers["etag"]) == (NONE, '"1"')
    assert await world.get(f"{path_of(job_id)}/history") == []
    store = await world.vertex(job_id, "store")
    body = {"allVertices": {"ceiling": 3}, "vertices": {"store": {"floor": 2}}}
    answer = await declare(world, job_id, body, **{"X-Slotwise-Reason": "the database", "If-Match": '"1"'})
    assert (answer.status_code, answer.json(), answer.headers["etag"]) == (200, {}, '"2"')
    read = await world.http.get(path_of(job_id))
    shown = {**FULL, "vertices": {store: {"floor": 2, "ceiling": None}}}
    assert (read.json(), read.headers["etag"]) == (shown, '"2"')
    again = await declare(world, job_id, shown, **{"X-Slotwise-Reason": "other words"})
    assert again.headers["etag"] == '"2"', "nothing changed; what GET answers can be PUT"
    removed = await world.http.delete(path_of(job_id), headers={"If-Match": '"2"'})
    assert (removed.status_code, removed.json(), removed.headers["etag"]) == (200, {}, '"3"')
    history = await world.get(f"{path_of(job_id)}/history")
    assert [one.pop("changedTimestampInMillis") > 1_600_000_000_000 for one in history] == [True, True]
    assert history == [
        {**NONE, "version": 3, "requestedBy": "anonymous", "reason": None},
        {**shown, "version": 2, "requestedBy": "anonymous", "reason": "the database"},
    ]


async def test_it_holds_whatever_is_declared_and_the_requirements_show_what_was_declared(
    any_world: World,
) -> None:
    """The loop of Flink's autoscaler: GET, compare, PUT the lower bound 1 and an upper bound of its own."""
    world = any_world
    job_id = await world.running(graph("one", 4))
    await declare(world, job_id, FULL, **{"X-Slotwise-Reason": "budget"})
    await in_force(world, job_id, [3, 3])
    vertices = {vertex["name"]: vertex["id"] for vertex in (await world.get(f"/jobs/{job_id}"))["vertices"]}
    await declare(world, job_id, {**FULL, "vertices": {"numbers": {"floor": 2}}})
    put = {vertex: {"parallelism": {"lowerBound": 1, "upperBound": 1}} for vertex in vertices.values()}
    for _ in range(3):
        assert (await world.put(job_id, put)).status_code == 200
        read = await world.http.get(f"/jobs/{job_id}/resource-requirements")
        assert (read.json(), read.headers["etag"]) == (put, '"2"'), "and so it does not PUT for ever"
    await in_force(world, job_id, [2, 1])
    records = await world.get(f"/jobs/{job_id}/rescales/history", cause="UPDATE_POLICY")
    assert [(one["reason"], one["requestedBy"]) for one in records] == [
        (None, "anonymous"),
        ("budget", "anonymous"),
    ]
    explained = await world.get(f"/jobs/{job_id}/explanation")
    numbers = explained["vertices"][vertices["numbers"]]
    assert (numbers["lowerBound"], numbers["upperBound"]) == (1, 1)
    assert (numbers["effectiveLowerBound"], numbers["effectiveUpperBound"]) == (2, 2)
    assert (
        "numbers may run at 2 to 2; 1 to 1 was declared. That is the floor 2 of the scaling policy."
        in explained["sentences"]
    )
    assert explained["scalingPolicy"]["version"] == 3


async def test_a_dry_run_says_what_would_happen_and_changes_nothing(world: World) -> None:
    job_id = await world.running(graph("one", 4))
    answer = await world.http.put(path_of(job_id), json=FULL, params={"dryRun": "true"})
    told = answer.json()
    assert (set(told["parallelism"].values()), told["rung"], told["refused"]) == ({3}, "in-place", [])
    assert told["explanation"][0] == (
        "numbers may run at 1 to 3; 1 to 4 was declared. That is the ceiling 3 of the scaling policy."
    )
    refused = await world.http.put(
        path_of(job_id), json={"vertices": {"store": {"floor": 4000}}}, params={"dryRun": "true"}
    )
    assert "is above its max parallelism" in refused.json()["refused"][0]
    assert await world.get(path_of(job_id)) == NONE
    await declare(world, job_id, FULL)
    dry = await world.http.put(
        f"/jobs/{job_id}/resource-requirements",
        json=bounds(numbers=(1, 8), store=(1, 8)),
        params={"dryRun": "true"},
    )
    assert set(dry.json()["parallelism"].values()) == {3}, "a PUT of bounds would lead to no more"


WHAT = "a whole number between 1 and 32768, or null for none"
BAD: list[tuple[Any, str]] = [
    ({}, "The request body sets nothing: "),
    ({"all": {}}, "The field 'all' is not known: only allVertices and vertices are."),
    (
        {"allVertices": 5},
        "For all vertices, an object with floor and ceiling is expected, found the number 5.",
    ),
    ({"allVertices": {"floor": 0}}, f"For all vertices, floor should be {WHAT}, found the number 0."),
    (
        {"allVertices": {"flor": 1}},
        "For all vertices, the field 'flor' is not known: only floor and ceiling are.",
    ),
    ({"allVertices": {"ceiling": 1.0}}, f"For all vertices, ceiling should be {WHAT}, found the number 1.0."),
    ({"allVertices": {"ceiling": True}}, f"For all vertices, ceiling should be {WHAT}, found true."),
    ({"vertices": []}, "The field vertices should be an object with a member per vertex, found an array."),
    ({"vertices": {"store": []}}, "For job vertex 'store', an object with floor and ceiling is expected"),
    (
        {"vertices": {"store": {"floor": "2"}}},
        f"For job vertex 'store', floor should be {WHAT}, found the text '2'.",
    ),
    (
        {"vertices": {"store": {"floor": 10**12}}},
        f"For job vertex 'store', floor should be {WHAT}, found the number 1000000000000.",
    ),
    ({"vertices": {"nope": {"floor": 2}}}, "Job vertex nope was not found in the job graph."),
    ({"vertices": {"f" * 32: {}}}, f"Job vertex {'f' * 32} was not found in the job graph."),
    (
        {"vertices": {"store": {"floor": 3, "ceiling": 2}}},
        "the floor 3 (of its own) is above the ceiling 2 (of its own).",
    ),
    (
        {"allVertices": {"ceiling": 2}, "vertices": {"store": {"floor": 3}}},
        "the floor 3 (of its own) is above the ceiling 2 (for all vertices).",
    ),
    ({"vertices": {"store": {"floor": 4000}}}, "the floor 4000 (of its own) is above its max parallelism"),
    ([], "The request body should be a JSON object"),
    (None, "The request body is empty: "),
    ("text", "The request body should be a JSON object"),
]


@pytest.mark.parametrize(("body", "sentence"), BAD, ids=[str(body)[:40] for body, _ in BAD])
async def test_what_is_wrong_is_refused_and_nothing_has_changed(
    world: World, body: Any, sentence: str
) -> None:
    job_id = await world.submit(graph("one", 4))
    answer = await world.http.put(path_of(job_id), **({} if body is None else {"json": body}))
    assert answer.status_code == 400, answer.text
    assert any(sentence in error for error in answer.json()["errors"]), answer.text
    assert await world.get(path_of(job_id)) == NONE


async def test_a_vertex_that_is_given_twice_is_refused(world: World) -> None:
    job_id = await world.submit(graph("one", 4))
    store = await world.vertex(job_id, "store")
    answer = await declare(world, job_id, {"vertices": {"store": {"floor": 1}, store.upper(): {"floor": 2}}})
    assert answer.status_code == 400
    assert "are given twice (its id and its name, or in two cases)" in answer.json()["errors"][0]


async def test_a_floor_above_the_state_partitions_is_refused_and_so_are_fewer_partitions_than_a_floor(
    world: World,
) -> None:
    job_id = await world.submit(GRAPH)
    most = {one["name"]: one["maxParallelism"] for one in (await world.get(f"/jobs/{job_id}"))["vertices"]}
    answer = await declare(world, job_id, {"vertices": {"delays": {"floor": most["delays"] + 1}}})
    assert answer.status_code == 400
    assert f"is above its state partitions, {most['delays']}" in answer.json()["errors"][0]
    floor = most["delays"]
    assert (await declare(world, job_id, {"vertices": {"delays": {"floor": floor}}})).status_code == 200
    wanted = bounds(flights=(1, 1), delays=(1, 1), store=(1, 1))
    wanted["delays"]["statePartitions"] = floor - 1
    answer = await world.put(job_id, wanted)
    assert answer.status_code == 400
    assert f"are fewer than its floor {floor} (scaling policy)" in answer.json()["errors"][0]


async def test_a_floor_beyond_the_cap_is_refused_and_a_cap_below_the_floor(world: World) -> None:
    job_id = await world.running(graph("one", 4))
    share = {"weight": 1, "priority": 0, "cap": 2}
    assert (await world.http.put(f"/jobs/{job_id}/slot-share", json=share)).status_code == 200
    answer = await declare(world, job_id, {"allVertices": {"floor": 3}})
    assert answer.status_code == 409
    assert "The lower bounds need 3 slot(s), and the cap of the job is 2" in answer.json()["errors"][0]
    assert (await declare(world, job_id, {"allVertices": {"floor": 2}})).status_code == 200
    answer = await world.http.put(f"/jobs/{job_id}/slot-share", json={**share, "cap": 1})
    assert answer.status_code == 409, "the floor counts among the lower bounds"


async def test_a_removal_goes_by_the_version_and_the_end_of_the_job_too(world: World) -> None:
    job_id = await world.running(graph("one", 2))
    assert (await declare(world, job_id, FULL)).status_code == 200
    for version in ('"7"', '"x"', 'W/"1"', '"1"'):
        removed = await world.http.delete(path_of(job_id), headers={"If-Match": version})
        assert removed.status_code == 412, version
        assert "at version 2" in removed.json()["errors"][0]
    assert (await world.http.get(path_of("f" * 32) + "/history")).status_code == 404
    await world.http.patch(f"/jobs/{job_id}?mode=cancel")
    await world.status(job_id, "CANCELED")
    answer = await world.http.delete(path_of(job_id))
    assert answer.status_code == 409
    assert "CANCELED: its scaling policy cannot be changed" in answer.json()["errors"][0]
    assert await world.get(path_of(job_id)) == FULL


async def test_a_dry_run_of_a_version_that_is_stale_is_refused(world: World) -> None:
    job_id = await world.running(graph("one", 2))
    for path, body in (
        (path_of(job_id), FULL),
        (f"/jobs/{job_id}/resource-requirements", bounds(numbers=(1, 3), store=(1, 1))),
    ):
        for stale in ('"2"', '"abc"', 'W/"1"'):
            answer = await world.http.put(
                path, json=body, params={"dryRun": "true"}, headers={"If-Match": stale}
            )
            assert answer.status_code == 412, (path, stale)


async def test_the_history_has_pages(world: World) -> None:
    job_id = await world.submit(graph("one", 2))
    for ceiling in range(1, 6):
        await declare(world, job_id, {"allVertices": {"ceiling": ceiling}})
    seen, path = [], f"{path_of(job_id)}/history?limit=2"
    while True:
        answer = await world.http.get(path)
        seen += [one["version"] for one in answer.json()]
        if "link" not in answer.headers:
            break
        path = answer.headers["link"].partition(">")[0].removeprefix("<")
    assert seen == [6, 5, 4, 3, 2]
    for bad in ("limit=0", "limit=x", "after=-1", "nope=1"):
        assert (await world.http.get(f"{path_of(job_id)}/history?{bad}")).status_code == 400


async def test_what_was_set_survives_a_restart(database_url: str, tmp_path: Any) -> None:
    async with open_world(database_url, tmp_path, slot_holding_ms=0) as world:
        job_id = await world.running(graph("one", 4))
        await declare(world, job_id, FULL, **{"X-Slotwise-Reason": "kept"})
        await in_force(world, job_id, [3, 3])
        history = await world.get(f"{path_of(job_id)}/history")
        for lease in await world.store.renew_leases():
            await world.store.release_lease(lease, 1)
    async with open_world(database_url, tmp_path, slot_holding_ms=0) as world:
        await in_force(world, job_id, [3, 3])
        answer = await world.http.get(path_of(job_id))
        assert (answer.json(), answer.headers["etag"]) == (FULL, '"2"')
        assert await world.get(f"{path_of(job_id)}/history") == history
        assert history[0]["reason"] == "kept"
        await world.put(job_id, bounds(numbers=(1, 8), store=(1, 8)))
        await in_force(world, job_id, [3, 3])
