"""A driver that wakes after its successor has begun, as if its lock could not be seen: what is left then."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.driver.harness import Bench, bench, wait_for
from tests.integration.driver.test_program_attempt import (
    KEYS,
    START,
    WINDOWS,
    conf,
    counted,
    job,
    the_end,
)

pytestmark = pytest.mark.timeout(600)

FENCED = 3
PER_KEY = 20


def last(log: Path) -> int:
    return max((int(file.name) for file in log.iterdir() if file.name.isdigit()), default=-1)


def stop_in_a_batch(group: int, checkpoint: Path) -> None:
    def stopped() -> bool:
        os.killpg(group, signal.SIGSTOP)
        if last(checkpoint / "offsets") > last(checkpoint / "commits"):
            return True
        os.killpg(group, signal.SIGCONT)
        return False

    wait_for("the driver is stopped in a batch", stopped)


def wake_late(rig: Bench, document: dict[str, Any], spark_conf: dict[str, str]) -> int:
    """Stop a driver in a batch, let its successor commit batches, and wake it; the batch in which it was stopped."""
    first = rig.start(document, {"aggregate": 4}, spark_conf=spark_conf)
    rig.wait_batches(3)
    (checkpoint,) = (file.parent for file in rig.checkpoint_dir.glob("*/commits"))
    stop_in_a_batch(first.process.pid, checkpoint)
    begun = last(checkpoint / "offsets")
    owner = json.loads((rig.checkpoint_dir / "owner.json").read_text())
    os.unlink(owner["lock_file"])

    second = rig.start(document, {"aggregate": 2}, spark_conf=spark_conf)
    wait_for("the successor commits batches", lambda: last(checkpoint / "commits") > begun + 2)
    os.killpg(first.process.pid, signal.SIGCONT)
    assert first.exit_status() == FENCED, first.log
    woken = last(checkpoint / "commits")
    wait_for("the successor goes on", lambda: last(checkpoint / "commits") > woken + 2)
    second.process.send_signal(signal.SIGTERM)
    assert second.exit_status() == 4, second.log
    return begun


def test_a_driver_that_wakes_late_adds_nothing_to_files(rig: Bench) -> None:
    """Spark's log of a file sink takes each batch once, and the driver ends when it sees who owns the checkpoint."""
    begun = wake_late(rig, job(rig, f"{WINDOWS}{START}query.awaitTermination()"), conf()["spark_conf"])
    found = counted(rig.directory / "out")
    assert len(found) >= KEYS * begun
    assert {tuple(counts) for counts in found.values()} == {(PER_KEY,)}


@pytest.mark.long
def test_a_checkpoint_that_two_jobs_name_is_written_by_one(rig: Bench, tmp_path: Path) -> None:
    """It is the same one however it is written, and another one is not, though an address would mean the same."""
    place = tmp_path / "a%20checkpoint#1"
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")

    def into(location: str) -> str:
        start = START.replace(".start()", f".option('checkpointLocation', {location!r}).start()")
        return f"{WINDOWS}{start}query.awaitTermination()"

    text = into(f"file://{place}")
    first = rig.start(job(rig, text), **conf())
    rig.wait_batches(2)
    (tmp_path / "other").mkdir()
    with bench(tmp_path / "other") as other:
        decoded = other.start(job(other, into(f"file:{tmp_path}/a checkpoint")), **conf())
        other.wait_batches(2)
        decoded.kill()
        driver = other.start(job(other, into(f"{tmp_path}/link/../a%20checkpoint#1/")), **conf())
        failed = the_end(other, "failed")
        assert driver.exit_status() != 0
    assert f"The checkpoint {place} is still being written by another driver" in failed["error"]
    assert not failed["recoverable"]
    rig.wait_batches(len(rig.control_plane.batches) + 2)
    first.kill()
    second = rig.start(job(rig, text), **conf())
    rig.wait_batches(len(rig.control_plane.batches) + 2)
    assert second.process.poll() is None
    for checkpoint in (place, tmp_path / "a checkpoint"):
        assert last(checkpoint / "commits") >= 1 and (checkpoint / "slotwise-writer.json").exists()
    assert not (tmp_path / "far" / "a%20checkpoint#1").exists()
