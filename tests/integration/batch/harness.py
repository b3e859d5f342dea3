"""Regions of a batch job on a Spark of this process: the real core and the real driver code, with nothing between."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

from app.driver.batch.region import RegionDone, RegionRun
from app.driver.batch.results import is_modulo
from app.driver.batch.sources import Schemas
from app.driver.batch.storage import Storages
from app.driver.vertices import Functions
from app.model.batch import RegionOrder
from app.model.jobgraph import JobGraph
from app.scheduler.adaptive.events import AttemptRunning, RegionFinished
from app.scheduler.batch.orders import region_orders
from app.scheduler.batch.scheduling import is_complete
from tests.integration.listeners import await_listeners
from tests.outputs import rows_of
from tests.unit.batch.driving import BatchJob

ROWS = 4000
KEYS = [7 if number % 3 else number % 50 for number in range(ROWS)]
"""Column k of the table left: skewed, to 7."""

REMOTE = "viewfs://slotwise/results"
"""A file system of Hadoop that is not the local one; it mounts a directory of this host (`mount_table`)."""


def mount_table(directory: Path) -> dict[str, str]:
    """What Spark has to be told of `REMOTE`."""
    return {"spark.hadoop.fs.viewfs.mounttable.slotwise.link./results": f"file://{directory}"}


class Regions:
    """One job. ``done`` has what each region run said at its end, in order.

    Its results lie in its directory, or at ``results``.
    """

    def __init__(
        self,
        session: Any,
        graph: JobGraph,
        directory: Path,
        *,
        job_id: str,
        slots: int = 2,
        conf: dict[str, str] | None = None,
        results: str | None = None,
    ) -> None:
        self.session = session
        self.graph = graph
        self.directory = directory
        self.job_id = job_id
        self.conf = conf or {}
        self.job = BatchJob(graph, held=slots)
        self.done: list[RegionDone] = []
        self._inbox: queue.SimpleQueue[RegionDone] = queue.SimpleQueue()
        self._started: set[tuple[int, int]] = set()
        self.storages = Storages(session)
        self.results = results or str(directory / "results")
        self._schemas = Schemas(session, self.conf, graph)

    def run(self, source_bytes: dict[str, int] | None = None) -> None:
        """Until every region is finished."""
        self.begin(source_bytes)
        while not is_complete(self.job.state):
            self.step()

    def begin(self, source_bytes: dict[str, int] | None = None) -> None:
        self.job.do(AttemptRunning(1, tuple((source_bytes or {}).items())))

    def step(self) -> RegionDone:
        """Start what can be started, and wait for one region to end well."""
        for order in region_orders(self.job.state):
            if (order.region, order.run) not in self._started:
                self._started.add((order.region, order.run))
                self.region_run(order).start()
        ended = self._inbox.get(timeout=120)
        self.done.append(ended)
        assert ended.failure is None, ended.failure.stack
        self.job.do(RegionFinished(1, ended.order.region, ended.order.run, ended.results))
        return ended

    def alone(self, order: RegionOrder) -> RegionDone:
        """What a run of ``order`` says at its end; the job does not hear of it."""
        self.region_run(order).start()
        return self._inbox.get(timeout=120)

    def region_run(self, order: RegionOrder) -> RegionRun:
        return RegionRun(
            order,
            graph=self.graph,
            session=self.session,
            conf=self.conf,
            functions=Functions(self.directory, ()),
            schemas=self._schemas,
            job_id=self.job_id,
            storages=self.storages,
            results_dir=self.results,
            work_dir=self.directory / "work",
            epoch=lambda: 1,
            may_commit=lambda: None,
            tell=self._inbox.put,
        )


def document(
    tables: Path, out: Path, vertices: tuple[tuple[str, list[str], str], ...], config: dict[str, str]
) -> dict[str, Any]:
    """The sources ``left`` and ``right``, then ``vertices`` as (name, inputs, SQL), then a Parquet sink."""
    graph: list[dict[str, Any]] = [
        {"name": name, "source": {"format": "parquet", "path": str(tables / f"{name}.parquet")}}
        for name in ("left", "right")
        if any(name in [_name(one) for one in inputs] for _, inputs, _ in vertices)
    ]
    graph += [
        {"name": name, "inputs": [_edge(one) for one in inputs], "sql": sql} for name, inputs, sql in vertices
    ]
    sink = {"format": "parquet", "path": str(out)}
    graph.append({"name": "store", "inputs": [vertices[-1][0]], "sink": sink})
    for vertex in graph:
        vertex["parallelism"] = 8
    return {"name": "job", "type": "BATCH", "config": config, "vertices": graph}


def _name(text: str) -> str:
    return text.partition("[")[0]


def _edge(text: str) -> dict[str, Any]:
    name, bracket, key = text.rstrip("]").partition("[")
    return {"vertex": name, "keys": [key], "exchange": "BLOCKING"} if bracket else {"vertex": name}


def written(job: Regions) -> list[tuple[Any, ...]]:
    """The rows that the job's sink has, sorted."""
    return sorted(tuple(row.values()) for row in rows_of(job.directory / "out"))


def free_reads(job: Regions) -> bool:
    """Whether a region has read buckets that Spark would not look for there."""
    return any(read.groups and not is_modulo(read.groups) for done in job.done for read in done.order.reads)


def shuffled_bytes(session: Any) -> int:
    """How much Spark has written for shuffles since it was started."""
    return sum(int(stage.shuffleWriteBytes()) for stage in stages(session))


def stages(session: Any) -> list[Any]:
    """All stages since Spark was started, latest first."""
    context = session.sparkContext
    await_listeners(context)
    quantiles = context._gateway.new_array(context._jvm.double, 0)
    store = context._jsc.sc().statusStore()
    found = store.stageList(None, False, False, quantiles, context._jvm.java.util.ArrayList())
    return [found.apply(index) for index in range(found.size())]
