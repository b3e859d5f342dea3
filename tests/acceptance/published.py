"""Programs as people publish them: run by plain Python, and as a job that is rescaled and killed, on one input."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.deployment import Deployment, deployed
from tests.acceptance.programs import Outcome, Place, Program, run_plain, run_rescaled
from tests.acceptance.test_programs import differences

Run = tuple[Program, Place]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(tmp_path_factory.mktemp("public")) as made:
        made.start(with_points=False)
        yield made


def compare(
    deployment: Deployment, name: str, as_job: Run, by_itself: Run, *, rescales: int, pause_s: float = 1.0
) -> tuple[Outcome, str]:
    """Run it in both ways: its outputs are equal, and its driver was killed once. What it went through as a job, and
    what it printed by itself."""
    program, ours = as_job
    feeder = program.feeder(ours.input, pause_s=pause_s)
    feeder.write(10)
    feeder.start()
    outcome = run_rescaled(deployment, program, ours, feeder, rescales=rescales, seed=len(name))
    printed = run_plain(*by_itself)

    rows = program.rows(ours)
    assert differences(rows, program.rows(by_itself[1])) == {} and all(rows.values())
    assert (outcome.others, outcome.kills) == ([], 1)
    counts = {query or "output": len(found) for query, found in rows.items()}
    print(f"OUTCOME {name}: {outcome.in_place} rescales in place, {outcome.kills} kill, exact: {counts} rows")
    return outcome, printed
