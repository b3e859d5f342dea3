"""Another version of a program, on trial, or a program that decides otherwise than in the attempt before: its queries
go with the checkpoints that they had, or it is said why not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.test_program_attempt import START, WINDOWS, conf, job, the_end
from tests.integration.driver.test_program_growth import grown_by, names, of_type

pytestmark = pytest.mark.timeout(600)

FIRST = f"{WINDOWS}{START}query.awaitTermination()"
OTHER_KEY = ("% 10)", "% 10).cast('string')")
OTHER_STATE = (START, f"\nwindows = windows.dropDuplicates(['window', 'key']){START}")
OTHER_PLACE = (".format(", '.option("checkpointLocation", sys.argv[1] + "-cp").format(')
OTHER_SINK = ('.format("parquet").option("path", sys.argv[1])', '.format("noop")')


def stopped(rig: Bench, text: str) -> tuple[dict[str, Any], Path]:
    """The document of a job that has run ``text`` from its beginning and was drained, and its checkpoint."""
    document = job(rig, text, ())
    driver = rig.start(document, {"job": 4}, **conf())
    rig.wait_batches(2)
    (started,) = of_type(rig, "query-started")
    rig.control_plane.order(stop="drain")
    checkpoint = Path(the_end(rig, "stopped")["location"])
    assert driver.exit_status() == 0
    return grown_by(document, started), checkpoint


def refused(rig: Bench, document: dict[str, Any], **changes: Any) -> str:
    """What an attempt of ``document`` ends with, which starts no query of its program."""
    rig.control_plane.reports.clear()
    driver = rig.start(document, **conf(), **changes)
    failed = the_end(rig, "failed")
    assert driver.exit_status() == 4 and not failed["recoverable"]
    assert not rig.control_plane.of_type("query-started")
    rig.control_plane.reports.clear()
    return str(failed["error"])


def version(rig: Bench, text: str) -> None:
    (rig.artifacts_dir / "job.py").write_text(text, encoding="utf-8")


def test_a_version_that_does_not_go_with_the_state_of_the_one_before_is_not_started(rig: Bench) -> None:
    document, checkpoint = stopped(rig, FIRST)
    version(rig, FIRST.replace(*OTHER_KEY))
    assert re.fullmatch(
        r"job\.py, line \d+: the query of windows does not go with the state in \S+: the key of 'aggregate' has "
        r"field 2, _groupingexpression, as string now, and had it as bigint\.",
        refused(rig, document, on_trial=True),
    )
    version(rig, FIRST.replace(*OTHER_PLACE))
    said = refused(rig, document, on_trial=True)
    assert re.fullmatch(
        r"job\.py, line \d+: The query of .windows. has its checkpoint in .\S+-cp. now, and had it with the job: it "
        r"would begin without its state\. Leave checkpointLocation as it was\.",
        said,
    ), said
    assert not Path(f"{rig.directory}/out-cp").exists()
    version(rig, FIRST.replace(*OTHER_STATE))
    said = refused(rig, document)
    assert "operators with state cannot be added, removed or put into another order" in said, said

    # What goes with it takes the place of what was there.
    version(rig, FIRST.replace(*OTHER_SINK))
    driver = rig.start(document, {"aggregate": 2}, on_trial=True, **conf())
    begun = rig.wait_batches(1)[0]
    (started,) = of_type(rig, "query-started")
    assert names(started)[-1] == "windows" and started["planned"][-1]["operator"] == "noop"
    assert sorted(started["parallelism"].values()) == [1, 1, 2] and begun["batch_id"] > 1
    rig.control_plane.order(stop="drain")
    assert the_end(rig, "stopped")["location"] == str(checkpoint)
    assert driver.exit_status() == 0


@pytest.mark.long
def test_a_checkpoint_that_was_chosen_is_not_left_on_trial(rig: Bench) -> None:
    """Else it would be another query, which begins anew."""
    text = FIRST.replace(*OTHER_PLACE)
    document, _ = stopped(rig, text)
    version(rig, text.replace("-cp", "-new"))
    said = refused(rig, document, on_trial=True)
    assert re.search(r"has its checkpoint in .\S+-new. now, and had it in .\S+-cp.: it would begin", said), (
        said
    )
    version(rig, FIRST)
    assert "has its checkpoint with the job now, and had it in" in refused(rig, document, on_trial=True)


@pytest.mark.long
def test_a_query_that_has_never_run_may_be_any_other(rig: Bench) -> None:
    document = job(rig, FIRST.replace(*OTHER_STATE))
    rig.start(document, **conf())
    (started,) = wait_for("the query", lambda: of_type(rig, "query-started"))
    assert names(started) == ["rate-micro-batch", "aggregate", "deduplicate", "windows"]
    wait_for("its plan", lambda: of_type(rig, "plan-applied"))
    rig.control_plane.order(stop="drain")
    the_end(rig, "stopped")
