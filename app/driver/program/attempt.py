"""One attempt of a program with streaming queries. What is otherwise if the program is a graph document is in
`app.driver.program.document_attempt`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from app.driver.attempt import Attempt
from app.driver.base_attempt import Ending, Terminate, epoch_ms
from app.driver.checkpoints import begin_anew, standing
from app.driver.directories import directory_of
from app.driver.failover import END_S
from app.driver.failures import DriverError, Failure, Fenced, describe
from app.driver.interruption import is_of_interruption
from app.driver.program.asked import Asked
from app.driver.program.beginning import BeginsProgram
from app.driver.program.checks import FirstStart, check_runs_here
from app.driver.program.facts import checkpoint_of, state_partitions_of, with_facts
from app.driver.program.known import KnownQueries
from app.driver.program.main_thread import InMainThread, ProgramEnded
from app.driver.program.origin import Origin
from app.driver.program.takeover import Start
from app.driver.progress import Committed, Ended, QueryListener
from app.driver.repartition import RepartitionFailed, limited
from app.driver.session import is_stopped
from app.driver.started_query import StartedQuery
from app.driver.valves.shape import with_partitions
from app.driver.valves.spark import writer_frame
from app.model.analysis import Query, queries
from app.model.graphdoc_program import ENDED_KEPT, grown
from app.model.grapherrors import GraphErrors
from app.model.ids import vertex_id
from app.model.planned import PlannedVertex
from app.model.protocol import Orders
from app.model.state_partitions import partitions_of_queries

_TOLD_WITHIN_S = 2.0
_LAST_TOLD_S = 5.0
_POLL_S = 0.1


class ProgramAttempt(BeginsProgram, Attempt):
    """Runs a program and its queries. The graph grows with those that the program starts.

    `_queries` are those that run, or are held; of a query that has ended, its last run is among `_ended` until the
    program starts it again.
    """

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._stored: dict[str, Query] = {query.sink.name: query for query in queries(self._graph)}
        self._known = KnownQueries(self._stored.values(), self._own_dir, on_trial=self.spec.on_trial)
        self._origin = Origin(Path(origin)) if (origin := self._graph.origin) else None
        # A program may start its queries in several threads.
        self._starting = threading.Lock()
        # What a query reports before it is known that it was started.
        self._early: list[Committed | Ended] = []
        self._partitions: dict[str, int] = {}
        # Every query that was started, by its key.
        self._asked: dict[str, Asked] = {}
        self._ended: dict[str, StartedQuery] = {}
        # Those that this run of the program has started, and of which nothing else is kept.
        self._released: set[str] = set()
        # Starts by the program that Spark was asked for, and those that are noted.
        self._starts = self._noted = 0
        self._listeners: dict[int, QueryListener] = {}
        self._knew_none = self._graph.awaits_query
        # Those that end by themselves, and that batches have started since the stop was ordered.
        self._of_batches: list[StartedQuery] = []
        # The queries whose partitions the control plane knows.
        self._told_of: set[str] = set()
        # The queries that ran when they were told to stop; none if one of them would not have for ever.
        self._ran: set[str] = set()
        self._before: ProgramAttempt | None = None
        self._after: ProgramAttempt | None = None

    # -- the thread of the attempt

    def _start(self) -> Ending | None:
        self._prepare()
        before, self._before = self._before, None
        session = self._begin_program() if before is None else before._session
        if isinstance(session, Ending):
            return session
        self._equip(session)
        self._take_up(session)
        self._expect_failures(lambda query: StartedQuery(self._asked[query.key], self._shared))
        if before is not None:
            self._start_again(before)
        self._taken_up.set()
        ending = None if before is not None else self._await_queries()
        if ending is None and self._early_orders is not None:
            ending = self._on_orders(self._early_orders)
        return ending

    def _await_queries(self) -> Ending | None:
        """Until the attempt runs; its end, if that comes before. A script runs from its beginning on."""
        return None

    def _start_again(self, before: ProgramAttempt) -> None:
        """Start the queries anew that ran, as the program has asked for them."""
        if self.spec.master != before.spec.master and not self.spec.master.startswith("local"):
            raise DriverError(f"The program cannot go to {self.spec.master}.", recoverable=True)
        self._known.go_on_from(before._known)
        for key, asked in before._asked.items():
            self._asked[key] = replace(asked, query=self._in_graph(asked))
        runs = (*before._queries, *before._ended.values())
        self._ended = {each.query.key: each for each in runs if each.query.key not in before._ran}
        self._released = before._released
        for key, asked in [*self._asked.items()]:
            # The state of what has ended goes with that of the others, if no batch has to be run for it.
            is_whole = asked.place is not None and standing(asked.place).is_whole
            if key in before._ran or (self.spec.repartition and is_whole):
                self._ask(asked)
        self._tell_of_partitions()
        started = []
        for asked in [self._asked[key] for key in self._asked if key in before._ran]:
            running = StartedQuery(asked, self._shared)
            self._listen(asked.session)
            self._tell_of(asked, is_new=False)
            try:
                running.start()
            except Exception as error:
                raise DriverError.of(describe(error, vertex=asked.query.sink.name)) from error
            started.append(running)
        # Only now: until then the start has its time limit.
        self._tell_of_run()
        self._on_started(*started)
        self._hides_ends = False

    def _tell_of_run(self) -> None:
        """The queries that ran run again."""
        self._tell_of_beginning()

    def _in_graph(self, asked: Asked) -> Query:
        """The query that is ``asked`` for, by the graph of now."""
        return self._grow(asked.vertices)

    def _go_on_from(self, before: InMainThread) -> None:
        assert isinstance(before, ProgramAttempt) and before._takeover is not None
        self._before, self._hides_ends = before, True
        self._session, self._takeover = before._session, before._takeover
        for listener in before._listeners.values():
            listener.close()
        self._takeover.go_over(self)
        while not before._inbox.empty():
            if isinstance(message := before._inbox.get(), ProgramEnded):
                self._inbox.put(message)
        before._after = self
        before._starting.release()

    def _can_be_followed(self) -> bool:
        if not self._ran or self._program_ended is not None or not self._starting.acquire(blocking=False):
            return False
        # From here on what the program starts is for the attempt that follows; not what it has started since the stop.
        if not (is_settled := self._starts == self._noted):
            self._starting.release()
        return is_settled

    def _begin_stop(self, order: Orders | Terminate) -> None:
        if self._stop is None:
            # In this order: what the program knows the end of is not started again without it.
            self._hides_ends = True
            ran = [each for each in self._queries if self._goes_on(each)]
            if not any(each.ends_by_itself for each in ran):
                self._ran = {each.query.key for each in ran}
        super()._begin_stop(order)

    def _try_stop(self) -> Ending | None:
        # A query that Spark is starting just now has to be stopped too, and what a batch waits for comes to its end.
        if self._starts != self._noted or any(each.is_active for each in self._of_batches):
            return None
        return super()._try_stop()

    def _on_committed(self, happening: Committed) -> None:
        if happening.run_id in self._by_run:
            super()._on_committed(happening)
        else:
            self._early.append(happening)

    def _on_ended(self, happening: Ended) -> None:
        running = self._by_run.get(happening.run_id)
        if running is None:
            self._early.append(happening)
            return
        super()._on_ended(happening)
        if running not in self._queries:
            del self._by_run[running.run_id]

    def _on_well_ended(self, running: StartedQuery) -> None:
        self._queries.remove(running)
        self._ended[running.query.key] = running
        if running.is_silent:
            # Else Spark still tells of its last batches.
            del self._by_run[running.run_id]
        if self._stop is None:
            self._tell_of_end(running.query.key)
        self._release_oldest()

    def _release_oldest(self) -> None:
        """Of queries that have ended long ago only names stay: a program may start other ones for months."""
        for key, run in [*self._ended.items()][:-ENDED_KEPT]:
            asked = self._asked.get(key)
            # What the program asks for again just now is kept.
            if asked is not None and asked.handle is run.asked.handle:
                self._released.add(key)
                del self._asked[key], self._ended[key]

    def _on_other(self, message: object) -> Ending | None:
        if isinstance(message, ProgramEnded):
            self._program_ended, self._last_told_until = message, time.monotonic() + _LAST_TOLD_S
            return self._on_program_ended(message)
        assert callable(message)
        ending: Ending | None = message()
        return ending

    def _on_start_of_program(self, running: StartedQuery) -> None:
        self._noted += 1
        if self._stop is not None:
            # It is not among those that ran, and the program takes it for one that runs.
            self._ran = set()
        self._on_started(running)

    def _on_started(self, *started: StartedQuery) -> None:
        for running in started:
            self._add(running)
        # Only now: what all of them have reached counts. What else is there is of runs that nobody asks for any more.
        early, self._early = self._early, []
        for happening in early:
            is_known = any(happening.run_id == running.run_id for running in started)
            if is_known and isinstance(happening, Committed):
                self._on_committed(happening)
            elif is_known and isinstance(happening, Ended):
                self._on_ended(happening)

    def _add(self, running: StartedQuery) -> None:
        if not self._runs:
            # What was applied before the first query was so to nothing.
            self._reported_version = 0
        elif self._reported_version:
            # That it did not run, since an attempt before or in this one, is the affair of the program.
            running.gaps.idle(epoch_ms())
        self._ended.pop(running.query.key, None)
        self._queries.append(running)
        self._by_run[running.run_id] = running
        running.take_plan()
        if self._stop is not None and running.ends_by_itself:
            # Nothing but a batch that is still to end starts a query now.
            self._of_batches.append(running)
        elif self._stop is not None:
            running.stop_at_boundary()

    def _tell_of_partitions(self) -> None:
        """Say what is not known yet of the state of the queries that the program has started."""
        found = {key: number for key, number in self._partitions.items() if key not in self._told_of}
        # In this order: the program may be starting another query.
        expected = partitions_of_queries(self._graph)
        self._told_of |= found.keys()
        if found and (self.spec.repartition or any(expected[key] != number for key, number in found.items())):
            self._report(type="repartitioned", state_partitions=found)

    def _report_applied(self) -> None:
        # What a program has begun with is in force when it has a query.
        if self._runs or self._plans.current.version > self.spec.plan_version:
            super()._report_applied()

    def _on_program_ended(self, ended: ProgramEnded) -> Ending | None:
        if self._stop is not None:
            # It is being stopped, and what the program makes of that does not matter.
            return None
        for running in self._queries:
            if (failure := running.failure()) is not None:
                return self._fail(failure)
        if ended.failure is not None:
            return self._fail(ended.failure)
        active = [each.query.sink.name for each in self._queries if each.is_active or each.is_interrupted]
        if active:
            return self._fail(
                Failure.final(
                    f"The program ended while its query of {active[0]} was running: "
                    "wait for it (query.awaitTermination()) or stop it."
                )
            )
        is_told = all(each.is_silent for each in self._by_run.values())
        if not is_told and time.monotonic() < self._last_told_until:
            # Spark tells of the last batches a moment later: the next look comes back here.
            return None
        return self._last_word(type="finished")

    @property
    def _may_be_its_fault(self) -> bool:
        if self._past_first_batch or any(each.has_committed for each in self._runs):
            return False
        is_first = self._knew_none or self.spec.attempt == 1
        return is_first and not (self._taken_up.is_set() and is_stopped(self._session))

    def _look_at_ended(self) -> Ending | None:
        # A query without data checks no ownership: the owner check ends the process if the job has another owner.
        self._may_commit()
        ending = super()._look_at_ended()
        if ending is None and self._program_ended is not None:
            ending = self._on_program_ended(self._program_ended)
        if not self._queries:
            # Whatever the program starts next runs at the plan of now.
            self._report_applied()
        return ending

    def _idle_queries(self) -> tuple[str, ...]:
        return (*self._ended, *super()._idle_queries())

    @property
    def _runs(self) -> Sequence[StartedQuery]:
        return [*self._queries, *self._ended.values()]

    def _location(self) -> str:
        """Where the checkpoints are: that of a script's only query may be its choice."""
        places = {str(each.checkpoint_dir) for each in self._runs}
        return places.pop() if len(places) == 1 else str(self._checkpoint_dir)

    # -- the threads of the program (`takeover.Host`)

    def start(self, asked: Start) -> StreamingQuery:
        """Start the query with valves in its plan, now and whenever it has failed.

        Raises:
            DriverError: it is another query than the one of this checkpoint or name, or is that one and runs.
        """
        with self._starting:
            if (after := self._after) is None:
                self._hang_if_over()
                self._await_taken_up()
                try:
                    known = self._asked_of(asked)
                except (RepartitionFailed, Fenced) as error:
                    self._inbox.put(error)
                    self._over.wait()
                    self._hang_if_over()
                    raise
                self._listen(known.session)
                self._start_for_program(StartedQuery(known, self._shared))
                return asked.handle
        return after.start(asked)

    def _start_for_program(self, running: StartedQuery) -> None:
        self._starts += 1
        try:
            running.start()
        except BaseException:
            # What the program makes of that is its own.
            self._starts -= 1
            self._tell_of_end(running.query.key)
            raise
        self._note_started(running.asked)
        self._inbox.put(partial(self._on_start_of_program, running))

    def _listen(self, session: SparkSession) -> None:
        asked = [each.asked for each in self._by_run.copy().values()]
        wanted = {id(each.session) for each in (*asked, *self._asked.values())}
        for unused in self._listeners.keys() - wanted:
            self._listeners.pop(unused).close()
        if id(session) not in self._listeners:
            self._listeners[id(session)] = QueryListener(self._inbox.put)
            self._listeners[id(session)].listen(session)

    def _note_started(self, asked: Asked) -> None:
        self._known.note(asked.vertices, asked.where, asked.handle)

    def _asked_of(self, start: Start) -> Asked:
        """What the program asks for, known to the control plane, and ready to be started."""
        check_runs_here(facts := start.facts)
        frame = writer_frame(start.writer)
        session = frame.sparkSession
        checkpoint = checkpoint_of(session, facts)
        found = self._known.read(frame, facts, checkpoint)
        sink = found[-1].name
        key = (own_dir := self._own_dir(sink)).name
        own, place = checkpoint, own_dir if checkpoint is None else directory_of(session, checkpoint)
        if own is not None and place is not None:
            # What is claimed is what Spark is told, also of a relative one. Its executors may not have the same links.
            own, place = f"file:{place}", place.resolve()
        first = None
        if key in self._asked or key in self._released:
            self._end_before(key, own_dir if checkpoint is None else None)
        else:
            first = FirstStart(frame, facts, found, checkpoint, place, own_dir)
            first.check(self.spec, self._origin, self._stored)
        stored = self._stored.get(sink)
        partitions = None if stored is None else stored.state_partitions
        partitions = partitions or state_partitions_of(session, place)
        found = with_facts(found, session, facts, checkpoint, partitions)
        query = self._grow(found)
        if first is not None and stored is not None:
            first.check_successor(stored, query)
        asked = Asked.of(start, query=query, vertices=found, checkpoint=own, own_dir=own_dir, place=place)
        # Its names are taken, whatever comes of the start.
        self._known.note(found, start.where)
        anew = first is not None and first.begins_anew
        self._tell_of(asked, is_new=stored is None or stored.flow != query.flow, begins_anew=anew)
        with limited(self.spec, self._inbox.put):
            self._ask(asked)
        self._inbox.put(self._tell_of_partitions)
        return asked

    def _own_dir(self, sink: str) -> Path:
        return self._checkpoint_dir / vertex_id(self._graph.name, sink)

    def _end_before(self, key: str, own_dir: Path | None) -> None:
        """The run of a query that has ended, which the program starts again: everything of it is noted. Without a
        checkpoint that it has chosen the query begins anew, in ``own_dir``.

        Raises:
            DriverError: something of it is still at work there.
        """
        answer: Future[StartedQuery | None] = Future()
        self._inbox.put(partial(self._retire, key, answer))
        while not answer.done():
            self._hang_if_over()
            time.sleep(_POLL_S / 10)
        before, until = answer.result(), time.monotonic() + END_S
        if own_dir is None or (before is None and key not in self._released):
            return
        while before is not None and not before.is_gone():
            if time.monotonic() > until:
                raise DriverError(
                    f"What the former run had begun did not end within {END_S:.0f} s.", recoverable=True
                )
            time.sleep(_POLL_S)
        self._may_commit()
        begin_anew(own_dir)

    def _retire(self, key: str, answer: Future[StartedQuery | None]) -> Ending | None:
        """In the thread of the attempt."""
        for running in [each for each in self._queries if each.query.key == key]:
            if (failure := running.failure()) is not None:
                # The restart strategy decides, not the program.
                return self._fail(failure)
            self._on_well_ended(running)
        answer.set_result(self._ended.get(key))
        return None

    def _grow(self, vertices: tuple[PlannedVertex, ...]) -> Query:
        """The query with these ``vertices``, which are in the graph and in the plan from here on.

        Raises:
            DriverError: they do not go with the graph.
        """
        sink = vertices[-1].name
        if (stored := self._stored.get(sink)) is not None and stored.state_partitions is not None:
            # What the job says counts, and not what they had before.
            vertices = with_partitions(vertices, stored.state_partitions)
        try:
            graph = grown(self._graph, vertices)
        except GraphErrors as error:
            raise DriverError(f"the query of {sink} cannot be one of the job: {error}") from error
        if graph is not self._graph:
            self._graph, self._stored = graph, {query.sink.name: query for query in queries(graph)}
        query = self._stored[sink]
        self._plans.grow({vertex.id: vertex.parallelism for vertex in query.flow})
        return query

    def _tell_of(self, asked: Asked, *, is_new: bool, begins_anew: bool = False) -> None:
        """The control plane is to hear of a query before its first batch; if it is away, later."""
        numbers = self._plans.current.parallelism
        self._report(
            type="query-started",
            query=asked.query.key,
            planned=asked.vertices,
            parallelism={vertex.id: numbers[vertex.id] for vertex in asked.query.flow},
            begins_anew=begins_anew,
        )
        if is_new and self._client is not None:
            self._client.flush(_TOLD_WITHIN_S)

    def _tell_of_end(self, key: str) -> None:
        self._report(type="query-ended", query=key)

    def _ask(self, asked: Asked) -> None:
        """Note a query, which is to be started now, and let its state have the partitions that were ordered."""
        given = asked.give_partitions(
            self._shared,
            ordered=self.spec.repartition,
            run_planned_batch=lambda: StartedQuery(asked, self._shared).run_planned_batch(),
        )
        # Another thread may be reading it.
        self._partitions = {**self._partitions, **given}
        self._asked[asked.query.key] = asked

    def restarts(self, error: StreamingQueryException) -> bool:
        return is_of_interruption(error) or self._may_hold(describe(error))
