"""On one host a program runs as many tasks at once as its job holds slots, whatever of it asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.test_program_attempt import the_end
from tests.integration.driver.test_program_begin import unknown
from tests.integration.driver.test_program_growth import grown_by, of_type
from tests.integration.driver.test_program_restart import stop

pytestmark = pytest.mark.timeout(600)

# It looks how many of its tasks were at work at the same time, and goes on when there are as many as the test wants.
WORK = """
import os, pathlib, sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
sc, place = spark.sparkContext, pathlib.Path(sys.argv[1] + "-work")
place.mkdir()

def task(_):
    began = time.time()
    time.sleep(0.2)
    return [(began, time.time())]

def at_once():
    spans = sc.parallelize(range(14), 14).mapPartitions(task).collect()
    return max(sum(began <= moment < ended for began, ended in spans) for moment, _ in spans)

def work(phase):
    while not (place / f"{phase}-enough").exists():
        with open(place / phase, "a") as file:
            print(at_once(), file=file)
"""
BEFORE_AND_BESIDE = f"""
{WORK}
work("before")
rows = spark.readStream.format("rate").load().writeStream.format("noop")
query = rows.trigger(processingTime="1 hour").start()
while query.lastProgress is None:
    time.sleep(0.1)
work("beside")
query.stop()
"""


def counts(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def comes_to(file: Path, slots: int) -> None:
    known = len(counts(file))
    wait_for(f"{slots} tasks run at once", lambda: slots in counts(file)[known:])
    reached = known + counts(file)[known:].index(slots)
    wait_for("two more", lambda: len(counts(file)) > reached + 2)
    assert set(counts(file)[reached:]) == {slots}


def test_what_a_streaming_program_does_outside_of_its_queries_runs_in_the_slots_of_the_job(
    rig: Bench,
) -> None:
    rig.start(unknown(rig, BEFORE_AND_BESIDE), held_slots=2)
    place = rig.directory / "out-work"

    comes_to(place / "before", 2)
    for phase, numbers in (("before", (5, 1)), ("beside", (6, 2))):
        for slots in numbers:
            rig.control_plane.order(slots=slots)
            comes_to(place / phase, slots)
        (place / f"{phase}-enough").touch()
    the_end(rig, "finished")


@pytest.mark.long
def test_an_attempt_that_goes_on_in_the_same_process_has_its_own_slots(rig: Bench) -> None:
    document = unknown(rig, BEFORE_AND_BESIDE)
    rig.start(document, held_slots=8)
    beside = rig.directory / "out-work" / "beside"
    wait_for("its place", beside.parent.exists)
    beside.with_name("before-enough").touch()
    comes_to(beside, 8)
    for report in of_type(rig, "query-started"):
        document = grown_by(document, report)
    assert stop(rig, 1), "it waits for another assignment"
    rig.drivers[-1].assign(rig.spec(document, held_slots=3))
    comes_to(beside, 3)
    rig.control_plane.order(slots=5)
    comes_to(beside, 5)
    beside.with_name("beside-enough").touch()
    the_end(rig, "finished")
