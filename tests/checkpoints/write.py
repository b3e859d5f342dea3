"""Writes the checkpoints that are stored here, with the code and the PySpark that it is run with.

    python -m tests.checkpoints.write

One job has a query for each kind of vertex with state and each state of a checkpoint. It reads some files and ends:
these checkpoints are whole. Then half of the queries get one more file, and the driver is killed when all of them have
written their state and none can commit the batch to its sink.

What documents are refused today is left out. INTERSECT: "cannot do that to a stream: Spark has no Intersect over a
stream". EXCEPT of two streams: "Except on a streaming DataFrame/Dataset on the right is not supported".
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark

from tests.checkpoints.stored import (
    BEFORE,
    HERE,
    HOME,
    JOB,
    STATES,
    checkpoint_of,
    home,
    pack,
    put,
    put_side_table,
    table_of,
)
from tests.integration.driver.harness import Bench, bench, wait_for

Vertex = dict[str, Any]

COUNT = "SELECT k, count(*) AS n, sum(v) AS total FROM {0} GROUP BY k"
WINDOWS = "SELECT window.start AS at, k, count(*) AS n, sum(v) AS total FROM {0} GROUP BY window(at, '5 seconds'), k"
SESSIONS = (
    "SELECT session_window.start AS at, k, count(*) AS n, sum(v) AS total FROM {0} "
    "GROUP BY session_window(at, '4500 milliseconds'), k"
)
IN_TIME = "l.k = r.k AND r.at BETWEEN l.at - INTERVAL '5.5' SECOND AND l.at + INTERVAL '5.5' SECOND WHERE l.k <> 'late'"
BOTH_LATE = ["late_left", "late_right"]

KINDS: dict[str, tuple[str, list[tuple[str, list[str]]]]] = {
    "aggregate_update": ("update k", [(COUNT, ["left"])]),
    "aggregate_complete": ("complete", [(COUNT, ["left"])]),
    "window": ("append", [(WINDOWS, ["late_left"])]),
    "session": ("append", [(SESSIONS, ["late_left"])]),
    "distinct": ("complete", [("SELECT DISTINCT k, v FROM {0}", ["left"])]),
    "deduplicate": ("append", [("functions:deduplicated", ["left"])]),
    "deduplicate_within": ("append", [("functions:deduplicated_within", ["late_left"])]),
    "union": ("complete", [("SELECT k, v FROM {0} UNION SELECT k, v FROM {1}", ["left", "right"])]),
    "except": ("append", [("SELECT id, at FROM {0} EXCEPT SELECT id, at FROM {1}", ["late_left", "side"])]),
    "inner_join": ("append", [("SELECT l.id AS l, r.id AS r FROM {0} l JOIN {1} r USING (k)", ["left", "right"])]),
    "left_join": ("append", [(f"SELECT l.id AS l, r.id AS r FROM {{0}} l LEFT JOIN {{1}} r ON {IN_TIME}", BOTH_LATE)]),
    "semi_join": ("append", [(f"SELECT l.id AS l FROM {{0}} l LEFT SEMI JOIN {{1}} r ON {IN_TIME}", BOTH_LATE)]),
    "limit": ("append", [("SELECT k FROM {0} WHERE k = 'a' LIMIT 6", ["left"])]),
    "group_state": ("update k", [("functions:by_group_state", ["left"])]),
    "transform_pandas": ("update k", [("functions:by_pandas", ["left"])]),
    "transform_rows": ("update k", [("functions:by_rows", ["left"])]),
    "two_stateful": (
        "append",
        [("functions:deduplicated_in_time", ["late_left"]), (WINDOWS, ["two_stateful_0"])],
    ),
    "two_sources": (
        "update k",
        [("SELECT k, v FROM {0} UNION ALL SELECT k, v FROM {1}", ["left", "right"]), (COUNT, ["two_sources_0"])],
    ),
}  # fmt: skip
"""The mode of the sink with its keys, and the vertices in front of it: text or function, and inputs."""

STATELESS = {"two_sources_0"}


def document() -> dict[str, Any]:
    """The job. Names of vertices end in the state that the checkpoint of their query is left in."""
    side = {
        "format": "json",
        "path": f"{HOME}/in/side.json",
        "schema": "id INT, at TIMESTAMP",
        "static": True,
    }
    vertices: list[Vertex] = [{"name": "side", "source": side}]
    for state in STATES:
        for source in ("left", "right"):
            files = {
                "format": "json",
                "path": f"{HOME}/in/{state}/{source}",
                "schema": "id INT, k STRING, v INT, at TIMESTAMP",
                "options": {"maxFilesPerTrigger": 1},
            }
            name = f"{source}_{state}"
            late = {"name": f"late_{name}", "inputs": [name], "python": "functions:marked"}
            vertices += [{"name": name, "source": files}, late]
        for kind in KINDS:
            vertices += _vertices_of(kind, state)
    return {
        "name": JOB,
        "type": "STREAMING",
        "artifacts": ["functions.py"],
        "config": {"spark.sql.session.timeZone": "UTC"},
        "vertices": vertices,
    }


def _vertices_of(kind: str, state: str) -> Iterator[Vertex]:
    target, steps = KINDS[kind]
    name = ""
    for number, (operation, of) in enumerate(steps):
        inputs = [each if each == "side" else f"{each}_{state}" for each in of]
        name = f"{kind}_{number}_{state}"
        field = "python" if operation.startswith("functions:") else "sql"
        vertex: Vertex = {"name": name, "inputs": inputs, field: operation.format(*inputs)}
        if f"{kind}_{number}" not in STATELESS:
            vertex |= {"stateful": True, "maxParallelism": 2}
        yield vertex
    mode, _, keys = target.partition(" ")
    options = {"table": "result"} | ({"mode": "upsert", "keys": keys} if keys else {})
    sink = {"format": "sqlite", "path": str(table_of(kind, state)), "outputMode": mode, "options": options}
    yield {"name": f"{kind}_{state}", "inputs": [name], "sink": sink}


# -- the run


def run(rig: Bench, job: dict[str, Any]) -> None:
    """From nothing to checkpoints of each kind in both states, below HOME."""
    put_side_table()
    for state in STATES:
        for number in BEFORE[state]:
            put(state, number)
    (HOME / "out").mkdir()
    driver = rig.start(job, available_now=True)
    wait_for("the end", lambda: rig.control_plane.of_type("finished") or rig.control_plane.of_type("failed"))
    assert not rig.control_plane.of_type("failed"), rig.control_plane.of_type("failed")
    assert driver.exit_status() == 0, driver.log


def leave_open(rig: Bench, job: dict[str, Any]) -> None:
    """Kill the driver when the state of a batch is written and nothing of it is committed."""
    for kind in KINDS:
        _hold(table_of(kind, "open"))
    before = {kind: _newest_commit(kind) for kind in KINDS}
    put("open", len(BEFORE["open"]))
    driver = rig.start(job, available_now=True)
    wait_for("all state", lambda: all(_is_open(kind, batch + 1) for kind, batch in before.items()))
    driver.kill()
    assert {kind: _newest_commit(kind) for kind in KINDS} == before
    for kind in KINDS:
        _let_go(table_of(kind, "open"))


def _newest_commit(kind: str) -> int:
    return max(int(file.name) for file in (checkpoint_of(kind, "open") / "commits").iterdir())


def _is_open(kind: str, batch: int) -> bool:
    """Whether each place of state has the files of the batch, whose version is one more."""
    checkpoint = checkpoint_of(kind, "open")
    if not (checkpoint / "offsets" / str(batch)).exists():
        return False
    names: dict[Path, set[int]] = {}
    for file in (checkpoint / "state").rglob("[0-9]*.*"):
        if found := re.match(r"(\d+)[._]", file.name):
            names.setdefault(file.parent, set()).add(int(found[1]))
    return bool(names) and all(batch + 1 in found for found in names.values() if batch in found)


def _hold(table: Path) -> None:
    """Let the transaction that records a batch never come to its end. A lock would keep the batch from beginning."""
    with contextlib.closing(sqlite3.connect(table)) as db:
        db.executescript(
            "CREATE VIEW endless AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
            "SELECT count(*) AS n FROM c;"
            "CREATE TRIGGER hold BEFORE INSERT ON _slotwise_batches WHEN (SELECT n FROM endless) > 0 "
            "BEGIN SELECT 1; END;"
        )


def _let_go(table: Path) -> None:
    with contextlib.closing(sqlite3.connect(table)) as db:
        db.executescript("DROP TRIGGER hold; DROP VIEW endless; VACUUM;")


def _places(kind: str, state: str) -> list[Path]:
    checkpoint = checkpoint_of(kind, state)
    beside = sorted(checkpoint.parent.glob(f"{checkpoint.name}.*"))
    return [checkpoint, *beside, table_of(kind, state)]


def main() -> None:
    job = document()
    folder = HERE / pyspark.__version__
    # Later code is to find what earlier code wrote.
    folder.mkdir()
    with home(), tempfile.TemporaryDirectory() as directory, bench(Path(directory)) as rig:
        rig.checkpoint_dir = HOME / "checkpoint"
        shutil.copy(HERE / "functions.py", rig.artifacts_dir)
        run(rig, job)
        for kind in KINDS:
            pack(folder / f"{kind}-whole.tar.xz", _places(kind, "whole"))
        leave_open(rig, job)
        for kind in KINDS:
            pack(folder / f"{kind}-open.tar.xz", _places(kind, "open"))
        pack(folder / "in.tar.xz", [HOME / "in"])
        (folder / "document.json").write_text(json.dumps(job, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
