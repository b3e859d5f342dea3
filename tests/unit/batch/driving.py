"""A batch job under test: feeds events to the core, and stands in for its driver."""

from __future__ import annotations

from dataclasses import replace

from app.documents.graph import parse_document
from app.model import ids
from app.model.batch import RegionOrder, Result
from app.model.job_state.batch import Decision
from app.model.jobgraph import JobGraph
from app.model.options import JobOptions
from app.model.plan import Slot
from app.model.requirements import Bounds, Requirements
from app.model.rescale import RescaleRecord
from app.scheduler.adaptive.effects import Effect
from app.scheduler.adaptive.events import (
    AttemptRunning,
    Event,
    RegionFailed,
    RegionFinished,
    RequirementsUpdated,
    SlotsChanged,
    StartScheduling,
    TimerFired,
)
from app.scheduler.adaptive.journal import Told, facts_of
from app.scheduler.adaptive.state import JobState
from app.scheduler.batch.orders import region_orders
from app.scheduler.step import initial_state, step
from tests.invariants import validate

MB = 1024 * 1024
T0_MS = 1_700_000_000_000


def slots(count: int) -> tuple[Slot, ...]:
    return tuple(Slot(f"host-{index}", "host") for index in range(count))


def chain(*, rule: str = "flip-187", **bounds: tuple[int, int]) -> JobGraph:
    """customers and orders, joined by their key, then a sum, then a sink: each edge a result but the last."""

    def vertex(name: str, **more: object) -> dict[str, object]:
        lower, upper = bounds.get(name, (1, 16))
        return {"name": name, "lowerBound": lower, "parallelism": upper, **more}

    def blocking(name: str, *keys: str, partitioner: str = "HASH") -> dict[str, object]:
        edge: dict[str, object] = {"vertex": name, "partitioner": partitioner, "exchange": "BLOCKING"}
        return {**edge, "keys": list(keys)} if keys else edge

    return parse_document(
        {
            "name": "blog",
            "type": "BATCH",
            "config": {"slotwise.batch.parallelism-decider": rule},
            "vertices": [
                vertex("customers", source={"format": "parquet", "path": "/c"}),
                vertex("orders", source={"format": "parquet", "path": "/o"}),
                vertex(
                    "joined",
                    inputs=[blocking("customers", "k"), blocking("orders", "k")],
                    sql="SELECT * FROM customers JOIN orders USING (k)",
                ),
                vertex(
                    "total", inputs=[blocking("joined", "d")], sql="SELECT d, sum(x) FROM joined GROUP BY d"
                ),
                vertex("store", inputs=["total"], sink={"format": "noop"}),
            ],
        }
    )


class BatchJob:
    """``orders`` is what the driver of the job should be running."""

    def __init__(self, graph: JobGraph, held: int = 4) -> None:
        options, errors = JobOptions.from_config(graph.config)
        assert not errors
        bounds = tuple((one.id, Bounds(one.lower_bound, one.parallelism)) for one in graph.vertices)
        self.graph = graph
        self.now_ms = T0_MS
        self.effects: tuple[Effect, ...] = ()
        # What the last step has told, and the records that it has ended.
        self.told: tuple[Told, ...] = ()
        self.closed: list[RescaleRecord] = []
        self.state: JobState = initial_state(
            ids.derive_id("job", "batch"),
            graph,
            options,
            Requirements(ids.derive_id("requirements", "1"), 1, bounds),
            T0_MS,
        )
        self.do(StartScheduling()).do(SlotsChanged(slots(held)))

    def do(self, event: Event, after_ms: int = 10) -> BatchJob:
        self.now_ms += after_ms
        self.state, self.effects, self.told = step(self.state, event, self.now_ms)
        validate(self.state, self.told)
        self.closed = [one for one in facts_of(RescaleRecord, self.told) if not one.is_open]
        return self

    @property
    def kind(self) -> str:
        return self.state.phase.kind

    @property
    def orders(self) -> dict[str, RegionOrder]:
        """By the names of the vertices of the region."""
        return {
            "+".join(self.name(one) for one in order.parallelism): order
            for order in region_orders(self.state)
        }

    def name(self, vertex_id: str) -> str:
        return self.graph.by_id[vertex_id].name

    def decision(self, name: str) -> Decision:
        """The latest one for a vertex."""
        assert self.state.batch is not None
        found = self.state.batch.decision(self.graph.by_name[name].id)
        assert found is not None
        return found

    def before_and_after(self) -> dict[str, tuple[int | None, int | None]]:
        """What the open record says of the vertices, or the one that the last step ended."""
        record = self.state.timeline.open or self.closed[-1]
        return {self.name(one.vertex_id): (one.pre, one.post) for one in record.vertices}

    def run(self, **source_bytes: int) -> BatchJob:
        sizes = tuple((self.graph.by_name[name].id, size) for name, size in source_bytes.items())
        return self.do(AttemptRunning(self.state.attempt, sizes))

    def finish(self, name: str, *bytes_of: int) -> BatchJob:
        """The region ``name`` is done. Each of its datasets has these bytes per subpartition, or 1 MB in each."""
        order = self.orders[name]
        results = []
        for output in order.outputs:
            parts = bytes_of or (MB,) * max(1, output.subpartitions)
            assert not output.subpartitions or len(parts) == output.subpartitions, output
            path = f"/results/{output.dataset}/{order.run}"
            results.append(Result(output.dataset, order.run, path, "0" * 64, parts, (1,) * len(parts)))
        return self.do(RegionFinished(self.state.attempt, order.region, order.run, tuple(results)))

    def fail(self, name: str, *lost: str, recoverable: bool = True) -> BatchJob:
        """The region ``name`` failed; the results of the vertices ``lost`` are not there any more."""
        order = self.orders[name]
        gone = tuple(one.result.dataset for one in order.reads if self.name(one.producer) in lost)
        return self.do(
            RegionFailed(
                self.state.attempt, order.region, order.run, "boom", recoverable=recoverable, lost=gone
            )
        )

    def put(self, **wanted: tuple[int, int]) -> BatchJob:
        before = self.state.requirements
        bounds = {
            **before.as_dict(),
            **{self.graph.by_name[name].id: Bounds(*own) for name, own in wanted.items()},
        }
        number = before.version + 1
        return self.do(
            RequirementsUpdated(
                replace(
                    before,
                    uuid=ids.derive_id("requirements", str(number)),
                    version=number,
                    bounds=tuple(bounds.items()),
                )
            )
        )

    def wait(self) -> BatchJob:
        """Until the next timer of the job is due."""
        timer = min(self.state.timers, key=lambda one: one.at_ms)
        return self.do(TimerFired(timer.name, timer.version), after_ms=max(0, timer.at_ms - self.now_ms))


def running(**options: object) -> BatchJob:
    """A job of `chain` whose sources run: customers has 3 MB, orders 100."""
    return BatchJob(chain(**options)).run(customers=3 * MB, orders=100 * MB)  # type: ignore[arg-type]
