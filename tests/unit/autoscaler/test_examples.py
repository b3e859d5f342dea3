"""The policies and the loop of examples/autoscaler."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.autoscaler.decide import decide
from app.autoscaler.loop import Loop
from app.autoscaler.policy import Policy
from app.autoscaler.seen import Action
from app.cli.autoscale_policy import read_policy
from tests.unit.autoscaler.jobs import snapshot, vertex
from tests.unit.autoscaler.model_job import START_MS, VERTEX, ModelJob

EXAMPLES = Path(__file__).parents[3] / "examples/autoscaler"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("example_loop", EXAMPLES / "loop.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_policies_can_be_used(path: Path) -> None:
    assert read_policy(yaml.safe_load(path.read_text(encoding="utf-8"))) != Policy()


def test_the_loop_declares_what_its_rule_decides() -> None:
    module = example()
    job = ModelJob(lambda _: 100)
    job.run_to(START_MS + 300_000)
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            sent.append(request)
            job.upper = json.loads(request.content)[VERTEX]["parallelism"]["upperBound"]
            return httpx.Response(200, json={})
        found, etag = job.get(f"{request.url.path}?{request.url.query.decode()}")
        return httpx.Response(200, json=found, headers={} if etag is None else {"ETag": etag})

    http = httpx.Client(base_url="http://job", transport=httpx.MockTransport(answer))
    loop = Loop(module.Http(http), "job", Policy(), module.never_by_one)
    assert loop.turn().has_declared and job.upper > 2
    assert sent[0].headers["if-match"] == '"1"' and sent[0].headers["x-slotwise-reason"].startswith(
        "autoscaler: "
    )


def test_the_rule_of_the_example_leaves_single_tasks_alone() -> None:
    module = example()
    seen = snapshot(vertex(busy_ms=900.0))
    assert decide(seen, Policy()).upper == {"slow": 3}
    found = module.never_by_one(seen, Policy())
    assert (found.action, found.upper) == (Action.NONE, {}) and found.reason.endswith("One task is too few.")
    assert module.never_by_one(snapshot(vertex(busy_ms=990.0, parallelism=4)), Policy()).upper == {"slow": 6}


def test_refusals_reach_the_loop_of_the_example() -> None:
    http = httpx.Client(
        base_url="http://job", transport=httpx.MockTransport(lambda _: httpx.Response(503, text="Busy."))
    )
    assert Loop(example().Http(http), "job", Policy()).turn().trouble == "Busy."
