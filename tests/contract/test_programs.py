"""POST /jobs with a program: accepted at once with one vertex, in whose place those of its queries come when it starts
them. The drivers keep the protocol."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import yaml

from app.model.ids import vertex_id
from app.model.jobgraph import Role
from app.model.planned import PlannedVertex
from tests.contract.test_events import stored
from tests.contract.test_state_partitions import AT_ONCE
from tests.contract.world import GRAPH, World, bounds, eventually

SCRIPT = b"from pyspark.sql import SparkSession\n"
PROGRAM: dict[str, Any] = {
    "name": "word-count",
    "script": "word_count.py",
    "args": ["--topic", "words"],
    # More slots than there are would be waited for.
    "config": {"jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0 ms"},
}
STORE = (
    PlannedVertex("words", Role.SOURCE, "socket"),
    PlannedVertex("counts", Role.OPERATOR, "Aggregate", ("words",), True, 12),
    PlannedVertex("store", Role.SINK, "parquet", ("counts",)),
)
COPY = (PlannedVertex("raw", Role.SOURCE, "socket"), PlannedVertex("copy", Role.SINK, "json", ("raw",)))
NAMES = [vertex.name for vertex in (*STORE, *COPY)]


def form(document: dict[str, Any], **files: bytes) -> list[tuple[str, Any]]:
    named = {"word_count.py": SCRIPT, **{name.replace("__", "."): content for name, content in files.items()}}
    return [
        ("graph", ("graph.json", json.dumps(document), "application/json")),
        *(("files", (name, content, "text/x-python")) for name, content in named.items()),
    ]


async def post(world: World, change: dict[str, Any] | None = None, query: str = "") -> httpx.Response:
    return await world.http.post(f"/jobs{query}", files=form({**PROGRAM, **(change or {})}))


async def nothing_is_left(world: World) -> None:
    assert await world.get("/jobs") == {"jobs": []}
    jobs_dir = world.directory / "jobs"
    assert not jobs_dir.exists() or not list(jobs_dir.iterdir())
    assert not any(driver.alive for driver in world.host.drivers)


async def begun(world: World, job_id: str) -> None:
    """Wait until the program of the job has begun, which starts no query."""

    async def there() -> bool:
        return bool((await world.get(f"/jobs/{job_id}"))["schedulerState"] == "Executing")

    await eventually(there, "the program has begun")


async def running(world: World, change: dict[str, Any] | None = None) -> str:
    """A program that has started both its queries."""
    world.host.queries = (STORE, COPY)
    answer = await post(world, change)
    assert answer.status_code == 202, answer.text
    job_id = str(answer.json()["jobid"])
    await world.completed(job_id, 1)
    await eventually(lambda: has_vertices(world, job_id, NAMES), "the vertices of both queries")
    return job_id


async def has_vertices(world: World, job_id: str, names: list[str]) -> bool:
    return [one["name"] for one in (await world.get(f"/jobs/{job_id}/graph"))["vertices"]] == names


async def requirements(world: World, job_id: str) -> httpx.Response:
    return await world.http.get(f"/jobs/{job_id}/resource-requirements")


async def test_a_program_is_accepted_at_once_and_has_one_vertex_until_its_first_query(
    any_world: World,
) -> None:
    world = any_world
    answer = await post(world, {"bounds": {"counts": {"lowerBound": 2, "upperBound": 4}}})
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["jobid"]
    await begun(world, job_id)
    assert (world.directory / "jobs" / job_id / "artifacts" / "word_count.py").read_bytes() == SCRIPT
    graph = await world.get(f"/jobs/{job_id}/graph")
    (vertex,) = graph["vertices"]
    assert (vertex["name"], vertex["planned"]["role"], vertex["lowerBound"], vertex["parallelism"]) == (
        *("word_count", "PROGRAM"),
        *(1, 4),
    )
    assert (graph["type"], graph["args"], graph["artifacts"]) == (
        "STREAMING",
        ["--topic", "words"],
        ["word_count.py"],
    )
    details = await world.get(f"/jobs/{job_id}")
    assert (details["state"], details["underWay"]) == ("CREATED", False)
    assert (await world.get(f"/jobs/{job_id}/status"))["status"] == "CREATED"
    early = await requirements(world, job_id)
    assert early.json() == {}
    told = " ".join((await world.get(f"/jobs/{job_id}/explanation"))["sentences"])
    assert "The program runs, and has not started a query yet." in told

    await world.driver().start(STORE)
    assert (await requirements(world, job_id)).json()[vertex_id("word-count", "counts")] == {
        "parallelism": {"lowerBound": 2, "upperBound": 4}
    }
    assert (await requirements(world, job_id)).headers["ETag"] != early.headers["ETag"]
    await world.status(job_id, "RUNNING")
    await world.completed(job_id, 1)
    graph = await world.get(f"/jobs/{job_id}/graph")
    assert [one["name"] for one in graph["vertices"]] == ["words", "counts", "store"]
    assert graph["vertices"][1] == {
        "name": "counts",
        "planned": {"role": "OPERATOR", "operator": "Aggregate"},
        "inputs": [{"vertex": "words", "partitioner": "HASH", "exchange": "PIPELINED"}],
        "parallelism": 4,
        "lowerBound": 2,
        "maxParallelism": 12,
        "stateful": True,
        "slotSharingGroup": "default",
    }
    (event,) = [one for one in await stored(world, f"/jobs/{job_id}/events") if one["type"] == "graph"]
    assert sorted(event["added"].values()) == ["counts", "store", "words"]
    # The record of the start is that of the first query.
    records = await world.get(f"/jobs/{job_id}/rescales/history")
    (first,) = [one for one in records if one["triggerCause"] == "INITIAL_SCHEDULE"]
    assert (first, first["number"]) == (records[-1], 1)
    details = await world.get(f"/jobs/{job_id}/rescales/details/{first['rescaleUuid']}")
    assert {one["jobVertexName"]: one["postRescaleParallelism"] for one in details["vertices"].values()} == {
        "words": 4,
        "counts": 4,
        "store": 4,
    }


async def test_a_cap_below_the_lower_bound_of_a_vertex_that_is_to_come_is_refused(world: World) -> None:
    wanted = {"bounds": {"counts": {"lowerBound": 3, "upperBound": 4}}}
    sentence = "The cap of 2 slot(s) is below the 3 that the lower bounds need"
    answer = await post(world, {**wanted, "config": {"slotwise.slots.cap": "2"}})
    assert answer.status_code == 400 and sentence in answer.text
    job_id = (await post(world, wanted)).json()["jobid"]
    await begun(world, job_id)
    share = {"weight": 1, "priority": 0, "cap": 2}
    answer = await world.http.put(f"/jobs/{job_id}/slot-share", json=share)
    assert answer.status_code == 409 and sentence in answer.text


async def test_bounds_that_are_put_before_the_first_query_may_come_again(world: World) -> None:
    job_id = (await post(world)).json()["jobid"]
    await begun(world, job_id)
    wanted = bounds(word_count=(1, 2))
    for query in ("", "?dryRun=true"):
        answer = await world.http.put(f"/jobs/{job_id}/resource-requirements{query}", json=wanted)
        assert (answer.status_code, answer.headers["Retry-After"]) == (409, "1"), query
        (sentence,) = answer.json()["errors"]
        assert sentence.startswith(f"The program of job {job_id} has not started a query yet")
    await world.driver().start(STORE)
    wanted = bounds(words=(1, 2), counts=(1, 2), store=(1, 2))
    assert (await world.put(job_id, wanted)).status_code == 200


async def test_a_program_that_starts_no_query_is_finished(any_world: World) -> None:
    world = any_world
    job_id = (await post(world)).json()["jobid"]
    await begun(world, job_id)
    driver = world.driver()
    await driver.tell(type="finished")
    driver.die(0)
    await world.status(job_id, "FINISHED")
    statuses = [one for one in await stored(world, f"/jobs/{job_id}/events") if one["type"] == "status"]
    assert [one["status"] for one in statuses] == ["INITIALIZING", "CREATED", "FINISHED"]


async def test_a_program_that_fails_before_its_first_query_fails_its_job_with_the_sentence(
    any_world: World,
) -> None:
    world = any_world
    sentence = (
        "word_count.py, line 3: there is no module helpers: it is neither among the artifacts nor installed."
    )
    job_id = (await post(world)).json()["jobid"]
    await begun(world, job_id)
    world.driver().fail(sentence, recoverable=False)
    await world.status(job_id, "FAILED")
    (entry,) = (await world.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    assert entry["message"] == sentence
    assert len(world.host.drivers) == 1


async def test_an_environment_that_cannot_be_built_fails_the_job_that_was_accepted(world: World) -> None:
    world.host.cannot_build = "environment.requirements: numpy==0 was not found."
    environment = {"environment": {"requirements": ["pyspark==4.2.0", "numpy==0"]}}
    for answer in (
        await post(world, environment),
        await post(world, {**environment, "type": "BATCH", "config": {}}),
        await world.http.post("/jobs", json={**GRAPH, **environment}),
    ):
        assert answer.status_code == 202, answer.text
        job_id = answer.json()["jobid"]
        await world.status(job_id, "FAILED")
        (entry,) = (await world.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
        assert "numpy==0 was not found" in entry["message"]
    assert world.host.builds == []


async def test_fifty_programs_at_once_are_fifty_jobs(world: World) -> None:
    names = [f"p{number}" for number in range(50)]
    answers = await asyncio.gather(*(post(world, {"name": name}) for name in names))
    assert [answer.status_code for answer in answers] == [202] * 50
    jobs = {job["jid"]: job["name"] for job in (await world.get("/jobs/overview"))["jobs"]}
    assert jobs == {answer.json()["jobid"]: name for answer, name in zip(answers, names, strict=True)}


async def test_a_dry_run_runs_nothing_and_stores_nothing(world: World) -> None:
    shown = await post(world, query="?dryRun=true")
    assert shown.status_code == 200, shown.text
    assert [one["name"] for one in shown.json()["vertices"]] == ["word_count"]
    assert world.host.drivers == []
    await nothing_is_left(world)
    submitted = await post(world, query="?dryRun=false")
    assert submitted.status_code == 202
    assert await world.get(f"/jobs/{submitted.json()['jobid']}/graph") == shown.json()


async def test_a_dry_run_of_a_graph(world: World) -> None:
    shown = await world.http.post("/jobs?dryRun=true", json=GRAPH)
    assert shown.status_code == 200, shown.text
    assert await world.get("/jobs") == {"jobs": []}
    assert await world.get(f"/jobs/{await world.submit()}/graph") == shown.json()
    # It refuses what a submission would.
    listed = await world.http.post("/jobs?dryRun=true", json={**GRAPH, "artifacts": ["f.py"]})
    assert (listed.status_code, "not sent along" in listed.text) == (400, True)
    assert (await world.http.post("/jobs?dryRun=yes", json=GRAPH)).status_code == 400


async def test_a_program_in_yaml(world: World) -> None:
    files = [("graph", ("graph.yaml", yaml.safe_dump(PROGRAM), "application/yaml")), *form(PROGRAM)[1:]]
    assert (await world.http.post("/jobs", files=files)).status_code == 202
    # Alone, its script is missing.
    answer = await world.http.post("/jobs", json=PROGRAM)
    assert answer.status_code == 400
    assert answer.json() == {
        "errors": ["artifacts: the file word_count.py is listed but was not sent along."]
    }


async def test_what_can_be_seen_without_running_it_is_refused(world: World) -> None:
    refused = [
        (
            form(PROGRAM, word_count__py=b"x = 1\ndef f(:\n"),
            "word_count.py, line 2: SyntaxError: invalid syntax",
        ),
        (
            form({**PROGRAM, "bounds": {"a": {"lowerBound": 3, "upperBound": 2}}}),
            "bounds.a.lowerBound: 3 is higher",
        ),
        (form({**PROGRAM, "bounds": {"a": {"upperBound": 0}}}), "bounds.a.upperBound"),
        (form({**PROGRAM, "config": {"spark.master": "local"}}), "spark.master is not allowed"),
        (form({**PROGRAM, "vertices": []}), "vertices: the vertices of a program are"),
        (form({**PROGRAM, "artifacts": ["helpers.py"]}), "helpers.py is listed but was not sent along"),
    ]
    for files, sentence in refused:
        for query in ("", "?dryRun=true"):
            answer = await world.http.post(f"/jobs{query}", files=files)
            assert answer.status_code == 400 and sentence in answer.text, answer.text
    await nothing_is_left(world)


async def test_the_syntax_of_a_program_with_a_python_of_its_own_is_not_looked_at(world: World) -> None:
    newer = form({**PROGRAM, "environment": {"python": "/opt/newer/bin/python"}}, word_count__py=b"def f(:\n")
    assert (await world.http.post("/jobs?dryRun=true", files=newer)).status_code == 200


async def test_bounds_above_the_state_partitions_of_a_query_are_cut(world: World) -> None:
    job_id = await running(
        world, {"bounds": {"counts": {"lowerBound": 13, "upperBound": 99}, "copy": {"upperBound": 2}}}
    )
    found = (await requirements(world, job_id)).json()
    at = {name: found[vertex_id("word-count", name)]["parallelism"] for name in ("counts", "copy", "raw")}
    assert at == {
        "counts": {"lowerBound": 12, "upperBound": 12},
        "copy": {"lowerBound": 1, "upperBound": 2},
        "raw": {"lowerBound": 1, "upperBound": 12},
    }


async def test_bounds_of_a_running_program(world: World) -> None:
    words, counts, store = STORE
    fixed = replace(counts, fixed="PySpark 4.1.1 cannot redistribute state, which 4.2 and newer can")
    world.host.queries = ((words, fixed, store),)
    job_id = (await post(world)).json()["jobid"]
    await world.completed(job_id, 1)
    wanted = {"words": (1, 3), "counts": (1, 2), "store": (1, 1)}
    assert (await world.put(job_id, bounds(**wanted))).status_code == 200
    await world.completed(job_id, 2)
    record = (await world.get(f"/jobs/{job_id}/rescales/history"))[0]
    assert record["rung"] == "in-place", record
    refused = await world.put(job_id, bounds(**{**wanted, "counts": (1, 13)}))
    assert refused.status_code == 400
    [sentence] = refused.json()["errors"]
    assert "12 partitions, which is the most: PySpark 4.1.1 cannot redistribute state, which" in sentence
    stated = bounds(**wanted)
    stated["counts"]["parallelism"]["upperBound"] = 2
    stated["counts"]["statePartitions"] = 24
    assert "PySpark 4.1.1 cannot redistribute state" in (await world.put(job_id, stated)).text


async def test_the_state_of_a_program_is_redistributed(world: World) -> None:
    job_id = await running(world, {"config": AT_ONCE})
    wanted = bounds(words=(1, 1), counts=(1, 13), store=(1, 1), raw=(1, 1), copy=(1, 1))
    answer = await world.put(job_id, wanted)
    assert answer.status_code == 200
    uuid = answer.headers["X-Slotwise-Rescale"]

    async def ended() -> dict[str, Any] | None:
        newest = (await world.get(f"/jobs/{job_id}/rescales/history"))[0]
        return newest if newest["rescaleUuid"] == uuid and newest["terminalState"] else None

    record = await eventually(ended, "the rescale")
    assert (record["terminalState"], record["rung"]) == ("COMPLETED", "state-repartition"), record
    assert "Redistributed the state of counts from 12 to 13 partitions" in record["message"]


async def test_secrets_of_args_are_shown_to_nobody(world: World) -> None:
    secret = "hunter2-of-the-broker"
    args = ["--password", secret, f"--token={secret}", f"kafka://me:{secret}@broker:9092", "--topic", "words"]
    job_id = (await post(world, {"args": args})).json()["jobid"]
    await begun(world, job_id)
    assert world.driver().spec["graph"]["args"] == args
    graph = await world.http.get(f"/jobs/{job_id}/graph")
    assert graph.json()["args"] == [
        "--password",
        "******",
        "--token=******",
        "kafka://me:******@broker:9092",
        "--topic",
        "words",
    ]
    world.driver().fail(f"cannot log in with {secret}")

    async def failed() -> bool:
        return bool((await world.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"])

    await eventually(failed, "the failure")
    for path in ("", "/config", "/exceptions", "/plan", "/explanation"):
        assert secret not in (await world.http.get(f"/jobs/{job_id}{path}")).text
