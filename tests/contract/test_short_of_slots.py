"""Lower bounds beyond the slots: accepted with a warning, explained, not the end of the job when its driver dies."""

from __future__ import annotations

from tests.contract.world import GRAPH, World, bounds, eventually

BEYOND = bounds(flights=(1, 2), delays=(12, 12), store=(1, 1))
FITTING = bounds(flights=(1, 2), delays=(1, 2), store=(1, 1))


async def test_the_answer_and_the_explanation_say_so_and_the_job_comes_back(world: World) -> None:
    job_id = await world.running(GRAPH)
    asked = await world.http.put(
        f"/jobs/{job_id}/resource-requirements", params={"dryRun": "true"}, json=BEYOND
    )
    (sentence,) = [one for one in asked.json()["explanation"] if one.startswith("The lower bounds need")]
    assert sentence == (
        "The lower bounds need 13 slots; 3 can be had now, so the job would keep running as it is until more "
        "appear; after a failure it starts again with what there is."
    )
    for _ in range(2):
        answer = await world.put(job_id, BEYOND)
        assert (answer.status_code, answer.json()) == (200, {})
        assert answer.headers["X-Slotwise-Warning"] == sentence.replace("would keep", "keeps")
    said = await world.get(f"/jobs/{job_id}/explanation")
    assert any("delays runs at 2, below its lower bound 12" in one for one in said["violations"])
    assert any("it starts with what there is" in one for one in said["violations"])

    world.driver().die(-9)
    await eventually(lambda: _attempt(world, job_id, 2), "another attempt")
    await world.status(job_id, "RUNNING")
    said = await world.get(f"/jobs/{job_id}/explanation")
    assert said["vertices"][await world.vertex(job_id, "delays")]["inForce"] >= 2
    assert any("below its lower bound 12" in one for one in said["violations"])

    answer = await world.put(job_id, FITTING)
    assert answer.status_code == 200 and "X-Slotwise-Warning" not in answer.headers


async def test_a_floor_is_answered_so_too(world: World) -> None:
    job_id = await world.running(GRAPH)
    answer = await world.http.put(
        f"/jobs/{job_id}/scaling-policy", json={"vertices": {"delays": {"floor": 12}}}
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["X-Slotwise-Warning"].startswith("The lower bounds need 13 slots;")


async def test_a_job_that_waits_is_answered_with_the_slots_that_there_are(world: World) -> None:
    await world.running(GRAPH)
    waiting = await world.submit(GRAPH)
    answer = await world.put(waiting, BEYOND)
    assert answer.headers["X-Slotwise-Warning"] == (
        "The lower bounds need 13 slots; there are 8, so the job waits for more."
    )
    # Others have what it needs.
    answer = await world.put(waiting, bounds(flights=(1, 2), delays=(6, 6), store=(1, 1)))
    assert answer.status_code == 200 and "X-Slotwise-Warning" not in answer.headers


async def _attempt(world: World, job_id: str, number: int) -> bool:
    attempts = await world.get(f"/jobs/{job_id}/attempts")
    return bool(max(one["attempt"] for one in attempts["attempts"]) >= number)
