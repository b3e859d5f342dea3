"""On one host a program runs as many tasks at once as its job holds slots, whatever of it asks for them."""

from __future__ import annotations

import pytest

from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.test_program_attempt import the_end
from tests.integration.driver.test_program_begin import unknown

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
    spans = sc.parallelize(range(24), 24).mapPartitions(task).collect()
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


def test_what_a_streaming_program_does_outside_of_its_queries_runs_in_the_slots_of_the_job(
    rig: Bench,
) -> None:
    rig.start(unknown(rig, BEFORE_AND_BESIDE), held_slots=2)
    place = rig.directory / "out-work"

    def counts(phase: str) -> list[int]:
        file = place / phase
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    def comes_to(phase: str, slots: int) -> None:
        known = len(counts(phase))
        wait_for(f"{slots} tasks run at once", lambda: slots in counts(phase)[known:])
        reached = known + counts(phase)[known:].index(slots)
        wait_for("two more", lambda: len(counts(phase)) > reached + 2)
        assert set(counts(phase)[reached:]) == {slots}

    comes_to("before", 2)
    for phase, numbers in (("before", (5, 1)), ("beside", (6, 2))):
        for slots in numbers:
            rig.control_plane.order(slots=slots)
            comes_to(phase, slots)
        (place / f"{phase}-enough").touch()
    the_end(rig, "finished")
