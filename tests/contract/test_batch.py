"""Batch jobs over REST: what their vertices look like on the way, what a PUT does, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema_rs

from app.api.app import SlotwiseApi
from tests.contract.world import RESTART_AT_ONCE, World, bounds, eventually, open_world

BLOCKING = {"exchange": "BLOCKING"}
GRAPH: dict[str, Any] = {
    "name": "revenue",
    "type": "BATCH",
    "vertices": [
        {"name": "customers", "source": {"format": "parquet", "path": "/customers"}},
        {"name": "orders", "source": {"format": "parquet", "path": "/orders"}},
        {
            "name": "bought",
            "inputs": [
                {"vertex": "customers", "keys": ["c"], **BLOCKING},
                {"vertex": "orders", "keys": ["c"], **BLOCKING},
            ],
            "sql": "SELECT * FROM customers JOIN orders USING (c)",
        },
        {"name": "store", "inputs": [{"vertex": "bought", **BLOCKING}], "sink": {"format": "noop"}},
    ],
}

DOCUMENT = SlotwiseApi("0.1.0", with_tokens=False).openapi()


def check_documented(path: str, answer: Any) -> None:
    """An answer to GET is as the OpenAPI document says."""
    schema = DOCUMENT["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    validator = jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]})
    assert [error.message for error in validator.iter_errors(answer)] == []


async def progress(world: World, job_id: str) -> dict[str, Any]:
    """What is said of how far each vertex is, by name; the same in the details of the job and of the vertex."""
    details = await world.get(f"/jobs/{job_id}")
    check_documented("/jobs/{jobid}", details)
    found = {}
    for vertex in details["vertices"]:
        own = await world.get(f"/jobs/{job_id}/vertices/{vertex['id']}")
        check_documented("/jobs/{jobid}/vertices/{vertexid}", own)
        rests = [
            (each or {}).pop("estimatedRestInMillis", None) for each in (own["progress"], vertex["progress"])
        ]
        assert own["progress"] == vertex["progress"]
        assert [rest is None for rest in rests] in ([True] * 2, [False] * 2)
        found[vertex["name"]] = vertex["progress"] and {**vertex["progress"], "rest": rests[1]}
    return found


async def vertices(world: World, job_id: str) -> dict[str, tuple[str, int]]:
    """Status and parallelism by name."""
    details = await world.get(f"/jobs/{job_id}")
    return {vertex["name"]: (vertex["status"], vertex["parallelism"]) for vertex in details["vertices"]}


async def test_a_batch_job_from_its_submission_to_its_end(database_url: str, tmp_path: Path) -> None:
    async with open_world(database_url, tmp_path, slots=1) as world:
        world.host.hold()
        job_id = await world.submit(GRAPH)
        await world.status(job_id, "RUNNING")
        assert await vertices(world, job_id) == {
            "customers": ("RUNNING", 32),
            "orders": ("RUNNING", 32),
            "bought": ("CREATED", -1),
            "store": ("CREATED", -1),
        }
        details = await world.get(f"/jobs/{job_id}")
        assert details["job-type"] == "BATCH"
        sentences = (await world.get(f"/jobs/{job_id}/explanation"))["sentences"]
        assert "0 of 4 regions are finished; now running: customers, orders." in sentences
        wanted = dict.fromkeys(("customers", "orders", "store"), (1, 32))
        answer = await world.put(job_id, bounds(**wanted, bought=(1, 2)))
        assert answer.status_code == 200, answer.text
        undecided = [await world.vertex(job_id, name) for name in ("bought", "store")]
        assert answer.headers["X-Slotwise-Undecided"] == ",".join(undecided)
        (record, _) = await world.get(f"/jobs/{job_id}/rescales/history")
        uuid = record["rescaleUuid"]
        assert (await world.get(f"/jobs/{job_id}/rescales/details/{uuid}"))["message"].endswith(
            "bought, store."
        )
        world.host.release()
        await world.status(job_id, "FINISHED")
        found = await vertices(world, job_id)
        assert {status for status, _ in found.values()} == {"FINISHED"}
        assert found["bought"] == ("FINISHED", 2)
        metrics = {one["name"]: one["metrics"] for one in (await world.get(f"/jobs/{job_id}"))["vertices"]}
        # The sources left 32 subpartitions of 1 MiB and 10 rows each, as the join's bounds were when they began.
        assert (metrics["orders"]["write-bytes"], metrics["orders"]["write-records"]) == (32 << 20, 320)
        assert (metrics["bought"]["read-bytes"], metrics["bought"]["read-records"]) == (64 << 20, 640)
        assert metrics["bought"]["read-bytes-complete"] and not metrics["orders"]["read-bytes-complete"]


async def test_a_dry_run_says_what_other_bounds_would_count_for(database_url: str, tmp_path: Path) -> None:
    async with open_world(database_url, tmp_path, slots=2) as world:
        world.host.hold()
        job_id = await world.submit(GRAPH)
        await world.status(job_id, "RUNNING")
        wanted = bounds(customers=(1, 2), orders=(1, 2), bought=(1, 8), store=(1, 1))
        path = f"/jobs/{job_id}/resource-requirements"
        answer = await world.http.put(path, json=wanted, params={"dryRun": "true"})
        assert answer.status_code == 200
        plan = answer.json()
        decided = {await world.vertex(job_id, name): 32 for name in ("customers", "orders")}
        assert plan["currentParallelism"] == plan["parallelism"] == decided, "what runs goes on as it is"
        assert (plan["slotsBefore"], plan["slotsAfter"], plan["rung"]) == (2, 2, None)
        assert plan["explanation"] == [
            "The bounds count for what is not decided yet: bought, store. Decided already, and not changed by them: "
            "customers, orders."
        ]
        explained = await world.get(f"/jobs/{job_id}/explanation")
        in_force = {one["name"]: one["inForce"] for one in explained["vertices"].values()}
        assert in_force == {"customers": 32, "orders": 32, "bought": None, "store": None}

        policy = {"vertices": {"orders": {"ceiling": 2}, "bought": {"ceiling": 3}}}
        path = f"/jobs/{job_id}/scaling-policy"
        plan = (await world.http.put(path, json=policy, params={"dryRun": "true"})).json()
        assert plan["explanation"] == [
            "The bounds count for what is not decided yet: bought, store. Decided already, and not changed by them: "
            "orders.",
            "orders may run at 1 to 2; 1 to 32 was declared. That is the ceiling 2 of the scaling policy.",
            "bought may run at 1 to 3; 1 to 32 was declared. That is the ceiling 3 of the scaling policy.",
        ]

        waiting = await world.submit({**GRAPH, "name": "another"})
        path = f"/jobs/{waiting}/resource-requirements"
        plan = (await world.http.put(path, json=wanted, params={"dryRun": "true"})).json()
        assert (plan["parallelism"], plan["rung"]) == (None, None)
        assert plan["explanation"] == [
            "The lower bounds need 1 slots; 0 can be had now, so the job would wait for more."
        ]


async def test_a_batch_job_is_cancelled_and_not_stopped(database_url: str, tmp_path: Path) -> None:
    async with open_world(database_url, tmp_path) as world:
        world.host.hold()
        job_id = await world.submit(GRAPH)
        await world.status(job_id, "RUNNING")
        answer = await world.http.post(f"/jobs/{job_id}/stop", json={})
        assert answer.status_code == 409
        assert answer.json()["errors"] == [
            "A BATCH job has no batch boundary at which it could be stopped; cancel it instead."
        ]
        assert (await world.http.patch(f"/jobs/{job_id}?mode=cancel")).status_code == 202
        await world.status(job_id, "CANCELED")
        assert {status for status, _ in (await vertices(world, job_id)).values()} == {"CANCELED"}


async def test_a_driver_that_dies_costs_no_finished_region(database_url: str, tmp_path: Path) -> None:
    async with open_world(database_url, tmp_path) as world:
        world.host.regions_left = 2
        job_id = await world.submit({**GRAPH, "config": RESTART_AT_ONCE})

        async def two_regions_are_finished() -> bool:
            found = await vertices(world, job_id)
            return [found[name][0] for name in ("customers", "orders")] == ["FINISHED"] * 2

        await eventually(two_regions_are_finished, "the sources are finished")
        world.host.regions_left = 1_000
        world.driver().die(1)
        await world.status(job_id, "FINISHED")
        state = world.control_plane.job(job_id).state
        assert state.batch is not None
        assert [region.run for region in state.batch.regions][:2] == [1, 1]


FINISHED_PROGRESS = {"tasksDone": None, "tasksKnown": None, "percent": 100, "rest": 0}


async def test_how_far_regions_are_is_told_and_costs_no_transaction(
    database_url: str, tmp_path: Path
) -> None:
    async with open_world(database_url, tmp_path) as world:
        world.host.hold()
        job_id = await world.submit(GRAPH)
        await world.status(job_id, "RUNNING")
        assert set((await progress(world, job_id)).values()) == {None}
        before = world.control_plane.job(job_id).state
        await world.driver().progress(0, 1, done=0, known=40)
        none_done = (await progress(world, job_id))["customers"]
        assert none_done == {"tasksDone": 0, "tasksKnown": 40, "percent": 0, "rest": None}
        await world.driver().progress(0, 1, done=12, known=40)
        # Of runs that are not the present one of a region, and of no region: nobody wants to know.
        await world.driver().progress(1, 2, done=5, known=5)
        await world.driver().progress(9, 1, done=5, known=5)
        found = await progress(world, job_id)
        assert found["customers"].pop("rest") >= 0
        assert found["customers"] == {"tasksDone": 12, "tasksKnown": 40, "percent": 30}
        assert [found[name] for name in ("orders", "bought", "store")] == [None] * 3
        assert world.control_plane.job(job_id).state is before
        world.host.release()
        await world.status(job_id, "FINISHED")
        assert list((await progress(world, job_id)).values()) == [FINISHED_PROGRESS] * 4


async def test_the_decisions_are_kept_with_their_numbers(database_url: str, tmp_path: Path) -> None:
    async with open_world(database_url, tmp_path) as world:
        world.host.hold()
        config = {"slotwise.batch.parallelism-decider": "even-data"}
        job_id = await world.submit({**GRAPH, "config": config})
        await world.status(job_id, "RUNNING")
        first = await world.get(f"/jobs/{job_id}/decisions")
        check_documented("/jobs/{jobid}/decisions", first)
        assert [one["vertexName"] for one in first] == ["orders", "customers"]
        assert {one["regionRun"]["state"] for one in first} == {"RUNNING"}
        world.host.release()
        await world.status(job_id, "FINISHED")
        found = await world.get(f"/jobs/{job_id}/decisions")
        check_documented("/jobs/{jobid}/decisions", found)
        assert [one["vertexName"] for one in found] == ["store", "bought", "orders", "customers"]
        bought = found[1]
        run = bought.pop("regionRun")
        assert run["state"] == "FINISHED"
        assert run["startTimestampInMillis"] == bought.pop("timestampInMillis") <= run["endTimestampInMillis"]
        assert (run["writtenBytes"], run["writtenRows"]) == (1 << 20, 10)
        assert bought == {
            "vertexId": await world.vertex(job_id, "bought"),
            "vertexName": "bought",
            "region": 2,
            "run": 1,
            "rule": "even-data",
            "parallelism": 4,
            "lowerBound": 1,
            "upperBound": 32,
            "limit": None,
            "limitedBy": None,
            "wanted": 4,
            "normalized": None,
            "bytes": 64 << 20,
            "rows": 640,
            "broadcastBytes": 0,
            "countedBroadcastBytes": 0,
            "volumeBytes": 16 << 20,
            "subpartitions": 32,
            "skewed": [],
            "groups": None,
            "sentence": (
                "bought ran at 4 by even-data: 67108864 bytes of input, 16777216 for each task, ask for 4"
                " (bounds 1 to 32)."
            ),
        }
        detailed = await world.get(f"/jobs/{job_id}/decisions", detail="true")
        check_documented("/jobs/{jobid}/decisions", detailed)
        assert detailed[1]["groups"] == [list(range(first, first + 8)) for first in range(0, 32, 8)]
        assert detailed[0]["groups"] == []
        for query in ("limit=1", "detail=yes"):
            assert (await world.http.get(f"/jobs/{job_id}/decisions?{query}")).status_code == 400


async def test_a_run_that_does_not_count_is_discarded(database_url: str, tmp_path: Path) -> None:
    async with open_world(database_url, tmp_path) as world:
        world.host.regions_left = 2
        job_id = await world.submit({**GRAPH, "config": RESTART_AT_ONCE})

        async def the_third_runs() -> bool:
            return (await vertices(world, job_id))["bought"][0] == "RUNNING"

        await eventually(the_third_runs, "the third region runs")
        await world.driver().progress(2, 1, done=1, known=2)
        world.host.regions_left = 0
        world.driver().die(1)

        async def runs_again() -> bool:
            newest, *_ = await world.get(f"/jobs/{job_id}/decisions")
            return bool(newest["run"] == 2)

        await eventually(runs_again, "the third region runs again")
        newest, before, *_ = await world.get(f"/jobs/{job_id}/decisions")
        states = [(one["vertexName"], one["run"], one["regionRun"]["state"]) for one in (newest, before)]
        assert states == [("bought", 2, "RUNNING"), ("bought", 1, "DISCARDED")]
        # How far the first run was says nothing of the second one.
        assert (await progress(world, job_id))["bought"] is None
        await world.http.patch(f"/jobs/{job_id}?mode=cancel")
        await world.status(job_id, "CANCELED")
        assert (await world.get(f"/jobs/{job_id}/decisions"))[0]["regionRun"]["state"] == "DISCARDED"


async def test_a_streaming_job_makes_no_decisions(world: World) -> None:
    job_id = await world.running()
    assert await world.get(f"/jobs/{job_id}/decisions") == []
    details = await world.get(f"/jobs/{job_id}")
    assert {vertex["progress"] for vertex in details["vertices"]} == {None}
