"""One attempt of a program with streaming queries."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from app.driver.attempt import Attempt
from app.driver.base_attempt import Ending, Terminate
from app.driver.directories import directory_of
from app.driver.failures import DriverError, Failure, Fenced, describe
from app.driver.program.handle import Handle
from app.driver.program.main_thread import InMainThread, ProgramEnded
from app.driver.program.origin import Origin, adopt
from app.driver.program.planner import checkpoint_of
from app.driver.program.query import Asked, ProgramQuery, differences
from app.driver.progress import Committed, QueryListener
from app.driver.repartition import RepartitionFailed
from app.driver.valves.shape import read_query
from app.driver.valves.spark import WriterFacts, writer_facts, writer_frame
from app.model.analysis import Query, queries
from app.model.planned import PlannedVertex
from app.model.protocol import Orders
from app.model.state_partitions import partitions_of_queries


class ProgramAttempt(InMainThread, Attempt):
    """Runs a program and its queries."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._stored: dict[str, Query] = {query.sink.name: query for query in queries(self._graph)}
        self._found: list[PlannedVertex] = []
        program = self._graph.program
        self._origin = Origin(Path(program.origin)) if program is not None and program.origin else None
        # A program may start its queries in several threads.
        self._starting = threading.Lock()
        # What a query reports before it is known that it was started.
        self._early: list[Committed] = []
        self._partitions: dict[str, int] = {}
        # Every query that was started, by its key.
        self._asked: dict[str, Asked] = {}
        self._listeners: dict[int, QueryListener] = {}
        self._program_ended: ProgramEnded | None = None
        self._told_running = False
        # The queries whose partitions the control plane knows.
        self._told_of: set[str] = set()
        # Of an end of a query the program hears nothing.
        self._hides_ends = False
        # All queries were running when they were told to stop, and would have for ever.
        self._all_ran = False
        self._before: ProgramAttempt | None = None
        self._after: ProgramAttempt | None = None

    # -- the thread of the attempt

    def _start(self) -> None:
        functions = self._prepare()
        before, self._before = self._before, None
        session = self._await_session("started a query") if before is None else before._session
        if isinstance(session, ProgramEnded):
            raise DriverError.of(session.failure or _never_started())
        self._equip(session, functions)
        self._take_up(session)
        self._expect_failures(lambda query: ProgramQuery(self._asked[query.key], self._shared))
        self._taken_up.set()
        if before is not None:
            self._start_again(before)

    def _start_again(self, before: ProgramAttempt) -> None:
        """Start all queries anew, as the program has asked for them."""
        if self.spec.master != before.spec.master and not self.spec.master.startswith("local"):
            raise DriverError(f"The program cannot go to {self.spec.master}.", recoverable=True)
        for asked in before._asked.values():
            self._ask(replace(asked, query=self._stored[asked.query.sink.name]))
        for asked in self._asked.values():
            running = ProgramQuery(asked, self._shared)
            self._listen(asked.session)
            running.start()
            self._on_started(running)
        self._hides_ends = False

    def _go_on_from(self, before: InMainThread) -> None:
        assert isinstance(before, ProgramAttempt) and before._takeover is not None
        self._before, self._hides_ends = before, True
        self._session, self._found, self._takeover = before._session, before._found, before._takeover
        for listener in before._listeners.values():
            listener.close()
        self._takeover.go_over(self)
        while not before._inbox.empty():
            if isinstance(message := before._inbox.get(), ProgramEnded):
                self._inbox.put(message)
        before._after = self
        before._starting.release()

    def _can_be_followed(self) -> bool:
        # Whatever the program begins to start from here on is for the attempt that follows.
        return self._all_ran and self._program_ended is None and self._starting.acquire(blocking=False)

    def _begin_stop(self, order: Orders | Terminate) -> None:
        if self._stop is None:
            # In this order: what the program knows the end of is not started again without it.
            self._hides_ends = True
            ran = [each for each in self._program_queries if each.is_active or self._failover.holds(each)]
            known = {each.query.key for each in ran if not each.ends_by_itself}
            self._all_ran = len(ran) == len(self._queries) and len(known) == len(self._stored)
        super()._begin_stop(order)

    def _on_committed(self, happening: Committed) -> None:
        if happening.run_id in self._by_run:
            super()._on_committed(happening)
        else:
            self._early.append(happening)

    def _on_other(self, message: object) -> Ending | None:
        if isinstance(message, ProgramEnded):
            self._program_ended = message
            return self._on_program_ended(message)
        assert callable(message)
        ending: Ending | None = message()
        return ending

    def _on_started(self, running: ProgramQuery) -> None:
        self._queries.append(running)
        self._by_run[running.run_id] = running
        running.take_plan()
        if self._stop is not None:
            running.stop_at_boundary()
        if self._told_running or len(self._queries) == len(self._stored):
            self._note_running()
        early, self._early = self._early, []
        for happening in early:
            self._on_committed(happening)

    def _note_running(self) -> None:
        """Say once that the program runs, and what is not known yet of the state of its queries: it may start some only
        after it has waited for others."""
        if not self._queries:
            return
        expected = partitions_of_queries(self._graph)
        found = {key: number for key, number in self._partitions.items() if key not in self._told_of}
        self._told_of |= found.keys()
        is_answer = self.spec.repartition and (found or not self._told_running)
        if is_answer or any(expected[key] != number for key, number in found.items()):
            self._report(type="repartitioned", state_partitions=found)
        if not self._told_running:
            self._told_running = True
            self._report(type="running", plan_version=self.spec.plan_version, **self._news.figures())

    def _on_waits(self, where: str) -> Ending | None:
        """A program that waits for a query that runs for ever will start no other."""
        self._note_running()
        started = {each.query.sink.name for each in self._queries}
        missing = [name for name in self._stored if name not in started]
        if missing and not all(each.ends_by_itself for each in self._program_queries):
            return self._fail(
                Failure.final(
                    f"{where}: the program waits and has not started the query of {missing[0]}, "
                    "which it had when it was planned."
                )
            )
        return None

    @property
    def _program_queries(self) -> list[ProgramQuery]:
        return self._queries  # type: ignore[return-value]

    def _on_program_ended(self, ended: ProgramEnded) -> Ending | None:
        if self._stop is not None:
            # It is being stopped, and what the program makes of that does not matter.
            return None
        for running in self._program_queries:
            if (failure := running.failure()) is not None:
                return self._fail(failure)
        if ended.failure is not None:
            return self._fail(ended.failure)
        active = [each.query.sink.name for each in self._program_queries if each.is_active]
        if not self._queries:
            return self._fail(_never_started())
        if active:
            return self._fail(
                Failure.final(
                    f"The program ended while its query of {active[0]} was running: "
                    "wait for it (query.awaitTermination()) or stop it."
                )
            )
        self._note_running()
        return self._last_word(type="finished")

    def _look_at_ended(self) -> Ending | None:
        # A query without data checks no ownership: the owner check ends the process if the job has another owner.
        self._may_commit()
        return super()._look_at_ended()

    def _location(self) -> str:
        """Where the checkpoints are: that of a program's only query may be the program's choice."""
        places = {str(each.checkpoint_dir) for each in self._queries}
        return places.pop() if len(places) == 1 else str(self._checkpoint_dir)

    # -- the threads of the program (`takeover.Host`)

    def start(
        self, writer: DataStreamWriter, table: str | None, where: str, handle: Handle
    ) -> StreamingQuery:
        """Start the query of ``writer`` with valves in its plan, now and whenever it has failed.

        Raises:
            DriverError: the query is not one of the stored graph.
        """
        facts = writer_facts(writer, table)
        session = writer_frame(writer).sparkSession
        with self._starting:
            if (after := self._after) is None:
                self._hang_if_over()
                try:
                    running = self._query_of(writer, facts, where, handle)
                except (RepartitionFailed, Fenced) as error:
                    self._inbox.put(error)
                    self._over.wait()
                    self._hang_if_over()
                    raise
                self._listen(session)
                running.start()
                self._inbox.put(partial(self._on_started, running))
                return handle
        return after.start(writer, table, where, handle)

    def _listen(self, session: SparkSession) -> None:
        if id(session) not in self._listeners:
            self._listeners[id(session)] = QueryListener(self._inbox.put)
            self._listeners[id(session)].listen(session)

    def _query_of(
        self, writer: DataStreamWriter, facts: WriterFacts, where: str, handle: Handle
    ) -> ProgramQuery:
        frame = writer_frame(writer)
        session = frame.sparkSession
        # How many state partitions there are is for the job to say, and for the checkpoint.
        found = read_query(frame, facts, {vertex.name for vertex in self._found}, 0)
        sink = found[-1].name
        query = self._stored.get(sink)
        told = (
            differences(query, found)
            if query is not None
            else [f"{sink} is there now and was not before, when there were {', '.join(self._stored)}"]
        )
        if told:
            raise DriverError(
                f"{where}: the program starts another query than when it was planned: {'; '.join(told)}."
            )
        assert query is not None
        self._found += found
        own = checkpoint_of(session, facts)
        own_dir = self._checkpoint_dir / query.key
        place = own_dir if own is None else directory_of(session, own)
        if own is not None and place is not None:
            # What is claimed is what Spark is told, also of a relative one. Its executors may not have the same links.
            own, place = f"file:{place}", place.resolve()
        if self._origin is not None and place is not None:
            is_only = len(self._stored) == 1
            adopt(partial(self._origin.checkpoint_of, sink, is_only_query=is_only), place)
        asked = Asked.of(
            writer,
            query=query,
            vertices=found,
            facts=facts,
            handle=handle,
            checkpoint=own,
            own_dir=own_dir,
            place=place,
        )
        self._ask(asked)
        return ProgramQuery(asked, self._shared)

    def _ask(self, asked: Asked) -> None:
        """Note a query, which is to be started now, and let its state have the partitions that were ordered."""
        given = asked.give_partitions(self._shared, ordered=self.spec.repartition)
        # Another thread may be reading it.
        self._partitions = {**self._partitions, **given}
        self._asked[asked.query.key] = asked

    def restarts(self, error: StreamingQueryException) -> bool:
        return self._may_hold(describe(error))

    def waits(self, where: str) -> None:
        self._inbox.put(partial(self._on_waits, where))

    @property
    def is_stopping(self) -> bool:
        return self._hides_ends or super().is_stopping


def _never_started() -> Failure:
    return Failure.final("The program ended without having started a streaming query.")
