"""What must hold of graphs that grow: they have what their drivers told of, and nothing else (docs/programs.md).

What the graph of a job has to be is worked out from the reports of its drivers, one after another, as they were sent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.model.graphdoc import read_graph
from app.model.jobgraph import NamedBounds
from app.model.plan import Plan
from app.model.public_event import PublicEventType
from app.model.requirements import Requirements
from app.model.status import JobStatus
from app.scheduler.adaptive.state import CreatingExecutionGraph, Executing, JobState
from app.store.writes import AddEvents, AddVersion, CreateJob, SaveState, SetGraph, UnitOfWork
from tests.simulation.goals import asks_for, goal_of
from tests.simulation.growing import Program
from tests.simulation.growth_bounds import BoundsByName
from tests.simulation.growth_graph import Graph, Told, awaits, flows_of, stands_for_program
from tests.simulation.partitions import without_late
from tests.simulation.programs import ProgramQuery
from tests.simulation.rules import least_slots, most_slots, need_slots

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.process import SimAttempt

REASON = "The program has started a query with "
"""What the reason of requirements begins with that have vertices which came."""
_LISTENS = ("CreatingExecutionGraph", "Executing", "Rescaling", "StopWithSavepoint")
_OVER = ("Canceling", "Failing", "Finished")


class Growth:
    """See the module. ``_open``: reports that may not have been taken down yet, in order."""

    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        self._graphs: dict[str, Graph] = {}
        # Of the version before the one in force, when that came.
        self._former: dict[str, Graph] = {}
        # The last attempt at it.
        self._since: dict[str, int] = {}
        self._open: dict[str, list[Told]] = {}
        self._started: dict[tuple[str, int], set[str]] = {}
        self._documents: dict[str, dict[int, Graph]] = {}
        self._forgotten: dict[str, frozenset[str]] = {}
        self._bounds = BoundsByName(oracles)

    @staticmethod
    def awaits(state: JobState) -> bool:
        """Whether the job is a program of which no query is known."""
        return state.graph.program is not None and awaits(state.graph)

    def asked(self, job_id: str, artifacts: Sequence[str], bounds: Sequence[NamedBounds]) -> None:
        """Somebody asks for a new version of a program."""
        self._bounds.asked(job_id, artifacts, bounds)

    def committed(self, unit: UnitOfWork, before: JobState | None, state: JobState | None) -> None:
        """``unit`` became durable, and so did ``state``: whoever takes the job up has the graph that it is of."""
        if state is None or state.graph.program is None:
            return
        stored = self._documents.setdefault(unit.job_id, {})
        runs = self._has_started(state) or (before is not None and self._has_started(before))
        for write in unit.writes:
            if isinstance(write, CreateJob | AddVersion | SetGraph):
                number = 1 if isinstance(write, CreateJob) else write.number
                stored[number] = Graph.of(read_graph(json.loads(write.document)))
            elif isinstance(write, SaveState) and not self._has_started(state):
                self._is_not_running(state, write.status)
            elif isinstance(write, AddEvents) and not runs:
                for event in write.events:
                    if event.type is PublicEventType.STATUS:
                        self._is_not_running(state, event.fields["status"])
        found = stored[state.versions.current]
        self._check(
            found == Graph.of(state.graph),
            f"job {unit.job_id[-2:]} has {Graph.of(state.graph)}, and {found} is stored of it",
        )

    def _has_started(self, state: JobState) -> bool:
        """Whether the program has told of a query in the attempt that ``state`` is of."""
        return (state.job_id, state.attempt) in self._started

    def _is_not_running(self, state: JobState, status: object) -> None:
        self._check(
            status != JobStatus.RUNNING,
            f"job {state.job_id[-2:]} is {status}, and attempt {state.attempt} has told of no query",
        )

    def told(self, attempt: SimAttempt, query: ProgramQuery, *, started: bool) -> None:
        """A driver reports it."""
        self._open.setdefault(attempt.job_id, []).append(Told(attempt.number, attempt.seq, query, started))
        if started:
            self._started.setdefault((attempt.job_id, attempt.number), set()).add(query.key)

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
        now = Graph.of(state.graph, state.driver.started, state.attempt)
        known = self._graphs.get(job_id)
        self._graphs[job_id] = now
        if before is None or known is None:
            self._bounds.submitted(job_id, state.graph)
        elif before.versions.current != state.versions.current:
            self._replaced(before, known, now, state)
        elif now != known:
            self._grew(before, known, now, state)
        what = f"job {job_id[-2:]}"
        named = [vertex for vertex, _ in state.requirements]
        ids = [vertex.id for vertex in state.graph.vertices]
        self._check(named == ids, f"{what} has bounds of {named} and the vertices {ids}")
        record = state.timeline.open
        drawn = ids if record is None else [one.vertex_id for one in record.vertices]
        self._check(drawn == ids, f"{what} has a record of {drawn} and the vertices {ids}")
        alone = stands_for_program(state.graph)
        self._check(not alone or ids == alone, f"{what} has {alone} beside vertices of queries: {ids}")
        self._fit(what, state)
        self._starts(what, before, state)
        if before is not None:
            self._is_proven(what, before, state)

    def _grew(self, before: JobState, known: Graph, now: Graph, state: JobState) -> None:
        job_id = state.job_id
        gone = frozenset() if awaits(before.graph) else known.vertices - now.vertices
        self._forgotten[job_id] = self._forgotten.get(job_id, frozenset()) | gone
        if len(now.vertices) > len(known.vertices):
            trial = "with a trial" if state.trial.watch or state.trial.taken_back else state.phase.kind
            self._oracles.count(f"grown, {trial}")
        if gone:
            self._oracles.count("grown, forgotten")
        self._follows(job_id, known, now, (before.attempt, state.attempt))

    def _replaced(self, before: JobState, known: Graph, now: Graph, state: JobState) -> None:
        """Another version came into force: a new one with all queries that there were, or the one before as it was."""
        job_id, what = state.job_id, f"job {state.job_id[-2:]}: version {state.versions.current}"
        sent = self._open.pop(job_id, [])
        if state.versions.current < before.versions.current:
            self._oracles.count("version of a program taken back")
            former = self._former[job_id]
            self._check(now == former, f"{what} came back with {now}, and had {former}")
            self._bounds.taken_back(job_id)
            return
        self._oracles.count("version of a program" + " without a query" * (not now.flows))
        mine = [one for one in sent if one.attempt == before.attempt]
        all_of_them = [known.after_all(mine[:many]) for many in range(len(mine) + 1)]
        fits = [one for one in all_of_them if one == now]
        self._check(bool(fits), f"{what} began with {now}, after {known} and {mine}")
        self._former[job_id], self._since[job_id] = fits[0] if fits else known, before.attempt
        self._bounds.adopted(state, without_late(before))

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

    def _starts(self, what: str, before: JobState | None, state: JobState) -> None:
        """An attempt is started within the bounds of its moment and in slots that are held."""
        phase = state.phase
        is_new = before is not None and state.attempt == before.attempt + 1
        if not is_new or not isinstance(phase, CreatingExecutionGraph) or phase.failure is not None:
            return
        assert before is not None
        if (before.requirements, before.policy) == (state.requirements, state.policy) and not state.queued:
            goal = goal_of(state)
            comes_back = phase.plan.slot_count < least_slots(state.graph, goal)
            out = {
                vertex: count
                for vertex, count in phase.plan.parallelism
                if count > goal[vertex].upper
                or (count < goal[vertex].lower and vertex in need_slots(state.graph) and not comes_back)
            }
            self._oracles.count("start of a program")
            self._check(not out, f"{what} is started at {out}, and its bounds are {goal}")
        self._check(phase.plan.slot_ids <= state.slot_ids, f"{what} is started in slots that it has not")

    def _is_proven(self, what: str, before: JobState, state: JobState) -> None:
        """A new version stays only when each query with state was started that had not ended, or its time is over."""
        one = before.versions.replacement
        if one is None or one.stage != "Trial" or state.versions.replacement is not None:
            return
        note = next(note for note in state.versions.notes if note.number == one.number)
        # By the clock of whoever has decided it.
        over = one.until_ms is not None and one.until_ms <= note.since_ms
        if note.outcome != "IN_FORCE" or over:
            return
        since = self._since[state.job_id]
        started = {
            key
            for (job_id, attempt), keys in self._started.items()
            for key in keys
            if job_id == state.job_id and attempt > since
        }
        stateful = {vertex.id for vertex in before.graph.vertices if vertex.stateful}
        former = self._former[state.job_id]
        missing = {
            key
            for key, flow in former.flows.items()
            if key not in former.ended and not stateful.isdisjoint(vertex for vertex, _ in flow)
        } - started
        self._oracles.count("version of a program proven")
        self._check(not missing, f"{what}: version {one.number} is proven, and {missing} were not started")

    def _fit(self, what: str, state: JobState) -> None:
        """Each plan names the vertices of the graph, and none of them beyond its slots. No other slots are asked for
        than these need."""
        coming = [getattr(state.phase, name, None) for name in ("target", "plan")]
        plans = [one for one in (state.plan, state.last_plan, *coming) if isinstance(one, Plan)]
        ids = [vertex.id for vertex in state.graph.vertices]
        for plan in plans:
            self._check(
                [vertex for vertex, _ in plan.parallelism] == ids
                and all(1 <= count <= plan.slot_count for _, count in plan.parallelism),
                f"{what}: plan {plan} is not one for the vertices {ids}",
            )
        if state.supply.minimal and not state.queued and state.phase.kind not in _OVER:
            # State may be about to get other partitions.
            most = {most_slots(state.graph, goal_of(state)), most_slots(*asks_for(state, state.requirements))}
            self._check(
                state.supply.declared in most,
                f"{what} asks for {state.supply.declared} slots, not for {most}",
            )

    def came(self, state: JobState | None, before: Requirements, wanted: Requirements) -> None:
        """The bounds after vertices came."""
        assert state is not None
        self._bounds.came(state, before, wanted)

    def begun(self, attempt: SimAttempt, state: JobState) -> None:
        """It was acknowledged that the program of the attempt has begun."""
        waits = state.attempt == attempt.number and isinstance(state.phase, CreatingExecutionGraph)
        self._check(
            not waits or getattr(state.phase, "failure", None) is not None,
            f"{attempt} has begun, that was acknowledged, and it is not durable",
        )

    def in_force(self, driver: SimAttempt, wanted: dict[str, int]) -> dict[str, int]:
        """The parallelism of the vertices of a job in its driver. Those of queries that do not run are as ``wanted``.

        So are those that were forgotten once. If they come again in a report that was sent before the plan of now, the
        driver goes by that plan, which had them, and the control plane by the report.
        """
        if not isinstance(driver.side, Program) or driver.side.awaits:
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
        idle = {*state.graph.ended, *state.graph.left_out}
        if runs & idle:
            return f"job {job_id[-2:]} takes queries for ended, or left out, that run: {runs & idle}"
        absent = flows_of(state.graph).keys() - runs - idle
        if runs and absent:
            return f"job {job_id[-2:]} keeps slots for {absent}, which do not come"
        return None

    def _check(self, condition: bool, detail: str) -> None:
        self._oracles.check(condition, "growth", detail)
