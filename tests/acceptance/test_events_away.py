"""A client of events that goes away while changes and a kill of the server go on: it misses nothing, and gets nothing
twice. No Spark: the job waits for slots that there are not, and its bounds change all the same."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.deployment import SLOTS, Deployment, counting, wait_for

pytestmark = pytest.mark.timeout(1200)

SHORT, LONG_S = 1.0, 600.0


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    made = Deployment(tmp_path)
    try:
        made.start(with_points=False)
        yield made
    finally:
        made.close()


def waiting_job(deployment: Deployment) -> str:
    document = counting(deployment.directory)
    for vertex in document["vertices"]:
        vertex.update(parallelism=2 * SLOTS, lowerBound=2 * SLOTS, maxParallelism=8 * SLOTS)
    answer = deployment.call("POST", "/jobs", json=document)
    assert answer.is_success, answer.text
    return str(answer.json()["jobid"])


def raise_bounds(deployment: Deployment, upper: int) -> None:
    bounds = dict.fromkeys(("numbers", "plain", "counts", "store"), (2 * SLOTS, upper))
    answer = deployment.put(bounds, f"to-{upper}-{time.monotonic()}")
    assert answer.is_success, answer.text


def stored(deployment: Deployment) -> list[int]:
    return [number for (number,) in deployment.query("SELECT id FROM events ORDER BY id")]


def read(deployment: Deployment, last: str, until: int) -> Iterator[dict[str, Any]]:
    """What a client is sent that comes again behind ``last``, as far as the event ``until``."""
    address = (deployment.data_dir / "address").read_text(encoding="utf-8").strip()
    headers = {"Last-Event-ID": last}
    with httpx.stream("GET", f"{address}/events", headers=headers, timeout=60.0, trust_env=False) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                yield event
                if event["id"] >= until:
                    return


@pytest.mark.parametrize(
    "away_s", [SHORT, pytest.param(LONG_S, marks=pytest.mark.long)], ids=["short", "ten minutes"]
)
def test_a_client_that_was_away_misses_nothing_and_gets_nothing_twice(
    deployment: Deployment, away_s: float
) -> None:
    deployment.job_id = waiting_job(deployment)
    first = stored(deployment)
    seen = [one["id"] for one in read(deployment, "0", first[-1])]

    gone_s, changes, killed = time.monotonic(), 0, False
    while not killed or changes < 20 or time.monotonic() - gone_s < away_s:
        changes += 1
        raise_bounds(deployment, 2 * SLOTS + changes % 8)
        if not killed and time.monotonic() - gone_s >= away_s / 2:
            deployment.kill_server()
            deployment.start(with_points=False)
            wait_for(
                "the job is taken up", lambda: deployment.call("GET", f"/jobs/{deployment.job_id}").is_success
            )
            killed = True
        # A change twice a second is more than a person makes; without a pause ten minutes would fill the table.
        time.sleep(0.5 if away_s > SHORT else 0.0)

    everything = stored(deployment)
    assert len(everything) > len(first) + changes / 2
    seen += [one["id"] for one in read(deployment, str(seen[-1]), everything[-1])]
    assert seen == everything
