"""What must hold of graphs that grow: they have what their drivers told of, and nothing else (docs/programs.md).

What the graph of a job has to be is worked out from the reports of its drivers, one after another, as they were sent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from app.model.graphdoc import parse_document
from app.model.jobgraph import JobGraph
from app.model.plan import Plan
from app.model.requirements import Bounds, Requirements
from app.scheduler.adaptive.state import Executing, JobState
from app.store.writes import AddVersion, CreateJob, SetGraph, UnitOfWork
from tests.simulation.growing import Program
from tests.simulation.programs import ENDED_KEPT, STATELESS_UPPER, ProgramQuery, queries_of

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.process import SimAttempt

REASON = "The program has started a query with "
"""What the reason of requirements begins with that have vertices which came."""
_LISTENS = ("CreatingExecutionGraph", "Executing", "Rescaling", "StopWithSavepoint")


@dataclass(frozen=True)
class Told:
    """A report of a driver that a query was started or has ended."""

    attempt: int
    seq: int
    query: ProgramQuery
    started: bool


@dataclass(frozen=True)
class Graph:
    """``vertices``: ids. ``ended``: keys of queries, in the order in which they have ended. ``order``: all keys.
    ``started``: those that ``attempt`` has started; the others that have not ended are absent."""

    vertices: frozenset[str]
    ended: tuple[str, ...]
    order: tuple[str, ...] = field(default=(), compare=False)
    started: tuple[str, ...] = field(default=(), compare=False)
    attempt: int = field(default=0, compare=False)

    @classmethod
    def of(cls, graph: JobGraph, started: tuple[str, ...] = (), attempt: int = 0) -> Graph:
        order = tuple(vertex.id for vertex in graph.vertices if vertex.is_sink)
        return cls(frozenset(vertex.id for vertex in graph.vertices), graph.ended, order, started, attempt)

    def after(self, told: Told) -> Graph:
        """What it is when that report is taken down."""
        query = told.query
        ended = tuple(key for key in self.ended if key != query.key)
        if not told.started:
            ended = (*ended, query.key) if query.key in self.vertices else ended
            return replace(self, ended=ended)
        before = self.started if told.attempt == self.attempt else ()
        started = (*(key for key in before if key != query.key), query.key)
        new = self.vertices | set(query.ids.values())
        if new == self.vertices:
            return replace(self, ended=ended, started=started, attempt=told.attempt)
        absent = tuple(key for key in self.order if key not in started and key not in self.ended)
        gone = (*absent, *ended)[:-ENDED_KEPT]
        left = {vertex for one in queries_of(query.job) if one.key in gone for vertex in one.ids.values()}
        order = (*(key for key in self.order if key not in gone), query.key)
        kept = tuple(key for key in ended if key not in gone)
        return Graph(new - left, kept, order, started, told.attempt)

    def after_all(self, told: Sequence[Told]) -> Graph:
        found = self
        for one in told:
            found = found.after(one)
        return found


class Growth:
    """See the module. ``_open``: reports that may not have been taken down yet, in order."""

    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        self._graphs: dict[str, Graph] = {}
        self._open: dict[str, list[Told]] = {}
        self._documents: dict[str, dict[int, Graph]] = {}
        self._forgotten: dict[str, frozenset[str]] = {}
        # What was declared for vertices that have left, the last one last.
        self._left: dict[str, dict[str, list[Bounds]]] = {}
        self._replaced: set[str] = set()

    def committed(self, unit: UnitOfWork, state: JobState | None) -> None:
        """``unit`` became durable, and so did ``state``: whoever takes the job up has the graph that it is of."""
        if state is None or state.graph.program is None:
            return
        stored = self._documents.setdefault(unit.job_id, {})
        for write in unit.writes:
            if isinstance(write, CreateJob | AddVersion | SetGraph):
                number = 1 if isinstance(write, CreateJob) else write.number
                stored[number] = Graph.of(parse_document(json.loads(write.document), stored=True))
        found = stored[state.versions.current]
        self._check(
            found == Graph.of(state.graph),
            f"job {unit.job_id[-2:]} has {Graph.of(state.graph)}, and {found} is stored of it",
        )

    def told(self, attempt: SimAttempt, query: ProgramQuery, *, started: bool) -> None:
        """A driver reports it."""
        self._open.setdefault(attempt.job_id, []).append(Told(attempt.number, attempt.seq, query, started))

    def acknowledged(self, attempt: SimAttempt, number: int) -> None:
        """Reports up to ``number`` were acknowledged, so what follows from them is durable."""
        sent = self._open.get(attempt.job_id, [])
        mine = [one for one in sent if one.attempt == attempt.number]
        taken = [one for one in mine if one.seq <= number]
        state, known = self._oracles.truth(attempt.job_id).state, self._graphs.get(attempt.job_id)
        if state is None or known is None:
            return
        done = len(taken)
        if taken and state.attempt == attempt.number and state.phase.kind in _LISTENS:
            self._oracles.count("growth acknowledged")
            # More than was acknowledged may be durable.
            fits = [n for n in range(done, len(mine) + 1) if known.after_all(mine[:n]) == known]
            self._check(bool(fits), f"{attempt} was acknowledged {taken}, and {known} is durable")
            done = fits[0] if fits else done
        self._open[attempt.job_id] = [one for one in sent if one not in mine[:done]]
        if done == len(mine):
            self._runs_as_planned(attempt, state)

    def _runs_as_planned(self, attempt: SimAttempt, state: JobState) -> None:
        """All that the driver told is known, so it and its job know of one parallelism of each query that runs."""
        if not isinstance(state.phase, Executing) or state.plan is None or state.attempt != attempt.number:
            return
        if attempt.plan.plan_version == state.plan.version and not attempt.stop:
            planned = dict(state.plan.parallelism)
            runs = self.in_force(attempt, planned)
            # Vertices with state have no more tasks than partitions, whatever the plan says.
            runs = {one: min(count, state.graph.by_id[one].max_parallelism) for one, count in runs.items()}
            self._oracles.count("compared with its plan")
            self._check(runs == planned, f"{attempt} runs at {runs}, and its plan is {planned}")

    def saved(self, job_id: str, before: JobState | None, state: JobState) -> None:
        """A state became durable."""
        if state.graph.program is None:
            return
        now = Graph.of(state.graph, state.started, state.attempt)
        known = self._graphs.get(job_id)
        self._graphs[job_id] = now
        what = f"job {job_id[-2:]}"
        if before is None or known is None:
            pass
        elif before.versions.current != state.versions.current:
            self._replaced.add(job_id)
        elif now != known:
            gone = known.vertices - now.vertices
            self._forgotten[job_id] = self._forgotten.get(job_id, frozenset()) | gone
            if len(now.vertices) > len(known.vertices):
                trial = "with a trial" if state.watch or state.taken_back else state.phase.kind
                self._oracles.count(f"grown, {trial}")
            if gone:
                self._oracles.count("grown, forgotten")
                declared = before.requirements.as_dict()
                for vertex in gone & declared.keys():
                    past = self._left.setdefault(job_id, {}).setdefault(vertex, [])
                    past.append(declared[vertex])
            self._follows(job_id, known, now, (before.attempt, state.attempt))
        named = {vertex for vertex, _ in state.requirements}
        self._check(named == now.vertices, f"{what} has bounds of {named} and the vertices {now.vertices}")
        self._fit(what, state)

    def _follows(self, job_id: str, known: Graph, now: Graph, attempts: tuple[int, int]) -> None:
        """Of the attempt before and of the one that follows some reports were taken down, which lead to ``now``."""
        sent = self._open.get(job_id, [])
        first = [one for one in sent if one.attempt == attempts[0]]
        then = [one for one in sent if one.attempt == attempts[1] > attempts[0]]
        for many in range(len(first) + 1):
            for more in range(len(then) + 1):
                taken = [*first[:many], *then[:more]]
                if known.after_all(taken) == now:
                    self._open[job_id] = [one for one in sent if one not in taken]
                    return
        self._check(
            False, f"job {job_id[-2:]} went from {known} to {now}; its drivers told {[*first, *then]}"
        )

    def _fit(self, what: str, state: JobState) -> None:
        """Each plan names the vertices of the graph, and none of them beyond its slots."""
        coming = [getattr(state.phase, name, None) for name in ("target", "plan")]
        plans = [one for one in (state.plan, state.last_plan, *coming) if isinstance(one, Plan)]
        ids = [vertex.id for vertex in state.graph.vertices]
        for plan in plans:
            self._check(
                [vertex for vertex, _ in plan.parallelism] == ids
                and all(1 <= count <= plan.slot_count for _, count in plan.parallelism),
                f"{what}: plan {plan} is not one for the vertices {ids}",
            )

    def came(self, state: JobState | None, before: Requirements, wanted: Requirements) -> None:
        """The bounds after vertices came: those that there were are as before, the others have none of their own."""
        assert state is not None
        queries = queries_of(state.graph.name)
        rows, were, numbers = wanted.as_dict(), before.as_dict(), dict(wanted.state_partitions)
        kept = {vertex: were[vertex] for vertex in rows if vertex in were}
        what = f"version {wanted.version} of job {state.job_id[-2:]}"
        self._check(
            all(rows[vertex] == own for vertex, own in kept.items())
            and all(
                number == numbers.get(vertex, number)
                for vertex, number in before.state_partitions
                if vertex in rows
            ),
            f"{what}: a query came, and {before} became {wanted}",
        )
        new = [query for query in queries if set(query.ids.values()) & (rows.keys() - kept.keys())]
        self._check(len(new) == 1, f"{what} has vertices of several queries, or none: {new}")
        checkpoint = self._oracles.world.checkpoints[state.job_id]
        for query in new:
            uppers = query.uppers(checkpoint.partitions.get(query.key, 0))
            stateful = {vertex.name for vertex in query.planned(None) if vertex.stateful}
            expected = {
                query.ids[name]: self._may_have(state, query.ids[name], upper, stateful=name in stateful)
                for name, upper in uppers.items()
            }
            got = {vertex: rows.get(vertex) for vertex in expected}
            self._check(
                all(got[vertex] in bounds for vertex, bounds in expected.items()),
                f"{what} has {got} for a query that came, not {expected}",
            )

    def _may_have(self, state: JobState, vertex: str, usual: int, *, stateful: bool) -> list[Bounds]:
        """The bounds with which a vertex may come: those that were declared before it left, as far as its state allows.
        A new version knows nothing of them, and the one before may come back."""
        past = self._left.get(state.job_id, {}).get(vertex, [])
        last = past if state.job_id in self._replaced else past[-1:]
        most = [min(one.upper, usual) if stateful else one.upper for one in last]
        found = [Bounds(min(one.lower, upper), upper) for one, upper in zip(last, most, strict=True)]
        was_usual = any(one.lower == 1 and one.upper in (usual, STATELESS_UPPER) for one in last)
        is_sure = found and not was_usual and state.job_id not in self._replaced
        return found if is_sure else [*found, Bounds(1, usual)]

    def in_force(self, driver: SimAttempt, wanted: dict[str, int]) -> dict[str, int]:
        """The parallelism of the vertices of a job in its driver. Those of queries that do not run are as ``wanted``.

        So are those that were forgotten once. If they come again in a report that was sent before the plan of now, the
        driver goes by that plan, which had them, and the control plane by the report.
        """
        if not isinstance(driver.side, Program):
            return driver.plan.parallelism
        forgotten = self._forgotten.get(driver.job_id, frozenset())
        numbers = driver.side.numbers()
        return {**wanted, **{one: count for one, count in numbers.items() if one not in forgotten}}

    def complaint(self, job_id: str, state: JobState, driver: SimAttempt) -> str | None:
        """Of a job at rest."""
        program = driver.side
        if not isinstance(program, Program):
            return None
        runs = {query.key for query in program.running}
        missing = {one for query in program.running for one in query.ids.values()} - state.graph.by_id.keys()
        if missing:
            return f"job {job_id[-2:]} does not have {missing}, which runs"
        if runs & set(state.graph.ended):
            return f"job {job_id[-2:]} takes queries for ended that run: {runs & set(state.graph.ended)}"
        return None

    def _check(self, condition: bool, detail: str) -> None:
        self._oracles.check(condition, "growth", detail)
