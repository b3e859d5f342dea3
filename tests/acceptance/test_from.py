"""`slotwise submit --from`: a job of two queries, a program or a document, goes on from where a plain run was killed.

Its drivers are killed with -9 while they copy the checkpoints. The output is that of one plain run of all of the input.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import outputs
from tests.acceptance.deployment import Deployment, deployed, wait_for
from tests.acceptance.programs import (
    PROGRAMS,
    Outcome,
    Place,
    Program,
    await_queries,
    await_running,
    plain,
    rescale,
    run_cli,
    run_plain,
    submit,
    told,
)
from tests.acceptance.twins import link_checkpoints, written

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

FOLDERS = "--events {events} --output {output} --checkpoint {checkpoint}"
PROGRAM = Program("two_queries.py", FOLDERS, queries=("figures", "large"))
# The copy of the first query is half made, that of the second one is made and not in its place.
POINTS = {"copy-half-made": 1, "repartition-ready": 2}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("from"), points_in_drivers=True) as made:
        made.start(with_points=True)
        yield made


def committed(place: Place) -> list[int]:
    """The newest committed batch of each query; -1: none."""
    newest = [outputs.newest(place.checkpoint / query / "commits") for query in PROGRAM.queries]
    return [-1 if one is None else outputs.batch_of(one) for one in newest]


def files(place: Path) -> dict[str, bytes]:
    return {str(each.relative_to(place)): each.read_bytes() for each in place.rglob("*") if each.is_file()}


@pytest.mark.parametrize("kind", ["program", "document"])
def test_it_goes_on_from_a_plain_run_although_it_is_killed_while_it_copies(
    deployment: Deployment, tmp_path: Path, kind: str
) -> None:
    script = PROGRAMS / PROGRAM.script
    before, alone = (Place(tmp_path / "input", tmp_path / run) for run in ("before", "alone"))
    before.own.mkdir()
    feeder = PROGRAM.feeder(before.input, pause_s=2.0)
    feeder.write(10)
    feeder.start()
    with plain(script, PROGRAM.command(before), tmp_path / "plain.log") as process:

        def ran_for_a_while() -> bool:
            assert process.poll() is None, (tmp_path / "plain.log").read_text(encoding="utf-8")[-4000:]
            return min(committed(before)) >= 2

        wait_for("each query has committed three batches", ran_for_a_while)
    was, left = committed(before), files(before.checkpoint)

    # What cannot go on has copied its first query already.
    aside, arguments = ([*PROGRAM.command(before)[:-1], str(tmp_path / name)] for name in ("aside", "next"))
    job = script if kind == "program" else written(PROGRAM, before, script.read_text(encoding="utf-8"))
    other = ["submit", "--wait", "--from", str(before.checkpoint / "figures"), *told(job, aside)]
    failed = run_cli(deployment, *other)
    assert failed.returncode == 1 and "one checkpoint for two queries" in failed.stderr, failed.stderr

    first, *others = POINTS
    deployment.kills.arm(first, POINTS[first])
    submit(deployment, job, arguments, "--from", str(before.checkpoint))
    for point, following in zip(POINTS, [*others, ""], strict=True):
        wait_for(f"{point} is reached", lambda point=point: deployment.kills.fired(point))
        if following:
            deployment.kills.arm(following, POINTS[following])
    ours = Place(tmp_path / "input", tmp_path / "ours")
    ours.own.mkdir()
    (ours.own / "output").symlink_to(before.output)
    if kind == "program":
        await_queries(deployment, len(PROGRAM.queries))
        (ours.own / "checkpoint").symlink_to(tmp_path / "next")
    else:
        link_checkpoints(deployment, PROGRAM, ours)
    outcome = Outcome()
    rescale(deployment, random.Random(3), outcome)
    assert outcome.in_place == 1, outcome
    feeder.finish()
    wait_for("the job has done all of its input", lambda: PROGRAM.is_at_end(ours))
    await_running(deployment)
    deployment.stop()

    assert all(now > then for now, then in zip(committed(ours), was, strict=True))
    assert files(before.checkpoint) == left, "the original is left as it was"
    run_plain(PROGRAM, alone)
    rows, expected = PROGRAM.rows(ours), PROGRAM.rows(alone)
    assert all(expected.values())
    assert {query: len(found) for query, found in rows.items()} == {
        query: len(found) for query, found in expected.items()
    }
    assert rows == expected
