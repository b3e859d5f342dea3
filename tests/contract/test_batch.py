"""Batch jobs over REST: what their vertices look like on the way, what a PUT does, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.contract.world import World, bounds, eventually, open_world

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
        assert (await world.http.patch(f"/jobs/{job_id}")).status_code == 202
        await world.status(job_id, "CANCELED")
        assert {status for status, _ in (await vertices(world, job_id)).values()} == {"CANCELED"}


async def test_a_driver_that_dies_costs_no_finished_region(database_url: str, tmp_path: Path) -> None:
    async with open_world(database_url, tmp_path) as world:
        config = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms"}
        world.host.regions_left = 2
        job_id = await world.submit({**GRAPH, "config": config})

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
