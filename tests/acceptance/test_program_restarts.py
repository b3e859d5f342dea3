"""The queries of a program start again and again for redistributions of their state, while the program itself runs on:
one process, which runs the program once, until it is killed; and the output is that of a plain run."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.acceptance.deployment import SLOTS, Deployment, deployed, is_alive, wait_for
from tests.acceptance.programs import (
    INPUT_S,
    PROGRAMS,
    Place,
    Program,
    await_running,
    printed,
    run_plain,
    submit,
)
from tests.acceptance.test_programs import FOLDERS, differences

pytestmark = pytest.mark.timeout(1200)

RESTARTS, KILLED_AT = 10, 6
MOST = 9
BEGINS = "The program begins."
WRITTEN = {
    "polling": Program("polling.py", "{events} {output} {checkpoint}"),
    "two queries": Program("two_queries.py", FOLDERS, queries=("figures", "large")),
}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("restarts")) as made:
        made.start(with_points=False)
        yield made


def partitions(deployment: Deployment) -> int:
    (found,) = (one["maxParallelism"] for one in deployment.job()["vertices"] if one["name"] == "aggregate")
    return int(found)


def ask(deployment: Deployment, dice: random.Random) -> int:
    """Ask for other state partitions, and other bounds of every vertex; the number."""
    now = partitions(deployment)
    number = dice.choice([each for each in range(1, MOST + 1) if each != now])
    body: dict[str, Any] = {}
    for one in deployment.job()["vertices"]:
        upper = dice.randint(1, SLOTS if one["name"] != "aggregate" else min(SLOTS, number))
        body[one["name"]] = {"parallelism": {"lowerBound": 1, "upperBound": upper}}
    body["aggregate"]["statePartitions"] = number
    answer = deployment.call("PUT", f"/jobs/{deployment.job_id}/resource-requirements", json=body)
    assert answer.is_success, answer.text
    return number


def await_partitions(deployment: Deployment, number: int, known: int) -> list[Any]:
    """The records since ``known``, once the job runs with so many and has committed a batch."""

    def ended() -> list[Any] | bool:
        new = [one for one in deployment.history() if one["number"] > known]
        return all(one["terminalState"] for one in new) and new

    wait_for(f"{number} partitions", lambda: partitions(deployment) == number)
    records: list[Any] = wait_for("the rescale has ended", ended)
    await_running(deployment)
    return records


@pytest.mark.parametrize("name", ["polling", pytest.param("two queries", marks=pytest.mark.long)])
def test_the_program_runs_once_and_its_queries_often(
    deployment: Deployment, tmp_path: Path, name: str
) -> None:
    source = (PROGRAMS / WRITTEN[name].script).read_text(encoding="utf-8")
    script = tmp_path / WRITTEN[name].script
    script.write_text(f"print({BEGINS!r}, flush=True)\n{source}", encoding="utf-8")
    program = replace(WRITTEN[name], script=str(script))
    alone, ours = (Place(tmp_path / "input", tmp_path / run) for run in ("plain", "slotwise"))
    ours.own.mkdir()
    feeder = program.feeder(ours.input)
    feeder.write(10)
    feeder.start()
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    dice = random.Random(seed)
    submit(deployment, script, program.command(ours), "--name", name)
    pids, gaps = [await_running(deployment)["driverPid"]], []
    for attempt in range(1, RESTARTS + 1):
        known = deployment.history()[0]["number"]
        number = ask(deployment, dice)
        if attempt == KILLED_AT:
            at = time.monotonic() + dice.uniform(0, 3)
            wait_for("a moment of it", lambda at=at: time.monotonic() >= at)
            os.kill(pids[-1], signal.SIGKILL)
            wait_for("the driver is dead", lambda: not is_alive(pids[-1]))
            await_partitions(deployment, number, known)
            pids.append(deployment.job()["driverPid"])
            continue
        (record,) = await_partitions(deployment, number, known)
        assert (record["terminalState"], record["rung"]) == ("COMPLETED", "state-repartition"), record
        assert deployment.job()["driverPid"] == pids[-1]
        gaps.append(record["outputGapInMillis"])
    feeder.finish()
    wait_for("the job has done all of its input", lambda: program.is_at_end(ours), INPUT_S)
    deployment.stop()
    assert printed(deployment).count(BEGINS) == len(set(pids)) == 2
    assert "stopped:" not in printed(deployment)
    run_plain(program, alone)
    rows = program.rows(ours)
    assert differences(rows, program.rows(alone)) == {} and all(rows.values())
    print(
        f"OUTCOME {name}: {len(gaps)} redistributions in the process, gaps {gaps}, median {median(gaps)} ms"
    )
