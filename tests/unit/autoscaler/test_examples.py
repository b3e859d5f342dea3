"""The policies and the loop of examples/autoscaler."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.autoscaler.policy import Policy, read_policy
from app.autoscaler.seen import NO_MEMORY
from tests.unit.autoscaler.model_job import START_MS, VERTEX, ModelJob

EXAMPLES = Path(__file__).parents[3] / "examples/autoscaler"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_policies_can_be_used(path: Path) -> None:
    assert read_policy(yaml.safe_load(path.read_text(encoding="utf-8"))) != Policy()


def test_the_loop_declares_what_is_decided() -> None:
    spec = importlib.util.spec_from_file_location("example_loop", EXAMPLES / "loop.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    job = ModelJob(lambda _: 100)
    job.run_to(START_MS + 300_000)
    conflicts = [412]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            if conflicts:
                return httpx.Response(conflicts.pop())
            job.upper = json.loads(request.content)[VERTEX]["parallelism"]["upperBound"]
            return httpx.Response(200, json={})
        path = f"{request.url.path}?{request.url.query.decode()}"
        found, etag = job.get(path)
        return httpx.Response(200, json=found, headers={} if etag is None else {"ETag": etag})

    http = httpx.Client(base_url="http://job", transport=httpx.MockTransport(answer))
    memory = module.turn(http, "job", Policy(), NO_MEMORY)
    assert job.upper == 1
    memory = module.turn(http, "job", Policy(), memory)
    assert job.upper > 1
    job.status = "FINISHED"
    assert module.turn(http, "job", Policy(), memory) is None
