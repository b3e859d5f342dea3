"""What holds for everything that is declared for a job: its bounds, its scaling policy, and its share of the slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from app.store.errors import StoreUnavailable
from tests.contract.test_slot_share import graph
from tests.contract.world import GRAPH, World, bounds, eventually


@dataclass(frozen=True)
class Declared:
    """``body``: of each number another one, none of which is in force. ``words``: for it in sentences."""

    path: str
    words: str
    body: Callable[[int], Any]

    async def put(self, world: World, job_id: str, number: int = 0, **headers: str) -> httpx.Response:
        return await world.http.put(f"/jobs/{job_id}/{self.path}", json=self.body(number), headers=headers)

    async def get(self, world: World, job_id: str) -> httpx.Response:
        return await world.http.get(f"/jobs/{job_id}/{self.path}")


KINDS = (
    Declared(
        "resource-requirements",
        "resource requirements",
        lambda number: bounds(numbers=(1, 3 + number), store=(1, 1)),
    ),
    Declared("scaling-policy", "scaling policy", lambda number: {"allVertices": {"ceiling": 1 + number}}),
    Declared("slot-share", "slot share", lambda number: {"weight": 2 + number, "priority": 0, "cap": None}),
)
of_each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.path for kind in KINDS])


@of_each_kind
async def test_if_match(any_world: World, kind: Declared) -> None:
    world = any_world
    job_id = await world.running(graph("one", 2))
    before = await kind.get(world, job_id)
    for version in ('"7"', '"2"', '"abc"', 'W/"1"', '""', '"0"'):
        answer = await kind.put(world, job_id, **{"If-Match": version})
        assert answer.status_code == 412, version
        assert "at version 1" in answer.json()["errors"][0]
    for malformed in ("1", '"1", "2"', "nonsense", ""):
        assert (await kind.put(world, job_id, **{"If-Match": malformed})).status_code == 400, malformed
    assert (await kind.get(world, job_id)).json() == before.json()
    assert (await kind.put(world, job_id, 1, **{"If-Match": '"1"'})).headers["etag"] == '"2"'
    assert (await kind.put(world, job_id, 2, **{"If-Match": '"1"'})).status_code == 412
    assert (await kind.put(world, job_id, 2, **{"If-Match": "*"})).headers["etag"] == '"3"'


@of_each_kind
async def test_concurrent_conditional_puts_have_one_winner(any_world: World, kind: Declared) -> None:
    job_id = await any_world.running(graph("one", 2))
    puts = [kind.put(any_world, job_id, number, **{"If-Match": '"1"'}) for number in range(10)]
    answers = await asyncio.gather(*puts)
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 9
    assert (await kind.get(any_world, job_id)).headers["etag"] == '"2"'


@of_each_kind
async def test_a_repeated_request_with_its_key_is_answered_again_and_changes_nothing(
    any_world: World, kind: Declared
) -> None:
    world = any_world
    job_id = await world.running(graph("one", 2))
    key = {"Idempotency-Key": "f3c1", "If-Match": '"1"', "X-Slotwise-Reason": "why"}
    assert (await kind.put(world, job_id, 0, **key)).headers["etag"] == '"2"'
    assert (await kind.put(world, job_id, 1)).headers["etag"] == '"3"'
    shown = (await kind.get(world, job_id)).json()
    # The repeated request has its first answer and does not undo the second.
    again = await kind.put(world, job_id, 0, **key)
    assert (again.status_code, again.headers["etag"]) == (200, '"2"')
    read = await kind.get(world, job_id)
    assert (read.json(), read.headers["etag"]) == (shown, '"3"')
    reused = [
        await kind.put(world, job_id, 1, **key),
        await kind.put(world, job_id, 0, **{**key, "If-Match": '"3"'}),
        await kind.put(world, job_id, 0, **{**key, "If-Match": "*"}),
        await kind.put(world, job_id, 0, **{**key, "X-Slotwise-Reason": "why not"}),
        await kind.put(world, job_id, 0, **{"Idempotency-Key": "f3c1"}),
        # A key stands for one request of a job, whichever it is.
        *[await other.put(world, job_id, **key) for other in KINDS if other is not kind],
    ]
    for answer in reused:
        assert answer.status_code == 409, answer.text
        assert "Idempotency-Key 'f3c1' was used before for another request" in answer.json()["errors"][0]
    assert (await kind.put(world, job_id, **{"Idempotency-Key": "with blank"})).status_code == 400
    assert (await kind.get(world, job_id)).headers["etag"] == '"3"'


@of_each_kind
async def test_an_unknown_job_and_one_that_has_ended(world: World, kind: Declared) -> None:
    job_id = await world.running(graph("one", 2))
    assert (await kind.put(world, "f" * 32)).status_code == 404
    assert (await kind.get(world, "f" * 32)).status_code == 404
    await world.http.patch(f"/jobs/{job_id}?mode=cancel")
    await world.status(job_id, "CANCELED")
    before = await kind.get(world, job_id)
    answer = await kind.put(world, job_id)
    assert answer.status_code == 409
    assert f"CANCELED: its {kind.words} cannot be changed" in answer.json()["errors"][0]
    after = await kind.get(world, job_id)
    assert (after.json(), after.headers["etag"]) == (before.json(), before.headers["etag"])


@of_each_kind
async def test_a_database_that_cannot_be_written_is_503_and_nothing_has_changed(
    world: World, kind: Declared, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await world.running(graph("one", 4))
    before = await kind.get(world, job_id)

    async def refuse(_unit: Any) -> None:
        raise StoreUnavailable("The database cannot be written: the disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "commit", refuse)
        for answer in (await kind.put(world, job_id), await world.http.post("/jobs", json=GRAPH)):
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert "disk is full" in answer.json()["errors"][0]
        read = await kind.get(world, job_id)
        assert (read.json(), read.headers["etag"]) == (before.json(), '"1"')
        assert len((await world.get("/jobs"))["jobs"]) == 1
    used = (await world.get(f"/jobs/{job_id}/explanation"))["slots"]["used"]
    assert used == 4, "nor does the job run otherwise"

    async def accepted() -> bool:
        return (await kind.put(world, job_id)).status_code == 200

    await eventually(accepted, "writes go on once the database can be written")
    assert (await kind.get(world, job_id)).headers["etag"] == '"2"'
