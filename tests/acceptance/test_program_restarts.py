"""The queries of a program start again and again for redistributions of their state, while the program itself runs on:
one process, which runs the program once, until it is killed; and the output is that of a plain run."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.acceptance.deployment import SLOTS, Deployment, deployed, is_alive, wait_for
from tests.acceptance.program_data import Feeder
from tests.acceptance.programs import (
    INPUT_S,
    PROGRAMS,
    Place,
    Program,
    await_queries,
    await_running,
    printed,
    run_plain,
    submit,
)
from tests.acceptance.test_programs import FOLDERS, differences

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

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


@dataclass
class Run:
    """A program that runs as a job, and what it is compared with."""

    deployment: Deployment
    program: Program
    ours: Place
    alone: Place
    feeder: Feeder
    dice: random.Random

    @classmethod
    def begin(cls, deployment: Deployment, directory: Path, name: str) -> Run:
        source = (PROGRAMS / WRITTEN[name].script).read_text(encoding="utf-8")
        script = directory / WRITTEN[name].script
        script.write_text(f"print({BEGINS!r}, flush=True)\n{source}", encoding="utf-8")
        program = replace(WRITTEN[name], script=str(script))
        alone, ours = (Place(directory / "input", directory / run) for run in ("plain", "slotwise"))
        ours.own.mkdir()
        feeder = program.feeder(ours.input)
        feeder.write(10)
        feeder.start()
        seed = random.randrange(10**6)
        print(f"seed {seed}")
        submit(deployment, script, program.command(ours), "--name", name)
        await_queries(deployment, len(program.queries))
        await_running(deployment)
        return cls(deployment, program, ours, alone, feeder, random.Random(seed))

    @property
    def pid(self) -> int:
        return int(await_running(self.deployment)["driverPid"])

    @property
    def partitions(self) -> int:
        vertices = self.deployment.job()["vertices"]
        return int(next(one["maxParallelism"] for one in vertices if one["name"] == "aggregate"))

    def ask(self) -> tuple[int, int]:
        """Ask for other state partitions, and other bounds of every vertex; the number, and that of the newest record
        before."""
        known = int(self.deployment.history()[0]["number"])
        now = self.partitions
        number = self.dice.choice([each for each in range(1, MOST + 1) if each != now])
        body: dict[str, Any] = {}
        for one in self.deployment.job()["vertices"]:
            upper = self.dice.randint(1, SLOTS if one["name"] != "aggregate" else min(SLOTS, number))
            body[one["name"]] = {"parallelism": {"lowerBound": 1, "upperBound": upper}}
        body["aggregate"]["statePartitions"] = number
        place = f"/jobs/{self.deployment.job_id}/resource-requirements"
        answer = self.deployment.call("PUT", place, json=body)
        assert answer.is_success, answer.text
        return number, known

    def await_partitions(self, number: int, known: int) -> list[Any]:
        """The records since ``known``, once the job runs with so many and has committed a batch."""

        def ended() -> list[Any] | bool:
            new = [one for one in self.deployment.history() if one["number"] > known]
            return all(one["terminalState"] for one in new) and new

        wait_for(f"{number} partitions", lambda: self.partitions == number)
        records: list[Any] = wait_for("the rescale has ended", ended)
        await_running(self.deployment)
        return records

    def finish(self) -> str:
        """Compare its output with that of a plain run; what it has printed."""
        self.feeder.finish()
        wait_for("the job has done all of its input", lambda: self.program.is_at_end(self.ours), INPUT_S)
        self.deployment.stop()
        run_plain(self.program, self.alone)
        rows = self.program.rows(self.ours)
        assert differences(rows, self.program.rows(self.alone)) == {} and all(rows.values())
        return printed(self.deployment)


@pytest.mark.parametrize(
    ("name", "restarts", "killed_at"),
    [
        ("polling", 10, 6),
        ("two queries", 10, 6),
    ],
)
def test_the_program_runs_once_and_its_queries_often(
    deployment: Deployment, tmp_path: Path, name: str, restarts: int, killed_at: int
) -> None:
    run = Run.begin(deployment, tmp_path, name)
    pids, gaps = [run.pid], []
    for attempt in range(1, restarts + 1):
        number, known = run.ask()
        if attempt == killed_at:
            at = time.monotonic() + run.dice.uniform(0, 3)
            wait_for("a moment of it", lambda at=at: time.monotonic() >= at)
            os.kill(pids[-1], signal.SIGKILL)
            wait_for("the driver is dead", lambda: not is_alive(pids[-1]))
            run.await_partitions(number, known)
            # The redistribution may have been done before the kill.
            wait_for("another driver runs it", lambda: run.pid != pids[-1])
            pids.append(run.pid)
            continue
        (record,) = run.await_partitions(number, known)
        assert (record["terminalState"], record["rung"]) == ("COMPLETED", "state-repartition"), record
        assert run.pid == pids[-1]
        # Of several queries the first batch of one completes the record: the pause of all is not known then.
        if (gap := record["outputGapInMillis"]) is not None:
            gaps.append(gap)
    output = run.finish()
    assert output.count(BEGINS) == len(set(pids)) == 2
    assert "stopped:" not in output
    print(f"OUTCOME {name}: redistributions in the process, gaps {gaps}, median {median(gaps or [0])} ms")
