"""The built-in streaming sources on the real Spark: parallelism per micro-batch, exact rows across crashes, errors."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from app.driver.failures import DriverError, describe
from app.driver.sources import ControlFile, open_stream, read_static, register_all, state_directory
from app.model.jobgraph import JobVertex, SourceSpec

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning"), pytest.mark.timeout(300)]

WAIT_S = 90.0
QUERY = "q"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    root = str(Path(__file__).resolve().parents[3])
    changed = {"PYTHONPATH": root, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    changed["PYTHONWARNINGS"] = "ignore::FutureWarning"
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    register_all(session)
    yield session
    session.stop()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


def source(
    source_format: str, path: Path | None = None, schema: str | None = None, **options: object
) -> JobVertex:
    texts = tuple((name, str(value)) for name, value in options.items())
    operation = SourceSpec(source_format, str(path) if path else None, schema, texts)
    return JobVertex("v", "src", operation, (), 1, 1, 1, "default", "d")


@dataclass
class Batch:
    """What one call of the batch function saw."""

    id: int
    rows: list[Any]
    tasks: int
    version: int | None


@dataclass
class Rig:
    """One query with its control file and checkpoint, started and killed as often as a test likes."""

    spark: SparkSession
    directory: Path
    control: ControlFile = field(init=False)
    checkpoint: Path = field(init=False)
    batches: list[Batch] = field(default_factory=list)
    version: int = 0

    def __post_init__(self) -> None:
        self.control = ControlFile(self.directory / "control")
        self.checkpoint = self.directory / "checkpoint"
        self.plan(1)

    def plan(self, parallelism: int) -> None:
        self.version += 1
        self.control.publish(self.version, {"v": parallelism})

    @contextlib.contextmanager
    def run(
        self, vertex: JobVertex, after: Callable[[Batch], None] = lambda batch: None, **trigger: Any
    ) -> Iterator[StreamingQuery]:
        """Run the query; ``after`` is called at the end of each batch."""
        frame = open_stream(self.spark, vertex, self.control, QUERY, self.checkpoint)

        def write(data: DataFrame, batch_id: int) -> None:
            version = self.control.planned_version("v", QUERY)
            rows, tasks = self._collect(data)
            batch = Batch(batch_id, rows, tasks, version)
            self.batches.append(batch)
            after(batch)

        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint)).foreachBatch(write)
        query = (writer.trigger(**trigger) if trigger else writer).start()
        try:
            yield query
        finally:
            query.stop()

    def wait(self, query: StreamingQuery, done: Callable[[], bool]) -> None:
        """Wait until ``done``, or for the failure of the query."""
        deadline = time.monotonic() + WAIT_S
        while not done():
            error = query.exception()
            if error is not None:
                raise error
            assert time.monotonic() < deadline, f"not done after {WAIT_S} s; batches: {self.batches[-3:]}"
            time.sleep(0.01)

    def failure(self, vertex: JobVertex) -> str:
        """The sentence with which the query fails."""
        with self.run(vertex) as query, pytest.raises(Exception) as raised:
            self.wait(query, lambda: False)
        assert not isinstance(raised.value, AssertionError), raised.value
        return describe(raised.value).sentence

    @property
    def committed(self) -> int:
        """The last batch in Spark's commit log, -1 if there is none."""
        names = [p.name for p in (self.checkpoint / "commits").glob("*") if p.name.isdigit()]
        return max(map(int, names), default=-1)

    def rows(self) -> list[Any]:
        """The rows of all batches; of a batch that ran again, those of its last run, which must be the same set."""
        last: dict[int, list[Any]] = {}
        for batch in self.batches:
            if batch.id in last:
                assert sorted(last[batch.id]) == sorted(batch.rows), (
                    f"batch {batch.id} differs when it is run again"
                )
            last[batch.id] = batch.rows
        return [row for batch_id in sorted(last) for row in last[batch_id]]

    def _collect(self, data: DataFrame) -> tuple[list[Any], int]:
        """The rows, and the number of tasks that Spark's status tracker says the stage had."""
        context = self.spark.sparkContext
        tracker = context.statusTracker()
        group = context.getLocalProperty("spark.jobGroup.id")
        known = set(tracker.getJobIdsForGroup(group))
        rows = [tuple(row) for row in data.collect()]
        new = set(tracker.getJobIdsForGroup(group)) - known
        stages = [
            tracker.getStageInfo(stage) for job in new for stage in (tracker.getJobInfo(job).stageIds or ())
        ]
        return rows, sum(stage.numTasks for stage in stages if stage is not None)


@pytest.fixture
def rig(spark: SparkSession, tmp_path: Path) -> Rig:
    return Rig(spark, tmp_path)


def write_csv(directory: Path, number: int, rows: int) -> list[tuple[int, str]]:
    """A file of its own; it appears whole."""
    directory.mkdir(exist_ok=True)
    values = [(number * 10_000 + i, f'n"{i}",\nx') for i in range(rows)]
    text = "id,name\n" + "".join('{},"{}"\n'.format(i, n.replace('"', '""')) for i, n in values)
    hidden = directory / f".{number}"
    hidden.write_text(text)
    hidden.rename(directory / f"f{number:04}.csv")
    return values


def csv_source(directory: Path, **options: object) -> JobVertex:
    return source("csv", directory, "id BIGINT NOT NULL, name STRING", header="true", **options)


def test_the_number_of_tasks_follows_the_control_file_from_batch_to_batch(rig: Rig, tmp_path: Path) -> None:
    expected = [row for number in range(12) for row in write_csv(tmp_path / "in", number, 50)]
    wanted = [4, 1, 7, 2, 60, 3, 5, 1, 8, 2, 4, 6]
    rig.plan(wanted[0])
    published = [rig.version]

    def after(batch: Batch) -> None:
        if batch.id + 1 < len(wanted):
            rig.plan(wanted[batch.id + 1])
            published.append(rig.version)

    with rig.run(csv_source(tmp_path / "in", maxFilesPerTrigger=1), after) as query:
        run_id = query.runId
        rig.wait(query, lambda: rig.committed >= len(wanted) - 1)
        assert query.runId == run_id
    assert [batch.tasks for batch in rig.batches] == wanted
    assert [batch.version for batch in rig.batches] == published
    assert rig.rows() == expected


def test_exact_rows_over_crashes_and_random_parallelism_while_files_arrive(rig: Rig, tmp_path: Path) -> None:
    """A crash between any two writes of Spark's logs is what is left when their last files are taken away."""
    chance = random.Random(7)
    folder = tmp_path / "in"
    expected = [row for number in range(3) for row in write_csv(folder, number, 120)]

    def after(batch: Batch) -> None:
        rig.plan(chance.randint(1, 6))

    for life in range(4):
        expected += [row for part in range(2) for row in write_csv(folder, 10 + 2 * life + part, 70)]
        vertex = csv_source(folder, maxRowsPerTrigger=chance.randint(40, 90))
        with rig.run(vertex, after) as query:
            target = rig.committed + 3
            rig.wait(query, lambda target=target: rig.committed >= target)  # type: ignore[misc]
        last = rig.committed
        if life % 2:
            (rig.checkpoint / "commits" / str(last)).unlink()  # killed after the batch, before its commit
        else:
            # Killed after the source's log was written and before Spark's: no trace of the offset.
            for offsets in (rig.checkpoint / "offsets").glob("[0-9]*"):
                if int(offsets.name) > last:
                    offsets.unlink()
        for leftover in (*rig.checkpoint.glob("*/.*.crc"), *rig.checkpoint.glob("*/.*.tmp")):
            leftover.unlink()
    with rig.run(csv_source(folder), after) as query:
        rig.wait(query, lambda: len(rig.rows()) >= len(expected))
    assert sorted(rig.rows()) == sorted(expected)
    assert len({batch.tasks for batch in rig.batches}) > 2


def test_a_finite_source_is_exhausted_once_its_last_batch_is_committed(rig: Rig, tmp_path: Path) -> None:
    expected = [row for number in range(3) for row in write_csv(tmp_path / "in", number, 10)]
    seen: list[bool] = []

    def after(batch: Batch) -> None:
        seen.append(rig.control.exhausted("v", QUERY))
        write_csv(tmp_path / "in", 100 + batch.id, 10)

    with rig.run(csv_source(tmp_path / "in", maxFilesPerTrigger=1, finite="true"), after) as query:
        rig.wait(query, lambda: rig.control.exhausted("v", QUERY))
        assert rig.committed == 2
    assert seen == [False, False, False]
    assert rig.rows() == expected
    assert rig.control.backlog("v", QUERY) == 0


def test_draining_stops_the_flow_and_a_restart_goes_on(rig: Rig, tmp_path: Path) -> None:
    expected = [row for number in range(30) for row in write_csv(tmp_path / "in", number, 5)]
    vertex = csv_source(tmp_path / "in", maxFilesPerTrigger=1)
    with rig.run(vertex, lambda batch: rig.control.set_draining(batch.id == 2)) as query:
        rig.wait(query, lambda: rig.committed == 2 and not query.status["isTriggerActive"])
        offsets = [int(p.name) for p in (rig.checkpoint / "offsets").glob("[0-9]*")]
        assert max(offsets) == rig.committed
        rig.control.set_draining(False)
        rig.wait(query, lambda: len(rig.rows()) == len(expected))
    assert rig.rows() == expected


def test_the_replay_rate(rig: Rig, tmp_path: Path) -> None:
    write_csv(tmp_path / "in", 0, 1000)
    begun = time.monotonic()
    at: list[tuple[float, int]] = []
    vertex = csv_source(tmp_path / "in", rowsPerSecond=100)
    with rig.run(vertex, lambda batch: at.append((time.monotonic() - begun, len(batch.rows)))) as query:
        rig.wait(query, lambda: sum(rows for _, rows in at) >= 150)
    for elapsed_s, total in ((s, sum(rows for _, rows in at[: i + 1])) for i, (s, _) in enumerate(at)):
        assert total <= 100 * elapsed_s + 1, at


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("7,x,y", "line 4: the row has 3 values, but 2 columns are expected: '7,x,y'."),
        ("seven,x", "line 4: column id: 'seven' is not a BIGINT."),
    ],
)
def test_a_malformed_row_is_named(rig: Rig, tmp_path: Path, row: str, sentence: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(f"id,name\n1,a\n2,b\n{row}\n3,c\n")
    failure = rig.failure(csv_source(tmp_path / "in"))
    assert f"Source src: the file {tmp_path}/in/a.csv, {sentence}" in failure
    with rig.run(csv_source(tmp_path / "in", mode="DROPMALFORMED")) as query:
        rig.wait(query, lambda: rig.committed >= 0)
    assert rig.batches[-1].rows == [(1, "a"), (2, "b"), (3, "c")]


def test_a_file_that_changed_between_two_runs_of_a_batch_is_refused(rig: Rig, tmp_path: Path) -> None:
    write_csv(tmp_path / "in", 0, 10)
    with rig.run(csv_source(tmp_path / "in")) as query:
        rig.wait(query, lambda: rig.committed == 0)
    for name in ("0", ".0.crc"):
        (rig.checkpoint / "commits" / name).unlink()
    write_csv(tmp_path / "in", 0, 11)
    assert "changed after it was taken in" in rig.failure(csv_source(tmp_path / "in"))


def test_two_queries_read_one_vertex_each_with_its_own_state(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    expected = write_csv(tmp_path / "in", 0, 20)
    other = Rig(spark, tmp_path / "other")
    other.control = rig.control
    with (
        rig.run(csv_source(tmp_path / "in", maxRowsPerTrigger=7)) as one,
        other.run(csv_source(tmp_path / "in")) as two,
    ):
        rig.wait(one, lambda: rig.committed == 2)
        other.wait(two, lambda: other.committed == 0)
    assert rig.rows() == other.rows() == expected
    assert state_directory(rig.checkpoint, "v").is_dir() and state_directory(other.checkpoint, "v").is_dir()


def test_json_parquet_and_text_give_what_sparks_own_readers_give(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    columns = [
        "id BIGINT",
        "cast(id AS STRING) AS name",
        "id / 4 AS part",
        "id % 2 = 0 AS even",
        "timestamp_millis(id * 1000) AS at",
        "date_add(DATE '2013-01-01', cast(id AS INT)) AS day",
        "cast(id AS DECIMAL(10, 2)) AS money",
    ]
    table = spark.range(200).selectExpr("cast(id AS BIGINT) AS id").selectExpr("id", *columns[1:])
    schema = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in table.schema.fields)
    for file_format in ("json", "parquet", "csv", "text"):
        folder = tmp_path / file_format
        written = table.selectExpr("name") if file_format == "text" else table
        written.coalesce(3).write.format(file_format).save(str(folder))
        asked = None if file_format in ("parquet", "text") else schema
        own = Rig(spark, tmp_path / f"rig-{file_format}")
        own.plan(3)
        # Spark writes instants into CSV and JSON with their offset.
        with own.run(source(file_format, folder, asked)) as query:
            own.wait(query, lambda own=own: own.committed >= 0)  # type: ignore[misc]
        reader = spark.read.format(file_format)
        expected = (reader.schema(asked) if asked else reader).load(str(folder))
        assert sorted(own.rows()) == sorted(tuple(row) for row in expected.collect()), file_format
        assert own.batches[0].tasks == 3


def test_available_now_reads_what_is_there_in_limited_batches_and_ends(rig: Rig, tmp_path: Path) -> None:
    expected = [row for number in range(3) for row in write_csv(tmp_path / "in", number, 10)]
    vertex = csv_source(tmp_path / "in", maxFilesPerTrigger=1, rowsPerSecond=0.01)
    with rig.run(vertex, availableNow=True) as query:
        assert query.awaitTermination(60)
    assert rig.rows() == expected
    assert [len(batch.rows) for batch in rig.batches] == [10, 10, 10]


def test_rate_is_numbered_steady_and_the_same_when_it_is_read_again(rig: Rig) -> None:
    vertex = source("rate", rowsPerSecond=50, rowCount=60)
    rig.plan(3)
    with rig.run(vertex) as query:
        rig.wait(query, lambda: rig.committed >= 0)
    last = rig.committed
    (rig.checkpoint / "commits" / str(last)).unlink()
    (rig.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    rig.plan(2)
    with rig.run(vertex) as query:
        rig.wait(query, lambda: rig.control.exhausted("v", QUERY))
    rows = rig.rows()
    assert [value for _, value in rows] == list(range(60))
    assert {(b[0] - a[0]).total_seconds() for a, b in pairwise(rows)} == {0.02}
    assert {batch.tasks for batch in rig.batches} == {2, 3}


def test_rate_micro_batch(rig: Rig) -> None:
    vertex = source(
        "rate-micro-batch", rowsPerBatch=10, startTimestamp=5000, advanceMillisPerBatch=2000, rowCount=25
    )
    with rig.run(vertex) as query:
        rig.wait(query, lambda: rig.control.exhausted("v", QUERY))
    assert [len(batch.rows) for batch in rig.batches] == [10, 10, 5]
    times = [datetime.fromtimestamp(5 + 2 * (value // 10), UTC).replace(tzinfo=None) for value in range(25)]
    local = [row[0].astimezone(UTC).replace(tzinfo=None) for row in rig.rows()]
    assert (local, [row[1] for row in rig.rows()]) == (times, list(range(25)))


def test_another_format_is_sparks_own(rig: Rig, spark: SparkSession, tmp_path: Path) -> None:
    spark.range(5).write.orc(str(tmp_path / "in"))
    with rig.run(source("orc", tmp_path / "in", "id BIGINT")) as query:
        rig.wait(query, lambda: rig.committed >= 0)
    assert sorted(rig.rows()) == [(i,) for i in range(5)]
    assert rig.batches[0].version is None


def test_static_tables_are_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,x\n")
    assert read_static(spark, csv_source(tmp_path / "a.csv")).collect() == [(1, "x")]
    with pytest.raises(DriverError, match=r"Source src: Spark refuses the format csv: .*PATH_NOT_FOUND"):
        read_static(spark, csv_source(tmp_path / "b.csv"))


@pytest.mark.parametrize(
    ("vertex", "message"),
    [
        (source("csv", Path("/nowhere"), "id INT"), "there is no directory or file /nowhere"),
        (source("csv", None, "id INT"), "a csv source needs a path: a directory or a file"),
        (source("csv", Path("/"), None), "a csv source needs a schema, for example"),
        (source("csv", Path("/"), "id INT,,"), "the schema is not a Spark DDL text"),
        (
            source("csv", Path("/"), "id ARRAY<INT>"),
            "column id: a csv source cannot read values of type array<int>",
        ),
        (
            source("json", Path("/"), "m MAP<STRING, INT>"),
            "column m: a json source cannot read values of type map",
        ),
        (source("text", Path("/"), "a STRING, b STRING"), "a text source has one column of type STRING"),
        (source("json", Path("/"), "id INT", header="true"), "Option header is unknown"),
        (source("rate", None, None, rowsPerSecond="0"), "Option rowsPerSecond is '0'"),
        (source("rate", Path("/x")), "the source rate takes no path"),
        (source("nonsense", Path("/x")), "Spark refuses the format nonsense"),
    ],
)
def test_wrong_sources_are_refused_in_words(rig: Rig, vertex: JobVertex, message: str) -> None:
    with pytest.raises(DriverError) as raised:
        open_stream(rig.spark, vertex, rig.control, QUERY, rig.checkpoint)
    assert message in str(raised.value)
    assert raised.value.vertex == "src" and "\n" not in str(raised.value)


def test_what_the_checkpoint_keeps_does_not_grow_with_the_batches(rig: Rig, tmp_path: Path) -> None:
    write_csv(tmp_path / "in", 0, 100)
    with rig.run(csv_source(tmp_path / "in", maxRowsPerTrigger=10)) as query:
        rig.wait(query, lambda: rig.committed == 9)
    log = state_directory(rig.checkpoint, "v") / "files.log"
    assert [json.loads(line)[0] for line in log.read_text().splitlines()] == ["f0000.csv"]
    offset = (rig.checkpoint / "offsets" / "9").read_text().splitlines()[-1]
    assert json.loads(offset) == {"row": 100}
