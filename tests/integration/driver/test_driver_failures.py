"""What a job can do wrong, and what its driver says of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from app.scheduler.adaptive.events import AttemptFailed
from app.worker.job.attempt_record import read_outcome
from app.worker.job.drivers import outcome_event
from tests.environments import QUICK_JAVA
from tests.integration.driver.documents import counting
from tests.integration.driver.harness import Bench, Driver, wait_for
from tests.integration.driver.test_batch_program import TASKS
from tests.integration.driver.test_batch_program import job as batch_program
from tests.integration.driver.test_program_attempt import START, WINDOWS
from tests.integration.driver.test_program_attempt import job as program

pytestmark = pytest.mark.timeout(600)


def with_python(rig: Bench, body: str) -> dict[str, Any]:
    """The counting job with a Python vertex between its state and its sink."""
    (rig.artifacts_dir / "code.py").write_text(body, encoding="utf-8")
    document = counting(rig.directory, rows=None)
    document["artifacts"] = ["code.py"]
    document["vertices"].insert(2, {"name": "mapped", "inputs": ["counts"], "python": "code:f"})
    document["vertices"][3]["inputs"] = ["mapped"]
    return document


def failure_of(rig: Bench, document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    driver = rig.start(document, **changes)
    failed: dict[str, Any] = wait_for("the failure", lambda: rig.control_plane.of_type("failed"))[0]
    assert driver.exit_status() == 4
    assert "\n" not in failed["error"]
    assert "Traceback" not in failed["error"]
    return failed


@pytest.mark.long
def test_a_python_vertex_that_raises_is_named_and_not_tried_again_before_anything_ran(rig: Bench) -> None:
    failed = failure_of(rig, with_python(rig, "def f(x): raise ValueError('no such luck')"))
    assert "ValueError: no such luck" in failed["error"]
    assert failed["vertex"] == "mapped"
    assert failed["recoverable"] is False
    assert "before its first batch" in failed["why"]


def test_a_function_that_starts_a_query_of_its_own_is_told_where_that_belongs(rig: Bench) -> None:
    body = "def f(x):\n    x.writeStream.format('noop').outputMode('update').start()\n    return x\n"
    failed = failure_of(rig, with_python(rig, body))
    assert failed["error"] == (
        "code.py, line 2: a function of the document starts a query of its own, which nobody would start again: give "
        "the document a sink for it."
    )
    assert failed["recoverable"] is False


@pytest.mark.long
def test_an_error_in_a_task_names_its_line(rig: Bench) -> None:
    body = (
        "from pyspark.sql import functions as F\n"
        "from pyspark.sql.types import LongType\n"
        "def f(x):\n"
        "    def broken(n):\n"
        "        raise RuntimeError(f'cannot take {n}')\n"
        "    return x.withColumn('n', F.udf(broken, LongType())('n'))\n"
    )
    failed = failure_of(rig, with_python(rig, body))
    assert "RuntimeError: cannot take" in failed["error"]
    assert "code.py:5" in failed["error"]


def test_a_worker_that_crashes_is_told_with_its_batch_and_function(rig: Bench) -> None:
    """And each task is tried as often as the job says, also on one host."""
    body = (
        "import os\n"
        "from pyspark.sql import functions as F\n"
        "def f(x):\n"
        "    def leaves(n):\n"
        "        os._exit(9)\n"
        "    return x.withColumn('n', F.udf(leaves, 'bigint')('n'))\n"
    )
    failed = failure_of(rig, with_python(rig, body), spark_conf={"spark.task.maxFailures": "2"})
    assert "failed 2 times" in failed["stack"] and "exited unexpectedly" in failed["error"]
    assert failed["error"].endswith("It crashed in batch 0 of sink store, in leaves.")
    assert failed["user_error"] == "Python worker crashed in leaves" and failed["batch_id"] == 0
    assert failed["recoverable"] is True and failed["outside"] is False


def test_a_jvm_whose_heap_is_full_ends_and_the_setting_is_named(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = f"{QUICK_JAVA} -Xmx600m"
    monkeypatch.setitem(Driver.environment, "_SLOTWISE_DRIVER_JAVA_OPTIONS", options)
    body = "def f(x): x.sparkSession._sc._gateway.new_array(x.sparkSession._jvm.long, 90_000_000)"
    failed = failure_of(rig, with_python(rig, body))
    assert failed["error"] == (
        "The heap of the driver's JVM, 600m, is full (java.lang.OutOfMemoryError), so it has ended: give the job a "
        "larger one by spark.driver.memory."
    )
    assert failed["recoverable"] is True and failed["outside"] is False


def with_hanging_sink(rig: Bench) -> dict[str, Any]:
    """The counting job with a sink that never ends its first batch, and says that it has begun."""
    body = (
        "import pathlib, time\n"
        "def f(rows, batch_id):\n"
        f"    pathlib.Path({str(rig.directory / 'begun')!r}).touch()\n"
        "    time.sleep(600)\n"
    )
    (rig.artifacts_dir / "code.py").write_text(body, encoding="utf-8")
    document = counting(rig.directory, rows=None)
    document["artifacts"] = ["code.py"]
    document["vertices"][2]["sink"] = {"format": "python", "python": "code:f", "outputMode": "update"}
    return document


@pytest.mark.long
def test_a_batch_that_hangs_is_a_failure(rig: Bench) -> None:
    driver = rig.start(with_hanging_sink(rig), batch_timeout_ms=1_500)
    failed = wait_for("the failure", lambda: rig.control_plane.of_type("failed"))[0]
    assert "slotwise.batch.timeout" in failed["error"]
    assert driver.exit_status() == 4


def test_a_batch_that_hangs_is_a_failure_also_while_the_job_drains(rig: Bench) -> None:
    driver = rig.start(with_hanging_sink(rig), batch_timeout_ms=3_000)
    wait_for("the batch", (rig.directory / "begun").exists)
    rig.control_plane.order(stop="drain")
    failed = wait_for("the failure", lambda: rig.control_plane.of_type("failed"))[0]
    assert "slotwise.batch.timeout" in failed["error"]
    assert driver.exit_status() == 4
    assert not rig.control_plane.of_type("stopped")


@pytest.mark.long
def test_a_failure_that_nobody_hears_is_written_down(rig: Bench) -> None:
    document = counting(rig.directory, rows=None)
    document["vertices"][1]["sql"] = "SELECT nothing % 3 AS k, count(*) AS n FROM numbers GROUP BY 1"
    rig.control_plane.go_away()
    driver = rig.start(document)
    assert driver.exit_status() == 4
    outcome = read_outcome(rig.directory / "attempt-1")
    assert outcome is not None
    event = outcome_event(1, outcome)
    assert isinstance(event, AttemptFailed)
    assert (event.vertex, event.recoverable, event.stopped) == ("counts", False, True)
    assert "nothing" in event.error


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "t", "mode": "upsert", "keys": "velue"}, "the rows have no column velue"),
        ({"table": "t"}, "two columns named X"),
    ],
)
def test_a_sink_whose_options_do_not_fit_its_columns_is_refused(
    rig: Bench, options: dict[str, str], said: str
) -> None:
    document = counting(rig.directory, rows=0)
    document["vertices"][1]["sql"] = "SELECT value, 1 AS x, 2 AS X FROM numbers"
    document["vertices"][2]["sink"] |= {"outputMode": "append", "options": options}
    if "keys" in options:
        document["vertices"][1]["sql"] = "SELECT value FROM numbers"
    failed = failure_of(rig, document)
    assert said in failed["error"]
    assert failed["vertex"] == "store"
    assert failed["recoverable"] is False


def test_a_vertex_that_is_no_query_fails_the_job_before_any_of_its_sinks_is_written(rig: Bench) -> None:
    document = counting(rig.directory, rows=10_000)
    files = rig.directory / "files"
    document["vertices"] += [
        {"name": "windows", "inputs": ["numbers"], "sql": "DELETE FROM numbers"},
        {"name": "files", "inputs": ["windows"], "sink": {"format": "json", "path": str(files)}},
    ]
    failed = failure_of(rig, document)
    assert failed["error"].startswith("Vertex windows: its SQL text should be one query that only reads")
    assert failed["vertex"] == "windows"
    assert failed["recoverable"] is False
    assert not rig.control_plane.batches, "the other sink, whose vertices are right, was not started"


def test_a_jvm_that_does_not_start_is_the_failure_of_the_attempt(
    rig: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Driver.environment, "_SLOTWISE_DRIVER_JAVA_OPTIONS", "-Xmx1k")
    driver = rig.start(counting(rig.directory, rows=None))
    assert driver.exit_status() == 1
    outcome = read_outcome(rig.directory / "attempt-1")
    assert outcome is not None
    event = outcome_event(1, outcome)
    assert isinstance(event, AttemptFailed)
    assert event.error.startswith("The driver's JVM ended with exit status 1 before it was ready: ")
    assert "maximum heap" in event.error and event.recoverable and event.stopped


@pytest.mark.long
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(
            lambda rig: program(rig, f"{WINDOWS}{START}query.awaitTermination()"),
            id="program",
        ),
        pytest.param(
            lambda rig: program(rig, f"{WINDOWS}{START}while query.isActive: pass"),
            id="polling program",
        ),
        pytest.param(lambda rig: batch_program(rig, TASKS), id="batch program"),
    ],
)
def test_a_jvm_that_is_killed_is_what_everything_else_follows_from(
    rig: Bench, document: Callable[[Bench], dict[str, Any]]
) -> None:
    driver = rig.start(document(rig))
    wait_for("work", lambda: rig.control_plane.batches or rig.control_plane.of_type("region-progress"))
    check_that_its_end_is_told(rig, driver, jvm_of(driver))


def jvm_of(driver: Driver) -> psutil.Process:
    [jvm] = [each for each in psutil.Process(driver.process.pid).children() if each.name() == "java"]
    return jvm


def check_that_its_end_is_told(rig: Bench, driver: Driver, jvm: psutil.Process) -> None:
    jvm.kill()
    failed = wait_for("the failure", lambda: rig.control_plane.of_type("failed"))[0]
    assert failed["error"].startswith("The driver's JVM was killed by signal 9 (SIGKILL)"), failed
    assert failed["recoverable"] and failed["outside"] and not failed["by_cluster"]
    assert driver.exit_status() == 4


def test_a_jvm_that_is_suspended_makes_the_driver_silent_and_its_end_is_told(rig: Bench) -> None:
    """Of a graph document."""
    driver = rig.start(counting(rig.directory, rows=None))
    wait_for("work", lambda: rig.control_plane.batches)
    jvm = jvm_of(driver)

    def asked() -> int:
        return sum("/orders" in call["path"] for call in rig.control_plane.calls)

    jvm.suspend()
    time.sleep(0.5)
    before = asked()
    # The call that waits is answered: the next one would come at once.
    rig.control_plane.order(slots=3)
    time.sleep(2)
    assert asked() == before
    jvm.resume()
    wait_for("it asks for its orders again", lambda: asked() > before)
    check_that_its_end_is_told(rig, driver, jvm)
