"""POST /jobs, POST /batches and PUT of a job's graph with an Idempotency-Key: a repeated request is answered as the
first one, and submits nothing. The drivers keep the protocol."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.contract.members import two
from tests.contract.test_batch_programs import BATCH
from tests.contract.test_livy import SCRIPT, programs_of, with_programs
from tests.contract.test_livy import post as post_batch
from tests.contract.test_programs import PROGRAM, form
from tests.contract.test_tokens import OTHER, TOKEN, guarded  # noqa: F401 - a fixture
from tests.contract.test_versions import graph, next_graph, outcome, replace
from tests.contract.world import GRAPH, World, bounds, open_world

KEY = {"Idempotency-Key": "f3c1"}
LISTED = {**GRAPH, "artifacts": ["f.py"]}


async def post(world: World, document: dict[str, Any] = GRAPH, **headers: str) -> httpx.Response:
    return await world.http.post("/jobs", json=document, headers=headers or KEY)


async def accepted(answering: Any) -> str:
    answer = await answering
    assert answer.status_code == 202, answer.text
    job_id = str(answer.json()["jobid"])
    assert answer.json() == {"jobid": job_id, "jobUrl": f"/jobs/{job_id}"}
    assert answer.headers["location"] == f"/jobs/{job_id}"
    return job_id


async def jobs(world: World) -> list[str]:
    return [one["id"] for one in (await world.get("/jobs"))["jobs"]]


async def stop(world: World) -> None:
    """As a server stops: the next one has its jobs at once."""
    await world.host.close()
    await world.control_plane.close()
    await world.store.expire_leases()


def listed(content: bytes, *, is_yaml: bool = False) -> list[tuple[str, Any]]:
    graph = yaml.safe_dump(LISTED) if is_yaml else json.dumps(LISTED)
    name, kind = ("graph.yaml", "application/yaml") if is_yaml else ("graph.json", "application/json")
    return [("graph", (name, graph, kind)), ("files", ("f.py", content, "text/x-python"))]


async def hanging_up(world: World, document: dict[str, Any], gone: asyncio.Event, **headers: str) -> None:
    """POST /jobs of a client whose connection ends when ``gone`` is set."""
    request = world.http.build_request("POST", "/jobs", json=document, headers=headers)
    messages = [{"type": "http.request", "body": await request.aread(), "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError(f"nobody is there to be told {message}")

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/jobs",
        "raw_path": b"/jobs",
        "query_string": b"",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
    }
    await world.app(scope, receive, send)  # type: ignore[arg-type]


async def test_a_repeated_submission_is_answered_with_the_job_of_the_first(any_world: World) -> None:
    world = any_world
    job_id = await accepted(post(world))
    assert await accepted(post(world)) == job_id
    # The content counts, not the text that has it.
    turned = dict(reversed(GRAPH.items()))
    assert list(turned) != list(GRAPH)
    assert await accepted(post(world, turned)) == job_id
    headers = {**KEY, "Content-Type": "application/yaml"}
    in_yaml = world.http.post("/jobs", content=yaml.safe_dump(GRAPH), headers=headers)
    assert await accepted(in_yaml) == job_id
    assert await accepted(world.http.post("/jobs", files=form(GRAPH)[:1], headers=KEY)) == job_id
    assert await jobs(world) == [job_id]
    # Without a key, and with another one, it is another submission.
    without = await accepted(world.http.post("/jobs", json=GRAPH))
    another = await accepted(post(world, **{"Idempotency-Key": "f3c2"}))
    assert len({job_id, without, another}) == 3


async def test_other_content_is_a_conflict_that_says_what_differs(any_world: World) -> None:
    world = any_world
    job_id = await accepted(world.http.post("/jobs", files=listed(b"x = 1\n"), headers=KEY))
    assert (
        await accepted(world.http.post("/jobs", files=listed(b"x = 1\n", is_yaml=True), headers=KEY))
        == job_id
    )
    other = [("graph", ("graph.json", json.dumps({**LISTED, "name": "other"}), "application/json"))]
    for files, differs in (
        (listed(b"x = 2\n"), "the files of this one differ."),
        (other + listed(b"x = 1\n")[1:], "the document of this one differs."),
        (other + listed(b"x = 2\n")[1:], "the document and the files of this one differ."),
    ):
        answer = await world.http.post("/jobs", files=files, headers=KEY)
        assert answer.status_code == 409, answer.text
        sentence = (
            f"Idempotency-Key 'f3c1' was used before for another submission, that of job {job_id}: {differs} Use a new "
            "key."
        )
        assert answer.json() == {"errors": [sentence]}
    assert await jobs(world) == [job_id]


@pytest.mark.parametrize("key", ["", "with blank", "x" * 256, "schlüssel"])
async def test_what_is_no_key_is_refused(world: World, key: str) -> None:
    headers = {"Idempotency-Key": key.encode()}
    for path, body in (("/jobs", GRAPH), ("/batches", {"file": "a.py"})):
        answer = await world.http.post(path, json=body, headers=headers)
        assert answer.status_code == 400
        (sentence,) = answer.json()["errors"]
        assert "The header Idempotency-Key should be 1 to 255 visible ASCII characters" in sentence
    assert await jobs(world) == []


async def test_what_stores_nothing_leaves_no_key(world: World) -> None:
    assert (await post(world, {**GRAPH, "config": {"nothing": 1}})).status_code == 400
    answer = await world.http.post("/jobs?dryRun=true", json={**GRAPH, "name": "other"}, headers=KEY)
    assert answer.status_code == 200
    job_id = await accepted(post(world))
    answer = await world.http.post("/jobs?dryRun=true", json={**GRAPH, "name": "other"}, headers=KEY)
    assert answer.status_code == 200
    assert await jobs(world) == [job_id]


async def test_a_key_is_kept_until_its_job_is_forgotten(database_url: str, tmp_path: Path) -> None:
    async with open_world(database_url, tmp_path) as world:
        job_id = await accepted(post(world))
        await world.completed(job_id, 1)
        await stop(world)
    async with open_world(database_url, tmp_path) as world:
        assert await accepted(post(world)) == job_id
        assert (await post(world, {**GRAPH, "name": "other"})).status_code == 409
        await world.http.patch(f"/jobs/{job_id}?mode=cancel")
        await world.status(job_id, "CANCELED")
        assert await accepted(post(world)) == job_id
        assert (await world.http.delete(f"/jobs/{job_id}")).status_code < 300
        other = await accepted(post(world))
        assert other != job_id
        assert await jobs(world) == [other]


async def test_a_key_belongs_to_its_author(guarded: World) -> None:  # noqa: F811
    ids = []
    for token in (TOKEN, OTHER, TOKEN):
        headers = {**KEY, "Authorization": f"Bearer {token}"}
        document = {**GRAPH, "name": "of alice" if token == TOKEN else "of bob"}
        ids.append(await accepted(post(guarded, document, **headers)))
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize(
    "document", [GRAPH, {**BATCH, "name": "batch"}, PROGRAM], ids=["graph", "batch", "program"]
)
async def test_requests_at_the_same_time_are_one_submission(
    any_world: World, document: dict[str, Any]
) -> None:
    world = any_world
    files = form(document)[: 1 if document is GRAPH else None]
    posts = [accepted(world.http.post("/jobs", files=files, headers=KEY)) for _ in range(6)]
    ids = await asyncio.gather(*posts)
    assert set(ids) == set(await jobs(world)) and len(set(ids)) == 1


async def test_fifty_batches_at_once_are_fifty_jobs(world: World) -> None:
    with_programs(world)
    kinds = ["STREAMING", "BATCH"]
    posts = [
        post_batch(world, name=f"b{number}", conf={"slotwise.job.type": kinds[number % 2]})
        for number in range(50)
    ]
    batches = await asyncio.gather(*posts)
    assert sorted(batch["id"] for batch in batches) == list(range(1, 51))
    jobs = {job["jid"]: job["name"] for job in (await world.get("/jobs/overview"))["jobs"]}
    assert jobs == {batch["appId"]: f"b{number}" for number, batch in enumerate(batches)}


async def test_a_repeated_new_version_is_answered_with_its_number(any_world: World) -> None:
    world = any_world
    job_id = await world.running(graph())
    path = f"/jobs/{job_id}/graph"
    posts = [world.http.put(path, json=next_graph(), headers=KEY) for _ in range(3)]
    for answer in await asyncio.gather(*posts):
        assert (answer.status_code, answer.json()["version"]) == (202, 2), answer.text
    await outcome(world, job_id, 2, "IN_FORCE")
    assert (await replace(world, job_id, graph())).json()["version"] == 3
    await outcome(world, job_id, 3, "IN_FORCE")
    again = await world.http.put(path, json=next_graph(), headers=KEY)
    assert (again.status_code, again.json()["version"]) == (202, 2)
    other = await world.http.put(path, json=graph(), headers=KEY)
    declared = await world.put(job_id, bounds(flights=(1, 1), delays=(1, 1), store=(1, 1)), **KEY)
    for answer in (other, declared):
        assert answer.status_code == 409, answer.text
        assert "Idempotency-Key 'f3c1' was used before for another request" in answer.json()["errors"][0]
    assert (await world.get(f"/jobs/{job_id}/versions"))["current"] == 3
    # A submission has keys of its own.
    assert await accepted(post(world)) != job_id


async def test_a_repeated_batch_has_the_number_of_the_first(database_url: str, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()

    async def batch(world: World, status: int = 201, **more: Any) -> Any:
        answer = await world.http.post("/batches", json={"file": "jobs/etl.py", **more}, headers=KEY)
        assert answer.status_code == status, answer.text
        return answer

    async with open_world(database_url, directory) as world:
        with_programs(world)
        for answer in await asyncio.gather(*(batch(world) for _ in range(4))):
            assert (answer.json()["id"], answer.headers["location"]) == (1, "/batches/1")
        (job_id,) = await jobs(world)
        await stop(world)
    async with open_world(database_url, directory) as world:
        object.__setattr__(world.info.settings, "livy_files_dir", programs_of(world))
        assert (await batch(world)).json()["appId"] == job_id
        (sentence,) = (await batch(world, 409, args=["1"])).json()["errors"]
        assert "Idempotency-Key 'f3c1'" in sentence and "the document of this one differs" in sentence
        script = programs_of(world) / "jobs" / "etl.py"
        script.write_text(f"{SCRIPT}print(2)\n")
        (sentence,) = (await batch(world, 409)).json()["errors"]
        assert "the files of this one differ" in sentence
        script.write_text(SCRIPT)
        assert (await batch(world)).json()["id"] == 1
        assert (await world.get("/batches"))["total"] == 1


async def test_servers_that_share_the_jobs_know_the_keys_of_each_other(
    postgresql_url: str, tmp_path: Path
) -> None:
    async with two(postgresql_url, tmp_path) as (first, second, _):
        for number in range(5):
            headers = {"Idempotency-Key": f"key-{number}"}
            posts = [
                one.http.post("/jobs", json=GRAPH, headers=headers) for one in (first, second, first, second)
            ]
            ids = {answer.json()["jobid"] for answer in await asyncio.gather(*posts)}
            assert len(ids) == 1
            kept = {path.name for path in (tmp_path / "jobs").iterdir() if not path.name.startswith(".")}
            assert len(kept) <= number + 1, "the files of what was not stored are removed"
        shown = (await second.http.get("/jobs")).json()["jobs"]
        assert len(shown) == 5


async def test_any_server_answers_a_repeated_batch(postgresql_url: str, tmp_path: Path) -> None:
    (programs := tmp_path / "programs").mkdir()
    (programs / "etl.py").write_text(SCRIPT)
    (data := tmp_path / "data").mkdir()
    async with two(postgresql_url, data) as (first, second, network):
        for app in network.apps.values():
            object.__setattr__(app.state.info.settings, "livy_files_dir", programs)
        batch = await first.http.post("/batches", json={"file": "etl.py"}, headers=KEY)
        again = await second.http.post("/batches", json={"file": "etl.py"}, headers=KEY)
        assert (batch.status_code, again.status_code) == (201, 201), again.text
        assert again.json()["appId"] == batch.json()["appId"]
        assert again.headers["location"] == batch.headers["location"] == "/batches/1"
        assert not second.owns(batch.json()["appId"])
