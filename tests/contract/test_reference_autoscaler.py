"""`slotwise autoscale` against the real API: what it reads is there, and what it declares comes into force."""

from __future__ import annotations

import asyncio
from typing import Any

from app.autoscaler.loop import Loop, Refusal, Turn
from app.autoscaler.policy import Policy, Range
from app.autoscaler.seen import Action
from tests.contract.world import World, bounds, eventually

EAGER = Policy(
    target_utilization=0.001,
    max_utilization=0.002,
    stabilization_ms=0,
    window_ms=5_000,
    interval_ms=10,
    parallelism=Range(max=3),
)
"""Whatever the job does is more than it should be."""


class WorldServer:
    """The API of a world for a thread beside its event loop."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = asyncio.get_running_loop()

    def _request(self, method: str, path: str, **rest: Any) -> Any:
        asked = asyncio.run_coroutine_threadsafe(self.world.http.request(method, path, **rest), self.loop)
        answer = asked.result()
        if answer.is_error:
            raise Refusal(answer.status_code, " ".join(answer.json()["errors"]))
        return answer

    def get(self, path: str) -> tuple[Any, str | None]:
        answer = self._request("GET", path)
        return answer.json(), answer.headers.get("ETag")

    def put(self, path: str, body: Any, *, if_match: str | None, reason: str) -> None:
        headers = {"X-Slotwise-Reason": reason} | ({"If-Match": if_match} if if_match else {})
        self._request("PUT", path, json=body, headers=headers)


async def scaled(loop: Loop) -> Turn:
    """The first turn that declares something; the figures of five seconds have to be there first."""

    async def there() -> Turn | None:
        turn = await asyncio.to_thread(loop.turn)
        return turn if turn.decision is not None and turn.decision.action is not Action.NONE else None

    found: Turn = await eventually(there, "a decision")
    return found


async def test_what_it_decides_comes_into_force(world: World) -> None:
    job_id = await world.running()
    floor = bounds(flights=(1, 2), delays=(2, 2), store=(1, 1))
    assert (await world.put(job_id, floor)).status_code == 200
    turn = await scaled(Loop(WorldServer(world), job_id, EAGER))
    assert turn.has_declared and turn.seen is not None and turn.decision is not None
    seen = {each.name: each for each in turn.seen.vertices}
    assert all(each.busy_ms > 0 for each in seen.values())
    # The sink has a slot sharing group of its own.
    assert {each.group for each in seen.values()} == {each.group for each in (seen["delays"], seen["store"])}
    assert len(turn.seen.queries) == 1 and turn.seen.load is not None and turn.seen.load.rows_per_second > 0
    await world.completed(job_id, 2)
    declared = await world.get(f"/jobs/{job_id}/resource-requirements")
    for each in seen.values():
        assert declared[each.id]["parallelism"]["lowerBound"] == (2 if each.name == "delays" else 1)
        assert (
            declared[each.id]["parallelism"]["upperBound"]
            == turn.decision.upper.get(each.id, each.upper)
            <= 3
        )
    newest = (await world.get(f"/jobs/{job_id}/rescales/history"))[0]
    assert newest["reason"].startswith(f"autoscaler: {turn.decision.reason}"[:1000])


async def test_another_client_between_look_and_put_is_not_overwritten(world: World) -> None:
    job_id = await world.running()
    server = WorldServer(world)
    put = server.put

    def after_another(path: str, body: Any, *, if_match: str | None, reason: str) -> None:
        server._request("PUT", path, json=bounds(flights=(1, 1), delays=(1, 5), store=(1, 1)))
        put(path, body, if_match=if_match, reason=reason)

    server.put = after_another  # type: ignore[method-assign]
    loop = Loop(server, job_id, EAGER)

    async def refused() -> Turn | None:
        turn = await asyncio.to_thread(loop.turn)
        return turn if turn.trouble is not None else None

    turn = await eventually(refused, "a refusal")
    assert turn.trouble.startswith("If-Match names version 1") and not turn.has_declared
    delays = await world.vertex(job_id, "delays")
    declared = await world.get(f"/jobs/{job_id}/resource-requirements")
    assert declared[delays]["parallelism"] == {"lowerBound": 1, "upperBound": 5}
