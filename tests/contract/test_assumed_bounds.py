"""Bounds of a graph document that Spark has not analysed yet: any is accepted, and what turns out impossible is lowered
with a sentence."""

from __future__ import annotations

from typing import Any

from tests.contract.world import GRAPH, World, bounds, eventually


def graph() -> dict[str, Any]:
    """More slots are needed at first than there are; nothing is said of the max parallelism of two vertices."""
    flights, delays, store = GRAPH["vertices"]
    delays = {**delays, "parallelism": 100, "lowerBound": 100}
    del delays["maxParallelism"]
    named = {"name": "named", "inputs": ["delays"], "sql": "SELECT k FROM delays"}
    return {**GRAPH, "vertices": [flights, delays, named, {**store, "inputs": ["named"]}]}


async def test_they_are_what_turns_out_possible(any_world: World) -> None:
    world = any_world
    job_id = await world.submit(graph())
    path = f"/jobs/{job_id}/resource-requirements"
    await world.put(job_id, bounds(flights=(1, 1), delays=(100, -1), named=(1, 32768), store=(1, 1)))
    by_id = (await world.http.get(path)).json()
    delays, named = [await world.vertex(job_id, name) for name in ("delays", "named")]
    assert by_id[delays]["parallelism"] == {"lowerBound": 100, "upperBound": 32768}
    too_many = await world.put(job_id, bounds(flights=(1, 1), delays=(1, 32769), named=(1, 1), store=(1, 1)))
    assert too_many.status_code == 400
    assert "exceeds its maximum parallelism 32768" in too_many.text

    wanted = bounds(flights=(1, 1), delays=(1, 500), named=(1, -1), store=(1, 1))
    answer = await world.put(job_id, wanted)
    assert answer.status_code == 200
    await world.status(job_id, "RUNNING")
    found = await world.http.get(path)
    by_id = found.json()
    assert [by_id[one]["parallelism"]["upperBound"] for one in (delays, named)] == [100, 128]
    assert found.headers["etag"] != answer.headers["etag"]

    async def told() -> Any:
        records = await world.get(f"/jobs/{job_id}/rescales/history")
        return next((one["message"] for one in records if "upper bound" in (one["message"] or "")), None)

    message = await eventually(told, "the record says so")
    assert (
        "The upper bound of delays is 100 and not 500. Its state has 100 partitions, and at most 128"
        in message
    )
    assert "The upper bound of named is 128 and not 32768, which stood for the highest one." in message
    # Now it is known, and refused.
    again = await world.put(job_id, wanted)
    assert again.status_code == 400
    assert "Its state has 100 partitions, and at most 128 can be asked for" in again.text
