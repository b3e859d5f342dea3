"""A new program that goes on from the checkpoint of another job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.integration.driver.test_program_planning import plan

from app.driver.checkpoints import newest_batch
from app.model.fromjson import from_json
from app.model.graphdoc import to_document
from app.model.graphdoc_program import graph_of, parse_program
from app.model.planned import Planned
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


def planned_job(rig: Bench, text: str, origin: str, out: Path) -> dict[str, Any]:
    document = {
        "name": "next",
        "script": "job.py",
        "args": [str(out)],
        "artifacts": ["job.py"],
        "from": origin,
    }
    program = parse_program(document)
    answer, _ = plan(rig, job=text, args=str(out), origin=str(program.program.origin))
    assert answer["error"] is None, answer
    return to_document(graph_of(program, from_json(Planned, answer)))


def test_a_new_program_goes_on_where_another_was_stopped(rig: Bench, tmp_path: Path) -> None:
    out = rig.directory / "out"
    rig.start(job(rig, FIRST), {"aggregate": 4}, **conf())
    rig.wait_batches(3)
    rig.control_plane.order(stop="drain")
    origin = Path(the_end(rig, "stopped")["location"])
    rig.drivers[-1].exit_status()
    before, rows = files(origin), len(counted(out))

    # A new version of it with another key would be refused; that of a new job, below, goes with the state.
    answer, _ = plan(
        rig,
        job=FIRST.replace("% 10)", "% 10).cast('string')"),
        args=str(out),
        version_of=str(rig.checkpoint_dir),
    )
    assert answer["conflict"] and re.fullmatch(
        r"job\.py, line \d+: the query of windows does not go with the state in \S+: the key of 'aggregate' has "
        r"field 2, _groupingexpression, as string now, and had it as bigint\.",
        answer["error"],
    )

    (tmp_path / "next").mkdir()
    link, own = tmp_path / "a%20link", tmp_path / "next" / "a%20checkpoint#1"
    link.symlink_to(origin)
    text = f"OWN = {f'file:{own}'!r}\n{NEXT}"
    with bench(tmp_path / "next") as other:
        document = planned_job(other, text, f"file:{tmp_path}/x/../a%20link/", out)
        names = [(vertex["name"], vertex["maxParallelism"]) for vertex in document["vertices"]]
        assert names[1] == ("aggregate", STATE_PARTITIONS), "that of the checkpoint, not the default"
        other.start(document, {"aggregate": 3})
        other.wait_batches(4)
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
