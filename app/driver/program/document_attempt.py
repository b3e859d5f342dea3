"""One attempt of a graph document. Its queries are known from the submission on, so it runs when it has started all of
them, and its graph does not grow."""

from __future__ import annotations

import queue
from typing import Any, Final

from app.driver.base_attempt import TOLD_TO_END, Ending, Terminate
from app.driver.failures import DriverError
from app.driver.program.asked import Asked
from app.driver.program.attempt import ProgramAttempt
from app.driver.program.takeover import Start
from app.driver.progress import Committed, Ended
from app.driver.repartition import limited, why_impossible
from app.driver.started_query import StartedQuery
from app.model.analysis import Query, queries
from app.model.jobgraph import JobGraph
from app.model.protocol import Orders

_POLL_S: Final = 0.1
_STARTS_ITS_OWN: Final = (
    "a function of the document starts a query of its own, which nobody would start again: give the document a sink "
    "for it."
)


class DocumentAttempt(ProgramAttempt):
    """Runs a document and its queries."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        # What was started while others are still to come; None once all were.
        self._first: list[StartedQuery] | None = None

    def _await_queries(self) -> Ending | None:
        self._first = []
        while len(self._first) < len(self._stored):
            try:
                message = self._inbox.get(timeout=_POLL_S)
            except queue.Empty:
                self._may_commit()
                continue
            if (ending := self._on_early(message)) is not None:
                return ending
        started, self._first = self._first, None
        self._tell_of_run()
        self._on_started(*started)
        return None

    def _on_early(self, message: object) -> Ending | None:
        match message:
            case Exception():
                raise message
            case Orders(stop="kill"):
                return Ending.DONE
            case Orders():
                self._early_orders = message
            case Terminate():
                return self._fail(TOLD_TO_END)
            case Committed() | Ended():
                self._early.append(message)
            case _:
                return self._on_other(message)
        return None

    def _on_start_of_program(self, running: StartedQuery) -> None:
        if self._first is None:
            super()._on_start_of_program(running)
        else:
            self._noted += 1
            self._first.append(running)

    def _asked_of(self, start: Start) -> Asked:
        if start.document is None:
            raise DriverError(_STARTS_ITS_OWN)
        is_first = not self._asked
        if is_first:
            self._tell_of_analysis(start.document.graph)
        asked = Asked.by_document(start, self._stored[start.document.query.sink.name])
        if self._origin is not None and self.spec.attempt == 1 and is_first:
            # Before any of them runs they are all known to go with what they go on from.
            for each in start.document.all:
                each.check_records(each.first.find(self.spec, self._origin, self._stored), self.spec.epoch)
        if self._origin is not None or self.spec.on_trial:
            start.document.first.check(self.spec, self._origin, self._stored)
        with limited(self.spec, self._inbox.put):
            self._ask(asked)
        return asked

    def _in_graph(self, asked: Asked) -> Query:
        return self._stored[asked.query.sink.name]

    # -- what the control plane hears

    def _tell_of_beginning(self) -> None:
        """It waits for the queries."""

    def _tell_of_run(self) -> None:
        # In this order: what the state has counts when the attempt begins to run.
        self._tell_of_partitions()
        self._report(type="running", plan_version=self.spec.plan_version, **self._news.figures())

    def _tell_of_analysis(self, graph: JobGraph) -> None:
        """Spark has analysed the document: it is ``graph``."""
        self._graph, self._stored = graph, {query.sink.name: query for query in queries(graph)}
        stateful = {vertex.id: vertex.max_parallelism for vertex in graph.vertices if vertex.stateful}
        self._report(type="analysed", stateful=stateful, fixed=why_impossible())

    def _note_plan(self, version: int) -> None:
        """A plan is in force when the queries have it."""

    def _tell_of(self, asked: Asked, *, is_new: bool, begins_anew: bool = False) -> None:
        """The control plane has had it from the submission on."""

    def _tell_of_end(self, key: str) -> None:
        """The job ends when all queries have."""

    def _note_started(self, asked: Asked) -> None:
        """There is nothing that it could be taken for."""

    def _release_oldest(self) -> None:
        """There are no more than the graph has."""

    def _location(self) -> str:
        return str(self._checkpoint_dir)
