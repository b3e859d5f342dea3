"""Drivers for contract tests, which keep the driver protocol over the REST API and run no Spark.

Each plays its part as the real one does: it registers, polls its orders, commits micro-batches, takes over a new plan
between two of them, and stops when it is told to. So what the API answers comes from the real core.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from app.cluster.ports import DriverLaunchError, DriverRef
from app.model.graphdoc import read_graph
from app.model.graphdoc_program import grown
from app.model.jobgraph import JobGraph, JobType, JobVertex, SqlSpec
from app.model.planned import PlannedVertex
from app.model.state_partitions import partitions_of_queries
from app.model.statefulness import analysed

UNAVAILABLE = 503
BATCH_INTERVAL_S = 0.01
POLL_MS = 2_000

Query = tuple[PlannedVertex, ...]
Queries = tuple[Query, ...]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(eq=False)
class ProtocolDriver:
    """One driver: a `DriverHandle`. ``app`` is read anew for each call, as the real one reads its address file."""

    ref: DriverRef
    app: Callable[[], ASGIApp]
    pause: asyncio.Event
    plan_version: int = 0
    parallelism: dict[str, int] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    batch_id: int = -1
    regions_left: int = 1_000
    refuse_repartition: Callable[[], str | None] = lambda: None
    fixed: str | None = None
    executors: dict[str, int] = field(default_factory=dict)
    queries: Queries = ()
    ui_url: str = ""
    alive: bool = True
    # What it says of its load: fields of a batch report, and of each vertex in it.
    load: dict[str, Any] = field(default_factory=dict)
    vertex_load: dict[str, Any] = field(default_factory=dict)
    batch_ms: int = 5

    def __post_init__(self) -> None:
        self._gone = asyncio.Event()
        self._callbacks: list[Callable[[int | None], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._seq = 0
        self._reporting = asyncio.Lock()
        self._failure: dict[str, Any] | None = None
        # Of a program with streaming queries: its graph, with those that it has started.
        self._graph: JobGraph | None = None
        self.has_begun = self._is_started = False

    async def assign(self, spec_file: Path) -> None:
        if not self.alive:
            raise DriverLaunchError("The driver died before it could take the assignment.")
        self.spec = json.loads(await asyncio.to_thread(spec_file.read_text))
        self._seq = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def kill(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._end(-9)

    async def gone(self) -> None:
        await self._gone.wait()

    def on_exit(self, callback: Callable[[int | None], None]) -> None:
        self._callbacks.append(callback)

    def fail(self, error: str, **fields: Any) -> None:
        """Let the next batch fail, as a function of the user's that raises does."""
        self._failure = {"type": "failed", "error": error, **fields}

    def die(self, status: int) -> None:
        """End as a crashed process does: without a word."""
        if self._task is not None:
            self._task.cancel()
        self._end(status)

    def _end(self, status: int) -> None:
        if self.alive:
            self.alive = False
            self._gone.set()
            for callback in self._callbacks:
                callback(status)

    async def progress(self, region: int, run: int, done: int, known: int) -> None:
        """Report how far a run is, while the driver is held."""
        async with self._calls() as (http, base):
            fields = {"region": region, "run": run, "tasks_done": done, "tasks_total": known}
            await self._report(http, base, type="region-progress", **fields)

    async def tell(self, **report: Any) -> None:
        """Report something of a test's own."""
        async with self._calls() as (http, base):
            await self._report(http, base, **report)

    async def tell_executors(self) -> None:
        async with self._calls() as (http, base):
            await self._report(http, base, type="executors", **self.executors)

    async def start(self, vertices: Query, at: int | None = None) -> None:
        """Start a query of the program, its vertices at ``at`` at most."""
        assert self._graph is not None
        self._graph, names = grown(self._graph, vertices), {vertex.name for vertex in vertices}
        own = [vertex for vertex in self._graph.vertices if vertex.name in names]
        most = at or max(self.parallelism.values())
        parallelism = {vertex.id: min(vertex.parallelism, most) for vertex in own}
        planned = [dataclasses.asdict(vertex) for vertex in vertices]
        await self.tell(type="query-started", query=own[-1].id, planned=planned, parallelism=parallelism)
        self.parallelism = self._known({**parallelism, **self.parallelism})
        self._is_started = True

    def _known(self, parallelism: dict[str, int]) -> dict[str, int]:
        """What is said of vertices that there are: what stood for a program without a query is gone."""
        known = self._graph and self._graph.by_id
        return {vertex: number for vertex, number in parallelism.items() if known is None or vertex in known}

    # -- the protocol

    @contextlib.asynccontextmanager
    async def _calls(self) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
        spec = self.spec
        base = f"http://localhost/internal/v1/jobs/{spec['job_id']}/attempts/{spec['attempt']}"
        headers = {"Authorization": f"Bearer {spec['secret']}", "X-Slotwise-Epoch": str(spec["epoch"])}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(_Late(self.app)), headers=headers) as http:
            yield http, base

    async def _run(self) -> None:
        async with self._calls() as (http, base):
            registration = _registration(self.ref) | {"ui_url": self.ui_url}
            orders = await _ask(http, "POST", f"{base}/register", json=registration)
            self.plan_version, self.parallelism = orders["plan_version"], orders["parallelism"]
            await self._begin_program(http, base)
            graph = read_graph(self.spec["graph"])
            if graph.program is None and graph.type is JobType.STREAMING:
                graph = analysed(graph, {one.id for one in graph.vertices if self.keeps_state(one)})
                stateful = {one.id: one.max_parallelism for one in graph.vertices if one.stateful}
                await self._report(http, base, type="analysed", stateful=stateful, fixed=self.fixed)
            if self.spec["repartition"]:
                if (error := self.refuse_repartition()) is not None:
                    await self._report(http, base, type="failed", error=error, repartition_failed=True)
                    self._end(4)
                    return
                found = partitions_of_queries(graph)
                await self._report(http, base, type="repartitioned", state_partitions=found)
            if self._graph is None:
                await self._report(http, base, type="running", plan_version=self.plan_version)
            if self.spec["graph"]["type"] == "BATCH":
                await self._run_regions(http, base)
                return
            polling = asyncio.create_task(self._poll(http, base))
            try:
                while True:
                    await self.pause.wait()
                    if polling.done():
                        orders = polling.result()
                        if orders["stop"] != "none":
                            await self._stop(http, base, orders["stop"])
                            return
                        await self._take_over(http, base, orders)
                        polling = asyncio.create_task(self._poll(http, base))
                    if self._failure is not None:
                        await self._report(http, base, plan_version=self.plan_version, **self._failure)
                        self._end(1)
                        return
                    if self._is_started:
                        await self._batch(http, base)
                    if self.batch_id == 0 and self._is_started:
                        await self._say_applied(http, base)
                    await asyncio.sleep(BATCH_INTERVAL_S)
            finally:
                polling.cancel()

    @staticmethod
    def keeps_state(vertex: JobVertex) -> bool:
        """What Spark would say."""
        return isinstance(vertex.operation, SqlSpec) and "GROUP BY" in vertex.operation.text

    async def _begin_program(self, http: httpx.AsyncClient, base: str) -> None:
        """If the job is a program with streaming queries, start those."""
        graph = read_graph(self.spec["graph"])
        if graph.program is None or graph.type is JobType.BATCH:
            self._is_started = True
            return
        self._graph = graph
        await self._report(http, base, type="begun")
        self.has_begun = True
        for query in () if self._failure else self.queries:
            await self.start(query)

    async def _run_regions(self, http: httpx.AsyncClient, base: str) -> None:
        """What `app.driver.batch` does: a region that the orders name ends at once, with some results, and after
        ``regions_left`` of them none ends any more."""
        done: set[tuple[int, int]] = set()
        while True:
            orders = await self._poll(http, base)
            self.plan_version = orders["plan_version"]
            await self.pause.wait()
            if orders["stop"] == "drain":
                await self._report(http, base, type="finished")
                self._end(0)
            if orders["stop"] != "none":
                return
            for order in orders["regions"]:
                key = (order["region"], order["run"])
                if key not in done and self.regions_left:
                    self.regions_left -= 1
                    done.add(key)
                    results = [_result(output, order["run"]) for output in order["outputs"]]
                    fields = {"region": key[0], "run": key[1], "results": results}
                    await self._report(http, base, type="region-finished", **fields)

    async def _poll(self, http: httpx.AsyncClient, base: str) -> dict[str, Any]:
        while True:
            params = {"plan": self.plan_version, "stop": "none", "wait_ms": POLL_MS}
            answer = await _ask(http, "GET", f"{base}/orders", params=params, timeout=POLL_MS)
            if answer["stop"] != "none" or answer["plan_version"] > self.plan_version:
                return dict(answer)

    async def _take_over(self, http: httpx.AsyncClient, base: str, orders: dict[str, Any]) -> None:
        self.plan_version = orders["plan_version"]
        self.parallelism = {**self.parallelism, **self._known(orders["parallelism"])}
        if not self._is_started:
            return
        # In the order of a real driver, which may send both in one request or in two.
        began_ms = now_ms()
        await self._say_applied(http, base)
        await self._batch(http, base, began_ms)

    async def _say_applied(self, http: httpx.AsyncClient, base: str) -> None:
        await self._report(
            http,
            base,
            type="plan-applied",
            plan_version=self.plan_version,
            output_gap_ms=3,
            reprocessed_records=0,
        )

    async def _batch(self, http: httpx.AsyncClient, base: str, began_ms: int | None = None) -> None:
        self.batch_id += 1
        vertices = [
            {
                "vertex_id": vertex,
                "parallelism": value,
                "tasks": value,
                "records_in": 10,
                "records_out": 10,
                "busy_ms": 2,
                # All rows have one key.
                "by_task": {"busy_ms": [2, *[0] * (value - 1)], "records_in": [10, *[0] * (value - 1)]},
                **self.vertex_load,
            }
            for vertex, value in self.parallelism.items()
        ]
        await self._report(
            http,
            base,
            type="batch",
            plan_version=self.plan_version,
            query_id="query",
            run_id="run",
            batch_id=self.batch_id,
            started_ms=now_ms() - self.batch_ms if began_ms is None else began_ms,
            output_rows=10,
            **{"input_rows": 10, "backlog_rows": 0, **self.load},
            vertices=vertices,
        )

    async def _stop(self, http: httpx.AsyncClient, base: str, how: str) -> None:
        if how == "kill":
            return
        stays = how == "boundary"
        await self._report(
            http,
            base,
            type="stopped",
            drained=how == "drain",
            driver_alive=stays,
            location=self.spec["checkpoint_dir"],
        )
        if not stays:
            self._end(0)

    async def _report(self, http: httpx.AsyncClient, base: str, **fields: Any) -> None:
        # One after another, as a driver delivers them: a test may have it report something beside its own.
        async with self._reporting:
            self._seq += 1
            report = {"seq": self._seq, "at_ms": now_ms(), **fields}
            if fields["type"] in ("running", "plan-applied", "batch"):
                report |= self.executors
            answer = await _ask(http, "POST", f"{base}/reports", json={"reports": [report]})
            assert answer["acknowledged"] == self._seq


async def _ask(http: httpx.AsyncClient, method: str, url: str, **request: Any) -> dict[str, Any]:
    """As the protocol has it: what a server that stops, or whose store is busy, does not take is asked again."""
    while (answer := await http.request(method, url, **request)).status_code == UNAVAILABLE:
        await asyncio.sleep(BATCH_INTERVAL_S)
    return dict(answer.raise_for_status().json())


class _Late:
    """The application that there is when a request is made."""

    def __init__(self, app: Callable[[], ASGIApp]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app()(scope, receive, send)


def _result(output: dict[str, Any], run: int) -> dict[str, Any]:
    parts = output["subpartitions"] or 1
    return {
        "dataset": output["dataset"],
        "run": run,
        "path": f"/results/{output['dataset']}/{run}",
        "manifest_sha256": "0" * 64,
        "bytes_of": [1024 * 1024] * parts,
        "rows_of": [10] * parts,
    }


def _registration(ref: DriverRef) -> dict[str, Any]:
    return {
        "pid": ref.pid,
        "pid_started_at": ref.pid_started_at,
        "host": "localhost",
        "spark_version": "4.3.0",
        "spark_app_id": "local-1",
    }
