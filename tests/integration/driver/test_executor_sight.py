"""An executor that does not see the driver's files, on a real cluster. Executors run each in a directory of its own, so
a mark with a relative name is one that some of them see."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from app.cluster.java import usable_java
from app.cluster.standalone.daemons import DevCluster
from app.driver.executor_sight import ExecutorSight
from app.driver.executor_warmup import warm_up_executor
from app.driver.failures import DriverError
from app.driver.scala import java_list, rdd_at, scala_seq
from tests.environments import quick_java

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def session(directory: Path) -> Iterator[SparkSession]:
    """Two executors of one core."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if (left := SparkSession._instantiatedSession) is not None:
        # That of tests that are over: there is one in a process, and it would be taken for this one.
        left.stop()
    cluster = DevCluster(directory, java=usable_java())
    try:
        cluster.up()
        cluster.add(cores=2, memory_mb=1024)
        settings = {
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": quick_java(),
            "spark.ui.enabled": "false",
            "spark.scheduler.mode": "FAIR",
            # A task for one executor is not given to another one while a busy machine makes it wait.
            "spark.locality.wait": "20s",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        }
        builder = SparkSession.builder.master(cluster.master_url).appName("sight")
        for key, value in settings.items():
            builder = builder.config(key, value)
        made = builder.getOrCreate()
        backend = made.sparkContext._jsc.sc().schedulerBackend()
        until(lambda: backend.getExecutorIds().size() == 2)
        yield made
        made.stop()
    finally:
        cluster.down()


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ran_on(context: SparkContext, tasks: int) -> set[str]:
    """The numbers of the executors that ran ``tasks`` short tasks."""
    jvm: Any = context._jvm
    command = ["sh", "-c", "sleep 0.2; tr '\\0' ' ' </proc/$PPID/cmdline; echo"]
    values = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(context._jsc.sc())
    said = values.parallelize(java_list(jvm, range(tasks)), tasks).pipe(java_list(jvm, command)).collect()
    return {number for line in said for number in re.findall(r"--executor-id (\d+)", line)}


def keep_busy(context: SparkContext, executor: int, begun: Path) -> None:
    """A task that takes a while."""
    context.setLocalProperty("spark.scheduler.pool", "busy")
    rows = rdd_at(context, {executor: "busy"}, "java.lang.String")
    rows.pipe(java_list(context._jvm, ["sh", "-c", f"touch {begun}; sleep 5"])).collect()


def test_who_does_not_see_the_files_gets_no_tasks_until_it_does(
    session: SparkSession, directory: Path, tmp_path: Path
) -> None:
    context = session.sparkContext
    sight = ExecutorSight(context, tmp_path / "work")
    began = time.monotonic()
    sight.check([0, 1])
    print(f"both see the files: {time.monotonic() - began:.2f} s")
    began = time.monotonic()
    sight.check([0, 1])
    print(f"again: {time.monotonic() - began:.2f} s")
    assert sight.why == ""

    places = {path.name: path for path in directory.rglob("app-*/*") if path.is_dir()}
    assert sorted(places) == ["0", "1"]
    sight.mark = Path("a mark")
    (places["0"] / "a mark").touch()
    with pytest.raises(DriverError) as error:
        sight.check([0, 1])
    assert re.match(r"Executor 1 on 127\.0\.0\.1 does not see .*/work .* jobs_dir", str(error.value))
    assert error.value.recoverable and error.value.by_cluster
    sight.python = Path("no python")
    with pytest.raises(DriverError, match=r"Executor 0 on .* or the Python no python: "):
        sight.check([0])
    sight.python = Path(sys.executable)
    assert ran_on(context, 8) == {"0", "1"}

    let_in, ended = threading.Event(), threading.Event()
    let_in.set()

    def warm_up() -> None:
        warm_up_executor(session, tmp_path / "work", sight, 1, let_in)
        ended.set()

    threading.Thread(target=warm_up, daemon=True).start()
    until(lambda: sight.why)
    assert sight.why.endswith("It is given no tasks.")
    until(lambda: ran_on(context, 8) == {"0"})
    assert ran_on(context, 24) == {"0"}
    # And it comes before others that have no task running either.
    begun = tmp_path / "begun"
    busy = threading.Thread(target=keep_busy, args=(context, 0, begun))
    busy.start()
    until(begun.exists)
    assert ran_on(context, 2) == {"0"}
    busy.join()
    assert not ended.is_set()
    (places["1"] / "a mark").touch()
    assert ended.wait(60)
    assert sight.why == ""
    until(lambda: ran_on(context, 8) == {"0", "1"})


@pytest.mark.long
def test_it_is_kept_out_until_it_is_gone(session: SparkSession, tmp_path: Path) -> None:
    context = session.sparkContext
    sight = ExecutorSight(context, tmp_path / "work")
    sight.mark = Path("no mark")
    ends: list[str] = []

    def warm_up(executor: int) -> None:
        with pytest.raises(DriverError, match=f"Executor {executor} .*does not see") as error:
            warm_up_executor(session, tmp_path / "work", sight, executor, threading.Event())
        ends.append(str(error.value))

    keeping = threading.Thread(target=warm_up, args=(1,))
    keeping.start()
    until(lambda: sight.why)
    backend = context._jsc.sc().schedulerBackend()
    backend.killExecutors(scala_seq(context._jvm, ["1"]), False, False, True)
    keeping.join(60)
    assert len(ends) == 1

    # The end of the attempt lets none of them stay.
    keeping = threading.Thread(target=warm_up, args=(0,))
    keeping.start()
    until(lambda: 0 in sight.kept)
    sight.close()
    keeping.join(60)
    assert len(ends) == 2
    assert "0" not in ran_on(context, 2)
