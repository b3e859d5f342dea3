"""A new program that goes on from the checkpoint of another job."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.driver.checkpoints import newest_batch
from tests.integration.driver.harness import Bench, bench
from tests.integration.driver.test_program_attempt import (
    KEYS,
    START,
    STATE_PARTITIONS,
    WINDOWS,
    conf,
    counted,
    job,
    the_end,
)
from tests.integration.driver.test_program_growth import of_type
from tests.integration.driver.test_program_versions import OTHER_KEY, refused, stopped

pytestmark = pytest.mark.timeout(600)

PER_KEY = 20
FIRST = f"{WINDOWS}{START}query.awaitTermination()"
RENAMED = 'queryName("renamed").option("checkpointLocation", OWN).trigger(processingTime="100 milliseconds")'
# The same state and the same source, and everything else of its own. Spark decodes no name of a directory.
NEXT = f"""{WINDOWS}
windows = windows.where("count > 0").select("window", "key", "count")
{START.replace('queryName("windows")', RENAMED)}
query.awaitTermination()
"""


def files(place: Path) -> dict[str, bytes]:
    return {str(each.relative_to(place)): each.read_bytes() for each in place.rglob("*") if each.is_file()}


def test_a_new_program_goes_on_where_another_was_stopped(rig: Bench, tmp_path: Path) -> None:
    out = rig.directory / "out"
    rig.start(job(rig, FIRST), {"aggregate": 4}, **conf())
    rig.wait_batches(3)
    rig.control_plane.order(stop="drain")
    origin = Path(the_end(rig, "stopped")["location"])
    rig.drivers[-1].exit_status()
    before, rows = files(origin), len(counted(out))

    (tmp_path / "next").mkdir()
    link, own = tmp_path / "a%20link", tmp_path / "next" / "a%20checkpoint#1"
    link.symlink_to(origin)
    text = f"OWN = {f'file:{own}'!r}\n{NEXT}"
    with bench(tmp_path / "next") as other:
        document = job(other, text, (), args=[str(out)], **{"from": f"file:{tmp_path}/x/../a%20link/"})
        other.start(document, {"job": 3})
        other.wait_batches(4)
        (started,) = of_type(other, "query-started")
        numbers = {each["name"]: each["state_partitions"] for each in started["planned"]}
        assert numbers["aggregate"] == STATE_PARTITIONS, "that of the checkpoint, not the default"
        other.control_plane.order(stop="drain")
        the_end(other, "stopped")
    found = counted(out)
    assert len(found) > rows + KEYS
    assert {tuple(counts) for counts in found.values()} == {(PER_KEY,)}, "a row is missing or there twice"
    starts = sorted({start for start, _ in found})
    assert len(found) == KEYS * len(starts) and len(starts) == (starts[-1] - starts[0]).total_seconds() + 1
    assert files(origin) == before
    assert newest_batch(own / "commits") > newest_batch(origin / "commits")
    assert not (tmp_path / "next" / "a checkpoint").exists()


def test_what_does_not_go_with_the_checkpoint_is_not_started(rig: Bench, tmp_path: Path) -> None:
    own = START.replace(".format(", ".option('checkpointLocation', CHECKPOINT).format(")
    text = f"CHECKPOINT = {f'{tmp_path}/own'!r}\n{WINDOWS}{own}query.awaitTermination()"
    _, origin = stopped(rig, text)
    before = files(origin)
    mismatch = (
        rf"the query of windows does not go with the state in {origin}: the key of 'aggregate' has field 2, "
        r"_groupingexpression, as string now, and had it as bigint\."
    )
    changed = text.replace(*OTHER_KEY)
    new = changed.replace(f"{tmp_path}/own", f"{tmp_path}/new")
    args, origins = {"args": [str(rig.directory / "out")]}, {"from": str(origin)}
    (tmp_path / "next").mkdir()
    with bench(tmp_path / "next") as other:
        said = refused(other, job(other, new, (), **origins), attempt=1)
        assert "from: the query of windows writes files to" in said and "log ends with batch -1" in said
        said = refused(other, job(other, new, (), **args, **origins), attempt=1)
        assert re.fullmatch(rf"job\.py, line \d+: from: {mismatch}", said), said
        assert not (tmp_path / "new").exists(), "nothing was copied"
        said = refused(other, job(other, changed, (), **args, **origins), attempt=1)
        assert "from: the query of windows has the checkpointLocation" in said and "not empty" in said
        # What plain Spark has left is the first thing that a new job finds.
        said = refused(other, job(other, changed, (), **args), attempt=1)
        assert re.fullmatch(rf"job\.py, line \d+: {mismatch}", said), said
    assert files(origin) == before
