"""A stateful job, a program or a document, is replaced under load again and again: exact, nothing processed twice, a
bad version taken back.

One of the versions crashes, and the server is killed with -9 on the way.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import outputs
from tests.acceptance import program_results
from tests.acceptance.deployment import Deployment, deployed, wait_for
from tests.acceptance.programs import (
    PROGRAMS,
    Place,
    Program,
    await_running,
    run_cli,
    submit,
    told,
)
from tests.acceptance.twins import link_checkpoints, written

pytestmark = pytest.mark.timeout(1200)

PROGRAM = Program(
    "windowed_counts.py", "--events {events} --output {output} --checkpoint {checkpoint}", queries=("",)
)
CRASH = """events.where(F.udf(lambda page: 1 / 0 > 0, "boolean")("page")).withWatermark("""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("versions")) as made:
        made.start(with_points=False)
        yield made


def version(kind: str, place: Place, number: int, *, crashes: bool = False) -> Path:
    """The job, with something new in it."""
    text = (PROGRAMS / PROGRAM.script).read_text(encoding="utf-8")
    text = f"print('this is version {number}')\n{text}"
    if crashes:
        text = text.replace("events.withWatermark(", CRASH, 1)
    if kind == "document":
        return written(PROGRAM, place, text)
    script = place.own / f"version_{number}.py"
    script.write_text(text, encoding="utf-8")
    return script


def versions(deployment: Deployment) -> dict[int, dict[str, Any]]:
    return {one["version"]: one for one in deployment.get(f"/jobs/{deployment.job_id}/versions")["versions"]}


def replace(deployment: Deployment, file: Path, arguments: list[str], *options: str) -> Any:
    return run_cli(deployment, "submit", "--replace", deployment.job_id, *options, *told(file, arguments))


@pytest.mark.parametrize("kind", ["program", pytest.param("document", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("replacements", "bad", "killed"), [(2, 2, (3,)), pytest.param(10, 3, (4, 8), marks=pytest.mark.long)]
)
def test_replaced_under_load_its_output_is_exact(
    deployment: Deployment, tmp_path: Path, kind: str, replacements: int, bad: int, killed: tuple[int, ...]
) -> None:
    """The version ``bad`` crashes, and the server is killed while those of ``killed`` are on trial."""
    ours = Place(tmp_path / "input", tmp_path / "ours")
    ours.own.mkdir()
    feeder, arguments = PROGRAM.feeder(ours.input, pause_s=2.0), PROGRAM.command(ours)
    feeder.write(10)
    feeder.start()
    submit(deployment, version(kind, ours, 1), arguments, "--wait")
    if kind == "document":
        link_checkpoints(deployment, PROGRAM, ours)
    dice, taken_back = random.Random(7), []
    for number in range(2, replacements + 2):
        await_running(deployment)
        file = version(kind, ours, number, crashes=number == bad)
        if number in killed:
            accepted = replace(deployment, file, arguments)
            assert accepted.returncode == 0, accepted.stderr
            time.sleep(dice.uniform(0, 3))
            deployment.kill_server()
            deployment.restart(with_points=False)
        else:
            done = replace(deployment, file, arguments, "--wait", "--timeout", "300")
            assert done.returncode == (1 if number == bad else 0), done.stdout + done.stderr
            if number == bad:
                assert "ZeroDivisionError" in done.stderr, done.stderr

        def decided(number: int = number) -> Any:
            found = versions(deployment)[number]
            return found["outcome"] not in ("STARTING", "TRIAL") and found

        found = wait_for(f"version {number} is decided upon", decided)
        if found["outcome"] == "TAKEN_BACK":
            taken_back.append(number)
        deployment.check_no_other_driver()
    assert taken_back == [bad], versions(deployment)
    feeder.finish()
    wait_for("the job has done all of its input", lambda: PROGRAM.is_at_end(ours))
    await_running(deployment)
    assert deployment.get(f"/jobs/{deployment.job_id}/versions")["current"] == replacements + 1
    deployment.stop()
    found = program_results.windows(ours.output)
    assert found == program_results.expected_windows(ours.input / "events")
    # Each version went on from the batch before: no batch was begun anew, and none is missing.
    planned, committed = (sorted(_numbers(ours.checkpoint / name)) for name in ("offsets", "commits"))
    assert committed == list(range(committed[0], committed[-1] + 1)) and planned[-1] == committed[-1]
    read = [entry["path"] for entry in outputs.entries(ours.checkpoint / "sources" / "0")]
    assert len(read) == len(set(read)) == feeder.files, "each file belongs to one batch"


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
