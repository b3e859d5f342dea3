"""How far a region is, as Spark itself counts its tasks."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from app.documents.graph import parse_document
from app.driver.batch.region import RegionDone, RegionRun
from tests.integration.batch.harness import Regions
from tests.integration.driver.harness import wait_for
from tests.integration.listeners import await_listeners

JOB_ID = "progress"


def test_all_tasks_of_a_run_are_counted_and_skipped_stages_are_not(session: Any, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"n": list(range(1000))}), tmp_path / "numbers.parquet")
    document = {
        "name": "job",
        "type": "BATCH",
        "vertices": [
            {"name": "numbers", "source": {"format": "parquet", "path": str(tmp_path / "numbers.parquet")}},
            {
                "name": "counts",
                "inputs": ["numbers"],
                # Two shuffles: the job of each stage has those before it once more, as stages that are skipped.
                "sql": "SELECT m, count(*) AS c FROM (SELECT n % 7 AS m, n FROM numbers GROUP BY n) GROUP BY m",
            },
            {
                "name": "store",
                "inputs": ["counts"],
                "sink": {"format": "parquet", "path": str(tmp_path / "out")},
            },
        ],
    }
    job = Regions(session, parse_document(document), tmp_path, job_id=JOB_ID)
    job.begin()
    (order,) = job.job.orders.values()
    run = job.region_run(order)
    run.start()
    told, ended = _told(job, run)
    assert ended.failure is None, ended.failure.stack

    stages = _stages(session, f"{JOB_ID}/{order.region}/{order.run}")
    tasks = sum(stage.numTasks() for stage in stages if stage.submissionTime() > 0)
    skipped = [stage.numTasks() for stage in stages if stage.submissionTime() <= 0]
    assert skipped and len(stages) - len(skipped) > 2

    def all_are_done() -> bool:
        told.append(run.task_news() or told[-1])
        return told[-1] == (tasks, tasks)

    # Spark hears of the last tasks a moment after the run has ended.
    wait_for("all are done", all_are_done)
    assert all(done <= known for done, known in told)
    assert run.task_news() is None


def _told(job: Regions, run: RegionRun) -> tuple[list[tuple[int, int]], RegionDone]:
    """What a run tells of its tasks until it ends, and how it ends."""
    told = [(0, 0)]
    while True:
        told.append(run.task_news() or told[-1])
        try:
            return told, job._inbox.get(timeout=0.02)
        except queue.Empty:
            continue


def _stages(session: Any, group: str) -> list[Any]:
    """Every stage of every Spark job of ``group``, once."""
    await_listeners(session.sparkContext)
    tracker = session.sparkContext._jsc.statusTracker()
    ids = {
        stage_id
        for job_id in tracker.getJobIdsForGroup(group)
        for stage_id in tracker.getJobInfo(job_id).stageIds()
    }
    return [tracker.getStageInfo(stage_id) for stage_id in sorted(ids)]
