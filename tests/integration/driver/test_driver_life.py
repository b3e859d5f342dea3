"""How a driver starts, stops, fails, dies and goes on without its control plane; the counts are exact throughout."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct

import psutil
import pytest

from app.durablefiles import write_whole
from app.worker.job.files import tidy_attempts
from tests import outputs
from tests.integration.driver.documents import counting, expected_counts, stored_counts
from tests.integration.driver.harness import Bench, Driver, wait_for

WINDOWS = """
from pyspark.sql import functions as F

def windows(rows):
    at = F.timestamp_seconds((F.col("value") / 1000).cast("long") * 10)
    late = rows.select(at.alias("at")).withWatermark("at", "0 seconds")
    return late.groupBy(F.window("at", "10 seconds")).agg(F.count("*").alias("n")).select("n")
"""

pytestmark = pytest.mark.timeout(600)


def rows_of(rig: Bench) -> int:
    """Rows of all committed batches: a batch that ran twice counts once."""
    return sum({batch["batch_id"]: batch["input_rows"] for batch in rig.control_plane.batches}.values())


@pytest.mark.long
def test_a_finite_source_ends_the_job_of_a_warm_driver(rig: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # As a server does, so that the job gets the SparkContext of the warm-up.
    monkeypatch.setitem(Driver.environment, "_SLOTWISE_DRIVER_WARM_MASTER", "local[8]")
    driver = Driver(rig.directory / "run", warm=True)
    rig.drivers.append(driver)
    driver.wait_ready()
    driver.assign(rig.spec(counting(rig.directory, rows=10_000), {"numbers": 3, "counts": 2}))
    wait_for("the end", lambda: rig.control_plane.of_type("finished") or rig.control_plane.of_type("failed"))
    assert [failed["error"] for failed in rig.control_plane.of_type("failed")] == []
    assert driver.exit_status() == 0
    assert "Traceback" not in driver.log, driver.log
    assert stored_counts(rig.directory) == expected_counts(10_000)
    assert {call["authorization"] for call in rig.control_plane.calls} == {"Bearer the secret"}
    assert {call["epoch"] for call in rig.control_plane.calls} == {"1"}


@pytest.mark.long
def test_a_job_ends_when_each_query_has_let_out_what_its_watermark_held_back(rig: Bench) -> None:
    (rig.artifacts_dir / "code.py").write_text(WINDOWS, encoding="utf-8")
    options = {"rowsPerSecond": "1e6", "maxRowsPerTrigger": "1000", "rowCount": "5000"}
    target = {"format": "json", "path": str(rig.directory / "windows"), "outputMode": "append"}
    document = {
        "name": "windows",
        "type": "STREAMING",
        "artifacts": ["code.py"],
        "vertices": [
            {"name": "numbers", "source": {"format": "rate", "options": options}},
            {"name": "windows", "inputs": ["numbers"], "python": "code:windows", "stateful": True},
            {"name": "stored", "inputs": ["windows"], "sink": target},
            # The other query is exhausted long before, and says every moment that it has nothing to do.
            {"name": "few", "source": {"format": "rate", "options": {"rowCount": "1"}}},
            {"name": "nowhere", "inputs": ["few"], "sink": {"format": "noop"}},
        ],
    }
    driver = rig.start(document)
    wait_for("the end", lambda: rig.control_plane.of_type("finished") or rig.control_plane.of_type("failed"))
    assert driver.exit_status() == 0, driver.log
    # The watermark is the time of the last batch: the windows before it are complete, its own is not.
    assert sorted(row["n"] for row in outputs.rows_of(rig.directory / "windows")) == [1_000] * 4


def answers_to_strangers(pid: int) -> list[bytes]:
    """What the ports of a process and its children answer to a request of Spark's RPC from somebody without the secret:
    16 bytes that are no Java object."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    ports = set()
    for process in processes:
        # Spark starts processes that live for a moment only.
        with contextlib.suppress(psutil.NoSuchProcess):
            connections = process.net_connections("tcp")
            ports |= {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
    head = struct.pack(">BqI", 3, 1, 16)
    frame = struct.pack(">q", 8 + len(head) + 16) + head + bytes(16)
    answers = []
    for port in ports:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=5) as stranger,
            contextlib.suppress(OSError),
        ):
            stranger.sendall(frame)
            answers.append(stranger.recv(4096))
    return answers


def test_a_boundary_stop_leaves_the_process_to_the_next_attempt_whose_assignment_must_be_there(
    rig: Bench,
) -> None:
    document = counting(rig.directory, rows=None, ours=True)
    driver = rig.start(document, {"counts": 3})
    first = rig.wait_batches(3)[0]
    answers = answers_to_strangers(driver.process.pid)
    # The port of the RPC and that of the block manager.
    assert sum(b"Expected SaslMessage" in answer for answer in answers) == 2, answers
    assert not any(b"StreamCorruptedException" in answer for answer in answers)
    rig.control_plane.order(stop="boundary")
    stopped = wait_for("the stop", lambda: rig.control_plane.of_type("stopped"))[0]
    assert stopped["driver_alive"]
    done = len(rig.control_plane.batches)
    rig.control_plane.reports.clear()
    # As a server does it, sooner or later.
    tidy_attempts(rig.directory, dead=1, keep=10)
    driver.assign(rig.spec(document, {"numbers": 4, "counts": 5}))
    again = rig.wait_batches(2)
    assert done > 0
    assert again[0]["query_id"] == first["query_id"]
    assert again[0]["run_id"] != first["run_id"]
    assert not again[0]["reprocessed"], "nothing of a batch that was stopped before it began runs twice"
    applied = wait_for("the plan", lambda: rig.control_plane.of_type("plan-applied"))[0]
    assert applied["reprocessed_records"] == 0
    assert applied["output_gap_ms"] is not None
    assert {r["pid"] for r in rig.control_plane.registrations} == {driver.process.pid}
    # Nor do the Python processes of the first attempt complain that it has ended. (Spark tells of the stop within a
    # line, if it came when a batch was about to begin.)
    assert "\nTraceback" not in driver.log, driver.log
    rig.control_plane.order(stop="boundary")
    wait_for("the next stop", lambda: rig.control_plane.of_type("stopped"))
    driver.assign(rig.directory / "nowhere.json")
    assert driver.exit_status() == 1
    assert "nowhere.json cannot be read" in driver.log


@pytest.mark.long
def test_a_checkpoint_with_checksum_files_is_read_without_and_the_other_way_round(rig: Bench) -> None:
    checked = {"spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.LocalFs"}
    document = counting(rig.directory, rows=None)
    for conf in (checked, {}, checked):
        driver = rig.start(document, {"counts": 4}, spark_conf=conf)
        rig.wait_batches(len(rig.control_plane.batches) + 2)
        assert any(rig.checkpoint_dir.rglob(".*.crc")), "the first driver wrote them"
        if len(rig.drivers) < 3:
            driver.kill()
    rig.control_plane.order(stop="drain")
    assert driver.exit_status() == 0, driver.log
    stored = stored_counts(rig.directory)
    assert stored == expected_counts(sum(n for n, _ in stored.values()))


@pytest.mark.long
def test_a_driver_that_is_ended_and_one_that_is_killed_are_replaced_and_nothing_counts_twice(
    rig: Bench,
) -> None:
    document = counting(rig.directory, rows=None)
    first = rig.start(document)
    rig.wait_batches(2)
    first.process.send_signal(signal.SIGTERM)
    assert first.exit_status() == 4
    told = rig.control_plane.reports.pop()
    assert told["type"] == "failed" and told["outside"]

    ended = len(rig.control_plane.batches)
    rig.start(document, {"counts": 2})
    assert not rig.wait_batches(ended + 3)[ended]["reprocessed"], "it was ended between two batches"
    rig.drivers[-1].kill()

    last = rig.start(document, {"counts": 8})
    rig.wait_batches(len(rig.control_plane.batches) + 2)
    rig.control_plane.order(stop="drain")
    wait_for("the drain", lambda: any(one["drained"] for one in rig.control_plane.of_type("stopped")))
    assert last.exit_status() == 0
    # Batches whose report was lost with the driver are in the sink all the same.
    counts = stored_counts(rig.directory)
    rows = sum(n for n, _ in counts.values())
    assert rows >= rows_of(rig) > 0
    assert counts == expected_counts(rows)


def test_the_job_goes_on_without_its_rope_and_its_control_plane_until_it_is_fenced(rig: Bench) -> None:
    document = counting(rig.directory, rows=None)
    driver = rig.start(document, {"counts": 3})
    count = len(rig.wait_batches(1))
    assert driver.process.stdin is not None
    driver.process.stdin.close()
    before = rig.wait_batches(count + 3)[-1]["batch_id"]
    rig.control_plane.go_away()
    commits = rig.checkpoint_dir / os.listdir(rig.checkpoint_dir / ".")[0]
    query_dir = next(entry for entry in rig.checkpoint_dir.iterdir() if entry.is_dir()) or commits
    wait_for("batches", lambda: (query_dir / "commits" / str(before + 4)).exists())
    rig.control_plane.come_back()
    wait_for("their reports", lambda: any(b["batch_id"] == before + 4 for b in rig.control_plane.batches))
    ids = [batch["batch_id"] for batch in rig.control_plane.batches]
    assert ids == sorted(set(ids)), "each batch is reported, in order"
    assert ids == list(range(ids[0], ids[0] + len(ids)))
    assert driver.process.poll() is None
    rig.control_plane.fenced = True
    rig.control_plane.order()
    assert driver.exit_status() == 3


def test_a_driver_without_a_job_ends_with_its_rope(rig: Bench) -> None:
    driver = Driver(rig.directory / "run")
    rig.drivers.append(driver)
    driver.wait_ready()
    assert driver.process.stdin is not None
    driver.process.stdin.close()
    assert driver.exit_status() == 0


def test_a_checkpoint_has_one_writer_and_a_newer_owner_fences_it_without_any_message(rig: Bench) -> None:
    document = counting(rig.directory, rows=None)
    first = rig.start(document)
    count = len(rig.wait_batches(1))
    second = rig.start(document)
    assert second.exit_status() == 4
    failed = wait_for("the failure", lambda: rig.control_plane.of_type("failed"))[0]
    assert "still being written by another driver" in failed["error"]
    assert len(rig.control_plane.batches) >= count
    assert first.process.poll() is None, first.log

    owner = rig.checkpoint_dir / "owner.json"
    text = owner.read_text(encoding="utf-8")
    assert '"attempt": 1' in text, text
    write_whole(owner, text.replace('"attempt": 1', '"attempt": 3').encode())
    assert first.exit_status() == 3
