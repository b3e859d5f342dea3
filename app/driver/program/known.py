"""Which query of its program a start is: the queries that are known, and the names of their vertices."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from app.driver.failures import DriverError
from app.driver.program.facts import PLAN_NOTE, identity_of, plan_digest
from app.driver.program.handle import Handle
from app.driver.valves.shape import numbered, read_query, sink_name
from app.driver.valves.spark import WriterFacts
from app.model.analysis import Query
from app.model.jobgraph import PlannedSpec
from app.model.planned import PlannedVertex, planned_of


@dataclass(frozen=True, slots=True)
class Known:
    """A query. ``where`` this run of the program has started it last; empty if it has not. ``handle``: what the program
    has of it, if anybody still has that."""

    vertices: tuple[PlannedVertex, ...]
    where: str = ""
    handle: Callable[[], Handle | None] = lambda: None

    def runs(self) -> bool:
        """It has not ended since."""
        handle = self.handle()
        return handle is not None and handle.isActive

    @property
    def checkpoint(self) -> str | None:
        return self.vertices[-1].checkpoint


class KnownQueries:
    """The queries of a program, by the names of their sinks.

    A query is the one with its checkpoint. Without one that it has chosen it goes by the name that its sink would have:
    that of a query which runs is taken, and that of one which has ended is its own again.
    """

    def __init__(
        self, stored: Iterable[Query], own_dir: Callable[[str], Path], *, on_trial: bool = False
    ) -> None:
        """``own_dir``: the job's directory of the query with this sink. ``on_trial``: they are those of the version
        before. One that has another checkpoint now is the same query, so that this is found out."""
        self._on_trial, self._own_dir = on_trial, own_dir
        self._queries = {
            query.sink.name: Known(tuple(map(planned_of, query.flow)))
            for query in stored
            if isinstance(query.sink.operation, PlannedSpec)
        }
        self._identities: dict[str, str] = {}

    @property
    def vertices(self) -> tuple[PlannedVertex, ...]:
        return tuple(vertex for known in self._queries.values() for vertex in known.vertices)

    def note(self, vertices: tuple[PlannedVertex, ...], where: str, handle: Handle | None = None) -> None:
        """The program starts the query with these ``vertices``, or has started it."""
        held = (lambda: None) if handle is None else weakref.ref(handle)
        self._queries[vertices[-1].name] = Known(vertices, where, held)

    def go_on_from(self, before: KnownQueries) -> None:
        """The program that has started those ``before`` runs on."""
        self._queries |= {sink: known for sink, known in before._queries.items() if known.where}

    def read(self, frame: DataFrame, facts: WriterFacts, checkpoint: str | None) -> tuple[PlannedVertex, ...]:
        """The vertices of the query that writes ``frame``, with the names that it has or gets. ``checkpoint``: the one
        that the program has chosen for it.

        Raises:
            DriverError: the query of this checkpoint or name runs, or is another one than this run had before.
        """
        if checkpoint is not None and (known := self._under(checkpoint, frame.sparkSession)) is not None:
            if known.runs():
                raise DriverError(
                    f"the program starts a second query under the checkpoint {checkpoint}, which is that of the query "
                    f"started at {known.where}; give each its own checkpointLocation."
                )
            return self._checked(known, self._read_as(known, frame, facts))
        other: tuple[Known, tuple[PlannedVertex, ...]] | None = None
        for name in numbered(sink_name(facts)):
            if name not in self._names():
                break
            if (known := self._queries.get(name)) is None or known.runs():
                continue
            # What has run in this process without a checkpoint may be followed by another query of its name. Of one
            # that an earlier attempt had, the job has the state.
            is_stored = not known.where
            may_be_it = known.checkpoint is None and (checkpoint is None or is_stored)
            if not may_be_it and not (self._on_trial and is_stored):
                continue
            found = self._read_as(known, frame, facts)
            same = may_be_it and not differences(known.vertices, found)
            if same and (known.where or self._is_plan_of(name, frame)):
                return found
            if is_stored and (checkpoint is None or self._on_trial):
                # Threads may start theirs in another order than before.
                other = other or (known, found)
        if other is not None:
            return self._checked(*other)
        return read_query(frame, facts, self._names(), 0)

    def _is_plan_of(self, sink: str, frame: DataFrame) -> bool:
        """Whether the query of ``sink`` in an attempt before may have been that of ``frame``: two of one shape may
        filter otherwise."""
        try:
            noted = (self._own_dir(sink) / PLAN_NOTE).read_text(encoding="ascii")
        except OSError:
            return True
        return noted == plan_digest(frame)

    def _under(self, checkpoint: str, session: SparkSession) -> Known | None:
        wanted = self._identity(checkpoint, session)
        for known in self._queries.values():
            if known.checkpoint is not None and self._identity(known.checkpoint, session) == wanted:
                return known
        return None

    def _identity(self, checkpoint: str, session: SparkSession) -> str:
        if (found := self._identities.get(checkpoint)) is None:
            found = self._identities[checkpoint] = identity_of(session, checkpoint)
        return found

    def _names(self) -> set[str]:
        return {vertex.name for vertex in self.vertices}

    def _read_as(self, known: Known, frame: DataFrame, facts: WriterFacts) -> tuple[PlannedVertex, ...]:
        """What is read as the vertices of a query that is known: the names of the others are taken."""
        sink = known.vertices[-1].name
        others = self._names() - {vertex.name for vertex in known.vertices}
        *inner, last = read_query(frame, facts, others | {sink}, 0)
        return (*inner, replace(last, name=sink))

    def _checked(self, known: Known, found: tuple[PlannedVertex, ...]) -> tuple[PlannedVertex, ...]:
        """``found``, which may be another query than an attempt before had, or another version of the program."""
        if known.where and (told := differences(known.vertices, found)):
            raise DriverError(f"the program starts another query than at {known.where}: {'; '.join(told)}.")
        return found


def differences(known: Sequence[PlannedVertex], found: Sequence[PlannedVertex]) -> list[str]:
    """What ``found``, which was read from a plan, has other than the query is ``known`` to have."""
    told: list[str] = []
    before = {vertex.name: vertex for vertex in known}
    read = {vertex.name: vertex for vertex in found}
    told += [f"{name} was there before and is not now" for name in before if name not in read]
    for name, vertex in read.items():
        if (was := before.get(name)) is None:
            told.append(f"{name} ({vertex.operator}) is there now and was not before")
            continue
        if was.inputs != vertex.inputs:
            told.append(f"{name} reads {_listed(vertex.inputs)} now, and read {_listed(was.inputs)} before")
        if was.stateful is not vertex.stateful:
            told.append(f"{name} {'keeps' if vertex.stateful else 'does not keep'} state now")
    return told


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
