"""A program on a Spark standalone cluster: it is rescaled in place, its driver is killed, and its output is that of a
plain run. Its executors have what its driver has: the PySpark, the libraries, the packages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance.clusters import on_cluster
from tests.acceptance.connectors import read_tables
from tests.acceptance.deployment import wait_for
from tests.acceptance.program_results import Rows
from tests.acceptance.programs import PROGRAMS, Place, Program, run_cli, run_plain, run_rescaled, served
from tests.acceptance.test_connectors import lake_program
from tests.acceptance.test_programs import FOLDERS, differences
from tests.acceptance.test_programs import PROGRAMS as BY_NAME
from tests.acceptance.test_standalone_cluster import times_opened

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]

RESCALES = 6
# A newcomer has all of its share after four.
SETTLING, STEADY = 6, 6
DELTA = "delta on 4.1.1"
CASES = {
    **{name: BY_NAME[name] for name in ("windowed counts", "upsert")},
    **{name: BY_NAME[name] for name in ("windowed counts on 4.1.1", "windowed counts on 4.2.0")},
    DELTA: lake_program(DELTA)[1],
    "titles": Program(
        "titles.py",
        FOLDERS,
        requirements=("inflection==0.5.1",),
        packages=("org.apache.commons:commons-csv:1.14.1",),
    ),
}


def batches(place: Place) -> int:
    return len(list((place.checkpoint / "commits").glob("[0-9]*")))


def await_batches(place: Place, count: int) -> None:
    end = batches(place) + count
    wait_for(f"{count} more batches are committed", lambda: batches(place) >= end, 300.0)


def rows_of(program: Program, places: list[Place], name: str, log: Path) -> list[dict[str, Rows]]:
    if name == DELTA:
        return [{"": rows} for rows in read_tables(program, "delta", places, log)]
    return [program.rows(place) for place in places]


@pytest.mark.parametrize("name", list(CASES))
def test_a_program_on_a_cluster_has_the_output_of_a_plain_run(tmp_path: Path, name: str) -> None:
    program = served(CASES[name])
    alone, ours = (Place(tmp_path / "input", tmp_path / run) for run in ("plain", "slotwise"))
    if program.read is not None:
        alone, ours = (replace(one, database=str(one.own / "pages.db")) for one in (alone, ours))
    found: list[int] = []
    with on_cluster(tmp_path, program.kind) as (deployment, cluster):
        feeder = program.feeder(ours.input)
        feeder.write(10)
        feeder.start()

        def steady() -> None:
            await_batches(ours, SETTLING)
            before = times_opened(cluster)
            await_batches(ours, STEADY)
            found.append(times_opened(cluster) - before)

        # Executors that are given up go at once.
        at_once = replace(program, config={**program.config, "slot.idle.timeout": "100 ms"})
        outcome = run_rescaled(deployment, at_once, ours, feeder, rescales=RESCALES, seed=3, steady=steady)
        opened = times_opened(cluster)
        executors = len(list(cluster.directory.glob("worker-*/app-*/*/stderr")))
    run_plain(program, alone)

    rows, expected = rows_of(program, [ours, alone], name, tmp_path / "reader.log")
    assert differences(rows, expected) == {} and all(rows.values())
    assert (outcome.in_place, outcome.others, outcome.kills) == (RESCALES, [], 1)
    # State stays where it is.
    assert found == [0] and opened > 0
    print(
        f"OUTCOME {name} on a cluster: {RESCALES} rescales in place, 1 kill, {executors} executors, exact: "
        f"{len(rows[''])} rows; state partitions were opened {opened} times in {batches(ours)} batches, none "
        f"of them in {STEADY} without a rescale"
    )


def test_a_program_with_another_spark_than_that_of_the_cluster_fails_with_a_sentence(tmp_path: Path) -> None:
    program = CASES["windowed counts"]
    with on_cluster(tmp_path, program.kind) as (deployment, _):
        command = program.command(Place(tmp_path / "input", tmp_path / "own"))
        script = str(PROGRAMS / program.script)
        other = served(CASES["windowed counts on 4.2.0"])
        said = run_cli(deployment, "submit", "--wait", *other.options, script, "--", *command)
        assert said.returncode == 1
        assert "the job would run with PySpark 4.2.0, and the cluster spark://127.0.0.1:" in said.stderr
        assert [one["status"] for one in deployment.get("/jobs")["jobs"]] == ["FAILED"]
