"""Bounds that wait for their slots until a deadline, and rescales that are canceled, as clients see them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.contract.test_bad_requirements import path_of
from tests.contract.world import World, bounds, eventually

FEW = bounds(flights=(1, 2), delays=(1, 2), store=(1, 1))
MANY = bounds(flights=(1, 12), delays=(1, 2), store=(1, 1))
"""More than there are slots."""


async def record(world: World, job_id: str, number: int) -> dict[str, Any]:
    records = await world.get(f"/jobs/{job_id}/rescales/history")
    return dict(next(one for one in records if one["number"] == number))


async def queued(world: World, job_id: str) -> list[dict[str, Any]]:
    return list((await world.get(f"/jobs/{job_id}/explanation"))["queued"])


async def version(world: World, job_id: str) -> str:
    return str((await world.http.get(path_of(job_id))).headers["etag"])


async def upper(world: World, job_id: str, name: str) -> int:
    vertex = await world.vertex(job_id, name)
    return int((await world.get(path_of(job_id)))[vertex]["parallelism"]["upperBound"])


async def test_rollback_at_the_deadline_is_in_the_history(world: World) -> None:
    job_id = await world.running()
    headers = {
        "X-Slotwise-Deadline": "300 ms",
        "X-Slotwise-On-Timeout": "ROLLBACK",
        "X-Slotwise-Reason": "peak",
    }
    assert (await world.put(job_id, MANY, **headers)).headers["etag"] == '"2"'
    assert await upper(world, job_id, "flights") == 2

    async def dropped() -> bool:
        return await queued(world, job_id) == []

    await eventually(dropped, "the deadline")
    ended, way_back = await record(world, job_id, 2), await record(world, job_id, 3)
    assert (ended["terminatedReason"], ended["reason"]) == ("RESOURCE_REQUIREMENTS_UPDATED", "peak")
    assert "Not all slots had come by the deadline: 13 are wanted" in ended["message"]
    assert (way_back["rollbackOf"], way_back["requestedBy"]) == (2, "anonymous")
    assert ended["message"].endswith("The former bounds stay.")
    assert way_back["message"].startswith("Takes back the bounds of version 2: Not all slots had come")
    assert (await version(world, job_id), await upper(world, job_id, "flights")) == ('"3"', 2)


async def test_commit_at_the_deadline_takes_what_there_is(world: World) -> None:
    job_id = await world.running()
    await world.put(job_id, MANY, **{"X-Slotwise-Deadline": "PT0.3S", "X-Slotwise-On-Timeout": "COMMIT"})
    await world.completed(job_id, 2)
    parallelism = {
        one["name"]: one["parallelism"] for one in (await world.get(f"/jobs/{job_id}"))["vertices"]
    }
    assert parallelism["flights"] == 7
    assert await upper(world, job_id, "flights") == 12


async def test_the_explanation_has_the_deadline_until_a_later_put_of_the_vertex(world: World) -> None:
    job_id = await world.running()
    vertex = await world.vertex(job_id, "flights")
    await world.put(job_id, MANY, **{"X-Slotwise-Deadline": "2099-01-01T00:00:00Z"})
    answer = await world.put(job_id, MANY, **{"X-Slotwise-Deadline": "1 h", "X-Slotwise-Reason": "night"})
    assert answer.headers["etag"] == '"2"'
    (one,) = await queued(world, job_id)
    both = {**MANY, **bounds(delays=(1, 1))}
    assert (await world.put(job_id, both)).headers["etag"] == '"3"'
    assert await queued(world, job_id) == [one]
    at_ms = one["deadlineTimestampInMillis"]
    assert 3_500_000 < at_ms - time.time() * 1000 <= 3_600_000
    assert one == {
        **{"version": 2, "rescale": 2, "statePartitions": {}, "begun": False, "onTimeout": "ROLLBACK"},
        "bounds": {vertex: {"lowerBound": 1, "upperBound": 12}},
        **{"deadlineTimestampInMillis": at_ms, "requestedBy": "anonymous", "reason": "night"},
    }
    assert "of version 2 still wait for a deadline" in (await record(world, job_id, 3))["message"]
    await world.put(job_id, bounds(flights=(1, 11), delays=(1, 1), store=(1, 1)))
    assert await queued(world, job_id) == []
    assert "which does not count any more" in (await record(world, job_id, 4))["message"]


async def test_a_get_answers_what_holds_and_names_what_waits_in_a_header(world: World) -> None:
    job_id = await world.running()
    before = await world.http.get(path_of(job_id))
    assert "x-slotwise-queued" not in before.headers
    at_s = int(time.time()) + 3600
    deadline = f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
    await world.put(job_id, MANY, **{"X-Slotwise-Deadline": deadline})
    held = await world.http.get(path_of(job_id))
    assert (held.json(), held.headers["etag"]) == (before.json(), '"2"')
    first = f'2;deadline="{deadline}";on-timeout=ROLLBACK'
    assert held.headers["x-slotwise-queued"] == first
    both = bounds(flights=(1, 12), delays=(1, 11), store=(1, 1))
    await world.put(job_id, both, **{"X-Slotwise-Deadline": "2 h", "X-Slotwise-On-Timeout": "COMMIT"})
    held = await world.http.get(path_of(job_id))
    assert (held.json(), held.headers["etag"]) == (before.json(), '"3"')
    found = re.fullmatch(
        r'(.*), 3;deadline="[-0-9]+T[0-9:]+Z";on-timeout=COMMIT', held.headers["x-slotwise-queued"]
    )
    assert found is not None and found[1] == first


async def test_what_holds_and_what_waits_change_nothing_if_they_are_declared_again(world: World) -> None:
    job_id = await world.running()
    await world.put(job_id, MANY, **{"X-Slotwise-Deadline": "1 h"})
    before, records = await queued(world, job_id), await world.get(f"/jobs/{job_id}/rescales/history")
    for same in (FEW, MANY):
        for headers in ({}, {"X-Slotwise-Deadline": "2 h"}):
            answer = await world.put(job_id, same, **headers)
            assert (answer.status_code, answer.headers["etag"]) == (200, '"2"')
            assert "x-slotwise-rescale" not in answer.headers
            assert answer.headers.get("x-slotwise-deadline") == ("unchanged" if headers else None)
    assert await queued(world, job_id) == before
    assert await world.get(f"/jobs/{job_id}/rescales/history") == records
    told = (await world.http.put(f"{path_of(job_id)}?dryRun=true", json=FEW)).json()["explanation"]
    assert told == [
        "Other bounds of flights, of version 2, wait for their deadline: to drop them, cancel their rescale.",
        "The parallelism in force would not change.",
    ]


async def test_bounds_that_need_no_more_slots_hold_in_the_version_of_the_answer(world: World) -> None:
    job_id = await world.running()
    fewer = bounds(flights=(1, 1), delays=(1, 2), store=(1, 1))
    answer = await world.put(job_id, fewer, **{"X-Slotwise-Deadline": "1 h"})
    held = await world.http.get(path_of(job_id))
    assert (answer.headers["etag"], held.headers["etag"]) == ('"2"', '"2"')
    assert await upper(world, job_id, "flights") == 1 and "x-slotwise-queued" not in held.headers
    await world.completed(job_id, 2)
    assert (await version(world, job_id), await queued(world, job_id)) == ('"2"', [])


@pytest.mark.parametrize("on_timeout", ["COMMIT", "ROLLBACK"])
async def test_bounds_whose_slots_come_are_another_version(world: World, on_timeout: str) -> None:
    other, job_id = await world.running(), await world.running()
    await world.put(other, bounds(flights=(1, 4), delays=(1, 4), store=(1, 1)))
    await world.completed(other, 2)
    most = bounds(flights=(1, 7), delays=(1, 2), store=(1, 1))
    await world.put(
        job_id,
        most,
        **{"X-Slotwise-Deadline": "1 h", "X-Slotwise-On-Timeout": on_timeout, "X-Slotwise-Reason": "day"},
    )
    assert (await version(world, job_id), await upper(world, job_id, "flights")) == ('"2"', 2)
    await world.http.patch(f"/jobs/{other}", params={"mode": "cancel"})
    await world.completed(job_id, 2)
    assert (await version(world, job_id), await upper(world, job_id, "flights")) == ('"3"', 7)
    done = await record(world, job_id, 2)
    assert (done["requestedBy"], done["reason"], done["terminalState"]) == ("anonymous", "day", "COMPLETED")
    assert await queued(world, job_id) == []


@pytest.mark.parametrize(
    ("headers", "complaint"),
    [
        ({"X-Slotwise-Deadline": "soon"}, "should be a duration such as '120 s' or '5 min', or an instant"),
        ({"X-Slotwise-Deadline": "9999-12-31T23:59:59-23:59"}, "should be a duration"),
        ({"X-Slotwise-Deadline": "0001-01-01T00:00:00+23:59"}, "should be a duration"),
        ({"X-Slotwise-Deadline": "9999-12-31T23:59:59Z"}, "by 30 days at most, found 9999-12-31T23:59:59Z"),
        ({"X-Slotwise-Deadline": "0 s"}, "should be a duration"),
        ({"X-Slotwise-Deadline": "-5 s"}, "should be a duration"),
        ({"X-Slotwise-Deadline": "2026-11-26T03:00:00"}, "should be a duration"),
        ({"X-Slotwise-Deadline": "2020-01-01T00:00:00Z"}, "should be later than now"),
        ({"X-Slotwise-Deadline": "31 d"}, "by 30 days at most"),
        ({"X-Slotwise-Deadline": "9999-99-99T00:00:00Z"}, "should be a duration"),
        ({"X-Slotwise-Deadline": "1 h", "X-Slotwise-On-Timeout": "commit"}, "COMMIT"),
        ({"X-Slotwise-On-Timeout": "COMMIT"}, "needs X-Slotwise-Deadline"),
    ],
)
async def test_bad_deadlines_are_refused(world: World, headers: dict[str, str], complaint: str) -> None:
    job_id = await world.running()
    answer = await world.put(job_id, MANY, **headers)
    assert answer.status_code == 400, answer.text
    assert complaint in answer.json()["errors"][0], answer.text
    assert await upper(world, job_id, "flights") == 2


async def test_a_batch_job_has_no_deadlines(world: World) -> None:
    graph = {
        "name": "report",
        "type": "BATCH",
        "vertices": [
            {"name": "numbers", "source": {"format": "range", "options": {"end": "9"}}},
            {"name": "out", "inputs": ["numbers"], "sink": {"format": "noop"}},
        ],
    }
    job_id = await world.submit(graph)
    answer = await world.put(job_id, bounds(numbers=(1, 2), out=(1, 2)), **{"X-Slotwise-Deadline": "1 min"})
    assert answer.status_code == 409, answer.text
    assert "is a BATCH job: its bounds apply at once" in answer.json()["errors"][0]


async def test_a_dry_run_says_what_the_deadline_means(world: World) -> None:
    job_id = await world.running()
    answer = await world.http.put(
        f"{path_of(job_id)}?dryRun=true", json=MANY, headers={"X-Slotwise-Deadline": "1 min"}
    )
    assert any(
        "wait until the job may use 13 slots; at the deadline they would be dropped" in one
        for one in answer.json()["explanation"]
    )


async def test_vertices_that_wait_for_an_earlier_deadline_are_named(world: World) -> None:
    job_id = await world.running()
    await world.put(job_id, MANY, **{"X-Slotwise-Deadline": "1 h"})
    both = {**MANY, **bounds(delays=(1, 9))}
    later = {"X-Slotwise-Deadline": "2 h", "Idempotency-Key": "k"}
    dry = await world.http.put(f"{path_of(job_id)}?dryRun=true", json=both, headers=later)
    assert (
        "The deadline does not count for flights, whose bounds have one already." in dry.json()["explanation"]
    )
    vertex = await world.vertex(job_id, "flights")
    for _ in range(2):
        answer = await world.put(job_id, both, **later)
        assert answer.headers["x-slotwise-deadline"] == f'unchanged; vertices="{vertex}"'
    again = await world.put(job_id, {**both, **bounds(flights=(1, 11))}, **{"X-Slotwise-Deadline": "3 h"})
    other = await world.vertex(job_id, "delays")
    assert again.headers["x-slotwise-deadline"] == f'unchanged; vertices="{other}"'


@pytest.mark.parametrize("query", ["retry=true", "retry=true&dryRun=true"])
async def test_a_retry_has_no_deadline(world: World, query: str) -> None:
    job_id = await world.running()
    url = f"{path_of(job_id)}?{query}"
    answer = await world.http.put(url, json=MANY, headers={"X-Slotwise-Deadline": "1 min"})
    assert answer.status_code == 400, answer.text
    assert "X-Slotwise-Deadline and retry=true exclude each other" in answer.json()["errors"][0]
    assert await upper(world, job_id, "flights") == 2


async def test_one_idempotency_key_is_one_deadline(world: World) -> None:
    job_id = await world.running()
    first = {"Idempotency-Key": "k", "X-Slotwise-Deadline": "1 h"}
    assert (await world.put(job_id, MANY, **first)).status_code == 200
    assert (await world.put(job_id, MANY, **first)).status_code == 200
    other = {"Idempotency-Key": "k", "X-Slotwise-Deadline": "2 h"}
    assert (await world.put(job_id, MANY, **other)).status_code == 409


async def test_nor_do_those_that_wait_for_nothing(world: World) -> None:
    job_id = await world.running()
    same = bounds(flights=(1, 2), delays=(1, 2), store=(1, 1))
    header = {"X-Slotwise-Deadline": "2 h"}
    answer = await world.http.put(f"{path_of(job_id)}?dryRun=true", json=same, headers=header)
    assert answer.json()["explanation"] == [
        "These bounds are declared already and wait for no deadline: this one has no effect.",
        "The parallelism in force would not change.",
    ]
    assert (await world.put(job_id, same, **header)).headers["x-slotwise-deadline"] == "unchanged"


async def test_bounds_that_are_declared_already_do_not_get_another_deadline(world: World) -> None:
    job_id = await world.running()
    first = await world.put(job_id, MANY, **{"X-Slotwise-Deadline": "1 h"})
    assert "x-slotwise-deadline" not in first.headers
    before = await queued(world, job_id)
    again = await world.put(job_id, MANY, **{"X-Slotwise-Deadline": "2 h"})
    assert (again.status_code, again.headers["x-slotwise-deadline"]) == (200, "unchanged")
    assert await queued(world, job_id) == before
    assert "x-slotwise-deadline" not in (await world.put(job_id, MANY)).headers
    answer = await world.http.put(
        f"{path_of(job_id)}?dryRun=true", json=MANY, headers={"X-Slotwise-Deadline": "2 h"}
    )
    told = answer.json()
    assert (told["parallelism"], told["slotsAfter"]) == (told["currentParallelism"], told["slotsBefore"])
    assert told["explanation"][0] == (
        "These bounds wait for their deadline already: declared again they change nothing."
    )
    assert any("This deadline has no effect: to give these bounds" in one for one in told["explanation"])
    limited = {"allVertices": {"ceiling": 1}, "vertices": {}}
    answer = await world.http.put(f"/jobs/{job_id}/scaling-policy?dryRun=true", json=limited)
    told = answer.json()
    assert set(told["parallelism"].values()) == {1}
    assert not any("declared again" in one for one in told["explanation"])


# ---- canceling


async def test_a_rescale_that_waits_is_canceled(world: World) -> None:
    job_id = await world.running()
    await world.put(job_id, MANY, **{"X-Slotwise-Deadline": "1 h"})
    uuid = (await record(world, job_id, 2))["rescaleUuid"]
    url = f"/jobs/{job_id}/rescales/{uuid}"
    answer = await world.http.delete(url, headers={"X-Slotwise-Reason": "too late"})
    assert (answer.status_code, answer.json(), answer.headers["etag"]) == (200, {}, '"3"')
    assert await upper(world, job_id, "flights") == 2
    assert "Canceled by anonymous: too late" in (await record(world, job_id, 2))["message"]
    assert (await record(world, job_id, 3))["rollbackOf"] == 2
    again = await world.http.delete(url)
    assert again.status_code == 409 and "has ended" in again.json()["errors"][0]


async def test_a_repeated_cancellation_with_a_key_is_answered_as_the_first(world: World) -> None:
    job_id = await world.running()
    await world.put(job_id, MANY, **{"X-Slotwise-Deadline": "1 h"})
    url = f"/jobs/{job_id}/rescales/{(await record(world, job_id, 2))['rescaleUuid']}"
    stale = await world.http.delete(url, headers={"If-Match": '"1"'})
    assert stale.status_code == 412 and "the requirements are at version 2" in stale.json()["errors"][0]
    key = {"Idempotency-Key": "cancel", "If-Match": '"2"'}
    for _ in range(2):
        answer = await world.http.delete(url, headers=key)
        assert (answer.status_code, answer.headers["etag"]) == (200, '"3"'), answer.text
    assert (await record(world, job_id, 3))["rollbackOf"] == 2
    other = await world.http.delete(url, headers={**key, "X-Slotwise-Reason": "another"})
    assert other.status_code == 409 and "was used before for another request" in other.json()["errors"][0]


async def test_a_dry_run_of_a_job_that_is_short_anyway_tells_what_the_change_needs(world: World) -> None:
    job_id = await world.running()
    await world.put(job_id, bounds(flights=(1, 2), delays=(1, 2), store=(1, 90)))
    answer = await world.http.put(
        f"{path_of(job_id)}?dryRun=true",
        json=bounds(flights=(1, 1), delays=(1, 2), store=(1, 90)),
        headers={"X-Slotwise-Deadline": "1 min"},
    )
    assert not any("would wait" in one for one in answer.json()["explanation"]), "less waits for nothing"


async def test_a_rescale_that_is_carried_out_is_not(world: World) -> None:
    job_id = await world.running()
    world.driver().pause.clear()
    await world.put(job_id, bounds(flights=(1, 3), delays=(1, 2), store=(1, 1)))
    uuid = (await record(world, job_id, 2))["rescaleUuid"]
    answer = await world.http.delete(f"/jobs/{job_id}/rescales/{uuid}")
    assert answer.status_code == 409
    assert "cannot be canceled any more: it is being carried out" in answer.json()["errors"][0]
    assert await upper(world, job_id, "flights") == 3


async def test_what_nobody_declared_and_what_is_not_there_is_refused(world: World) -> None:
    job_id = await world.running()
    first = (await record(world, job_id, 1))["rescaleUuid"]
    answer = await world.http.delete(f"/jobs/{job_id}/rescales/{first}")
    assert answer.status_code == 409 and "has ended" in answer.json()["errors"][0]
    await world.put(job_id, MANY, **{"X-Slotwise-Deadline": "1 h"})
    answer = await world.http.delete(f"/jobs/{job_id}/rescales/{first}")
    assert "Rescale 2 can be canceled: bounds of version 2 still wait." in answer.json()["errors"][0]
    assert (await world.http.delete(f"/jobs/{job_id}/rescales/{'0' * 32}")).status_code == 404
    assert (await world.http.delete(f"/jobs/{job_id}/rescales/7")).status_code == 400
