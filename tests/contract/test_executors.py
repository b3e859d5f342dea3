"""Executors of a cluster that have not come: the explanation says so while it is so, and the history that it was."""

from __future__ import annotations

from typing import Any

from tests.contract.world import World, bounds, eventually


async def explained(world: World, job_id: str, present: int) -> dict[str, Any]:
    """The explanation, once the driver has been heard."""

    async def heard() -> Any:
        found = await world.get(f"/jobs/{job_id}/explanation")
        return found if (found["executors"] or {}).get("present") == present else None

    return dict(await eventually(heard, f"{present} executors in the explanation"))


def of_executors(found: dict[str, Any]) -> list[str]:
    return [one for one in found["sentences"] if "executors" in one]


async def test_a_job_on_the_host_has_none(world: World) -> None:
    job_id = await world.running()
    found = await world.get(f"/jobs/{job_id}/explanation")
    assert found["executors"] is None and of_executors(found) == []


async def test_those_that_did_not_come_at_the_start_are_in_the_history_and_in_the_explanation(
    world: World,
) -> None:
    world.host.executors.update(executors=1, executors_wanted=3)
    job_id = await world.running()
    found = await explained(world, job_id, 1)
    assert found["executors"]["wanted"] == 3 and found["executors"]["shortSinceInMillis"] > 0
    (sentence,) = of_executors(found)
    assert sentence == "It has 1 of the 3 executors that it should have; others may be on their way."
    record = (await world.get(f"/jobs/{job_id}/rescales/history"))[0]
    assert (record["terminalState"], record["message"]) == (
        "COMPLETED",
        "2 executor(s) had not come when its plan was taken up.",
    )
    # They come by and by, and nothing else happens.
    world.host.hold()
    world.host.executors.update(executors=3)
    await world.driver().tell_executors()
    found = await explained(world, job_id, 3)
    assert found["executors"] == {"present": 3, "wanted": 3, "shortSinceInMillis": None}
    assert of_executors(found) == []


async def test_a_rescale_says_how_many_were_missing(world: World) -> None:
    world.host.executors.update(executors=3, executors_wanted=3)
    job_id = await world.running()
    world.host.executors.update(executors=4, executors_wanted=6)
    await world.put(job_id, bounds(flights=(1, 2), delays=(1, 5), store=(1, 1)))
    await world.completed(job_id, 2)
    record, first = await world.get(f"/jobs/{job_id}/rescales/history")
    assert record["message"] == "2 executor(s) had not come when its plan was taken up."
    assert first["message"] is None
    since_ms = (await explained(world, job_id, 4))["executors"]["shortSinceInMillis"]
    world.host.executors.update(executors=5)
    assert (await explained(world, job_id, 5))["executors"]["shortSinceInMillis"] == since_ms
