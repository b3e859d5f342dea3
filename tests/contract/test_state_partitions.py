"""Other numbers of state partitions over REST: asked for by an upper bound, or expressly."""

from __future__ import annotations

from typing import Any

from tests.contract.world import GRAPH, World, bounds, eventually

AT_ONCE = {
    f"jobmanager.adaptive-scheduler.{name}": "0 ms"
    for name in (
        "executing.cooldown-after-rescaling",
        "executing.resource-stabilization-timeout",
        "rescale-trigger.max-delay",
        # There are fewer slots than the upper bound asks for.
        "submission.resource-stabilization-timeout",
    )
}
MORE = bounds(flights=(1, 2), delays=(1, 13), store=(1, 1))


async def max_parallelism(world: World, job_id: str) -> int:
    job = await world.get(f"/jobs/{job_id}")
    (found,) = (vertex["maxParallelism"] for vertex in job["vertices"] if vertex["name"] == "delays")
    return int(found)


async def redistributed(world: World, job_id: str, wanted: int) -> dict[str, Any]:
    """The record of it, when the job runs again."""

    async def done() -> Any:
        records = await world.get(f"/jobs/{job_id}/rescales/history")
        newest = records[0]
        there = await max_parallelism(world, job_id) == wanted and newest["terminalState"] == "COMPLETED"
        return newest if there else None

    found: dict[str, Any] = await eventually(done, f"{wanted} state partitions")
    return found


async def test_more_by_an_upper_bound_and_fewer_expressly(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": AT_ONCE})
    assert (await world.put(job_id, MORE)).status_code == 200
    record = await redistributed(world, job_id, 13)
    assert record["rung"] == "state-repartition"
    assert "Redistributed the state of delays from 12 to 13 partitions" in record["message"]

    body = bounds(flights=(1, 2), delays=(1, 6), store=(1, 1))
    body["delays"]["statePartitions"] = 6
    assert (await world.put(job_id, body)).status_code == 200
    await redistributed(world, job_id, 6)

    answer = await world.http.get(f"/jobs/{job_id}/resource-requirements")
    assert all(set(entry) == {"parallelism"} for entry in answer.json().values()), "the form of Flink's"
    again = await world.put(job_id, bounds(flights=(1, 2), delays=(1, 6), store=(1, 1)))
    assert again.headers["etag"] == answer.headers["etag"], "what is there is not asked for again"


async def test_a_dry_run_says_so(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": AT_ONCE})
    path = f"/jobs/{job_id}/resource-requirements"
    answer = (await world.http.put(path, params={"dryRun": "true"}, json=MORE)).json()
    assert answer["rung"] == "state-repartition"
    expected = "The job would be drained and restarted, to redistribute the state of delays from 12 to 13 partitions."
    assert expected in answer["explanation"]
    assert await max_parallelism(world, job_id) == 12


async def test_a_driver_that_cannot_do_it_has_said_so_before(any_world: World) -> None:
    world = any_world
    world.host.fixed = "PySpark 4.1.1 cannot redistribute state, which 4.2 and newer can"
    job_id = await world.running({**GRAPH, "config": AT_ONCE})
    path = f"/jobs/{job_id}/resource-requirements"
    answer = await world.put(job_id, MORE)
    dry_run = await world.http.put(path, params={"dryRun": "true"}, json=MORE)
    assert answer.status_code == 400
    for each in (answer, dry_run):
        assert f"Its state has 12 partitions, which is the most: {world.host.fixed}." in each.text


async def test_the_driver_that_cannot_do_it_leaves_the_old_state(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": AT_ONCE})
    world.host.refuse_repartition = "Spark cannot redistribute a stream-stream join."
    assert (await world.put(job_id, MORE)).status_code == 200

    async def given_up() -> Any:
        records = await world.get(f"/jobs/{job_id}/rescales/history")
        return next((one for one in records if one["terminalState"] == "FAILED"), None)

    record = await eventually(given_up, "it is given up")
    assert "Spark cannot redistribute a stream-stream join." in record["message"]
    await redistributed(world, job_id, 12)
    assert (await world.get(f"/jobs/{job_id}/status"))["status"] == "RUNNING"
    words = " ".join((await world.get(f"/jobs/{job_id}/explanation"))["sentences"])
    assert "To try it again, declare the same requirements again." in words

    world.host.refuse_repartition = None
    assert (await world.put(job_id, MORE)).status_code == 200, "the same request"
    await redistributed(world, job_id, 13)
