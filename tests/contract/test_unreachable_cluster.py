"""A cluster that cannot be asked what it has: what clients are told meanwhile, and that nothing is promised them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.cluster.ports import Offer
from tests.contract.world import GRAPH, SLOTS, World, bounds, eventually

SEEN = Offer((("host", SLOTS),))
WHY = "The Spark master cannot be asked since 2026-11-23 04:12:31 UTC (connection refused)."
AWAY = replace(SEEN, unreachable=True, why=(WHY,))


async def explained(world: World, job_id: str, sentence: str) -> dict[str, Any]:
    """The explanation, once it says so."""

    async def says() -> Any:
        found = await world.get(f"/jobs/{job_id}/explanation")
        return found if any(sentence in one for one in found["sentences"]) else None

    return dict(await eventually(says, f"{sentence!r} in the explanation"))


async def dry_run(world: World, job_id: str, body: Any) -> dict[str, Any]:
    answer = await world.http.put(
        f"/jobs/{job_id}/resource-requirements", params={"dryRun": "true"}, json=body
    )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_idle_slots_are_nobodys_and_none_is_promised(world: World) -> None:
    job_id = await world.running()
    wider = bounds(flights=(1, 2), delays=(1, 6), store=(1, 1))
    before = await dry_run(world, job_id, wider)
    assert (before["slotsBefore"], before["slotsAfter"]) == (3, 7)
    world.control_plane.take_offer(AWAY)
    found = await explained(world, job_id, "the job keeps the slots that it has")
    assert found["supply"] == {"total": SLOTS, "idle": 5, "outOfSight": True, "why": [WHY]}
    after = await dry_run(world, job_id, wider)
    assert (after["slotsBefore"], after["slotsAfter"]) == (3, 3)
    assert after["explanation"][:3] == [
        "The upper bounds need 7 slots; 3 can be had now.",
        "The cluster is unreachable, so no slots are given to any job now.",
        WHY,
    ]
    assert (await world.put(job_id, wider)).status_code == 200
    found = await explained(world, job_id, "The upper bounds need 7 slots, and 3 can be used.")
    assert (
        "The cluster had 8 slots when it was last reachable: 3 held by this job, 0 by other jobs, and 5 idle, which no "
        "job can get now."
    ) in found["sentences"]
    assert WHY in found["sentences"]
    world.control_plane.take_offer(SEEN)
    await world.completed(job_id, 2)
    found = await world.get(f"/jobs/{job_id}/explanation")
    assert (found["slots"]["held"], found["supply"]["outOfSight"], found["supply"]["why"]) == (7, False, [])


async def test_a_job_that_comes_meanwhile_waits_and_says_for_what(world: World) -> None:
    world.control_plane.take_offer(AWAY)
    job_id = await world.submit(GRAPH)
    found = await explained(world, job_id, "the job is started when it is reachable again")
    assert (found["schedulerState"], found["slots"]["held"]) == ("WaitingForResources", 0)
    assert WHY in found["sentences"]
    answer = await dry_run(world, job_id, bounds(flights=(1, 1), delays=(1, 1), store=(1, 1)))
    assert (answer["slotsAfter"], answer["rung"]) == (None, None)
    assert answer["explanation"][0] == (
        "The lower bounds need 2 slots; 0 can be had now, so the job would wait for more."
    )
    assert WHY in answer["explanation"]
    world.control_plane.take_offer(SEEN)
    await world.completed(job_id, 1)


@pytest.mark.parametrize("why", [(), ("2 core(s) are in the hands of others.", "Worker w has 100 MB.")])
async def test_the_cluster_says_why_it_has_no_more(world: World, why: tuple[str, ...]) -> None:
    world.control_plane.take_offer(replace(SEEN, withheld=2, why=why))
    job_id = await world.running()
    wider = bounds(flights=(1, 2), delays=(1, 8), store=(1, 1))
    assert tuple((await dry_run(world, job_id, wider))["explanation"][1:]) == why
    await world.put(job_id, wider)
    found = await explained(world, job_id, "can be used")
    assert found["supply"]["total"] == SLOTS - 2 and tuple(found["supply"]["why"]) == why
    assert set(why) <= set(found["sentences"])
