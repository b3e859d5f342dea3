"""A program that was never run begins: whatever it does before its first query, and that query within its slots."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.model.graphdoc import read_graph
from tests.integration.driver.harness import Bench, wait_for
from tests.integration.driver.test_program_attempt import START, WINDOWS, conf, job, the_end
from tests.integration.driver.test_program_growth import grown_by, names, of_type

pytestmark = pytest.mark.timeout(600)


def unknown(rig: Bench, text: str, **more: Any) -> dict[str, Any]:
    """The document of a program of which no query is known."""
    return job(rig, text, (), **more)


def kinds(rig: Bench) -> list[str]:
    return [each["type"] for each in rig.control_plane.reports if each["type"] != "executors"]


def began(rig: Bench) -> list[dict[str, Any]]:
    return wait_for("its beginning", lambda: of_type(rig, "begun"))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("text", "sessions"),
    [
        pytest.param(
            "import sys\nprint('hello')\nsys.exit(0)", [False], id="no session", marks=pytest.mark.long
        ),
        pytest.param(
            "from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
            "print('rows:', spark.range(3).count())\nspark.stop()",
            [False, True],
            id="no query",
        ),
    ],
)
def test_a_program_without_a_query_ends_as_with_plain_spark(
    rig: Bench, text: str, sessions: list[bool]
) -> None:
    driver = rig.start(unknown(rig, text))
    the_end(rig, "finished")
    assert driver.exit_status() == 0
    assert kinds(rig) == ["begun", "finished"]
    assert [bool(each["spark_app_id"]) for each in rig.control_plane.registrations] == sessions


WAITS = f"""
import pathlib, sys, time
while not pathlib.Path(sys.argv[1] + "-go").exists():
    time.sleep(0.1)
{WINDOWS}
while not pathlib.Path(sys.argv[1] + "-on").exists():
    time.sleep(0.1)
{START.replace('"windows"', '"job"')}
query.awaitTermination()
"""


@pytest.mark.parametrize(
    "stop", [pytest.param(one, marks=pytest.mark.long) for one in ("kill", "boundary")] + ["drain"]
)
def test_a_program_that_waits_for_its_input_is_stopped(rig: Bench, stop: str) -> None:
    driver = rig.start(unknown(rig, WAITS))
    began(rig)
    rig.control_plane.order(stop=stop)
    assert driver.exit_status() == 0
    stopped = [(each["drained"], each["driver_alive"]) for each in rig.control_plane.of_type("stopped")]
    assert stopped == ([] if stop == "kill" else [(stop == "drain", False)])


def test_plans_before_the_first_query_are_in_force_at_once_and_that_of_its_begin_with_it(rig: Bench) -> None:
    bounds = {"aggregate": {"upperBound": 3}}
    document = unknown(rig, WAITS, bounds=bounds)
    (program,) = read_graph(document).vertices
    driver = rig.start(document, {"job": 2}, **conf())
    began(rig)

    def applied() -> list[int]:
        return [each["plan_version"] for each in of_type(rig, "plan-applied")]

    rig.change_plan(document, 101, {"job": 5})
    wait_for("a plan without a session", lambda: applied() == [101])
    Path(f"{rig.directory}/out-go").touch()
    wait_for("the session", lambda: rig.control_plane.registrations[-1]["spark_app_id"])
    rig.change_plan(document, 102, {"job": 6})
    wait_for("a plan without a query", lambda: applied() == [101, 102])
    Path(f"{rig.directory}/out-on").touch()
    (started,) = wait_for("the query", lambda: of_type(rig, "query-started"))
    assert names(started) == ["rate-micro-batch", "aggregate", "job"]
    numbers = started["parallelism"]
    assert sorted(numbers.values()) == [3, 6, 6] and numbers[program.id] == 6
    # Now the query runs at it.
    wait_for("the plan of the query", lambda: applied() == [101, 102, 102])

    # Whoever ordered this has not heard of the query.
    rig.change_plan(document, 103, {"job": 4})
    wait_for("a plan of the slots", lambda: applied() == [101, 102, 102, 103])
    batches = wait_for(
        "its batches", lambda: [e for e in rig.control_plane.batches if e["plan_version"] == 103]
    )
    assert {each["vertex_id"]: each["parallelism"] for each in batches[0]["vertices"]} == {
        key: min(4, number) for key, number in numbers.items()
    }
    more = grown_by(document, started)
    rig.change_plan(more, 104, {"aggregate": 2})
    wait_for("a plan of its vertices", lambda: applied() == [101, 102, 102, 103, 104])
    assert "running" not in kinds(rig)
    rig.control_plane.order(stop="drain")
    assert the_end(rig, "stopped")["drained"]
    assert driver.exit_status() == 0


@pytest.mark.long
def test_the_plan_of_the_assignment_is_in_force_with_the_first_query_and_the_next_attempt_runs(
    rig: Bench,
) -> None:
    document = unknown(rig, WAITS)
    driver = rig.start(document, {"job": 2}, **conf())
    Path(f"{rig.directory}/out-go").touch()
    wait_for("the session", lambda: began(rig) and rig.control_plane.registrations[-1]["spark_app_id"])
    Path(f"{rig.directory}/out-on").touch()
    wait_for("the plan", lambda: of_type(rig, "plan-applied"))
    found = kinds(rig)
    assert found.index("query-started") < found.index("plan-applied") and "running" not in found
    (started,) = of_type(rig, "query-started")
    assert set(started["parallelism"].values()) == {2}

    rig.control_plane.order(stop="boundary")
    assert the_end(rig, "stopped")["driver_alive"]
    # Of one that has not heard of the query.
    driver.assign(rig.spec(document, {"job": 3}, **conf()))
    wait_for("its plan", lambda: of_type(rig, "plan-applied", 2))
    again = [each["type"] for each in rig.control_plane.reports if each["attempt"] == 2]
    assert again.index("query-started") < again.index("begun") < again.index("plan-applied")
    rig.control_plane.order(stop="drain")
    wait_for("the end", lambda: of_type(rig, "stopped", 2))
    assert driver.exit_status() == 0


HEAD = """
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.appName("mine").getOrCreate()
rows = spark.readStream.format("rate").load()
"""
CONTINUOUS = "rows.writeStream.format('console').trigger(continuous='1 second').start()"
OWN = (
    "A job that fails by its own code before its first batch runs once, unless it sets restart-strategy.type."
)
BAD = {
    "continuous": (
        HEAD + CONTINUOUS,
        r"job\.py, line 6: a continuous trigger \(continuous\) is not possible: .*",
    ),
    "no sink": (
        HEAD + "rows.writeStream.start()",
        r"job\.py, line 6: the query has no sink: start\(\) without .*",
    ),
    "one checkpoint": (
        HEAD
        + "w = rows.writeStream.format('noop').option('checkpointLocation', sys.argv[1] + '-cp')\nw.start()\nw.start()",
        r"job\.py, line 8: the program starts a second query under the checkpoint /.*-cp, .* job\.py, line 7; .*",
    ),
    "mode": (
        HEAD + "rows.groupBy('value').count().writeStream.format('noop').start()",
        r"job\.py, line 6: AnalysisException: Invalid streaming output mode: append.*",
    ),
    "no table": (
        HEAD + "\nspark.table('none').show()",
        r"job\.py, line 7: AnalysisException: .*none.* cannot be .*",
    ),
    "no path": (
        HEAD + "spark.read.parquet(sys.argv[1] + '-none')",
        r"job\.py, line 6: AnalysisException: Path does not exist: .*",
    ),
    "sink package": (
        HEAD + "rows.writeStream.format('kafka').start()",
        r"job\.py, line 6: AnalysisException: Failed to find data source: kafka.*",
    ),
    "syntax": (
        "x = 1\ny = (1,\nz = 3\n",
        r"job\.py, line 2: SyntaxError: '\(' was never closed; .* Python 3.*",
    ),
    "module": (
        "\nimport nowhere_to_be_found",
        r"job\.py, line 2: there is no module nowhere_to_be_found: .*",
    ),
    "at once": (
        "import os\nos._exit(0)",
        r"job\.py, line 2: the program ended itself with os\._exit\(0\): .*",
    ),
    "forks": ("import os\nif os.fork() == 0: pass", r"job\.py, line 2: the program forks .*"),
    "master": (
        "from pyspark.sql import SparkSession\n\nSparkSession.builder.master('yarn').getOrCreate()",
        r"job\.py, line 3: the program sets spark\.master to yarn, which is not possible: .*",
    ),
    "DStreams": (
        "from pyspark import SparkContext\nfrom pyspark.streaming import StreamingContext\n"
        "StreamingContext(SparkContext('local[2]', 'words'), 1)",
        r"job\.py, line 3: the program uses DStreams \(pyspark\.streaming\), .*: use Structured Streaming .*",
    ),
    "a checkpoint for each attempt": (
        HEAD
        + "name = '/tmp/none/' + spark.sparkContext.applicationId\n"
        + "rows.writeStream.format('noop').option('checkpointLocation', name).start()",
        r"job\.py, line 7: the checkpoint /tmp/none/local-\d+ has Spark's application id in its name, which is .*",
    ),
    "does not wait": (
        HEAD + "rows.writeStream.format('noop').queryName('counts').start()",
        r"The program ended while its query of counts was running: .*",
    ),
}


@pytest.mark.parametrize(
    "what",
    [pytest.param(case, marks=() if case == "no sink" else pytest.mark.long) for case in BAD],
)
def test_what_cannot_run_is_final_and_one_sentence_with_file_and_line(rig: Bench, what: str) -> None:
    text, said = BAD[what]
    driver = rig.start(unknown(rig, text))
    failed = the_end(rig, "failed")
    assert re.fullmatch(said, failed["error"]), failed["error"]
    assert not failed["recoverable"]
    assert driver.exit_status() == 4
    assert kinds(rig)[0] == "begun"


RAISES = f"""{WINDOWS}
@F.udf("bigint")
def refused(value):
    raise ValueError("never")

rows.select(refused("value")).writeStream.queryName("refused").format("noop").start().awaitTermination()
"""
RESTARTS = {"restart-strategy.type": "fixed-delay"}
ONCE = f"""{WINDOWS}
writer = windows.writeStream.queryName("windows").format("parquet").option("path", sys.argv[1])
writer.trigger(once=True).start().awaitTermination()
"""
FAILURES: dict[str, tuple[str, dict[str, str], bool]] = {
    "raises": (HEAD + "raise ValueError('boom')", {}, False),
    "raises without a session": ("{}['boom']", {}, False),
    "its job sets a strategy": ("{}['boom']", RESTARTS, True),
    "exits": ("import sys\nsys.exit(3)", {}, False),
    "a function raises in the first batch": (RAISES, {}, False),
    "a function raises, and its job sets a strategy": (RAISES, RESTARTS, True),
    "a file is missing": ("open('/none/such')", {}, True),
    "a connection": (HEAD + "raise ConnectionRefusedError('nobody there')", {}, True),
    "behind its first batch": (ONCE + "raise ValueError('boom')", {}, True),
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(
            case,
            marks=() if case == "a function raises in the first batch" else pytest.mark.long,
        )
        for case in FAILURES
    ],
)
def test_what_is_wrong_with_a_program_that_has_never_run_is_final(rig: Bench, what: str) -> None:
    text, config, recoverable = FAILURES[what]
    driver = rig.start(unknown(rig, text, config=config), **conf())
    failed = the_end(rig, "failed")
    assert failed["recoverable"] is recoverable, json.dumps(failed)
    assert (failed["why"] == OWN) is not recoverable
    assert driver.exit_status() == 4
