"""What the tests of sinks share: a Spark of their own, sinks made in one line, and a count of what Spark ran."""

from __future__ import annotations

import os
import sys
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from app.driver.session import DEFAULT_CONF
from app.driver.sinks.base import BatchRef, Sink
from app.driver.sinks.opening import open_sink
from app.model.jobgraph import JobVertex, OutputMode, PythonSpec, SinkSpec
from app.model.ownsettings import FIXED_SETTINGS
from tests.integration.listeners import await_listeners

QUERY = "6f9619ff-8b86-4d01-b42d-00cf4fc964ff"


class Crash(Exception):
    """Stands for the death of the driver process at this point."""


def crash() -> None:
    raise Crash


def allowed() -> None:
    """`may_commit` of a driver that owns its job."""


@contextmanager
def spark_session(own: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """A session as a driver has it, with two cores, and with settings of its ``own``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("sinks")
    settings = {**DEFAULT_CONF, **FIXED_SETTINGS, "spark.sql.shuffle.partitions": "4", **own}
    for key, value in settings.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


def vertex(
    sink_format: str,
    path: Path | str | None = None,
    *,
    output: OutputMode = OutputMode.APPEND,
    python: str | None = None,
    **options: str,
) -> JobVertex:
    """A sink vertex named store. ``options`` are those of its document."""
    spec = SinkSpec(
        sink_format,
        None if path is None else str(path),
        output,
        tuple(options.items()),
        None if python is None else PythonSpec(python),
    )
    return JobVertex("0" * 32, "store", spec, (), 2, 1, 128, "default", "1" * 32)


def opened(
    work_dir: Path, described: JobVertex, functions: Callable[[str], Callable[..., Any]] | None = None
) -> Sink:
    """The sink as the next attempt of a driver has it: opened and prepared anew."""

    def none(entry: str) -> Callable[..., Any]:
        raise AssertionError(entry)

    sink = open_sink(described, work_dir=work_dir, functions=functions or none)
    sink.prepare()
    return sink


def ref(batch_id: int, epoch: int = 1, query_id: str = QUERY) -> BatchRef:
    return BatchRef(query_id, batch_id, epoch)


@dataclass
class Ran:
    """``tasks``: the number of tasks of each stage of each job, in order."""

    jobs: int = 0
    tasks: tuple[int, ...] = ()


@contextmanager
def counting(frame: DataFrame) -> Iterator[Ran]:
    """Counts the jobs that Spark runs within the block, and the tasks that completed in their stages."""
    context = frame.sparkSession.sparkContext
    group = uuid.uuid4().hex
    context.setJobGroup(group, group)
    ran = Ran()
    try:
        yield ran
    finally:
        context._jsc.clearJobGroup()
        tracker = context.statusTracker()
        await_listeners(context)
        jobs = sorted(tracker.getJobIdsForGroup(group))
        stages = [stage for job in jobs for stage in sorted(tracker.getJobInfo(job).stageIds)]
        ran.jobs = len(jobs)
        ran.tasks = tuple(tracker.getStageInfo(stage).numCompletedTasks for stage in stages)
