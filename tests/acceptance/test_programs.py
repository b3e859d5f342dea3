"""Ordinary PySpark programs as jobs: rescaled in place at random, killed once, and their output that of a plain run."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import program_results
from tests.acceptance.deployment import Deployment, deployed, wait_for
from tests.acceptance.program_results import Rows
from tests.acceptance.programs import (
    BOTH_WAYS,
    INPUT_S,
    SOON_NOTICED,
    Outcome,
    Place,
    Program,
    await_running,
    printed,
    rescale,
    run_plain,
    run_rescaled,
    served,
    submit,
    submit_program,
)
from tests.acceptance.programs import PROGRAMS as SCRIPTS
from tests.databases import PostgresServer
from tests.environments import VERSIONS

pytestmark = pytest.mark.timeout(1200)

RESCALES = 10
FOLDERS = "--events {events} --output {output} --checkpoint {checkpoint}"
PROGRAMS = {
    "windowed counts": Program("windowed_counts.py", FOLDERS),
    "orders and payments": Program(
        "orders_and_payments.py",
        "--orders {orders} --payments {payments} --output {output} --checkpoint {checkpoint}",
        inputs=("orders", "payments"),
    ),
    "unique events": Program(
        "unique_events.py", "{events} {output} --checkpoint {checkpoint}", inputs=("events-parquet",)
    ),
    "visits with state": Program("visits_with_state.py", "{events} {output} {checkpoint}"),
    "visits, transformed": Program("visits_transform.py", FOLDERS),
    "upsert": Program(
        "upsert.py",
        "--events {events} --database {database} --checkpoint {checkpoint}",
        read=lambda place: program_results.database(place.database),
    ),
    "two queries": Program("two_queries.py", FOLDERS, queries=("figures", "large")),
    "report": Program("report.py", FOLDERS, files=("report_helpers.py",)),
    "nightly": Program("nightly.py", FOLDERS, ends=True),
    "polling": Program("polling.py", "{events} {output} {checkpoint}"),
    **{
        f"windowed counts on {version}": Program("windowed_counts.py", FOLDERS, version=version)
        for version in VERSIONS
    },
}
WINDOWS = "windowed counts"
STOPPED = ("windowed counts", "upsert")
"""Of which a driver is stopped besides, so that it could wake beside its successor."""
ENDLESS = [name for name, program in PROGRAMS.items() if not program.ends]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("programs"), settings=SOON_NOTICED) as made:
        made.start(with_points=False)
        yield made


@pytest.mark.long
@pytest.mark.parametrize("name", ENDLESS)
def test_rescaled_and_killed_its_output_is_that_of_a_plain_run(
    deployment: Deployment, postgres_server: PostgresServer, tmp_path: Path, name: str
) -> None:
    program = served(PROGRAMS[name])
    alone = Place(tmp_path / "input", tmp_path / "plain", postgres_server.create_database())
    ours = Place(tmp_path / "input", tmp_path / "slotwise", postgres_server.create_database())
    feeder = program.feeder(ours.input)
    feeder.write(10)
    feeder.start()
    kills = BOTH_WAYS if name in STOPPED else BOTH_WAYS[:1]
    outcome = run_rescaled(deployment, program, ours, feeder, rescales=RESCALES, seed=len(name), kills=kills)
    run_plain(program, alone)

    rows = program.rows(ours)
    assert differences(rows, program.rows(alone)) == {} and all(rows.values())
    assert (outcome.in_place, outcome.others, outcome.kills) == (RESCALES, [], len(kills))
    counts = {query or "output": len(found) for query, found in rows.items()}
    print(
        f"OUTCOME {name}: {outcome.in_place} rescales in place, {outcome.kills} kills, exact: {counts} rows"
    )


def rescaled_and_killed(
    deployment: Deployment, name: str, directory: Path, rescales: int, kills: tuple[signal.Signals, ...]
) -> None:
    """Its output is computed here: plain runs are for `make long`."""
    program = served(PROGRAMS[name])
    ours = Place(directory / "input", directory / "slotwise")
    feeder = program.feeder(ours.input)
    feeder.write(10)
    feeder.start()
    outcome = run_rescaled(deployment, program, ours, feeder, rescales=rescales, seed=1, kills=kills)

    assert program_results.windows(ours.output) == program_results.expected_windows(ours.input / "events")
    assert (outcome.in_place, outcome.others, outcome.kills) == (rescales, [], len(kills))


def test_rescaled_killed_and_stopped_its_output_is_exact(deployment: Deployment, tmp_path: Path) -> None:
    rescaled_and_killed(deployment, WINDOWS, tmp_path, 3, BOTH_WAYS)


@pytest.mark.parametrize("version", [VERSIONS[0], pytest.param(VERSIONS[1], marks=pytest.mark.long)])
def test_another_pyspark_is_rescaled_and_killed_too(tmp_path: Path, version: str) -> None:
    # Else the server would make an archive of class data of it, which takes longer than the job.
    with deployed(tmp_path, settings={"appcds": "false"}) as deployment:
        deployment.start(with_points=False)
        rescaled_and_killed(deployment, f"{WINDOWS} on {version}", tmp_path, 2, BOTH_WAYS[:1])


@pytest.mark.long
def test_a_program_that_ends_reads_its_output_as_it_would_alone(
    deployment: Deployment, tmp_path: Path
) -> None:
    """availableNow: the job is FINISHED by itself, after the program's own last lines."""
    program = PROGRAMS["nightly"]
    alone, ours = (Place(tmp_path / "input", tmp_path / run) for run in ("plain", "slotwise"))
    feeder = program.feeder(ours.input)
    feeder.write(500)
    feeder.finish()
    outcome, dice = Outcome(), random.Random(7)
    submit(deployment, SCRIPTS / program.script, program.command(ours), "--name", "nightly")
    for _ in range(RESCALES):
        rescale(deployment, dice, outcome)
    deployment.await_status("FINISHED")
    text = run_plain(program, alone)

    assert differences(program.rows(ours), program.rows(alone)) == {}
    assert results(printed(deployment)) == results(text) != []
    assert (outcome.in_place, outcome.others) == (RESCALES, [])
    print(f"OUTCOME nightly: {outcome.in_place} rescales in place, exact: {len(program.rows(ours)[''])} rows")


@pytest.mark.long
def test_a_query_that_fails_alone_and_more_state_partitions_leave_the_output_as_it_is(
    deployment: Deployment, tmp_path: Path
) -> None:
    program = PROGRAMS["two queries"]
    alone, ours = (Place(tmp_path / "input", tmp_path / run) for run in ("plain", "slotwise"))
    feeder = program.feeder(ours.input)
    feeder.write(10)
    feeder.start()
    kept, broken = tmp_path / "kept", tmp_path / "broken"
    kept.mkdir()
    broken.touch()
    ours.output.mkdir(parents=True)
    point(ours.output / "large", kept)
    # Long enough for the cause of the failure to end before the query is started again.
    submit_program(deployment, program, ours, **{"restart-strategy.fixed-delay.delay": "10 s"})
    before = runs(deployment)
    driver = deployment.job()["driverPid"]

    point(ours.output / "large", broken)
    entries = f"/jobs/{deployment.job_id}/exceptions"
    (failure,) = wait_for(
        "one query has failed", lambda: deployment.get(entries)["exceptionHistory"]["entries"]
    )
    assert failure["failureLabels"] == {"failover": "local"}, failure
    point(ours.output / "large", kept)
    wait_for("it runs again", lambda: len(set(before.items()) - set(runs(deployment).items())) == 1)
    assert deployment.job()["driverPid"] == driver

    bounds = {
        one["name"]: (1, 12 if one["name"] == "aggregate" else 2) for one in deployment.job()["vertices"]
    }
    assert deployment.put(bounds, "more-state").status_code == 200
    redistributed = "Redistributed the state of aggregate from 5 to 12 partitions"
    wait_for(
        "the state has 12 partitions",
        lambda: str(deployment.history()[0]["message"]).startswith(redistributed),
    )
    await_running(deployment)
    feeder.finish()
    wait_for("the job has done all of its input", lambda: program.is_at_end(ours), INPUT_S)
    deployment.stop()
    run_plain(program, alone)
    rows = program.rows(ours)
    assert differences(rows, program.rows(alone)) == {} and all(rows.values())
    newest = max(int(each.name) for each in (ours.checkpoint / "figures/offsets").glob("[0-9]*"))
    offsets = (ours.checkpoint / "figures/offsets" / str(newest)).read_text(encoding="utf-8")
    assert '"spark.sql.shuffle.partitions":"12"' in offsets


def point(link: Path, target: Path) -> None:
    """``link`` leads to ``target`` from now on, and is there at every instant."""
    new = link.with_name("new link")
    new.symlink_to(target)
    new.replace(link)


def runs(deployment: Deployment) -> dict[str, str]:
    """The run ids of both queries, by their ids, once both have committed a batch."""

    def both() -> dict[str, str] | None:
        found = {one["id"]: one["runId"] for one in await_running(deployment)["queries"]}
        return found if len(found) == 2 else None

    return dict(wait_for("both queries run", both))


def differences(ours: dict[str, Rows], alone: dict[str, Rows]) -> dict[str, tuple[Rows, Rows]]:
    """By query: the rows that there are under Slotwise only, and those of the plain run only."""
    pairs = {query: (Counter(rows), Counter(alone[query])) for query, rows in ours.items()}
    found = {query: (list((a - b).elements()), list((b - a).elements())) for query, (a, b) in pairs.items()}
    return {query: (more, less) for query, (more, less) in found.items() if more or less}


def results(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("RESULT ")]
