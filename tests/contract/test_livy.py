"""Batches as Livy has them: the calls of Airflow's provider, as they were recorded, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.api.auth import Tokens
from app.worker.requests import log_lines
from tests.contract.test_attempts import write
from tests.contract.test_tokens import TOKEN, guarded  # noqa: F401 - a fixture
from tests.contract.world import GRAPH, World, eventually, open_world

SCRIPT = "print('hello')\n"


@pytest.fixture
async def livy(any_world: World) -> AsyncIterator[World]:
    """A server that reads programs below a directory, and writes logs."""
    with_programs(any_world)
    yield any_world


def programs_of(world: World) -> Path:
    """Beside the data directory: what is in that is nobody's program."""
    return world.directory.with_name(f"{world.directory.name}-programs")


def with_programs(world: World) -> Path:
    world.host.run_dir = world.directory
    programs = programs_of(world)
    (programs / "jobs").mkdir(parents=True)
    (programs / "jobs" / "etl.py").write_text(SCRIPT)
    (programs / "helpers.py").write_text("X = 1\n")
    (programs / "names.csv").write_text("a\n")
    object.__setattr__(world.info.settings, "livy_files_dir", programs)
    return programs


async def post(world: World, **body: Any) -> dict[str, Any]:
    answer = await world.http.post("/batches", json={"file": "jobs/etl.py", **body})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/batches/{answer.json()['id']}"
    return dict(answer.json())


async def in_state(world: World, number: int, state: str) -> None:
    async def there() -> bool:
        return bool(await world.get(f"/batches/{number}/state") == {"id": number, "state": state})

    await eventually(there, f"batch {number} is {state}")


async def end(world: World, status: int, **report: Any) -> None:
    """The program ends, and its driver says how."""
    driver = world.driver()
    async with driver._calls() as (http, base):
        await driver._report(http, base, plan_version=driver.plan_version, **report)
    driver.die(status)


async def refused(world: World, body: dict[str, Any]) -> list[str]:
    answer = await world.http.post("/batches", json=body)
    assert answer.status_code == 400, answer.text
    return list(answer.json()["errors"])


async def test_a_batch_is_a_job_like_any_other_and_is_read_as_livy_has_it(livy: World) -> None:
    world = livy
    programs = programs_of(world)
    batch = await post(
        world,
        file=f"file://{programs}/jobs/etl.py",
        args=["--day", "1"],
        pyFiles=["helpers.py"],
        files=[f"local:{programs}/names.csv"],
        name="nightly",
        driverMemory="2g",
        numExecutors="3",
        executorCores=2,
        conf={
            "spark.sql.shuffle.partitions": 7,
            "slotwise.slots.weight": "2",
            "spark.yarn.appMasterEnv.TOPIC": "words",
            "spark.kubernetes.driverEnv.LIMIT": 5,
            "spark.kubernetes.driverEnv.TOPIC": "words",
            "spark.executorEnv.OMP_NUM_THREADS": "2",
        },
    )
    job_id = batch["appId"]
    assert batch == {
        "id": 1,
        "name": "nightly",
        "owner": "anonymous",
        "proxyUser": None,
        "state": "starting",
        "appId": job_id,
        "appInfo": {"driverLogUrl": f"http://127.0.0.1:8081/jobs/{job_id}/attempts", "sparkUiUrl": None},
        "log": [],
    }
    await in_state(world, 1, "running")
    graph = await world.get(f"/jobs/{job_id}/graph")
    assert (graph["type"], graph["script"], graph["args"]) == ("BATCH", "etl.py", ["--day", "1"])
    assert sorted(graph["artifacts"]) == ["etl.py", "helpers.py", "names.csv"]
    assert graph["config"] == {
        "spark.sql.shuffle.partitions": "7",
        "slotwise.slots.weight": "2",
        "spark.executorEnv.OMP_NUM_THREADS": "******",
        "restart-strategy.type": "none",
        "spark.driver.memory": "2g",
    }
    assert graph["environmentVariables"] == {"TOPIC": "******", "LIMIT": "******"}
    assert world.driver().spec["graph"]["environmentVariables"] == {"TOPIC": "words", "LIMIT": "5"}
    assert world.driver().spec["spark_conf"]["spark.executorEnv.OMP_NUM_THREADS"] == "2"
    (vertex,) = graph["vertices"]
    assert (vertex["name"], vertex["lowerBound"], vertex["parallelism"]) == ("etl", 1, 6)
    assert (world.directory / "jobs" / job_id / "artifacts" / "etl.py").read_text() == SCRIPT
    bounds = {"etl": {"parallelism": {"lowerBound": 1, "upperBound": 2}}}
    assert (await world.put(job_id, bounds)).status_code == 200
    assert (await world.http.delete("/batches/1")).json() == {"msg": "deleted"}
    await in_state(world, 1, "killed")
    assert (await world.http.delete("/batches/1")).json() == {"msg": "deleted"}
    assert (await world.get("/batches/1"))["state"] == "killed"


@pytest.mark.parametrize(
    ("way", "ends", "state"), [("polled", "finished", "success"), ("deferred", "failed", "dead")]
)
async def test_the_calls_of_airflow_s_operator(
    sqlite_url: str, tmp_path: Path, way: str, ends: str, state: str
) -> None:
    """As version 4.6.4 of the provider made them, to a server that recorded them."""
    calls = json.loads((Path(__file__).parent / "livy" / "airflow.json").read_text())[way]
    names = {hashlib.sha256(b"airflow-token-of-the-test").digest(): "airflow"}
    (tmp_path / "data").mkdir()
    async with open_world(sqlite_url, tmp_path / "data", tokens=Tokens(names)) as world:
        with_programs(world)
        headers = calls[0]["headers"]
        answers: list[dict[str, Any]] = []
        for call in calls:
            if "/log?" in call["target"] and "log" not in answers[-1]:
                world.http.headers.update(headers)
                await in_state(world, 1, "running")
                write(world.driver(), "".join(f"line {n}\n" for n in range(120)))
                await end(world, 0, type=ends, error="ValueError: no such day")
                await in_state(world, 1, state)
                del world.http.headers["authorization"]
            body = json.dumps(call["body"]) if "body" in call else None
            answer = await world.http.request(
                call["method"], call["target"], headers=call["headers"], content=body
            )
            assert answer.is_success, answer.text
            answers.append(answer.json())
    assert answers[0]["id"] == 1
    assert {one["state"] for one in answers[1:4]} <= {"starting", "running"}
    if way == "polled":
        whole = [line for answer in answers[4:6] for line in answer["log"]]
        assert (len(whole), whole[-1], answers[5]["total"]) == (120, "line 119", 120)
        assert (answers[6]["state"], answers[6]["appId"]) == ("success", answers[0]["appId"])
    else:
        assert (len(answers[4]["log"]), answers[4]["total"]) == (100, 121)


async def test_what_the_operator_of_airflow_asks_of_a_batch_that_fails(livy: World) -> None:
    """By a batch that is polled until it ended, whose log is read in steps of a hundred lines."""
    world = livy
    batch = await post(world, numExecutors=1)
    number, job_id = batch["id"], batch["appId"]
    await in_state(world, number, "running")
    write(world.driver(), "".join(f"line {n}\n" for n in range(150)))
    tail = await world.get(f"/batches/{number}")
    assert tail["log"] == [f"line {n}" for n in range(140, 150)]
    await end(world, 1, type="failed", error="ValueError: no such day\nin etl.py")
    await in_state(world, number, "dead")
    read: list[str] = []
    first, total = 0, 0
    while first <= total:
        page = await world.get(f"/batches/{number}/log", **{"from": first, "size": 100})
        assert (page["id"], page["from"], page["size"]) == (number, first, len(page["log"]))
        read, first, total = read + page["log"], first + 100, page["total"]
    assert read[:150] == [f"line {n}" for n in range(150)]
    assert read[150:] == [f"Job {job_id} is FAILED: ValueError: no such day", "in etl.py"]
    assert (await world.get(f"/batches/{number}/log", size=1))["log"] == ["in etl.py"]
    assert (await world.get(f"/batches/{number}/log", **{"from": 9999}))["log"] == []
    os.unlink(Path(world.driver().ref.lock_file).with_suffix(".log"))
    gone, *last_words = (await world.get(f"/batches/{number}/log"))["log"]
    assert "is not there: it was removed" in gone and last_words == read[150:]


async def test_a_batch_that_ends_well_is_a_success(livy: World) -> None:
    world = livy
    batch = await post(world, numExecutors=1)
    await in_state(world, batch["id"], "running")
    write(world.driver(), "written: 7 rows")
    await end(world, 0, type="finished")
    await in_state(world, batch["id"], "success")
    assert (await world.get("/batches/1"))["log"] == ["written: 7 rows"]
    log = await world.get("/batches/1/log", **{"from": 0, "size": 100})
    assert log == {"id": 1, "from": 0, "size": 1, "total": 1, "log": ["written: 7 rows"]}
    assert (await world.http.delete("/batches/1")).json() == {"msg": "deleted"}
    await in_state(world, batch["id"], "success")


async def test_lines_that_are_too_long_are_said_to_be_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_programs(world)
    monkeypatch.setattr(log_lines, "MOST_BYTES", 20)
    await in_state(world, (await post(world, numExecutors=1))["id"], "running")
    write(world.driver(), "short\n" + "long " * 20 + "\nshort again\n")
    await end(world, 1, type="failed", error="ValueError: x")
    await in_state(world, 1, "dead")
    page = await world.get("/batches/1/log", **{"from": 0, "size": 100})
    assert page["log"][0] == "short" and "the rest of these 100 lines is left out" in page["log"][-2]
    assert page["log"][-1].endswith("ValueError: x") and page["total"] == 4


async def test_those_who_ask_for_lines_wait_for_their_turn_and_are_not_in_the_way(world: World) -> None:
    with_programs(world)
    await in_state(world, (await post(world, numExecutors=1))["id"], "running")
    write(world.driver(), "hello\n")
    logs, asking, most = world.control_plane.logs, 0, 0
    find = logs._lines

    async def counted(*asked: Any) -> Any:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        try:
            return await find(*asked)
        finally:
            asking -= 1

    logs._lines = counted  # type: ignore[method-assign]
    answers = await asyncio.gather(*(world.http.get("/batches/1/log") for _ in range(20)))
    assert {answer.json()["log"][0] for answer in answers} == {"hello"}
    assert most == 2

    async def is_gone() -> bool:
        return True

    view = world.control_plane.job((await world.get("/batches/1"))["appId"])
    assert (await logs.lines(view, 0, 9, (), is_gone)).lines == ()


async def test_numbers_are_those_of_batches_only_and_are_never_given_again(livy: World) -> None:
    world = livy
    await world.submit(GRAPH)
    numbers = [(await post(world, name=f"job-{n}"))["id"] for n in range(3)]
    assert numbers == [1, 2, 3]
    listed = await world.get("/batches", **{"from": 1, "size": 1})
    assert (listed["from"], listed["total"]) == (1, 3)
    assert [(one["id"], one["name"]) for one in listed["sessions"]] == [(2, "job-1")]
    newest = (await world.get("/batches/3"))["appId"]
    await world.http.delete("/batches/3")
    await world.status(newest, "CANCELED")
    assert (await world.http.delete(f"/jobs/{newest}")).status_code == 200
    for method, path in (("GET", ""), ("GET", "/state"), ("GET", "/log"), ("DELETE", "")):
        answer = await world.http.request(method, f"/batches/3{path}")
        assert (answer.status_code, answer.json()) == (404, {"errors": ["There is no Livy batch 3."]})
    assert (await post(world))["id"] == 4
    (error,) = (await world.http.get("/batches/x")).json()["errors"]
    assert "batchid should be a whole number between 0 and 2147483647, found 'x'" in error


async def test_what_cannot_be_honoured_is_refused(world: World) -> None:
    with_programs(world)
    script = {"file": "jobs/etl.py"}
    for body, sentence in (
        ({}, "file: is missing: the path of a Python program is expected."),
        ({"file": "jobs/etl.jar"}, "file: should end in .py, found 'etl.jar'."),
        ({"file": "a/" * 600 + "x.py"}, "file: should be a path on the server's host"),
        ({"file": 5}, "file: should be a path on the server's host"),
        ({"file": "s3a://bucket/etl.py"}, "found 's3a://bucket/etl.py'."),
        ({"file": "file://host/etl.py"}, "found 'file://host/etl.py'."),
        ({"file": "jobs/none.py"}, "file: 'jobs/none.py' cannot be read: No such file or directory."),
        ({**script, "pyFiles": ["a.egg"]}, "pyFiles[0]: should end in .py, .zip, .whl, found 'a.egg'."),
        ({**script, "files": ["etl.py"]}, "files[0]: has the name 'etl.py', and so has file"),
        ({**script, "files": "etl.py"}, "files: should be a list of paths, found the text 'etl.py'."),
        ({**script, "files": ["jobs/"]}, "files[0]: should have a name of letters"),
        ({**script, "files": ["jobs"]}, "files[0]: 'jobs' is no file."),
        ({**script, "colour": "red"}, "colour: is not a field of a Livy batch."),
        ({**script, "conf": {"slotwise.colour": 1}}, "conf: Option slotwise.colour is unknown"),
        ({**script, "conf": {"spark.master": "yarn"}}, "conf: The setting spark.master is not allowed"),
        ({**script, "conf": {"spark.executor.instances": 2}}, "conf['spark.executor.instances']: would do nothing"),
        ({**script, "conf": {"spark.dynamicAllocation.enabled": 1}}, "would do nothing: the number of tasks follows"),
        ({**script, "conf": {"spark.yarn.queue": "x"}}, "conf['spark.yarn.queue']: would do nothing: nothing here"),
        (
            {**script, "conf": {"spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./python"}},
            "conf['spark.yarn.appMasterEnv.PYSPARK_PYTHON']: is not allowed: Slotwise and Spark set",
        ),
        (
            {**script, "conf": {"spark.yarn.appMasterEnv.A": "1", "spark.kubernetes.driverEnv.A": "2"}},
            "conf['spark.kubernetes.driverEnv.A']: is there besides another A, with another value: give one.",
        ),
        (
            {**script, "conf": {"spark.kubernetes.driverEnv.A": []}},
            "conf['spark.kubernetes.driverEnv.A']: should be a text, found a list.",
        ),
        ({**script, "conf": []}, "conf: should be a mapping of settings to values, found a list."),
        ({**script, "conf": {"slotwise.job.type": "ETL"}}, "conf['slotwise.job.type']: should be one of STREAMING"),
        ({**script, "name": ""}, "name: must not be empty"),
        ({**script, "args": [1]}, "args[0]: should be a text"),
        ({**script, "driverMemory": "many"}, "conf['spark.driver.memory']"),
        (
            {**script, "driverMemory": "2g", "conf": {"spark.driver.memory": "1g"}},
            "driverMemory: is there besides spark.driver.memory in conf: give one of them.",
        ),
        ({**script, "numExecutors": 0}, "numExecutors: should be a whole number between 1"),
        ({**script, "executorCores": 2}, "executorCores: says how parallel a batch may be only together"),
        ({**script, "numExecutors": 1000, "executorCores": 1000}, "numExecutors: times executorCores is 1000000"),
        (
            {**script, "numExecutors": 2, "conf": {"slotwise.job.type": "STREAMING"}},
            "numExecutors: is for BATCH programs",
        ),
        *(({**script, name: "x"}, f"{name}: cannot be had here") for name in (
            "proxyUser", "className", "jars", "archives", "queue", "driverCores", "executorMemory",
        )),
    ):  # fmt: skip
        errors = await refused(world, body)
        assert any(sentence in error for error in errors), (body, errors)
    assert await world.get("/jobs") == {"jobs": []}
    # What is null was left out.
    await post(world, proxyUser=None, args=None, conf=None)


async def test_a_streaming_program_is_accepted_before_it_runs(world: World) -> None:
    with_programs(world)
    batch = await post(world, conf={"slotwise.job.type": "STREAMING"})
    graph = await world.get(f"/jobs/{batch['appId']}/graph")
    (vertex,) = graph["vertices"]
    assert (graph["type"], vertex["planned"]["role"]) == ("STREAMING", "PROGRAM")
    await world.status(batch["appId"], "CREATED")


async def test_only_files_for_programs_are_read(world: World) -> None:
    assert "has to name a directory with programs" in (await refused(world, {"file": "a.py"}))[0]
    programs = with_programs(world)
    secret = programs.with_name(f"{programs.name}.py")
    secret.write_text("TOKEN = 1\n")
    (programs / "link.py").symlink_to(secret)
    (programs / "inside.py").symlink_to(programs / "jobs" / "etl.py")
    (programs / "folder").symlink_to(programs.parent)
    os.mkfifo(programs / "pipe.py")
    for path in (
        str(secret), f"../{secret.name}", "link.py", f"folder/{secret.name}", "/etc/passwd.py", f"file:{secret}",
        "nowhere/../../x.py",
    ):  # fmt: skip
        (error,) = await refused(world, {"file": path})
        assert "is not for programs: only files below" in error, error
    assert (await refused(world, {"file": "pipe.py"})) == ["file: 'pipe.py' is no file."]
    assert (await post(world, file="inside.py"))["name"] == "inside"
    # Not even where the operator named a directory that has the server's own.
    (world.directory / "own.py").write_text(SCRIPT)
    settings = world.info.settings
    object.__setattr__(settings, "livy_files_dir", world.directory.parent)
    object.__setattr__(settings, "token_file", secret)
    settings._file = programs / "helpers.py"
    for path in (f"{world.directory.name}/own.py", secret.name, f"{programs.name}/helpers.py"):
        assert "is not for programs" in (await refused(world, {"file": path}))[0], path
    assert (await post(world, file=f"{programs.name}/jobs/etl.py"))["name"] == "etl"


async def test_files_have_the_limits_of_forms(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with_programs(world)
    monkeypatch.setattr("app.plugins.livy.router.FORM_LIMIT_BYTES", 20)
    answer = await world.http.post("/batches", json={"file": "jobs/etl.py", "files": ["helpers.py"]})
    assert answer.status_code == 413 and "at most 20 bytes" in answer.text


async def test_airflow_sends_a_token_as_a_password_or_in_a_header(guarded: World) -> None:  # noqa: F811
    def basic(login: str, password: str) -> dict[str, str]:
        return {"Authorization": f"Basic {base64.b64encode(f'{login}:{password}'.encode()).decode()}"}

    for headers, status in (
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        (basic("alice", TOKEN), 200),
        (basic("bob", TOKEN), 401),
        (basic("", TOKEN), 401),
        (basic("alice", "wrong"), 401),
        ({"Authorization": "Basic"}, 401),
        ({"Authorization": "Basic @@@"}, 401),
        ({}, 401),
    ):
        assert (await guarded.http.get("/batches", headers=headers)).status_code == status, headers
