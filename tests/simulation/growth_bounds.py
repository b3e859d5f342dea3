"""The bounds of vertices that come and go with the queries of a program, worked out by docs/programs.md.

What a document says of a vertex waits until that comes, and what was declared for one that leaves until it comes again.
A new version of the program leaves the bounds as they are, but for those that its own document has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.model.jobgraph import JobGraph, NamedBounds
from app.model.requirements import Bounds, Requirements
from app.scheduler.adaptive.state import JobState
from tests.simulation.growth_graph import awaits, flows_of
from tests.simulation.programs import STATELESS_UPPER, ProgramQuery, queries_of, version_of
from tests.simulation.rules import partitions

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles

Names = dict[str, NamedBounds]


def possible(said: NamedBounds | None, usual: int, most: int | None) -> Bounds:
    """The bounds that a vertex begins with of which this was ``said``. ``usual``: its upper bound if nothing was.
    ``most``: the partitions of its state, if it has any."""
    lower, upper = (None, None) if said is None else (said.lower, said.upper)
    upper = max(usual if upper is None else upper, lower or 1)
    upper = upper if most is None else min(upper, most)
    return Bounds(min(lower or 1, upper), upper)


class BoundsByName:
    """See the module. ``_waiting``: by job and name. ``_former``: of the version before the one in force. ``_asked``:
    what each version says, by job and the file that names it."""

    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        self._waiting: dict[str, Names] = {}
        self._former: dict[str, Names] = {}
        self._asked: dict[tuple[str, str], Names] = {}

    def submitted(self, job_id: str, graph: JobGraph) -> None:
        self._waiting[job_id] = {one.vertex: one for one in graph.bounds}

    def asked(self, job_id: str, artifacts: Sequence[str], bounds: Sequence[NamedBounds]) -> None:
        """Somebody asks for a version with these files and bounds."""
        self._asked[job_id, version_of(artifacts)] = {one.vertex: one for one in bounds}

    def came(self, state: JobState, before: Requirements, wanted: Requirements) -> None:
        """The bounds after a query came, for the first time, again, or with other vertices; ``before`` are those before
        that, ``state`` is what was saved last. Those that there were are as before."""
        is_first = awaits(state.graph) and before.version == state.requirements.version
        rows, were, numbers = (
            wanted.as_dict(),
            {} if is_first else before.as_dict(),
            dict(wanted.state_partitions),
        )
        kept = {vertex: were[vertex] for vertex in rows if vertex in were}
        what, truth = (
            f"version {wanted.version} of job {state.job_id[-2:]}",
            self._oracles.truth(state.job_id),
        )
        self._check(
            all(
                rows[vertex] == own or rows[vertex] in self._oracles.deadlines.may_move(truth, vertex)
                for vertex, own in kept.items()
            )
            and all(
                number == numbers.get(vertex, number)
                for vertex, number in before.state_partitions
                if vertex in kept
            ),
            f"{what}: a query came, and {before} became {wanted}",
        )
        queries = queries_of(state.graph.name, version_of(state.graph.artifacts))
        new = [query for query in queries if set(query.ids.values()) & (rows.keys() - kept.keys())]
        # A query may come with other operators in the same vertices.
        is_changed = not new and rows.keys() <= were.keys()
        self._check(len(new) == 1 or is_changed, f"{what} has vertices of several queries, or none: {new}")
        self._oracles.count(
            "query came first" if is_first else "query changed" if is_changed else "query came"
        )
        names = self._waiting[state.job_id]
        for vertex in were.keys() - rows.keys():
            self._leaves(state, names, vertex, were[vertex], new)
        for query in new:
            usual = self._oracles.world.checkpoints[state.job_id].partitions.get(query.key, 0)
            uppers = query.uppers(usual)
            stateful = {vertex.name for vertex in query.planned(None) if vertex.stateful}
            for name, vertex in query.ids.items():
                if vertex in kept:
                    continue
                expected = possible(names.get(name), uppers[name], usual if name in stateful else None)
                if name in names:
                    self._oracles.count("bounds by name")
                self._check(
                    rows.get(vertex) == expected,
                    f"{what} has {rows.get(vertex)} for {name}, which came, not {expected}: {names.get(name)}",
                )

    def _leaves(
        self, state: JobState, names: Names, vertex: str, own: Bounds, new: Sequence[ProgramQuery]
    ) -> None:
        """What was declared for it waits, unless its query has come without it."""
        version = version_of(state.graph.artifacts)
        for query in (*queries_of(state.graph.name, version), *self._former_queries(state)):
            name = next((name for name, one in query.ids.items() if one == vertex), None)
            if name is None:
                continue
            if query.key not in [one.key for one in new]:
                number = partitions(state.graph).get(query.key) or self._oracles.world.checkpoints[
                    state.job_id
                ].partitions.get(query.key, 0)
                usual = Bounds(1, number if query.is_stateful else STATELESS_UPPER)
                if own != usual or name in names:
                    self._oracles.count("bounds wait for a name")
                    names[name] = NamedBounds(name, own.lower, own.upper)
            return
        self._check(False, f"job {state.job_id[-2:]}: {vertex} left, and no query has it")

    def _former_queries(self, state: JobState) -> list[ProgramQuery]:
        """As all versions before had them, which may still be in the graph."""
        files = [file for job, file in self._asked if job == state.job_id]
        return [query for file in ("", *files) for query in queries_of(state.graph.name, file)]

    def adopted(self, state: JobState, former: JobGraph) -> None:
        """A new version has come into force in the place of ``former``."""
        names, said = (
            self._waiting[state.job_id],
            self._asked[state.job_id, version_of(state.graph.artifacts)],
        )
        self._former[state.job_id] = dict(names)
        self._waiting[state.job_id] = {**names, **said}
        stored = self._oracles.truth(state.job_id).stored
        reason = f"Version {state.versions.current} of the job."
        wanted = next(one for one in stored.values() if one.reason == reason)
        before, numbers = stored[wanted.version - 1].as_dict(), partitions(former)
        usual = {
            vertex: numbers.get(key, STATELESS_UPPER)
            for key, flow in flows_of(former).items()
            for vertex, _ in flow
        }
        # The version may free slots for bounds that waited: then they are applied in the same step.
        begun = dict([pair for one in state.queued if one.begun is not None for pair in one.bounds])
        for vertex, bounds in wanted:
            own = former.by_id.get(vertex)
            if awaits(former) or own is None or begun.get(vertex) == bounds:
                continue
            most, kept = own.max_parallelism, before[vertex]
            allowed = [Bounds(min(kept.lower, most), min(kept.upper, most))]
            if own.name in said:
                allowed = [possible(said[own.name], usual[vertex], most if own.stateful else None), *allowed]
            self._check(
                bounds in allowed,
                f"version {state.versions.current} of job {state.job_id[-2:]} has {bounds} for {own.name}, and "
                f"not {allowed}",
            )

    def taken_back(self, job_id: str) -> None:
        """The version before the one in force has come back."""
        self._waiting[job_id] = self._former[job_id]

    def _check(self, condition: bool, detail: str) -> None:
        self._oracles.check(condition, "growth", detail)
