"""A new job that goes on from the checkpoint of another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.driver.checkpoints import newest_batch
from tests.integration.driver.harness import Bench, bench
from tests.integration.driver.kinds import (
    EACH,
    FIRST,
    KINDS,
    NO_STATE,
    OTHER_KEY,
    OTHER_KEY_SAID,
    drained,
    files,
    job_of,
    refused,
    start,
    stopped,
)
from tests.integration.driver.test_program_attempt import KEYS, START, STATE_PARTITIONS, WINDOWS, counted, job
from tests.integration.driver.test_program_growth import of_type

pytestmark = pytest.mark.timeout(600)

PER_KEY = 20
RENAMED = 'queryName("renamed").option("checkpointLocation", OWN).trigger(processingTime="100 milliseconds")'
# The same state and the same source, and everything else of its own. Spark decodes no name of a directory.
NEXT = f"""{WINDOWS}
windows = windows.where("count > 0").select("window", "key", "count")
{START.replace('queryName("windows")', RENAMED)}
query.awaitTermination()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_job_goes_on_where_another_was_stopped(rig: Bench, tmp_path: Path, kind: str) -> None:
    out = rig.directory / "out"
    _, origin = stopped(rig, kind, FIRST)
    before, rows = files(origin), len(counted(out))

    (tmp_path / "next").mkdir()
    link, own = tmp_path / "a%20link", tmp_path / "next" / "a%20checkpoint#1"
    link.symlink_to(origin)
    text = f"OWN = {f'file:{own}'!r}\n{NEXT}"
    with bench(tmp_path / "next") as other:
        start(other, job_of(kind, other, text, out, **{"from": f"file:{tmp_path}/x/../a%20link/"}), 3)
        other.wait_batches(4)
        if kind == "program":
            (started,) = of_type(other, "query-started")
            partitions = {each["name"]: each["state_partitions"] for each in started["planned"]}["aggregate"]
        else:
            (told,) = of_type(other, "repartitioned")
            (partitions,) = told["state_partitions"].values()
        assert partitions == STATE_PARTITIONS, "that of the checkpoint, not the default"
        drained(other)
    found = counted(out)
    assert len(found) > rows + KEYS
    assert {tuple(counts) for counts in found.values()} == {(PER_KEY,)}, "a row is missing or there twice"
    starts = sorted({start for start, _ in found})
    assert len(found) == KEYS * len(starts) and len(starts) == (starts[-1] - starts[0]).total_seconds() + 1
    assert files(origin) == before
    (commits,), (were,) = (tmp_path / "next").rglob("commits"), origin.rglob("commits")
    assert newest_batch(commits) > newest_batch(were)
    assert kind == "document" or commits == own / "commits"
    assert not (tmp_path / "next" / "a checkpoint").exists()


@pytest.mark.parametrize("kind", KINDS)
@EACH
def test_what_does_not_go_with_the_checkpoint_is_not_started(
    rig: Bench, tmp_path: Path, kind: str, each: bool
) -> None:
    own = START.replace(".format(", ".option('checkpointLocation', CHECKPOINT).format(")
    text = f"CHECKPOINT = {f'{tmp_path}/own'!r}\n{WINDOWS}{own}query.awaitTermination()"
    _, origin = stopped(rig, kind, text)
    before, out = files(origin), rig.directory / "out"
    line = r"job\.py, line \d+: " if kind == "program" else ""
    place = str(origin) if kind == "program" else rf"{origin}/\w+"
    mismatch = rf"the query of windows does not go with the state in {place}: {re.escape(OTHER_KEY_SAID)}"
    changed = text.replace(*OTHER_KEY)
    (tmp_path / "next").mkdir()
    with bench(tmp_path / "next") as other:

        def said_of(text: str, out: Path | None = None) -> str:
            text = text.replace(f"{tmp_path}/own", f"{tmp_path}/new")
            return refused(other, job_of(kind, other, text, out, **{"from": str(origin)}), attempt=1)

        said = said_of(changed, out)
        assert re.fullmatch(f"{line}from: {mismatch}", said), said
        if each:
            said = said_of(changed)
            assert "from: the query of windows writes files to" in said and "log ends with batch -1" in said
            said = said_of(text.replace(own, NO_STATE[1].replace(START, own)), out)
            stateless = (
                rf"the query of windows keeps no state, and the checkpoint {place} has some: operators with state "
                r"cannot be added or removed\."
            )
            assert re.fullmatch(f"{line}from: {stateless}", said), said
        assert not (tmp_path / "new").exists() and not [*(tmp_path / "next").rglob("offsets")], (
            "nothing was copied"
        )
        if kind == "program":
            args = {"args": [str(out)]}
            if each:
                said = refused(other, job(other, changed, (), **args, **{"from": str(origin)}), attempt=1)
                assert "from: the query of windows has the checkpointLocation" in said and "not empty" in said
            # What plain Spark has left is the first thing that a new job finds.
            said = refused(other, job(other, changed, (), **args), attempt=1)
            assert re.fullmatch(rf"{line}{mismatch}", said), said
    assert files(origin) == before
