"""Another version of a job, on trial, or a program that decides otherwise than in the attempt before: its queries go
with the checkpoints that they had, or it is said why not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.kinds import (
    EACH,
    FIRST,
    KINDS,
    NO_STATE,
    OTHER_KEY,
    OTHER_KEY_SAID,
    OTHER_SINK,
    OTHER_STATE,
    drained,
    files,
    job_of,
    refused,
    start,
    stopped,
)
from tests.integration.driver.test_program_attempt import STATE_PARTITIONS, conf, counted, job, the_end
from tests.integration.driver.test_program_growth import names, of_type

pytestmark = pytest.mark.timeout(600)

OTHER_PLACE = (".format(", '.option("checkpointLocation", sys.argv[1] + "-cp").format(')


def version(rig: Bench, text: str) -> None:
    (rig.artifacts_dir / "job.py").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
@EACH
def test_a_version_that_does_not_go_with_the_state_of_the_one_before_is_not_started(
    rig: Bench, kind: str, each: bool
) -> None:
    document, checkpoint = stopped(rig, kind, FIRST)
    before, rows = files(checkpoint), counted(rig.directory / "out")

    def version_of(text: str) -> dict[str, Any]:
        """Of a program the control plane keeps what it has grown by."""
        made = job_of(kind, rig, text)
        return document if kind == "program" else made

    the = r"job\.py, line \d+: the" if kind == "program" else "The"
    mismatch = rf"{the} query of windows does not go with the state in \S+: {re.escape(OTHER_KEY_SAID)}"
    said = refused(rig, version_of(FIRST.replace(*OTHER_KEY)), on_trial=True)
    assert re.fullmatch(mismatch, said), said
    for change, now in ((OTHER_STATE, "dropDuplicates, an aggregate"), (NO_STATE, "nothing")) if each else ():
        said = refused(rig, version_of(FIRST.replace(*change)), on_trial=True)
        why = (
            f"what keeps state is {now} now, and was an aggregate: that cannot be added, removed or put into another "
            "order."
        )
        assert said.endswith(why), said
    if each and kind == "program":
        said = refused(rig, version_of(FIRST.replace(*OTHER_PLACE)), on_trial=True)
        assert re.fullmatch(
            r"job\.py, line \d+: The query of .windows. has its checkpoint in .\S+-cp. now, and had it with the job: "
            r"it would begin without its state\. Leave checkpointLocation as it was\.",
            said,
        ), said
        assert not Path(f"{rig.directory}/out-cp").exists()
        said = refused(rig, version_of(FIRST.replace(*OTHER_STATE)))
        assert "operators with state cannot be added, removed or put into another order" in said, said
    assert files(checkpoint) == before

    # What goes with it takes the place of what was there.
    start(rig, version_of(FIRST.replace(*OTHER_SINK)), 2, on_trial=True)
    begun = rig.wait_batches(1)[0]
    assert sorted(each["parallelism"] for each in begun["vertices"]) == [1, 1, 2] and begun["batch_id"] > 1
    if kind == "program":
        (started,) = of_type(rig, "query-started")
        assert names(started)[-1] == "windows" and started["planned"][-1]["operator"] == "noop"
        assert sorted(started["parallelism"].values()) == [1, 1, 2]
    else:
        (told,) = of_type(rig, "analysed")
        assert list(told["stateful"].values()) == [STATE_PARTITIONS]
    assert drained(rig) == checkpoint
    assert counted(rig.directory / "out") == rows, "they go elsewhere now"


@pytest.mark.long
def test_a_checkpoint_that_was_chosen_is_not_left_on_trial(rig: Bench) -> None:
    """Else it would be another query, which begins anew."""
    text = FIRST.replace(*OTHER_PLACE)
    document, _ = stopped(rig, "program", text)
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
