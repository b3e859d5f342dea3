"""POST /jobs: JSON, YAML and forms; every error of a graph at once, each with its place."""

from __future__ import annotations

import ast
import errno
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.api.info import ServerInfo
from app.api.requests import BODY_LIMIT_BYTES
from app.api.routers.submission import FORM_LIMIT_BYTES
from app.settings import Settings
from app.worker.requests.artifacts import NEEDED
from tests.contract.world import GRAPH, World

PYTHON_GRAPH: dict[str, Any] = {
    **GRAPH,
    "artifacts": ["enrich.py"],
    "vertices": [
        GRAPH["vertices"][0],
        {"name": "enrich", "inputs": ["flights"], "python": "enrich:enrich"},
        {"name": "store", "inputs": ["enrich"], "sink": {"format": "noop"}},
    ],
}
CODE = b"def enrich(flights):\n    return flights\n"


async def no_jobs(world: World) -> None:
    assert await world.get("/jobs") == {"jobs": []}


async def test_json_and_yaml_are_the_same_graph(any_world: World) -> None:
    world = any_world
    first = await world.http.post("/jobs", json=GRAPH)
    second = await world.http.post(
        "/jobs", content=yaml.safe_dump(GRAPH), headers={"Content-Type": "application/yaml"}
    )
    graphs = []
    for answer in (first, second):
        assert answer.status_code == 202, answer.text
        job_id = answer.json()["jobid"]
        assert answer.json() == {"jobid": job_id, "jobUrl": f"/jobs/{job_id}"}
        assert answer.headers["location"] == f"/jobs/{job_id}"
        graphs.append(await world.get(f"/jobs/{job_id}/graph"))
    assert graphs[0] == graphs[1]
    assert [vertex["name"] for vertex in graphs[0]["vertices"]] == ["flights", "delays", "store"]
    # What is shown can be submitted again and means the same.
    again = await world.http.post("/jobs", json=graphs[0])
    assert await world.get(f"/jobs/{again.json()['jobid']}/graph") == graphs[0]
    listed = (await world.get("/jobs"))["jobs"]
    assert listed[0]["id"] in {answer.json()["jobid"] for answer in (first, second, again)}
    assert len(listed) == 3


ENVIRONMENT = {"environment": {"requirements": ["pyspark==4.2.0"]}, "packages": ["a.b:c_2.13:1.0"]}


async def test_what_a_graph_runs_in_is_built_for_its_first_attempt(any_world: World) -> None:
    world = any_world
    answer = await world.http.post("/jobs", json={**GRAPH, **ENVIRONMENT})
    assert answer.status_code == 202, answer.text
    shown = await world.get(f"/jobs/{answer.json()['jobid']}/graph")
    assert {key: shown[key] for key in ENVIRONMENT} == ENVIRONMENT
    assert world.host.builds == []


async def test_a_form_carries_the_files(any_world: World) -> None:
    world = any_world
    for graph in (
        ("graph.json", json.dumps(PYTHON_GRAPH), "application/json"),
        ("graph.yaml", yaml.safe_dump(PYTHON_GRAPH), "application/yaml"),
    ):
        answer = await world.http.post(
            "/jobs", files=[("graph", graph), ("files", ("enrich.py", CODE, "text/x-python"))]
        )
        assert answer.status_code == 202, answer.text
        job_id = answer.json()["jobid"]
        assert (world.directory / "jobs" / job_id / "artifacts" / "enrich.py").read_bytes() == CODE
    # The graph may also be a plain field.
    answer = await world.http.post(
        "/jobs", data={"graph": yaml.safe_dump(PYTHON_GRAPH)}, files=[("files", ("enrich.py", CODE))]
    )
    assert answer.status_code == 202, answer.text


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([], "enrich.py"),
        ([("files", ("enrich.py", CODE)), ("files", ("other.py", CODE))], "other.py"),
        ([("files", ("enrich.py", CODE)), ("files", ("enrich.py", CODE))], "twice"),
        ([("files", ("../enrich.py", CODE))], "../enrich.py"),
        ([("files", ("/etc/passwd", CODE))], "/etc/passwd"),
        ([("files", ("a\\..\\b.py", CODE))], "not allowed"),
        ([("files", (".hidden", CODE))], ".hidden"),
        ([("code", ("enrich.py", CODE))], "code"),
        ([("graph", ("graph.json", json.dumps(PYTHON_GRAPH)))], "twice"),
    ],
)
async def test_bad_files(world: World, files: list[Any], found: str) -> None:
    graph = ("graph", ("graph.json", json.dumps(PYTHON_GRAPH), "application/json"))
    answer = await world.http.post("/jobs", files=[graph, *files])
    assert answer.status_code == 400
    assert found in " ".join(answer.json()["errors"])
    await no_jobs(world)


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("multipart/form-data", b"x", 400),
        ("multipart/form-data; boundary=b", b"", 400),
        ("multipart/form-data; boundary=b", b"--b\r\nnonsense", 400),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n--b--\r\n',
            400,
        ),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\n\r\n--b--\r\n", 400),
        ("multipart/form-data; boundary=" + "b" * 5000, b"--b--", 400),
        ("text/html", b"<html>", 415),
        ("application/x-www-form-urlencoded", b"name=x", 415),
        ("nonsense", b"{}", 415),
        ("application/json", b"", 400),
        ("application/json", b"null", 400),
        ("application/json", b"[]", 400),
        ("application/json", b'"x"', 400),
        ("application/json", b"{", 400),
        ("application/json", b'{"name": "a", "name": "b"}', 400),
        ("application/json", b'{"name": NaN}', 400),
        ("application/json", b'{"name": 1e400}', 400),
        ("application/json", b"\xef\xbb\xbf{}", 400),
        ("application/json", b"[" * 100_000, 400),
        ("application/json", b" " * (BODY_LIMIT_BYTES + 1), 413),
        ("application/yaml", b"", 400),
        ("application/yaml", b"a: *b", 400),
        ("application/yaml", b"a: 1\na: 2", 400),
        ("application/yaml", b"--- {}\n--- {}", 400),
        ("application/yaml", b"!!python/object/apply:os.system [id]", 400),
        ("application/yaml", b"\xff\xfe", 400),
        ("application/yaml", b"[" * 50_000, 400),
        (
            "application/yaml",
            b"a: &a [1,1]\n" + b"".join(b"b%d: &b%d [*a,*a]\n" % (n, n) for n in range(200)),
            400,
        ),
        ("application/yaml", b"x" * (BODY_LIMIT_BYTES + 1), 413),
        ("multipart/form-data; boundary=b", b"x" * (FORM_LIMIT_BYTES + 1), 413),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_bad_bodies(world: World, content_type: str, body: bytes, status: int) -> None:
    answer = await world.http.post("/jobs", content=body, headers={"Content-Type": content_type})
    assert answer.status_code == status, answer.text
    assert all(len(error) < 1000 and "Traceback" not in error for error in answer.json()["errors"])
    await no_jobs(world)


async def test_all_errors_of_a_graph_are_told_at_once_each_with_its_place(world: World) -> None:
    graph: dict[str, Any] = {
        "name": "",
        "type": "STREAM",
        "config": {"restart-strategy.type": "sometimes"},
        "vertices": [
            {"name": "a", "source": {"format": "rate"}, "parallelism": 0},
            {"name": "b", "inputs": ["nope"], "sql": "SELECT 1 FROM nope"},
            {"name": "b", "inputs": ["a"], "sink": {"format": "noop"}, "colour": "red"},
        ],
    }
    of_form = await places_of_errors(world, graph)
    assert of_form == ["name", "type", "vertices[0].parallelism", "vertices[2].colour"]
    graph |= {"name": "job", "type": "STREAMING"}
    del graph["vertices"][0]["parallelism"], graph["vertices"][2]["colour"]
    of_rules = await places_of_errors(world, graph)
    assert of_rules == ["config", "vertices[2].name", "vertices[1].inputs[0]"]
    await no_jobs(world)


async def places_of_errors(world: World, graph: dict[str, Any]) -> list[str]:
    answer = await world.http.post("/jobs", json=graph)
    assert answer.status_code == 400
    return [error.partition(": ")[0] for error in answer.json()["errors"]]


async def test_unknown_options_are_refused(world: World) -> None:
    answer = await world.http.post("/jobs", json={**GRAPH, "config": {"restart-strategy.typ": "none"}})
    assert answer.status_code == 400 and "restart-strategy.typ" in answer.json()["errors"][0]
    await no_jobs(world)


async def test_batch_jobs_are_refused_with_a_sentence(world: World) -> None:
    assert await places_of_errors(world, {**GRAPH, "type": "BATCH"})


async def test_secrets_of_a_job_are_not_shown(world: World) -> None:
    config = {
        "spark.hadoop.fs.s3a.secret.key": "hunter2",
        "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net": "hunter2",
        "spark.hadoop.metastore": "jdbc:postgresql://me:hunter2@db/x?sslpassword=hunter2",
        "spark.driver.extraJavaOptions": "-Dkey.password=hunter2 -Xss4m",
        "spark.sql.session.timeZone": "UTC",
    }
    sink = {
        "name": "store",
        "inputs": ["flights"],
        "sink": {
            "format": "postgresql",
            "outputMode": "append",
            "options": {"url": "postgresql://me:hunter2@db/jobs", "table": "counts"},
        },
    }
    job_id = await world.submit({**GRAPH, "config": config, "vertices": [GRAPH["vertices"][0], sink]})
    shown = (await world.get(f"/jobs/{job_id}/config"))["execution-config"]["user-config"]
    assert shown["spark.hadoop.fs.s3a.secret.key"] == "******"
    assert shown["spark.sql.session.timeZone"] == "UTC"
    document = await world.get(f"/jobs/{job_id}/graph")
    assert document["config"] == shown
    assert document["vertices"][1]["sink"]["options"]["url"] == "postgresql://me:******@db/jobs"
    assert "hunter2" not in f"{shown} {document}"


def test_passwords_of_the_server_are_not_shown(tmp_path: Path) -> None:
    settings = Settings(
        data_dir=tmp_path,
        database_url="postgresql+psycopg://me:hunter2@db/jobs?sslmode=require&password=hunter2&sslpassword=hunter2",
        driver_java_options="-Djavax.net.ssl.trustStorePassword=hunter2 -Xss4m",
        token_file=tmp_path / "tokens",
    )
    shown = ServerInfo("0.1.0", 1, "http://127.0.0.1:1", settings).shown_settings()
    assert "hunter2" not in str(shown)
    assert shown["database_url"].startswith("postgresql+psycopg://me:******@db/jobs?")
    assert "sslmode=require" in shown["database_url"]
    assert shown["driver_java_options"] == "-Djavax.net.ssl.trustStorePassword=****** -Xss4m"
    # A path is no secret.
    assert shown["token_file"] == str(tmp_path / "tokens")


def archive(*names: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as opened:
        for name in names:
            opened.writestr(name, "x = 1\n")
    return content.getvalue()


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("app.py", CODE, "app.py is a module app, which would hide the module app of the driver"),
        (
            "pyspark.py",
            CODE,
            "pyspark.py is a module pyspark, which would hide the module pyspark of the driver",
        ),
        (
            "json.py",
            CODE,
            "json.py is a module json, which would hide the module json of Python's standard library",
        ),
        ("lib.zip", archive("enrich.py", "app/__init__.py"), "lib.zip holds a module app"),
        ("lib.zip", archive("enrich.py", "app/inner/x.py"), "lib.zip holds a module app"),
        ("lib-1.0-py3-none-any.whl", archive("pandas/__init__.pyc"), "holds a module pandas"),
        ("lib.zip", archive("types.py"), "lib.zip holds a module types"),
        ("lib.zip", archive("google/__init__.py"), "lib.zip holds a module google"),
        ("lib.zip", archive("google/protobuf/message.py"), "lib.zip holds a module google"),
        ("google.py", CODE, "google.py is a module google"),
        ("lib.zip", archive("google/cloud/storage/__init__.py"), None),
        ("lib.zip", archive("requests/__init__.py", "certifi/__init__.py", "idna/__init__.py"), None),
        ("lib.zip", archive("json/__init__.py", "json/run.py"), "lib.zip holds a module json"),
        ("lib.zip", archive("code/run.py", "json/inner/__init__.py"), None),
        ("enrich.zip", archive("enrich/app.py", "enrich/json/__init__.py", "app/data.txt"), None),
        ("lib.zip", b"no archive", None),
        ("app.txt", b"no module", None),
    ],
)
async def test_an_artifact_must_not_hide_a_module_of_the_driver(
    world: World, file: str, content: bytes, said: str | None
) -> None:
    graph = {**PYTHON_GRAPH, "artifacts": ["enrich.py", file]}
    files = [("graph", ("graph.json", json.dumps(graph), "application/json"))]
    files += [("files", ("enrich.py", CODE, "text/x-python")), ("files", (file, content, "text/plain"))]
    answer = await world.http.post("/jobs", files=files)
    if said is None:
        assert answer.status_code == 202, answer.text
        return
    assert answer.status_code == 400
    [error] = answer.json()["errors"]
    assert error.startswith(f"artifacts: {file} ")
    assert said in error
    assert error.endswith("give it another name.")
    await no_jobs(world)


def test_every_library_of_the_driver_is_protected_from_artifacts() -> None:
    project = Path(__file__).resolve().parents[2] / "app"
    places = [*(project / "driver").rglob("*.py"), *(project / "model").rglob("*.py")]
    trees = [ast.walk(ast.parse(place.read_text())) for place in places]
    nodes = [node for tree in trees for node in tree]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    tops = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    assert tops
    assert tops <= NEEDED


def test_so_is_what_the_libraries_of_the_driver_need_themselves() -> None:
    """PySpark imports protobuf by a string; what a library requires is in no import of the project."""
    tops: dict[str, set[str]] = {}
    waiting = ["pandas", "protobuf", "psycopg", "pyarrow", "pyspark"]
    while waiting:
        name = waiting.pop()
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another Python or system
        files = [file.parts for file in found.files or () if file.suffix in (".py", ".so")]
        tops[name] = {
            parts[0].removesuffix(".py") for parts in files if parts[0].isidentifier() or len(parts) == 1
        }
        required = (re.match(r"[\w.-]+", text) for text in found.requires or () if "extra ==" not in text)
        waiting += [match[0] for match in required if match is not None and match[0] not in tops]
    assert {"google", "numpy", "dateutil"} <= set().union(*tops.values())
    assert set().union(*tops.values()) <= NEEDED, tops


def test_a_library_of_googles_beside_protobuf_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "lib.zip").write_bytes(archive("google/", "google/cloud/", "google/cloud/own.py"))
    code = "import google.cloud.own, google.protobuf.message; assert google.cloud.own.x == 1"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "lib.zip")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


async def test_a_full_directory_for_temporary_files_is_in_nobodys_way(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    code = CODE + b"# " + b"x" * (4 * 1024 * 1024)
    answer = await world.http.post(
        "/jobs", data={"graph": json.dumps(PYTHON_GRAPH)}, files={"files": ("enrich.py", code)}
    )
    assert answer.status_code == 202, answer.text


async def test_no_room_for_the_files_of_a_job_is_503_and_nothing_is_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("app.worker.requests.submission.write_artifacts", full)
    answer = await world.http.post(
        "/jobs", data={"graph": json.dumps(PYTHON_GRAPH)}, files={"files": ("enrich.py", CODE)}
    )
    assert answer.status_code == 503
    assert "No space left on device" in answer.json()["errors"][0]
    await no_jobs(world)
