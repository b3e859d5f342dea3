"""The slot share over REST: durable, versioned, at once in force among the jobs, and refused in clear sentences."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.contract.world import GRAPH, RESTART_AT_ONCE, World, bounds, eventually, open_world

FULL = {"weight": 2, "priority": 1, "cap": 4}
STABILIZATION = "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout"
USUAL = {"weight": 1, "priority": 0, "cap": None}


def path_of(job_id: str) -> str:
    return f"/jobs/{job_id}/slot-share"


def graph(name: str, upper: int, lower: int = 1, **config: str) -> dict[str, Any]:
    """One slot sharing group whose vertices all change in place."""
    vertices: list[dict[str, Any]] = [
        {"name": "numbers", "source": {"format": "rate"}},
        {"name": "store", "inputs": ["numbers"], "sink": {"format": "noop"}},
    ]
    for vertex in vertices:
        vertex |= {"parallelism": upper, "lowerBound": lower}
    config = {**RESTART_AT_ONCE, STABILIZATION: "0 ms", **config}
    return {"name": name, "type": "STREAMING", "config": config, "vertices": vertices}


async def declare(world: World, job_id: str, body: Any, **headers: str) -> httpx.Response:
    return await world.http.put(path_of(job_id), json=body, headers=headers)


async def used(world: World, *jobs: str) -> list[int]:
    return [(await world.get(f"/jobs/{job_id}/explanation"))["slots"]["used"] for job_id in jobs]


async def settled(world: World, jobs: list[str], wanted: list[int]) -> None:
    async def there() -> bool:
        return await used(world, *jobs) == wanted

    try:
        await eventually(there, f"the jobs use {wanted}")
    except AssertionError as error:
        told = [await world.get(f"/jobs/{job_id}/explanation") for job_id in jobs]
        raise AssertionError(f"{error}; {[(one['slots'], one['sentences']) for one in told]}") from None


async def told(world: World, job_id: str) -> dict[str, Any]:
    return dict((await world.get(f"/jobs/{job_id}/explanation"))["slotShare"])


async def test_a_share_is_read_changed_and_told_with_its_version(any_world: World) -> None:
    world = any_world
    job_id = await world.running(graph("one", 2))
    read = await world.http.get(path_of(job_id))
    assert (read.json(), read.headers["etag"]) == (USUAL, '"1"')
    answer = await declare(world, job_id, FULL, **{"X-Slotwise-Reason": "peak", "If-Match": '"1"'})
    assert (answer.status_code, answer.json(), answer.headers["etag"]) == (200, {}, '"2"')
    read = await world.http.get(path_of(job_id))
    assert (read.json(), read.headers["etag"]) == (FULL, '"2"')
    again = await declare(world, job_id, FULL, **{"X-Slotwise-Reason": "other words"})
    assert again.headers["etag"] == '"2"', "nothing changed"
    explained = await told(world, job_id)
    assert explained.pop("changedTimestampInMillis") > 1_600_000_000_000
    assert explained == {
        **FULL,
        "version": 2,
        "requestedBy": "anonymous",
        "reason": "peak",
        "share": 2,
        "allowed": 2,
        "why": "full",
        "missing": 0,
        "dueTimestampInMillis": None,
    }


async def test_it_may_be_given_with_the_graph(world: World) -> None:
    config = {"slotwise.slots.weight": "3", "slotwise.slots.priority": "-2", "slotwise.slots.cap": "5"}
    job_id = await world.submit(graph("one", 8, **config))
    assert await world.get(path_of(job_id)) == {"weight": 3, "priority": -2, "cap": 5}
    await world.completed(job_id, 1)
    assert await used(world, job_id) == [5], "and it does not wait for more than its cap"
    assert (await told(world, job_id))["why"] == "capped"
    assert "Its cap keeps it at 5 slot(s)." in (await world.get(f"/jobs/{job_id}/explanation"))["sentences"]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"slotwise.slots.weight": "0"}, "Option slotwise.slots.weight: a whole number between 1 and 1000"),
        ({"slotwise.slots.priority": "x"}, "a whole number between -1000 and 1000 is expected, found 'x'"),
        (
            {"slotwise.slots.cap": "0"},
            "a whole number between 1 and 1000000, or none, is expected, found '0'",
        ),
        ({"slotwise.slots.cap": "2"}, "The cap of 2 slot(s) is below the 3 that the lower bounds need"),
    ],
)
async def test_a_graph_with_a_wrong_share_is_refused(
    world: World, config: dict[str, str], sentence: str
) -> None:
    answer = await world.http.post("/jobs", json=graph("one", 4, 3, **config))
    assert answer.status_code == 400
    (error,) = answer.json()["errors"]
    assert sentence in error and error.startswith("config")
    assert (await world.get("/jobs"))["jobs"] == []


BAD: list[tuple[Any, str]] = [
    ({}, "The field weight is missing: a whole number between 1 and 1000 is expected."),
    ({**FULL, "weight": 0}, "The field weight should be a whole number between 1 and 1000, found '0'."),
    ({**FULL, "weight": 1001}, "found '1001'"),
    (
        {**FULL, "weight": 1.5},
        "The field weight should be a whole number between 1 and 1000, found the number 1.5.",
    ),
    ({**FULL, "weight": None}, "The field weight should be a whole number between 1 and 1000, found null."),
    ({**FULL, "weight": True}, "The field weight should be a whole number"),
    ({**FULL, "priority": "high"}, "The field priority should be a whole number between -1000 and 1000"),
    ({**FULL, "priority": -1001}, "found '-1001'"),
    ({**FULL, "cap": 0}, "The field cap should be a whole number between 1 and 1000000, or null for none"),
    ({**FULL, "cap": 10**18}, "The field cap should be"),
    ({**FULL, "cap": []}, "The field cap should be"),
    ({"weight": 1, "priority": 0}, "The field cap is missing"),
    ({**FULL, "wieght": 1}, "The field 'wieght' is not known: only weight, priority, cap are."),
    ([], "The request body should be a JSON object"),
    (None, 'The request body is empty: {"weight": 1, "priority": 0, "cap": null} is expected.'),
    ("text", "The request body should be a JSON object"),
]


@pytest.mark.parametrize(("body", "sentence"), BAD, ids=[str(body)[:40] for body, _ in BAD])
async def test_bad_input_is_refused_by_name_and_nothing_changes(
    world: World, body: Any, sentence: str
) -> None:
    job_id = await world.running(graph("one", 2))
    answer = await declare(world, job_id, body)
    assert answer.status_code == 400
    assert any(sentence in error for error in answer.json()["errors"]), answer.json()
    assert (await world.http.get(path_of(job_id))).headers["etag"] == '"1"'


async def test_bodies_that_are_no_json_and_queries_are_refused(world: World) -> None:
    job_id = await world.running(graph("one", 2))
    twice = b'{"weight":1,"weight":2,"priority":0,"cap":null}'
    for content in (b"", b"{", b"nonsense", twice, b'{"weight":NaN,"priority":0,"cap":1}'):
        answer = await world.http.put(path_of(job_id), content=content)
        assert answer.status_code == 400, content
    answer = await world.http.put(path_of(job_id), json=FULL, params={"dryRun": "true"})
    assert (answer.status_code, "dryRun" in answer.json()["errors"][0]) == (400, True)
    assert (await world.http.get(path_of(job_id), params={"a": "b"})).status_code == 400
    assert await world.get(path_of(job_id)) == USUAL


async def test_a_cap_below_the_lower_bounds_is_refused_and_so_are_bounds_above_the_cap(
    any_world: World,
) -> None:
    world = any_world
    job_id = await world.running(graph("one", 4, 2))
    answer = await declare(world, job_id, {**USUAL, "cap": 1})
    assert answer.status_code == 409
    assert answer.json()["errors"] == [
        "The cap of 1 slot(s) is below the 2 that the lower bounds need, so the job could not run: lower the bounds "
        "first, or set the cap to at least 2."
    ]
    assert (await declare(world, job_id, {**USUAL, "cap": 2})).status_code == 200
    await settled(world, [job_id], [2])
    wanted = bounds(numbers=(3, 4), store=(3, 4))
    sentence = f"have the cap raised first (PUT {path_of(job_id)})."
    answer = await world.put(job_id, wanted)
    assert answer.status_code == 409
    assert "The lower bounds need 3 slot(s), and the cap of the job is 2" in answer.json()["errors"][0]
    assert sentence in answer.json()["errors"][0]
    dry = await world.http.put(
        f"/jobs/{job_id}/resource-requirements", json=wanted, params={"dryRun": "true"}
    )
    assert dry.json()["refused"] == answer.json()["errors"]


async def test_a_cap_is_in_force_at_once_and_told_in_the_history(any_world: World) -> None:
    world = any_world
    job_id = await world.running(graph("one", 8))
    assert await used(world, job_id) == [8]
    await declare(world, job_id, {**USUAL, "cap": 3})
    await settled(world, [job_id], [3])
    await world.completed(job_id, 2)
    record = (await world.get(f"/jobs/{job_id}/rescales/history"))[0]
    assert record["message"] == "5 slot(s) are given back. Its cap is 3 slot(s)."
    assert (record["rung"], record["triggerCause"]) == ("in-place", "NEW_RESOURCE_AVAILABLE")
    dry = await world.http.put(
        f"/jobs/{job_id}/resource-requirements",
        json=bounds(numbers=(1, 6), store=(1, 6)),
        params={"dryRun": "true"},
    )
    assert (dry.json()["slotsAfter"], "(its cap is 3)" in dry.json()["explanation"][0]) == (3, True)
    await declare(world, job_id, {**USUAL, "cap": 5})
    await settled(world, [job_id], [5])
    await world.completed(job_id, 3)
    assert (await world.get(f"/jobs/{job_id}/rescales/history"))[0][
        "message"
    ] == "Its cap is 5 slot(s). Its cap was 3 slot(s) before."
    await declare(world, job_id, USUAL)
    await settled(world, [job_id], [8])
    assert (await world.get(f"/jobs/{job_id}"))["attempt"] == 1


async def test_weights_decide_at_once_and_the_history_says_so(database_url: str, tmp_path: Any) -> None:
    async with open_world(database_url, tmp_path, slot_holding_ms=0) as world:
        one, two = await world.running(graph("one", 8)), await world.running(graph("two", 8))
        await settled(world, [one, two], [4, 4])
        await declare(world, two, {**USUAL, "weight": 3})
        await settled(world, [one, two], [2, 6])
        await world.completed(one, 3)
        records = await world.get(f"/jobs/{one}/rescales/history")
        assert records[0]["message"] == (
            "2 slot(s) are given back, for other jobs. Shares are evened out: that of this job is 2 of 8 slot(s) "
            "(weight 1, priority 0)."
        )
        grown = (await world.get(f"/jobs/{two}/rescales/history"))[0]
        assert grown["message"] == "Its share is 6 of 8 slot(s) (weight 3, priority 0)."
        explained = await world.get(f"/jobs/{one}/explanation")
        assert (explained["slotShare"]["share"], explained["slotShare"]["why"]) == (2, "share")
        assert (
            "Its share of the slots is 2, as other jobs want some too (weight 1, priority 0)."
            in explained["sentences"]
        )


async def test_priority_decides_who_is_admitted_first(world: World) -> None:
    runs = await world.running(graph("runs", 8, 6))
    first, second = await world.submit(graph("first", 4, 4)), await world.submit(graph("second", 4, 4))
    await declare(world, second, {**USUAL, "priority": 5})

    async def waits() -> bool:
        return (await told(world, first))["why"] == "after-others"

    await eventually(waits, "the first one waits behind the second")
    assert (await told(world, second))["missing"] == 2
    await world.put(runs, bounds(numbers=(4, 8), store=(4, 8)))
    await world.completed(second, 1)
    assert await used(world, runs, first, second) == [4, 0, 4]


async def test_what_was_declared_survives_a_restart(database_url: str, tmp_path: Any) -> None:
    async with open_world(database_url, tmp_path, slot_holding_ms=0) as world:
        one, two = await world.running(graph("one", 8)), await world.running(graph("two", 8))
        await declare(world, one, {"weight": 1, "priority": 7, "cap": 6}, **{"X-Slotwise-Reason": "kept"})
        await declare(world, two, {**USUAL, "weight": 3})
        await settled(world, [one, two], [2, 6])
        before = [await told(world, job_id) for job_id in (one, two)]
        for lease in await world.store.renew_leases():
            await world.store.release_lease(lease, 1)
    async with open_world(database_url, tmp_path, slot_holding_ms=0) as world:
        await settled(world, [one, two], [2, 6])

        async def as_before() -> bool:
            return [await told(world, job_id) for job_id in (one, two)] == before

        await eventually(as_before, "the share and what was decided are those of before")
        answer = await world.http.get(path_of(one))
        assert (answer.json(), answer.headers["etag"]) == ({"weight": 1, "priority": 7, "cap": 6}, '"2"')


async def test_the_usual_graph_has_the_usual_share(world: World) -> None:
    job_id = await world.submit(GRAPH)
    assert await world.get(path_of(job_id)) == USUAL
