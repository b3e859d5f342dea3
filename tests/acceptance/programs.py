"""Runs the programs of tests/programs as their users do, plain and under Slotwise, on one input."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from app.cluster.runtimes import OWN, Kind
from tests import environments
from tests.acceptance import program_data, program_results, program_streams
from tests.acceptance.deployment import OK, ROOT, SLOTS, Deployment, is_alive, wait_for
from tests.acceptance.plain_run import plain
from tests.acceptance.program_results import Rows

PROGRAMS = ROOT / "tests/programs"
# All of the input, by a busy machine.
INPUT_S = 1500.0
PREFIX = "jobmanager.adaptive-scheduler."
CONFIG = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "20",
    "restart-strategy.fixed-delay.delay": "100 ms",
    PREFIX + "submission.resource-stabilization-timeout": "0 ms",
    PREFIX + "executing.cooldown-after-rescaling": "0 ms",
    PREFIX + "executing.resource-stabilization-timeout": "0 ms",
    PREFIX + "rescale-trigger.max-delay": "0 ms",
}


BOTH_WAYS = (signal.SIGKILL, signal.SIGSTOP)
SOON_NOTICED = {"driver_standstill_seconds": "15"}
"""Settings of a server that drivers are stopped under."""


@dataclass(frozen=True)
class Place:
    """The folders of one run."""

    input: Path
    own: Path
    database: str = ""

    @property
    def output(self) -> Path:
        return self.own / "output"

    @property
    def checkpoint(self) -> Path:
        return self.own / "checkpoint"


@dataclass(frozen=True)
class Program:
    script: str
    # {events}, {output}, {checkpoint}, ... are filled in.
    arguments: str
    # The names of the input folders, and what is in them.
    inputs: tuple[str, ...] = ("events",)
    # Where in its checkpoint and in its output each query has its own.
    queries: tuple[str, ...] = ("",)
    # Which query reads the output of which other one, that stands before it, and not the inputs.
    reads: Mapping[str, str] = field(default_factory=dict)
    # Besides the script; of a directory it gets the modules, as a zip file.
    files: tuple[str, ...] = ()
    # By itself, when it has done what there is.
    ends: bool = False
    read: Callable[[Place], Rows] | None = None
    # The PySpark of an environment of its own, or all that it is to have, if it has one; its packages, and settings of
    # Spark.
    version: str = ""
    requirements: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    # Environment variables.
    env: Mapping[str, str] = field(default_factory=dict)
    # How many queries it starts, if it has more than those of `queries`.
    sinks: int = 0
    # Whether it has done all of its input, if its sources are not folders of files that Spark reads.
    at_end: Callable[[Place], bool] | None = None

    @property
    def kind(self) -> Kind:
        """
        Raises:
            NotServed: its environment cannot be had.
        """
        return environments.having(self.wanted, self.packages) if self.wanted else OWN

    @property
    def wanted(self) -> list[str]:
        """The requirements of its environment."""
        return environments.requirements(self.version) if self.version else list(self.requirements)

    @property
    def options(self) -> list[str]:
        """What `slotwise submit` is told of its environment, variables included."""
        found = [part for each in self.wanted for part in ("--requirements", each)]
        found += [part for name, value in self.env.items() for part in ("--env", f"{name}={value}")]
        return found + [part for each in self.packages for part in ("--package", each)]

    def command(self, place: Place) -> list[str]:
        names = {name: str(place.input / name) for name in self.inputs}
        names["events"] = names.get("events", "") or str(place.input / self.inputs[0])
        places = {"output": place.output, "checkpoint": place.checkpoint, "database": place.database}
        return self.arguments.format(**{**names, **places}).split()

    def sources(self, place: Place, query: str) -> list[Path]:
        if query in self.reads:
            return [place.output / self.reads[query]]
        return [place.input / name for name in self.inputs]

    def is_at_end(self, place: Place) -> bool:
        if self.at_end is not None:
            return self.at_end(place)
        return all(
            program_results.is_at_end(place.checkpoint / query, self.sources(place, query))
            for query in self.queries
        )

    def rows(self, place: Place) -> dict[str, Rows]:
        if self.read is not None:
            return {"": self.read(place)}
        return {query: program_results.file_sink(place.output / query) for query in self.queries}

    def feeder(self, folder: Path, *, pause_s: float = 1.0, most: int = 1000) -> program_data.Feeder:
        made: dict[str, Callable[[int], list[Any]]] = {
            "orders": program_data.orders,
            "payments": program_data.payments,
            "rides": program_data.rides,
            **program_streams.STREAMS,
        }
        folders = {folder / name: made.get(name, program_data.events) for name in self.inputs}
        return program_data.Feeder(folders, pause_s, most)


P = TypeVar("P", bound=Program)


def served(program: P) -> P:
    """The program, once its environment is there; without it the test is skipped."""
    try:
        assert program.kind
    except environments.NotServed as missing:
        pytest.skip(
            f"NOT TESTED {program.script} with {program.version} {' '.join(program.packages)}: {missing}"
        )
    return program


def run_plain(program: Program, place: Place) -> str:
    """Run it to the end of its input; what it printed."""
    log = place.own / "plain.log"
    place.own.mkdir(parents=True, exist_ok=True)
    script, command = PROGRAMS / program.script, program.command(place)
    # What it writes to its working directory is not to be left beside the script, where Spark's workers would find the
    # other modules.
    env = {**program.env, "PYTHONPATH": str(script.parent)}
    with plain(script, command, log, program.kind, program.config, place.own, env) as process:

        def reached() -> bool:
            ended = process.poll()
            assert not ended, f"exit status {ended}: {log.read_text(encoding='utf-8')[-4000:]}"
            return ended == 0 if program.ends else program.is_at_end(place)

        wait_for("the program has done all of its input", reached, INPUT_S)
    return log.read_text(encoding="utf-8")


# -- under Slotwise


@dataclass
class Outcome:
    """What a run under Slotwise went through."""

    in_place: int = 0
    others: list[str] = field(default_factory=list)
    kills: int = 0


def cli(deployment: Deployment, *arguments: str) -> str:
    done = run_cli(deployment, *arguments)
    assert done.returncode == 0, f"slotwise {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def run_cli(deployment: Deployment, *arguments: str) -> subprocess.CompletedProcess[str]:
    address = (deployment.data_dir / "address").read_text(encoding="utf-8").strip()
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *arguments],
        env={**deployment.environment(), "SLOTWISE_SERVER": address},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def submit(
    deployment: Deployment,
    script: Path,
    arguments: list[str],
    *options: str,
    config: dict[str, str] | None = None,
) -> str:
    """`slotwise submit FILE ...`, with arguments for a program; the job's id."""
    output = cli(deployment, "submit", *options, *told(script, arguments, config))
    deployment.job_id = output.splitlines()[-1].split()[0]
    return deployment.job_id


def told(file: Path, arguments: list[str], config: dict[str, str] | None = None) -> list[str]:
    """What `slotwise submit` is told of a program; a graph document says all of it itself."""
    if file.suffix != ".py":
        return [str(file)]
    settings = {**CONFIG, **(config or {})}
    return [
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        str(file),
        "--",
        *arguments,
    ]


def await_running(deployment: Deployment) -> dict[str, Any]:
    def running() -> Any:
        job = deployment.job()
        assert job["state"] not in ("FAILED", "CANCELED"), deployment.why(job["state"])
        open_ones = [one for one in deployment.history() if one["terminalState"] is None]
        return job["state"] == "RUNNING" and not open_ones and job

    return dict(wait_for("the job runs", running))


def await_queries(deployment: Deployment, number: int) -> None:
    """Wait until the program has started so many queries: their vertices are there then."""

    def started() -> bool:
        state = deployment.job()["state"]
        assert state not in ("FAILED", "CANCELED"), deployment.why(state)
        vertices = deployment.get(f"/jobs/{deployment.job_id}/graph")["vertices"]
        return [one["planned"]["role"] for one in vertices].count("SINK") >= number

    wait_for(f"the program has started {number} queries", started)


def rescale(
    deployment: Deployment, dice: random.Random, outcome: Outcome, *, come_and_go: bool = False
) -> None:
    """Other bounds for every vertex, at random, and the end of the rescale that comes of them.

    ``come_and_go``: so do its queries, and each start of one may be a rescale besides. The slots are those that the
    queries of the moment need, and cut the numbers of the others.
    """
    job = await_running(deployment)
    known = {one["rescaleUuid"] for one in deployment.history()}
    now = {one["name"]: one["parallelism"] for one in job["vertices"]}
    wanted = dict(now)
    while wanted == now:
        wanted = {one["name"]: dice.randint(1, min(SLOTS, one["maxParallelism"])) for one in job["vertices"]}
    answer = deployment.put({name: (n, n) for name, n in wanted.items()}, f"change-{len(known)}")
    assert answer.status_code in (OK, 202), answer.text

    def ended() -> Any:
        new = [one for one in deployment.history() if one["rescaleUuid"] not in known]
        return new and all(one["terminalState"] for one in new) and new

    for record in wait_for(f"the rescale to {wanted} has ended", ended):
        if (record["terminalState"], record["rung"]) == ("COMPLETED", "in-place"):
            outcome.in_place += 1
        else:
            outcome.others.append(f"{record['terminalState']} {record['rung']}: {record.get('message')}")
    if come_and_go:
        wait_for(f"{wanted} are in force", lambda: deployment.parallelism() == wanted)
        return
    found = deployment.parallelism()
    assert found == wanted, f"{found} is not {wanted}; {outcome}"


def kill_driver(deployment: Deployment, outcome: Outcome, how: signal.Signals = signal.SIGKILL) -> None:
    """SIGKILL for the driver, or SIGSTOP for all of its processes, which is noticed; and the next driver runs."""
    pid = int(await_running(deployment)["driverPid"])
    if how is signal.SIGSTOP:
        os.killpg(pid, how)
    else:
        os.kill(pid, how)
    wait_for("the driver is dead", lambda: not is_alive(pid))
    wait_for("there is another driver", lambda: deployment.job().get("driverPid") not in (None, pid))
    await_running(deployment)
    outcome.kills += 1


class Feeds(Protocol):
    def finish(self) -> None:
        """There is no more of it."""


def submit_program(deployment: Deployment, program: Program, place: Place, **config: str) -> None:
    """Submit it, and wait until it has started its queries."""
    place.own.mkdir(parents=True, exist_ok=True)
    options = ["--name", Path(program.script).name, *program.options]
    files = [sendable(PROGRAMS / name, place.own) for name in program.files]
    options += [part for file in files for part in ("--file", str(file))]
    submit(
        deployment,
        PROGRAMS / program.script,
        program.command(place),
        *options,
        config={**program.config, **config},
    )
    await_queries(deployment, program.sinks or len(program.queries))


def sendable(file: Path, own: Path) -> Path:
    """``file``, or a zip file of the package that it is the directory of."""
    if not file.is_dir():
        return file
    with zipfile.ZipFile(own / f"{file.name}.zip", "w") as zipped:
        for module in sorted(file.rglob("*.py")):
            zipped.write(module, module.relative_to(file.parent))
    return own / f"{file.name}.zip"


def run_rescaled(
    deployment: Deployment,
    program: Program,
    place: Place,
    feeder: Feeds,
    *,
    rescales: int,
    seed: int,
    kills: Sequence[signal.Signals] = (signal.SIGKILL,),
    steady: Callable[[], object] = lambda: None,
) -> Outcome:
    """Submit it, rescale it at random, kill its driver on the way, and stop it at the end of its input.

    ``steady`` is called behind the last rescale, while there is input.

    With SIGSTOP among ``kills``, the deployment needs a short ``driver_standstill_seconds``.
    """
    outcome, dice = Outcome(), random.Random(seed)
    submit_program(deployment, program, place)
    killed_after = {rescales * (each + 1) // (len(kills) + 1): how for each, how in enumerate(kills)}
    for number in range(rescales):
        rescale(deployment, dice, outcome, come_and_go=program.ends)
        if number in killed_after:
            kill_driver(deployment, outcome, killed_after[number])
    steady()
    feeder.finish()

    def reached() -> bool:
        state = deployment.job()["state"]
        assert state not in ("FAILED", "CANCELED"), deployment.why(state)
        return bool(state == "FINISHED") if program.ends else program.is_at_end(place)

    wait_for("the job has done all of its input", reached, INPUT_S)
    if not program.ends:
        deployment.stop()
    return outcome


def printed(deployment: Deployment) -> str:
    """What the job's drivers have printed, in the order of their attempts."""
    statement = "SELECT lock_file FROM attempts WHERE job_id = ? ORDER BY attempt"
    locks = dict.fromkeys(lock for (lock,) in deployment.query(statement, deployment.job_id))
    logs = [Path(lock).with_suffix(".log") for lock in locks]
    return "".join(log.read_text(encoding="utf-8", errors="replace") for log in logs if log.exists())
