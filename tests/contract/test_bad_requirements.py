"""PUT of resource requirements: what is refused, how, and that a refusal changes nothing."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from app.api.requests import BODY_LIMIT_BYTES
from tests.contract.world import GRAPH, World, bounds

GOOD = bounds(flights=(1, 4), delays=(1, 4), store=(1, 1))
UNKNOWN = "0" * 32


def path_of(job_id: str) -> str:
    return f"/jobs/{job_id}/resource-requirements"


def with_upper(value: str) -> bytes:
    """A good body but for one upper bound, which is ``value`` as JSON text."""
    text = json.dumps(bounds(flights=(1, 4), delays=(1, 99), store=(1, 1)))
    return text.replace("99", value).encode()


async def refused(world: World, job_id: str, body: bytes, status: int = 400, **headers: str) -> list[str]:
    """The sentences of a refusal that has changed nothing."""
    before = await world.http.get(path_of(job_id))
    history = await world.get(f"/jobs/{job_id}/rescales/history")
    answer = await world.http.put(path_of(job_id), content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"errors"}
    errors: list[str] = answer.json()["errors"]
    assert errors
    for error in errors:
        assert "Traceback" not in error
        assert error.endswith(".")
        assert error[0].isupper()
    after = await world.http.get(path_of(job_id))
    assert (after.json(), after.headers["etag"]) == (before.json(), before.headers["etag"])
    assert await world.get(f"/jobs/{job_id}/rescales/history") == history
    return errors


async def test_unknown_job(any_world: World) -> None:
    answer = await any_world.put(UNKNOWN, GOOD)
    assert answer.status_code == 404
    assert answer.json() == {"errors": [f"Job {UNKNOWN} was not found."]}
    assert (await any_world.http.get(path_of(UNKNOWN))).status_code == 404


async def test_terminated_job(any_world: World) -> None:
    job_id = await any_world.running()
    before = await any_world.get(path_of(job_id))
    await any_world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})
    await any_world.status(job_id, "CANCELED")
    for parameters in ({}, {"dryRun": "true"}):
        answer = await any_world.http.put(path_of(job_id), json=GOOD, params=parameters)
        assert answer.status_code == 409
        assert "CANCELED" in answer.json()["errors"][0]
    # Unlike Flink's, a job that has ended still tells what was declared.
    assert await any_world.get(path_of(job_id)) == before


@pytest.mark.parametrize("job_id", ["abc", "g" * 32, "0" * 31, "0" * 33, "%zz", "null", "-1", "7d6d%2ff2"])
async def test_malformed_job_id(world: World, job_id: str) -> None:
    for method in ("GET", "PUT"):
        answer = await world.http.request(method, path_of(job_id), content=json.dumps(GOOD))
        assert answer.status_code in (400, 404)
        assert answer.status_code == 400 or "%2f" in job_id
        assert "errors" in answer.json()


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (b'{"a":', "line 1"),
        (b"hello", "line 1"),
        (b"[]", "an array"),
        (b"null", "null"),
        (b"5", "the number 5"),
        (b'"x"', "the text 'x'"),
        (b"true", "true"),
        (b"{}", "does not specify resource requirements"),
        (json.dumps(GOOD).encode() + b" garbage", "line 1"),
        (json.dumps(GOOD).encode() + b"{}", "line 1"),
        (b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), "byte order mark"),
        (json.dumps(GOOD).encode("utf-16"), "UTF-8"),
        (b'{"\xff": 1}', "UTF-8"),
        (b"[" * 100_000, "too many objects and arrays"),
        (b"[" * 10_000, "nested"),
        (b'{"a":' * 5_000, "nested"),
    ],
    ids=lambda value: str(value)[:24],
)
async def test_body_that_is_no_object(world: World, body: bytes, found: str) -> None:
    job_id = await world.running()
    errors = await refused(world, job_id, body)
    assert found in " ".join(errors)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("1.5", "the number 1.5"),
        ("2.0", "the number 2.0"),
        ("1e2", "the number 100.0"),
        ('"3"', "the text '3'"),
        ("true", "true"),
        ("null", "null"),
        ("[]", "an array"),
        ("{}", "an object"),
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("-Infinity", "Infinity"),
        ("1e400", "1e400"),
        ("1" + "0" * 400, "large"),
        ("1099511627776", "1099511627776"),
        ("0", "0"),
        ("-2", "-2"),
        ("129", "129"),
        ("00004", "line 1"),
        ("+4", "line 1"),
    ],
)
async def test_bound_that_is_no_allowed_integer(world: World, value: str, found: str) -> None:
    job_id = await world.running()
    errors = await refused(world, job_id, with_upper(value))
    assert found in " ".join(errors)


async def test_upper_bound_above_the_maximum_names_vertex_value_and_maximum(any_world: World) -> None:
    job_id = await any_world.running()
    (error,) = await refused(any_world, job_id, with_upper("129"))
    vertex = await any_world.vertex(job_id, "delays")
    assert vertex in error
    assert "delays" in error
    assert "129" in error
    assert "maximum parallelism 12." in error
    assert "at most 128 can be asked for (slotwise.state.repartition.max-partitions)" in error


async def test_upper_bound_above_the_maximum_of_a_vertex_without_state(any_world: World) -> None:
    job_id = await any_world.running()
    body = json.dumps(bounds(flights=(1, 129), delays=(1, 4), store=(1, 1))).encode()
    (error,) = await refused(any_world, job_id, body)
    assert error.endswith("(flights) exceeds its maximum parallelism 128.")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"slotwise.state.repartition.enabled": "false"}, "slotwise.state.repartition.enabled is false"),
        ({"slotwise.state.repartition.max-partitions": "12"}, "at most 12 can be asked for"),
        (
            {"spark.sql.streaming.stateStore.providerClass": "com.example.Store"},
            "only state of the RocksDB provider can be redistributed",
        ),
    ],
)
async def test_upper_bound_above_state_partitions_that_are_to_stay(
    world: World, config: dict[str, str], expected: str
) -> None:
    job_id = await world.running({**GRAPH, "config": config})
    (error,) = await refused(world, job_id, with_upper("13"))
    assert error.startswith("The requested upper bound 13 for job vertex ")
    assert expected in error


@pytest.mark.parametrize(
    ("vertex", "value", "expected"),
    [
        ("delays", "3", "are fewer than its upper bound 4"),
        ("delays", "0", "must be greater than zero"),
        ("delays", "-1", "must be greater than zero"),
        ("delays", "129", "at most 128 can be asked for"),
        ("delays", "true", "statePartitions should be an integer"),
        ("delays", "6.0", "statePartitions should be an integer"),
        ("delays", "null", "statePartitions should be an integer"),
        ("flights", "6", "It has no state that could be redistributed."),
    ],
)
async def test_state_partitions_that_are_refused(
    world: World, vertex: str, value: str, expected: str
) -> None:
    job_id = await world.running()
    body = bounds(flights=(1, 4), delays=(1, 4), store=(1, 1))
    body[vertex]["statePartitions"] = "VALUE"
    (error,) = await refused(world, job_id, json.dumps(body).replace('"VALUE"', value).encode())
    assert expected in error and vertex in error


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"flights": None}, ["incomplete", "flights"]),
        ({"nope": (1, 2)}, ["nope", "not found"]),
        ({UNKNOWN: (1, 2)}, [UNKNOWN, "not found"]),
        ({"flights": None, "nope": (1, 2)}, ["nope", "incomplete", "flights"]),
        ({"flights": (3, 2)}, ["lower bound 3", "upper bound 2", "flights"]),
        (
            {"flights": (3, 2), "delays": (0, 1), "store": (1, 99999), "nope": (1, 1)},
            ["flights", "delays", "store", "nope"],
        ),
    ],
)
async def test_errors_of_the_map_are_listed_all_at_once(
    world: World, change: dict[str, tuple[int, int] | None], expected: list[str]
) -> None:
    job_id = await world.running()
    merged: dict[str, Any] = {"flights": (1, 4), "delays": (1, 4), "store": (1, 1), **change}
    body = bounds(**{name: value for name, value in merged.items() if value is not None})
    errors = await refused(world, job_id, json.dumps(body).encode())
    for part in expected:
        assert part in " ".join(errors)


@pytest.mark.parametrize(
    "body",
    [
        '{"flights": {"parallelism": {"lowerBound": 1, "upperBound": 2, "foo": 1}}}',
        '{"flights": {"parallelism": {"lowerBound": 1, "upperBound": 2}, "foo": 1}}',
        '{"flights": {"parallelism": {"lowerBound": 1}}}',
        '{"flights": {"parallelism": {"upperBound": 1}}}',
        '{"flights": {"parallelism": {}}}',
        '{"flights": {"parallelism": null}}',
        '{"flights": {"parallelism": 4}}',
        '{"flights": {"parallelism": [1, 4]}}',
        '{"flights": {}}',
        '{"flights": null}',
        '{"flights": 4}',
        '{"flights": {"lowerBound": 1, "upperBound": 4}}',
        '{"": {"parallelism": {"lowerBound": 1, "upperBound": 4}}}',
        '{"\\ud800": {"parallelism": {"lowerBound": 1, "upperBound": 4}}}',
    ],
)
async def test_unknown_and_missing_fields(world: World, body: str) -> None:
    job_id = await world.running()
    await refused(world, job_id, body.encode())


async def test_duplicate_keys(world: World) -> None:
    job_id = await world.running()
    good = json.dumps(GOOD)
    doubled = good[:-1] + ',"flights": {"parallelism": {"lowerBound": 1, "upperBound": 2}}}'
    assert "flights" in (await refused(world, job_id, doubled.encode()))[0]
    inner = good.replace('"lowerBound": 1,', '"lowerBound": 1, "lowerBound": 1,', 1)
    assert "lowerBound" in (await refused(world, job_id, inner.encode()))[0]
    # The same vertex by its id and by its name, and by its id in two cases.
    vertex = await world.vertex(job_id, "flights")
    for again in (vertex, vertex.upper()):
        await refused(world, job_id, json.dumps({**GOOD, again: GOOD["flights"]}).encode())


@pytest.mark.parametrize("size", [BODY_LIMIT_BYTES + 1, 5 * BODY_LIMIT_BYTES])
async def test_body_over_the_limit(world: World, size: int) -> None:
    job_id = await world.running()
    body = json.dumps(GOOD).encode()
    body += b" " * (size - len(body))
    (error,) = await refused(world, job_id, body, 413)
    assert str(BODY_LIMIT_BYTES) in error

    async def chunks() -> Any:
        for first in range(0, size, 65536):
            yield body[first : first + 65536]

    answer = await world.http.put(path_of(job_id), content=chunks())
    assert answer.status_code == 413


async def test_body_of_just_the_limit_is_read(world: World) -> None:
    job_id = await world.running()
    body = json.dumps(GOOD).encode()
    answer = await world.http.put(path_of(job_id), content=body + b" " * (BODY_LIMIT_BYTES - len(body)))
    assert answer.status_code == 200


async def test_lower_bound_above_all_slots_is_accepted(any_world: World) -> None:
    """A job that runs keeps running, and says which bound it breaks."""
    world = any_world
    job_id = await world.running()
    too_much = bounds(flights=(12, 12), delays=(1, 4), store=(1, 1))
    dry = await world.http.put(path_of(job_id), json=too_much, params={"dryRun": "true"})
    assert dry.json()["parallelism"] is None
    assert dry.json()["refused"] == []
    assert dry.json()["explanation"]
    assert (await world.put(job_id, too_much)).status_code == 200
    assert (await world.get(f"/jobs/{job_id}/status"))["status"] == "RUNNING"
    explanation = await world.get(f"/jobs/{job_id}/explanation")
    assert any("flights" in violation for violation in explanation["violations"])
    assert explanation["sentences"]
    assert (await world.get(path_of(job_id)))[await world.vertex(job_id, "flights")]["parallelism"][
        "lowerBound"
    ] == 12


async def test_waiting_job_says_why_it_waits(world: World) -> None:
    graph = {
        **GRAPH,
        "vertices": [{**vertex, "parallelism": 12, "lowerBound": 12} for vertex in GRAPH["vertices"]],
    }
    job_id = await world.submit(graph)
    await world.status(job_id, "CREATED")
    explanation = await world.get(f"/jobs/{job_id}/explanation")
    assert explanation["slots"]["minimal"] == 24
    assert any("slot" in sentence for sentence in explanation["sentences"])
    # It starts once the bounds can be met.
    assert (await world.put(job_id, GOOD)).status_code == 200
    await world.status(job_id, "RUNNING")


async def test_minus_one_is_the_default_and_shown_resolved(any_world: World) -> None:
    job_id = await any_world.running()
    answer = await any_world.put(job_id, bounds(flights=(-1, 2), delays=(-1, -1), store=(1, 1)))
    assert (answer.status_code, answer.json()) == (200, {})
    shown = await any_world.get(path_of(job_id))
    assert shown[await any_world.vertex(job_id, "delays")] == {
        "parallelism": {"lowerBound": 1, "upperBound": 12}
    }
    assert shown[await any_world.vertex(job_id, "flights")] == {
        "parallelism": {"lowerBound": 1, "upperBound": 2}
    }


@pytest.mark.parametrize(
    "content_type", ["application/json", "text/plain", "application/x-www-form-urlencoded", "nonsense", None]
)
async def test_content_type_does_not_matter(world: World, content_type: str | None) -> None:
    job_id = await world.running()
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = await world.http.put(path_of(job_id), content=json.dumps(GOOD).encode(), headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "query", ["foo=1", "dryrun=true", "dryRun=yes", "dryRun=", "dryRun=true&dryRun=true", "dryRun=%ff"]
)
async def test_unknown_query_parameters_are_refused(world: World, query: str) -> None:
    job_id = await world.running()
    before = await world.get(path_of(job_id))
    answer: httpx.Response = await world.http.put(f"{path_of(job_id)}?{query}", json=GOOD)
    assert answer.status_code == 400, answer.text
    assert await world.get(path_of(job_id)) == before
