"""The points of a micro-batch at which a driver can be killed (`tests.acceptance.kills`), and a log of who writes."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from app.driver import base_attempt, checkpoints
from app.driver.attempt import Attempt
from app.driver.batch import region, results
from app.driver.batch.attempt import BatchAttempt
from app.driver.batch.region import RegionRun
from app.driver.gateway import Gateway
from app.driver.program import origin
from app.driver.program.attempt import ProgramAttempt
from app.driver.sinks.database import DatabaseSink
from tests.acceptance import repartition_points
from tests.acceptance.kills import DIRECTORY, reached_in_driver
from tests.numbers import HAS_RATE

WRITERS = "writers.jsonl"

_attempt = 0


def install() -> None:
    """Put the points around the functions of the driver."""
    if HAS_RATE:
        from tests.acceptance import planner_points

        planner_points.install()
    _around_the_batch()
    _around_the_sink()
    _around_the_attempt()
    _around_the_regions()
    repartition_points.install()
    _around_the_copy()


def _around_the_copy() -> None:
    """While the checkpoint of another job is copied."""
    share = checkpoints._share

    def _share(source: str, target: str) -> None:
        share(source, target)
        reached_in_driver("copy-half-made")

    checkpoints._share = _share
    origin.make_ready = checkpoints.make_ready  # type: ignore[attr-defined]


def _around_the_batch() -> None:
    usual = Gateway.begin

    def begin(self: Gateway, batch_id: int) -> None:
        reached_in_driver("batch-top")
        usual(self, batch_id)

    Gateway.begin = begin  # type: ignore[method-assign]


def _around_the_sink() -> None:
    write_rows, write = DatabaseSink._write_rows, DatabaseSink.write

    def _write_rows(self: DatabaseSink, db: Any, load: Any) -> None:
        write_rows(self, db, load)
        reached_in_driver("sink-uncommitted")

    def _write(self: DatabaseSink, frame: Any, batch: Any, may_commit: Any) -> Any:
        written = write(self, frame, batch, may_commit)
        note(event="wrote", batch=batch.batch_id)
        reached_in_driver("sink-committed")
        return written

    DatabaseSink._write_rows = _write_rows  # type: ignore[method-assign]
    DatabaseSink.write = _write  # type: ignore[method-assign]


def _around_the_attempt() -> None:
    committed, idle, claim = Attempt._on_committed, Attempt._on_idle, base_attempt.claim_checkpoint
    ended = ProgramAttempt._on_well_ended

    def _on_committed(self: Attempt, happening: Any) -> None:
        reached_in_driver("spark-committed")
        committed(self, happening)

    def _on_idle(self: Attempt, happening: Any) -> Any:
        reached_in_driver("idle")
        return idle(self, happening)

    def _on_well_ended(self: ProgramAttempt, running: Any) -> None:
        # A query whose source is at its end may end before anybody has looked at it while it was idle.
        reached_in_driver("idle")
        ended(self, running)

    def claim_checkpoint(checkpoint_dir: Path, *, lock_file: str, attempt: int, epoch: int) -> None:
        global _attempt
        before = _owner(checkpoint_dir)
        claim(checkpoint_dir, lock_file=lock_file, attempt=attempt, epoch=epoch)
        _attempt = attempt
        held = before is not None and before != lock_file and is_locked(Path(before))
        note(event="claimed", predecessor=before, predecessor_lives=held)

    Attempt._on_committed = _on_committed  # type: ignore[method-assign]
    Attempt._on_idle = _on_idle  # type: ignore[method-assign]
    ProgramAttempt._on_well_ended = _on_well_ended  # type: ignore[method-assign]
    base_attempt.claim_checkpoint = claim_checkpoint


def _around_the_regions() -> None:
    """Between what a region of a BATCH job writes and the report of its end."""
    describe, write = results._described, region.write_result
    write_sink, on_done = RegionRun._write_sink, BatchAttempt._on_done

    def _described(*args: Any) -> Any:
        reached_in_driver("result-unnamed")
        return describe(*args)

    def write_result(*args: Any, **options: Any) -> Any:
        written = write(*args, **options)
        reached_in_driver("result-written")
        return written

    def _write_sink(self: RegionRun, *args: Any) -> None:
        write_sink(self, *args)
        reached_in_driver("region-sink-written")

    def _on_done(self: BatchAttempt, done: Any) -> Any:
        reached_in_driver("region-done")
        return on_done(self, done)

    results._described = _described
    region.write_result = write_result
    RegionRun._write_sink = _write_sink  # type: ignore[method-assign]
    BatchAttempt._on_done = _on_done  # type: ignore[method-assign]


def note(**fields: object) -> None:
    """Add a line to the log of writers: one write, so that lines of several processes are not mixed."""
    line = json.dumps({"at": time.time(), "pid": os.getpid(), "attempt": _attempt, **fields}) + "\n"
    with open(Path(os.environ[DIRECTORY]).parent / WRITERS, "ab", buffering=0) as log:
        log.write(line.encode())


def is_locked(path: Path) -> bool:
    """Whether somebody holds a lock on ``path``, found out without taking it for a moment."""
    try:
        inode = path.stat().st_ino
    except FileNotFoundError:
        return False
    locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return any("FLOCK" in line and line.split()[-3].endswith(f":{inode}") for line in locks)


def _owner(checkpoint_dir: Path) -> str | None:
    try:
        return str(json.loads((checkpoint_dir / "owner.json").read_text(encoding="utf-8"))["lock_file"])
    except FileNotFoundError:
        return None
