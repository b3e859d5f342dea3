"""What a driver measures of batches and executors, and tells in its reports (`app.model.protocol`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

TOPICS_TOLD = 20
"""Of a source, however many topics it reads."""
BATCHES_TOLD = 100
"""Of those that take long, while they run."""

TASKS_TOLD = 2_000
"""Of all vertices of a query together: of a batch with more nothing is told by task."""

IntakeReason = Literal["", "no-admission-control", "own-limit", "keeps-time"]
"""Why the batches of a source are not kept short. Spark cannot tell it how much to give; its own options do; or the
size of batches decides which rows are late, and the job has not asked for it."""

KeptReason = Literal["", "sink", "once", "executors", "restarted"]
"""Why a batch is not interrupted for a plan. Its sink is not known to take a batch once; it was interrupted before;
executors are still to come for the plan; or its query was restarted alone, and has not committed a batch since."""


@dataclass(frozen=True, slots=True)
class TaskWork:
    """What each task of a vertex did in a batch, by its number: its run time, where vertices share a task split among
    them, and the records and bytes that it read and wrote. Empty: it is not known. Behind an exchange these are the
    rows that came through it, which may be fewer than the vertex is given: Spark combines rows of a key before.
    """

    busy_ms: tuple[int, ...] = ()
    records_in: tuple[int, ...] = ()
    records_out: tuple[int, ...] = ()
    bytes_in: tuple[int, ...] = ()
    bytes_out: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class VertexBatch:
    """One vertex in one batch. ``tasks`` is what Spark reports of its stage, None if it cannot be told apart.

    Any figure is None if it is not known. ``records_in`` of a source: what it has read from outside. ``busy_ms``: the
    run time of tasks, where vertices share a stage split among them. ``bytes_in``, ``bytes_out``: as Spark counts them,
    of files and of shuffles, compressed. ``longest_task_ms``, ``median_task_ms``: of the stage with most of the
    vertex' work. ``state_rows``, ``state_bytes``: of all its state after the batch. ``backlog_rows``: of a source, the
    records that waited there beyond the batch when Spark planned it. Of Kafka also by topic, of `TOPICS_TOLD` topics
    with most of them, and ``lag_max_rows``: of the partition with most. Of files ``backlog_files`` and
    ``backlog_bytes`` are those that no batch has read, and ``backlog_rows`` is an estimate. ``intake_limit``: the most
    ``intake_unit``, rows or files, that a source gives to the next batch, if Slotwise has set a limit; ``intake_why``:
    why not, where batches take longer than they should. ``spread_parts``: of a source whose rows were spread over the
    tasks behind it, in how many parts it has read them. ``by_task``: None if it is not known, or if the query has more
    than `TASKS_TOLD` tasks.
    """

    vertex_id: str
    parallelism: int
    tasks: int | None
    records_in: int | None = None
    records_out: int | None = None
    busy_ms: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    longest_task_ms: int | None = None
    median_task_ms: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    backlog_rows: int | None = None
    backlog_rows_by_topic: dict[str, int] = field(default_factory=dict)
    lag_max_rows: int | None = None
    backlog_files: int | None = None
    backlog_bytes: int | None = None
    intake_limit: int | None = None
    intake_unit: str = ""
    intake_why: IntakeReason = ""
    spread_parts: int | None = None
    by_task: TaskWork | None = None


@dataclass(frozen=True, slots=True)
class LongBatch:
    """A micro-batch that has run for more than some seconds, of ``query``, the id of its sink's vertex.

    ``ran_ms``: since it is with its sink; ``plan_version``: of the plan that it runs at. ``tasks_known`` are those of
    the Spark jobs that were begun, 0 if there is none or Spark does not tell. ``rows``: that it reads, None if its
    sources do not say. ``waited_ms``: for how long a plan has waited for its end, 0 if none does; ``kept``: why it
    would not be interrupted for that, options of the job apart.
    """

    query: str
    query_id: str
    run_id: str
    batch_id: int
    ran_ms: int
    plan_version: int
    tasks_done: int = 0
    tasks_known: int = 0
    rows: int | None = None
    waited_ms: int = 0
    kept: KeptReason = ""


@dataclass(frozen=True, slots=True)
class ExecutorLoad:
    """One executor, or the driver itself as ``driver``: where there is no cluster, its threads are the executor.

    ``gc_ms``, ``tasks_done``, ``tasks_failed`` and ``run_ms``, the run time of its tasks, are sums since it started.
    ``heap_used_bytes`` of the driver is that of the moment; of an executor it is the largest of the last ten seconds in
    which it had tasks, 0 before the first. ``disk_used_bytes``: of blocks that Spark keeps.
    """

    executor_id: str
    host: str
    heap_used_bytes: int
    heap_max_bytes: int
    gc_ms: int
    disk_used_bytes: int
    cores: int
    tasks_done: int
    tasks_failed: int
    run_ms: int
