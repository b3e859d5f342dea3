"""POST /jobs with a program: planned by a driver first, then a job like any other. The drivers keep the protocol."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.model.jobgraph import Role
from app.model.planned import Planned, PlannedVertex
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
PLANNED = Planned(
    (
        PlannedVertex("words", Role.SOURCE, "socket"),
        PlannedVertex("counts", Role.OPERATOR, "Aggregate", ("words",), True, 12),
        PlannedVertex("store", Role.SINK, "parquet", ("counts",)),
        PlannedVertex("raw", Role.SOURCE, "socket"),
        PlannedVertex("copy", Role.SINK, "json", ("raw",)),
    )
)

Plan = Callable[[dict[str, Any]], Awaitable[int]]


def answers(planned: Planned | bytes, status: int = 0) -> Plan:
    """A driver that plans so."""

    async def plan(spec: dict[str, Any]) -> int:
        content = planned if isinstance(planned, bytes) else json.dumps(asdict(planned)).encode()
        await asyncio.to_thread(Path(spec["answer_file"]).write_bytes, content)
        return status

    return plan


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


async def test_a_program_is_planned_and_runs(any_world: World) -> None:
    world = any_world
    world.host.plan = answers(PLANNED)
    answer = await post(world, {"bounds": {"counts": {"lowerBound": 2, "upperBound": 4}}})
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["jobid"]
    await world.completed(job_id, 1)
    graph = await world.get(f"/jobs/{job_id}/graph")
    assert graph["type"] == "STREAMING"
    assert graph["script"] == "word_count.py"
    assert graph["args"] == ["--topic", "words"]
    assert graph["artifacts"] == ["word_count.py"]
    counts = next(vertex for vertex in graph["vertices"] if vertex["name"] == "counts")
    assert counts == {
        "name": "counts",
        "planned": {"role": "OPERATOR", "operator": "Aggregate"},
        "inputs": [{"vertex": "words", "partitioner": "HASH", "exchange": "PIPELINED"}],
        "parallelism": 4,
        "lowerBound": 2,
        "maxParallelism": 12,
        "stateful": True,
        "slotSharingGroup": "default",
    }
    # The driver of the job gets the program, and what it was planned to be.
    spec = world.driver().spec
    assert spec["graph"] == graph
    assert (world.directory / "jobs" / job_id / "artifacts" / "word_count.py").read_bytes() == SCRIPT
    details = await world.get(f"/jobs/{job_id}")
    assert {vertex["name"]: vertex["parallelism"] for vertex in details["vertices"]} == {
        "words": 8,
        "counts": 4,
        "store": 8,
        "raw": 8,
        "copy": 8,
    }


async def test_the_assignment_that_plans(world: World) -> None:
    specs: list[dict[str, Any]] = []

    async def plan(spec: dict[str, Any]) -> int:
        specs.append(spec)
        assert (Path(spec["artifacts_dir"]) / "word_count.py").read_bytes() == SCRIPT
        assert (Path(spec["work_dir"]) / "planning.json").stat().st_mode & 0o777 == 0o600
        return await answers(PLANNED)(spec)

    world.host.plan = plan
    config = {"spark.sql.shuffle.partitions": 7, "slotwise.slots.weight": 2}
    answer = await post(world, {"config": config}, "?dryRun=true")
    assert answer.status_code == 200, answer.text
    [spec] = specs
    assert spec["spark_conf"] == {"spark.sql.shuffle.partitions": "7"}
    assert (spec["master"], spec["slots"]) == ("local[2]", 2)
    assert spec["graph"]["script"] == "word_count.py"
    assert spec["graph"]["args"] == ["--topic", "words"]
    assert "vertices" not in spec["graph"]
    await nothing_is_left(world)


async def test_a_dry_run_answers_the_graph_and_stores_nothing(world: World) -> None:
    world.host.plan = answers(PLANNED)
    shown = await post(world, query="?dryRun=true")
    assert shown.status_code == 200, shown.text
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
    world.host.plan = answers(PLANNED)
    files = [("graph", ("graph.yaml", yaml.safe_dump(PROGRAM), "application/yaml")), *form(PROGRAM)[1:]]
    assert (await world.http.post("/jobs", files=files)).status_code == 202
    # Alone, its script is missing, and no driver is started to find that out.
    drivers = len(world.host.drivers)
    answer = await world.http.post("/jobs", json=PROGRAM)
    assert answer.status_code == 400
    assert answer.json() == {
        "errors": ["artifacts: the file word_count.py is listed but was not sent along."]
    }
    assert len(world.host.drivers) <= drivers + 1  # that of the job


@pytest.mark.parametrize(
    ("planned", "status", "sentence"),
    [
        (Planned(error="word_count.py, line 3: no query is started."), 0, "no query is started"),
        (Planned(error="It raised.\n  Nothing\nmore."), 1, "It raised. Nothing more."),
        (b"no json", 0, "ended with exit status 0 without a plan"),
        (b'{"vertices": 1}', 7, "ended with exit status 7 without a plan"),
        (Planned(), 0, "must not be empty"),
        (Planned((PlannedVertex("a", Role.SOURCE, "rate"),)), 0, "there is no sink"),
        (Planned((PlannedVertex("a" * 300, Role.SINK, "rate"),)), 0, "is too long"),
    ],
)
async def test_what_cannot_be_planned_is_400(
    world: World, planned: Planned | bytes, status: int, sentence: str
) -> None:
    world.host.plan = answers(planned, status)
    answer = await post(world)
    assert answer.status_code == 400, answer.text
    assert any(sentence in error for error in answer.json()["errors"]), answer.text
    await nothing_is_left(world)


async def test_bounds_are_checked_against_the_plan(world: World) -> None:
    world.host.plan = answers(PLANNED)
    wrong = {
        "counts": {"upperBound": 13},
        "store": {"lowerBound": 13},
    }
    answer = await post(world, {"bounds": wrong})
    assert answer.status_code == 400
    second, third = answer.json()["errors"]
    assert second.startswith("bounds.counts.upperBound: 13 is more than the 12 state partitions")
    assert third.startswith("bounds.store.lowerBound: 13 is higher than the upper bound 12")
    await nothing_is_left(world)


async def test_bounds_of_a_running_program(world: World) -> None:
    words, counts, *others = PLANNED.vertices
    fixed = replace(counts, fixed="PySpark 4.1.1 cannot redistribute state, which 4.2 and newer can")
    world.host.plan = answers(Planned((words, fixed, *others)))
    job_id = (await post(world)).json()["jobid"]
    await world.completed(job_id, 1)
    wanted = {"words": (1, 3), "counts": (1, 2), "store": (1, 1), "raw": (1, 1), "copy": (1, 1)}
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
    world.host.plan = answers(PLANNED)
    job_id = (await post(world, {"config": AT_ONCE})).json()["jobid"]
    await world.completed(job_id, 1)
    wanted = bounds(words=(1, 1), counts=(1, 13), store=(1, 1), raw=(1, 1), copy=(1, 1))
    assert (await world.put(job_id, wanted)).status_code == 200
    await world.completed(job_id, 2)
    record = (await world.get(f"/jobs/{job_id}/rescales/history"))[0]
    assert record["rung"] == "state-repartition", record
    assert "Redistributed the state of counts from 12 to 13 partitions" in record["message"]


async def test_a_client_that_hangs_up_ends_the_planning(world: World) -> None:
    begun = asyncio.Event()

    async def plan(_spec: dict[str, Any]) -> int:
        begun.set()
        await asyncio.Event().wait()
        return 0

    world.host.plan = plan
    asking = asyncio.create_task(hanging_up(world, begun))
    await begun.wait()
    await asking

    async def over() -> bool:
        return not any(driver.alive for driver in world.host.drivers)

    await eventually(over, "the driver is ended")
    await nothing_is_left(world)


async def hanging_up(world: World, begun: asyncio.Event, **headers: str) -> None:
    """POST /jobs of a client whose connection ends once the planning has begun."""
    request = world.http.build_request("POST", "/jobs", files=form(PROGRAM), headers=headers)
    body = await request.aread()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await begun.wait()
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


async def test_the_end_of_the_server_ends_the_planning(world: World) -> None:
    begun = asyncio.Event()

    async def plan(_spec: dict[str, Any]) -> int:
        begun.set()
        await asyncio.Event().wait()
        return 0

    world.host.plan = plan
    asking = asyncio.create_task(post(world))
    await begun.wait()
    await world.control_plane.close()
    answer = await asking
    assert answer.status_code == 503
    assert "is stopping" in answer.text
    assert not any(driver.alive for driver in world.host.drivers)
    assert not list((world.directory / "jobs").iterdir())


async def test_too_many_plannings_are_told_to_come_again(world: World) -> None:
    go = asyncio.Event()
    at_once = most = 0

    async def plan(spec: dict[str, Any]) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await go.wait()
        at_once -= 1
        return await answers(PLANNED)(spec)

    world.host.plan = plan
    asking = [asyncio.create_task(post(world, query="?dryRun=true")) for _ in range(11)]
    done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
    refused = [each.result() for each in done]
    assert [each.status_code for each in refused] == [503]
    assert refused[0].headers["retry-after"] == "1"

    async def as_many_as_may() -> bool:
        return most == 2

    await eventually(as_many_as_may, "two plannings at once")
    go.set()
    assert sorted([(await each).status_code for each in asking]) == [200] * 10 + [503]
    assert most == 2
    await nothing_is_left(world)


async def test_secrets_of_args_are_shown_to_nobody(world: World) -> None:
    secret = "hunter2-of-the-broker"
    args = ["--password", secret, f"--token={secret}", f"kafka://me:{secret}@broker:9092", "--topic", "words"]
    world.host.plan = answers(Planned(error=f"word_count.py, line 9: cannot log in with {secret}."))
    refused = await post(world, {"args": args})
    assert refused.status_code == 400
    assert secret not in refused.text
    world.host.plan = answers(PLANNED)
    job_id = (await post(world, {"args": args})).json()["jobid"]
    await world.completed(job_id, 1)
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


async def test_what_a_killed_server_leaves_is_removed(world: World) -> None:
    handle = await world.host.acquire()
    left = world.directory / "jobs" / ".planning-0123"
    (left / "artifacts").mkdir(parents=True)
    ref = handle.ref
    fields = {
        "driver_id": ref.driver_id,
        "pid": ref.pid,
        "pid_started_at": ref.pid_started_at,
        "lock_file": ref.lock_file,
    }
    (left / "driver.json").write_text(json.dumps(fields))
    (left / "lock").touch()
    # One that has just been made may not be locked yet.
    assert await world.control_plane.planner.drop_strays() == 0
    _age(left)
    assert await world.control_plane.planner.drop_strays() == 1
    await nothing_is_left(world)


async def test_what_is_being_planned_is_no_stray(world: World) -> None:
    dropped: list[int] = []

    async def plan(spec: dict[str, Any]) -> int:
        _age(Path(spec["artifacts_dir"]).parent)
        dropped.append(await world.control_plane.planner.drop_strays())
        return await answers(PLANNED)(spec)

    world.host.plan = plan
    assert (await post(world, query="?dryRun=true")).status_code == 200
    assert dropped == [0]


def _age(directory: Path) -> None:
    then = time.time() - 60
    os.utime(directory, (then, then))
