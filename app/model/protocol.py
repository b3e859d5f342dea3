"""The driver protocol: HTTP calls of a driver to its control plane.

| call (under /internal/v1/jobs/{job_id}/attempts/{attempt}) | body -> answer |
|---|---|
| POST .../register | `Registration` -> `Orders` |
| GET  .../orders?plan=<version>&stop=<mode>&slots=<n>&restarts=<text>&wait_ms=<n> | -> `Orders`, once they differ |
| POST .../reports | `{"reports": [Report, ...]}` -> `Acknowledgement` |

Each call carries `Authorization: Bearer <secret of the attempt>` and `X-Slotwise-Epoch: <epoch>`. A wrong secret or an
attempt that is over is answered 410 with `{"errors": [...], "fenced": true, "home": name}`: the driver stops writing
and exits, if that is the name of the data directory that it belongs to. Else another server has the port now. An older
epoch is that of a driver that was adopted and has not heard of its new owner; the answer tells it. Any other
failure (refused, 5xx, time-out) means that the control plane is away: the driver keeps processing, keeps its reports,
and tries again, reading the address file anew each time.

Orders are a level, not a queue: what the driver should be doing now. A driver asks for them again as soon as it is
answered; one that has registered and does not ask for long is killed (`app.worker.job.silence`). Reports are numbered
from 1 within an attempt and sent again until acknowledged, so each arrives at least once and in order. A call with very
many of them may be acknowledged in part. What is longer than the limits below would be refused each time, so no driver
sends it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

from app.model.batch import RegionOrder, Result
from app.model.measured import ExecutorLoad, LongBatch, VertexBatch
from app.model.planned import PlannedVertex

REPORTS_LIMIT_BYTES = 16 * 1024 * 1024
"""Of the body of a call."""
REPORT_LIMIT_CHARS = 4 * 1024 * 1024
"""Of one report: about six results of the most subpartitions that there can be, each with a number of nine digits."""

StopOrder = Literal["none", "kill", "boundary", "drain"]


@dataclass(frozen=True, slots=True)
class DriverSpec:
    """The assignment: a JSON file (mode 0600) whose path is written to the standard input of a waiting driver.

    ``graph`` is the resolved job graph document (`app.model.graphdoc.to_document`), ``parallelism`` maps vertex ids.
    ``slots`` is N of local[N]; on a cluster those that exist. ``held_slots`` are those that the job holds at first, and
    ``executors`` as many of one core, on a cluster (0: none, it runs on one host). ``executor_conf`` are settings of
    that cluster. ``results_dir`` is for results between regions (BATCH): an absolute path or a URI;
    ``ended_results`` are those of jobs that have ended, whose drivers may have left them. ``checkpoint_dir`` has one
    directory per query. ``master`` is a Spark master URL. The lock file of the driver is not here: the process was
    started with it, and it is free only once nothing of the process and its JVM lives. Times are milliseconds;
    ``repartition``: the state is to get the partitions that the graph says, before the queries are started.
    ``final_exceptions`` and ``recoverable_exceptions`` are names of classes (options of the job); ``local_failover``: a
    query that fails is held until the orders say what becomes of it, while the others go on.
    ``private``: directories in which no source and no sink may lie. ``working_dir``: that of the job. ``home``: the
    name of the server's data directory.
    ``batch_timeout_ms`` 0 means never, ``batch_interval_ms`` 0 that the next micro-batch starts as soon as there are
    data. ``batch_target_ms``: see `app.driver.intake`. ``rescale_max_wait_ms`` (0: for ever) and
    ``batch_interruptible`` (None: by the sink): see `app.driver.interruption`. ``spread_sources`` (None: by the sink):
    rows of a source may be spread, see `app.driver.valves.spreading`.
    ``available_now``: its queries end when they have read what is there. ``measure_load``: reports tell of load
    what costs something to read (docs/load.md). ``since_ms``: when the change began that
    the attempt is for, 0 if that is not known. ``on_trial``: the graph has the vertices of the version before, and each
    query of the program is compared with what that had, before its first batch. ``repartition_timeout_ms``: for how
    long the state of a query of a program may be redistributed when it is started.
    """

    job_id: str
    job_name: str
    attempt: int
    epoch: int
    secret: str
    address_file: str
    graph: dict[str, object]
    plan_version: int
    parallelism: dict[str, int]
    master: str
    slots: int
    held_slots: int
    checkpoint_dir: str
    work_dir: str
    artifacts_dir: str
    spark_conf: dict[str, str] = field(default_factory=dict)
    batch_timeout_ms: int = 0
    batch_interval_ms: int = 0
    batch_target_ms: int | None = None
    rescale_max_wait_ms: int = 0
    batch_interruptible: bool | None = None
    spread_sources: bool | None = None
    available_now: bool = False
    measure_load: bool = True
    executors: int = 0
    executor_conf: dict[str, str] = field(default_factory=dict)
    results_dir: str = ""
    repartition: bool = False
    ended_results: tuple[str, ...] = ()
    final_exceptions: tuple[str, ...] = ()
    recoverable_exceptions: tuple[str, ...] = ()
    local_failover: bool = False
    private: tuple[str, ...] = ()
    since_ms: int = 0
    home: str = ""
    working_dir: str = ""
    on_trial: bool = False
    repartition_timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class Registration:
    pid: int
    pid_started_at: float
    host: str
    spark_version: str
    spark_app_id: str
    ui_url: str = ""


@dataclass(frozen=True, slots=True)
class Orders:
    """What the driver should be doing: run at this plan, or stop in this way; of a BATCH job, run these regions.

    ``results``: the places of all results that count; whatever else lies beside them can go. None count once the job
    is to end.

    ``slots``: how many the job holds; on a cluster, how many executors it is to have. 0: as before.

    ``restarts``: per query (the id of its sink's vertex) that failed and is to be started again, the number of that
    failure within the attempt. A query whose last failure has a higher number is held.

    ``epoch`` is that of the control plane that answers. It may be newer than the driver's (the job was taken over):
    the driver then uses it from now on, and ignores orders of an older one.
    """

    plan_version: int
    parallelism: dict[str, int]
    stop: StopOrder = "none"
    epoch: int = 0
    regions: tuple[RegionOrder, ...] = ()
    results: tuple[str, ...] = ()
    slots: int = 0
    restarts: dict[str, int] = field(default_factory=dict)

    @property
    def restarts_text(self) -> str:
        """``restarts`` as the driver says what it knows of them: ``<vertex id>:<number>``, with commas between."""
        return ",".join(f"{query}:{number}" for query, number in sorted(self.restarts.items()))


@dataclass(frozen=True, slots=True)
class Report:
    """One thing that happened. ``type`` says which of the fields below are set.

    begun: the program, which has streaming queries, is about to run, and takes what time it wants until its first one;
    or it runs on in the process of the attempt before, and its queries were started again.
    analysed: Spark says that the vertices ``stateful`` of a document keep state, in so many partitions at first; before
    its first query is started. ``fixed``: why its driver can redistribute no state, as a clause.
    running: the queries of a document, or a BATCH program, were started.
    batch: one was committed, at a part of the plan on the way to it, or while state moves on a cluster, unless
    ``whole_plan``. ``not_followed``, of plan-applied and batch: as in events, by vertex id.
    plan-applied: ``interrupted`` has a sentence for each batch that was interrupted for the plan and ran again at it;
    its rows are among ``reprocessed_records``.
    failed: the attempt cannot go on; the driver exits after it is acknowledged (or gave up trying). Its
    ``plan_version`` is the newest one that a batch was begun with. ``outside``, ``by_cluster``, ``why``,
    ``user_error``, ``query_id``, ``batch_id``, ``by_files``: as in events.AttemptFailed.
    region-finished, region-failed: see events.RegionFinished and RegionFailed; ``source_bytes`` goes with running.
    query-started: the program has asked for the query of sink ``query``, which has the vertices ``planned`` and runs at
    ``parallelism`` (by vertex id); sent before its first batch, for each start that is the program's own. Vertices that
    the graph lacks are added to it. ``begins_anew``: as in events.QueryStarted. query-ended: it has ended while the
    attempt runs on, by itself or by the program.
    repartitioned: ``state_partitions`` is what the state of each query has, by its key; before running, or for each
    query that a program starts.
    failed with ``repartition_failed``: the state could not be redistributed and is as it was.
    region-progress: for people, about once a second: Spark tasks of a run that are done and that are known so far.
    query-failed: the query of sink ``query`` failed, the ``run``-th time in this attempt, and nothing of it is alive;
    it waits for `Orders.restarts`. The other fields are those of failed; ``batch_id``: its batch, -1 if unknown;
    ``longest_batch_ms``: how long the longest of its batches took in this attempt.
    query-recovered: since it was started again it has committed a batch, or has nothing to do; ``run_id`` is new.
    executors: how many ``executors`` the job has on a cluster, of ``executors_wanted``; sent when that has changed, and
    told with running, plan-applied and batch. -1: it runs in its driver. ``executors_why``: a sentence on those that
    have come and get no tasks; empty if there are none. Sent too, whatever the job runs on, when five seconds have
    passed without ``executor_loads``, which are told at most that often: here or with batch. ``idle_queries``: sinks of
    queries that have found nothing to do since their last batch, and have none under way; None: it is not told.
    ``long_batches``, told with these: all batches that take long.
    batch: ``watermark_ms`` is that of the event time of its query, None without one or before there is any;
    ``phases_ms``: how long each phase of it took, by Spark's names.
    stopped: a stop order was carried out. finished: every source is exhausted and every batch committed.
    """

    seq: int
    at_ms: int
    type: Literal[
        "begun",
        "analysed",
        "running",
        "query-started",
        "query-ended",
        "batch",
        "plan-applied",
        "failed",
        "stopped",
        "finished",
        "region-finished",
        "region-failed",
        "region-progress",
        "repartitioned",
        "query-failed",
        "query-recovered",
        "executors",
    ]
    plan_version: int = 0
    stateful: dict[str, int] = field(default_factory=dict)
    fixed: str | None = None
    whole_plan: bool = True
    query_id: str = ""
    run_id: str = ""
    batch_id: int = -1
    started_ms: int = 0
    input_rows: int = 0
    output_rows: int | None = None
    state_rows: int | None = None
    backlog_rows: int | None = None
    reprocessed: bool = False
    vertices: tuple[VertexBatch, ...] = ()
    output_gap_ms: int | None = None
    reprocessed_records: int | None = None
    interrupted: str = ""
    idle: bool = False
    """Of drivers of earlier builds; nobody reads it."""
    error: str | None = None
    stack: str | None = None
    vertex: str | None = None
    recoverable: bool = True
    drained: bool = False
    driver_alive: bool = False
    location: str | None = None
    source_bytes: dict[str, int] = field(default_factory=dict)
    region: int = -1
    run: int = 0
    results: tuple[Result, ...] = ()
    lost: tuple[str, ...] = ()
    outside: bool = False
    by_cluster: bool = False
    why: str = ""
    user_error: str | None = None
    by_files: bool = False
    query: str = ""
    planned: tuple[PlannedVertex, ...] = ()
    parallelism: dict[str, int] = field(default_factory=dict)
    begins_anew: bool = False
    tasks_done: int = 0
    tasks_total: int = 0
    state_partitions: dict[str, int] = field(default_factory=dict)
    repartition_failed: bool = False
    longest_batch_ms: int = 0
    executors: int = -1
    executors_wanted: int = -1
    executors_why: str = ""
    watermark_ms: int | None = None
    phases_ms: dict[str, int] = field(default_factory=dict)
    executor_loads: tuple[ExecutorLoad, ...] = ()
    idle_queries: tuple[str, ...] | None = None
    long_batches: tuple[LongBatch, ...] | None = None
    not_followed: dict[str, str] | str = field(default_factory=dict)
    """A text comes from a driver of an earlier build, adopted after an upgrade, and is passed over."""

    @property
    def missing_executors(self) -> int:
        return max(0, self.executors_wanted - self.executors)


WORKING_DIR = "home"
"""The name of the working directory that a job has of its own."""
OUTCOME_FILE = "outcome.json"
"""In the work directory of an attempt: the last word of its driver, for a control plane that was away."""


def outcome_document(report: Report) -> dict[str, object]:
    """What `OUTCOME_FILE` holds of the report that ended an attempt."""
    return asdict(report)


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Every report up to and including this number has been taken down, by the control plane of ``epoch``.

    A driver takes no word any more of one of an epoch before: what that one takes down, nobody goes by.
    """

    acknowledged: int
    epoch: int = 0
