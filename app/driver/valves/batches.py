"""The batches of a query, as Spark ran them, compared with their plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from app.driver.failures import Failure
from app.driver.gateway import BatchRun
from app.driver.load import SparkFigures, Stage
from app.driver.progress import SourceTold, StateTold, measured
from app.driver.valves.operators import python_functions
from app.driver.valves.query_valves import Rows, Valves
from app.driver.valves.spreading import SourceRun, Spreader, source_run
from app.driver.valves.stages import Told, vertex_batches
from app.model.analysis import Query
from app.model.measured import VertexBatch

Faults = Mapping[str, str]
"""A sentence on each vertex that has other tasks in a batch than its plan says, or whose valve was removed, by its
id."""


class BatchReader:
    """Reads the batches of one run of a query, in the thread of its attempt."""

    def __init__(
        self, query: Query, valves: Valves, figures: SparkFigures, run_id: str, *, may_spread: bool = False
    ) -> None:
        self._query = query
        self._valves = valves
        self._figures = figures
        self._run_id = run_id
        self._spreader = Spreader() if may_spread else None
        self._judged = 0
        self._faults: Faults = {}
        self._before: Faults = {}

    def vertices(
        self,
        run: BatchRun,
        input_rows: int,
        sources: Sequence[SourceTold] = (),
        states: Sequence[StateTold] = (),
    ) -> tuple[VertexBatch, ...]:
        """What Spark says of each vertex in a batch of ``input_rows`` rows. ``sources`` and ``states``: what it has
        told of them, in the order of its plan."""
        rows, removed = self._valves.read(run.planned)
        stages = self._figures.stages(self._run_id, run.batch_id)
        named = self._valves.sources
        told = Told(
            # Once the stages are there: then what their operators have counted is, too.
            operators=self._figures.operators(run.planned, rows.values()),
            sources=dict(zip(named, sources, strict=True)) if len(named) == len(sources) else {},
            states=states,
            changing=self._valves.changing,
        )
        found = vertex_batches(
            self._query,
            run.plan.parallelism,
            rows.values(),
            stages,
            input_rows=input_rows,
            output_rows=run.output_rows,
            told=told,
        )
        # A batch without rows lacks valves that the plan has, and one that Spark has left behind tells of none.
        if input_rows > 0 and run.planned is not None and run.plan.whole:
            self._judged = run.plan.number
            self._before = self._faults
            self._faults = faults(self._query, run.plan.parallelism, rows, removed, found)
            work = partial(self._spread, run.plan.parallelism, rows, stages, found)
            found = measured("the parts of sources", work, found)
        return found

    def _spread(
        self,
        numbers: Mapping[str, int],
        rows: Mapping[str, Rows],
        stages: Sequence[Stage],
        found: tuple[VertexBatch, ...],
    ) -> tuple[VertexBatch, ...]:
        """Decide whose rows are spread from now on. ``found`` with the parts of the sources whose rows were."""
        if self._spreader is None:
            return found
        given = {each.vertex_id: each.records_in or 0 for each in found}
        runs: dict[str, SourceRun] = {}
        sources = {each.id for each in self._query.streams}
        read = {each.rdd_id for each in rows.values() if each.vertex_id in sources and not each.is_front}
        for source_id, (own, front) in self._valves.spread_at(numbers).items():
            if own in rows and front in rows:
                others = read - {rows[own].rdd_id}
                known = {"parallelism": numbers[source_id], "rows": given[source_id]}
                if (made := source_run(rows[own], rows[front], stages, others, **known)) is not None:
                    runs[source_id] = made
        self._valves.spread(self._spreader.note(runs))
        parts = {key: one.parts for key, one in runs.items() if one.is_spread and one.lacks_parts}
        return tuple(replace(each, spread_parts=parts.get(each.vertex_id)) for each in found)

    def with_functions(self, crash: Failure) -> Failure:
        """With the Python functions that the batch ran. Nothing tells which of them a worker was in."""
        plan = measured("a plan", lambda: str(self._valves.planned().executedPlan().toString()), "")
        ran = " or ".join(python_functions(plan)) or "Python"
        where = f"It crashed in batch {crash.batch_id} of sink {self._query.sink.name}, in {ran}."
        return replace(crash, sentence=f"{crash.sentence} {where}", user_error=f"{crash.user_error} in {ran}")

    def not_followed(self, number: int) -> Faults:
        """The faults of the latest batch that was judged, if it ran at the plan with this number."""
        return self._faults if self._judged == number else {}

    @property
    def stays_unfollowed(self) -> Faults:
        """The faults of the latest batch in vertices that had one in the batch before too: one alone says little."""
        return {key: why for key, why in self._faults.items() if key in self._before}


def faults(
    query: Query,
    parallelism: Mapping[str, int],
    rows: Mapping[str, Rows],
    removed: Sequence[str],
    found: tuple[VertexBatch, ...],
) -> Faults:
    """What is wrong in a batch at these numbers.

    Fewer tasks are no fault where a valve only brings partitions together: a source may have fewer splits. Nor are they
    where the job reduces the tasks of a stage by itself, so what counts then is the valve.
    """
    tasks = {
        each.vertex_id: each.tasks
        for each in found
        if each.tasks is not None and each.tasks > each.parallelism
    }
    for valve in rows.values():
        number = parallelism[valve.vertex_id]
        if valve.partitions > number or (valve.shuffles and valve.partitions < number):
            tasks[valve.vertex_id] = valve.partitions
    names = {vertex.id: vertex.name for vertex in query.flow}
    other = {
        vertex_id: f"Vertex {names[vertex_id]} runs as {number} task(s) instead of {parallelism[vertex_id]}, "
        "which its valve says."
        for vertex_id, number in tasks.items()
    }
    gone = {
        vertex_id: f"Vertex {names[vertex_id]} does not run as {parallelism[vertex_id]} task(s): "
        "Spark has removed its valve from the plan."
        for vertex_id in removed
    }
    return {**other, **gone}
