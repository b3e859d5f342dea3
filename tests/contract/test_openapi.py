"""The OpenAPI document: complete, true to what is answered, and safe to be explored by a fuzzer."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

import app.web
from app.api.app import SlotwiseApi
from app.plugins.assembly import plugins_of
from tests.contract.live import listening
from tests.contract.world import World, bounds, open_world

EXAMPLES_PER_OPERATION = 12
SWAGGER_UI = Path(app.web.__file__).parent / "swagger-ui"
API = SlotwiseApi("0.1.0", plugins_of(traces=False), with_tokens=False)
DOCUMENT = API.openapi()
OPERATIONS = [
    (method, path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
NAMES = [f"{method.upper()} {path}" for method, path, _ in OPERATIONS]


def validator(schema: Any) -> Any:
    return jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(where, schema, example) of every body of an operation."""
    bodies = [("request", operation.get("requestBody", {}).get("content", {}))]
    bodies += [(status, answer.get("content", {})) for status, answer in operation["responses"].items()]
    for where, content in bodies:
        for media, body in content.items():
            examples = [body["example"]] if "example" in body else body["schema"].get("examples", [])
            for example in examples if media.endswith("json") else []:
                yield where, body["schema"], example


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=NAMES)
def test_every_operation_is_described_with_true_examples(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    assert operation["summary"]
    assert operation["operationId"]
    assert re.fullmatch("[a-z]", operation["operationId"][0])
    for where, schema, example in contents(operation):
        errors = [error.message for error in validator(schema).iter_errors(example)]
        assert not errors, (where, errors)
    for parameter in operation.get("parameters", ()):
        assert parameter["description"]
    assert any(status.startswith("2") for status in operation["responses"])
    assert {"400", "401", "500"} <= set(operation["responses"]) or path.startswith("/health/")
    assert ("404" in operation["responses"]) == ("{" in path)


def test_operation_ids_are_unique_and_everything_public_is_listed() -> None:
    identifiers = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(identifiers)) == len(identifiers)
    for route in API.routes:
        assert isinstance(route, APIRoute)
        (method,) = route.methods
        listed = method.lower() in DOCUMENT["paths"].get(route.path, {})
        unlisted = ("/internal/", "/docs", "/ui/", "/openapi.json")
        assert listed != (route.path == "/" or route.path.startswith(unlisted))


def test_references_lead_somewhere() -> None:
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT)):
        assert name in DOCUMENT["components"]["schemas"]


async def test_the_page_is_swagger_ui_and_loads_nothing_from_elsewhere(world: World) -> None:
    answer = await world.http.get("/v1/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in policy["script-src"]
    for script in re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy["script-src"]
    loaded = re.findall(r"""(?:src|href)="([^"]+)"|url: '([^']+)'""", answer.text)
    links = [name or url for name, url in loaded if name != "data:,"]
    assert len(links) == 3
    for link in links:
        for base in ("/", "/v1/"):
            found = await world.http.get(base + link)
            assert found.status_code == 200 and len(found.content) > 100_000, link
    assert (await world.http.get("/docs/LICENSE")).status_code == 404
    turned = await world.http.get("/v1/docs/")
    assert str(turned.url.join(turned.headers["location"])) == "http://localhost/v1/docs"
    part = await world.http.get("/docs/swagger-ui.css", headers={"Range": "bytes=900000000-"})
    assert (part.status_code, part.headers["x-content-type-options"]) == (200, "nosniff")


async def test_what_the_page_loads_is_what_its_package_has(world: World) -> None:
    version, *listed = (SWAGGER_UI / "SHA256SUMS").read_text().splitlines()
    assert re.fullmatch(r"# swagger-ui-dist [0-9.]+ of npm", version)
    expected = {name: digest for digest, name in (line.split("  ") for line in listed)}
    assert {path.name for path in SWAGGER_UI.iterdir()} == {*expected, "SHA256SUMS"}
    for name, digest in expected.items():
        assert hashlib.sha256((SWAGGER_UI / name).read_bytes()).hexdigest() == digest, name
    for name in ("swagger-ui.css", "swagger-ui-bundle.js"):
        served = await world.http.get(f"/docs/{name}")
        assert hashlib.sha256(served.content).hexdigest() == expected[name], name


# -- Schemathesis


@dataclass(frozen=True)
class Server:
    url: str
    jobs: tuple[str, ...]
    vertices: tuple[str, ...]
    rescales: tuple[str, ...]


async def _prepare(world: World, port: int) -> Server:
    running, finished = await world.running(), await world.running()
    await world.put(running, bounds(flights=(1, 3), delays=(1, 3), store=(1, 1)))
    await world.completed(running, 2)
    await world.http.post(f"/jobs/{finished}/stop")
    await world.status(finished, "FINISHED")
    vertices = tuple(vertex["id"] for vertex in (await world.get(f"/jobs/{running}"))["vertices"])
    records = await world.get(f"/jobs/{running}/rescales/history")
    return Server(
        f"http://127.0.0.1:{port}",
        (running, finished),
        vertices,
        tuple(record["rescaleUuid"] for record in records),
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A control plane with a running and a finished job, served from a thread with an event loop of its own."""
    directory: Path = tmp_path_factory.mktemp("world")
    ready, over = threading.Event(), threading.Event()
    found: list[Server] = []

    async def serve() -> None:
        async with (
            open_world(f"sqlite:///{directory}/slotwise.db", directory) as world,
            listening(world) as port,
        ):
            found.append(await _prepare(world, port))
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(60), "the server did not start"
    yield found[0]
    over.set()
    thread.join(30)
    assert not thread.is_alive()


# What the schema cannot say (which vertices a job has, that a graph holds together) makes some valid input a 400.
load_all_checks()
MUST_ACCEPT = CHECKS.get_one("positive_data_acceptance")
MUST_REFUSE = CHECKS.get_one("negative_data_rejection")
SAYS_LESS = frozenset(
    {
        "cancelRescale",
        "createBatch",
        "deleteScalingPolicy",
        "putResourceRequirements",
        "putScalingPolicy",
        "putSlotShare",
        "readAttemptLog",
        "replaceJob",
        "submitJob",
    }
)
EXPLORED = schemathesis.openapi.from_dict(DOCUMENT)


def has_rules(operation: dict[str, Any]) -> bool:
    """Whether there is input that breaks the document."""
    return "requestBody" in operation or any(
        set(parameter["schema"]) & {"pattern", "enum", "minimum"}
        or parameter["schema"].get("type") != "string"
        for parameter in operation.get("parameters", ())
    )


NEVER_END = frozenset({"getEvents", "getJobEvents"})
ENDS_JOBS = frozenset({"cancelJob", "forgetJob", "stopJob"})


@pytest.mark.parametrize(
    ("method", "path", "operation", "mode"),
    [
        pytest.param(*entry, mode, id=f"{name}, {mode.value} input")
        for entry, name in zip(OPERATIONS, NAMES, strict=True)
        for mode in GenerationMode
        if mode is GenerationMode.POSITIVE or has_rules(entry[2])
    ],
)
def test_no_answer_departs_from_the_document(
    server: Server, method: str, path: str, operation: dict[str, Any], mode: GenerationMode
) -> None:
    """Generated input, valid and not: no 5xx, and every status, header and body is one that the document has."""
    known = {"jobid": server.jobs, "vertexid": server.vertices, "rescaleuuid": server.rescales}
    if operation["operationId"] in ENDS_JOBS:
        del known["jobid"]

    def with_known_ids(case: schemathesis.Case) -> schemathesis.Case:
        for name, value in (case.path_parameters or {}).items():
            if name in known and re.fullmatch("[0-9a-fA-F]{32}", str(value)) and str(value)[0] != "f":
                case.path_parameters[name] = known[name][int(str(value)[0], 16) % len(known[name])]
        if operation["operationId"] in NEVER_END and (case.query or {}).get("follow", "true") in (
            "true",
            True,
        ):
            case.query = {**(case.query or {}), "follow": "false"}
        return case

    @given(EXPLORED[path][method.upper()].as_strategy(generation_mode=mode).map(with_known_ids))
    @settings(
        max_examples=EXAMPLES_PER_OPERATION,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    def explore(case: schemathesis.Case) -> None:
        excluded = [MUST_ACCEPT] if operation["operationId"] in SAYS_LESS else []
        if str((case.query or {}).get("dryRun")).lower() == "true":
            # It answers bounds that are wrong with what is wrong about them.
            excluded.append(MUST_REFUSE)
        answer = case.call(base_url=server.url)
        if answer.status_code == 412:
            # A refusal too: If-Match is looked at before bounds are compared with the job.
            excluded.append(MUST_REFUSE)
        case.validate_response(answer, excluded_checks=excluded)

    explore()


def test_the_manual_names_every_operation() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "rest-api.md").read_text()
    named = set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", manual, re.MULTILINE))
    assert named == set(NAMES)
