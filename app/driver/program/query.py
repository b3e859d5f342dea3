"""A query of a program: what the program asked of it when it started it, and each run of that, with valves in Spark's
own plan and a gateway before its sink."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from app.driver.checkpoints import begin_anew
from app.driver.failures import DriverError
from app.driver.gate import start_behind
from app.driver.locks import claim_own_checkpoint
from app.driver.program.facts import PLAN_NOTE, plan_digest
from app.driver.program.handle import Handle
from app.driver.program.origin import SINK_NOTE
from app.driver.repartition import Repartitioner
from app.driver.scala import scala_context
from app.driver.session import own_session
from app.driver.sinks.native import complete_sink_log, folder_of_files
from app.driver.sources.planned_files import check_planned_files, may_be_gone
from app.driver.started_query import Shared, StartedQuery
from app.driver.valves.insert import insert_valves
from app.driver.valves.shape import options_of_sources
from app.driver.valves.spark import WriterFacts, copy_of_writer, replace_frame, writer_frame
from app.model.analysis import Query
from app.model.ownsettings import SHUFFLE_PARTITIONS
from app.model.planned import PlannedVertex

_setting = threading.Lock()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a program asked of a query: enough to start it any number of times.

    ``writer`` is a copy of the program's, which may go on using its own; ``frame`` is without valves. ``checkpoint`` is
    where the program wants it, None if it lies in ``own_dir``, that of the job for the query, where drivers leave their
    notes. ``place`` is the checkpoint as a directory of this host, links followed; None if it is none. ``where`` in the
    program it was asked. ``properties`` are those of the thread of the program.
    """

    query: Query
    vertices: tuple[PlannedVertex, ...]
    facts: WriterFacts
    writer: DataStreamWriter
    frame: DataFrame
    handle: Handle
    where: str
    checkpoint: str | None
    own_dir: Path
    place: Path | None
    properties: Any

    @classmethod
    def of(cls, writer: DataStreamWriter, **fields: Any) -> Asked:
        """Note what the program asks of ``writer``; called in the thread of the program."""
        frame = writer_frame(writer)
        properties = scala_context(frame.sparkSession.sparkContext).getLocalProperties().clone()
        return cls(writer=copy_of_writer(writer), frame=frame, properties=properties, **fields)

    @property
    def session(self) -> SparkSession:
        return self.frame.sparkSession

    @property
    def location(self) -> str:
        """The location of the checkpoint that Spark is told."""
        return self.checkpoint or str(self.own_dir)

    def prepare(self) -> None:
        """The directory of the job for the query, without the checkpoint there if Spark could not go on from it: the
        rows of a table in memory are gone with the run before, unless each batch writes all of them."""
        if self.checkpoint is None and self.facts.format == "memory" and self.facts.output_mode != "complete":
            begin_anew(self.own_dir, same_query=True)
        self.own_dir.mkdir(parents=True, exist_ok=True)

    def files_may_be_gone(self) -> bool:
        return may_be_gone(self.session, options_of_sources(self.frame, self.facts.output_mode))

    @contextmanager
    def state_partitions(self) -> Iterator[None]:
        """The session with the number of the job, which a new checkpoint gets; one that is there has its own."""
        number, conf = self.query.state_partitions, self.session.conf
        if number is None or self._has_limit:
            yield
            return
        # Queries are started by threads of the program, and again by that of the attempt.
        with _setting:
            before = conf.get(SHUFFLE_PARTITIONS)
            conf.set(SHUFFLE_PARTITIONS, str(number))
            try:
                yield
            finally:
                conf.set(SHUFFLE_PARTITIONS, before)  # type: ignore[arg-type]

    @property
    def _has_limit(self) -> bool:
        """Its number of partitions is that of a limit, one, and not that of the checkpoint."""
        return any(vertex.operator == "GlobalLimit" for vertex in self.vertices)

    def give_partitions(self, shared: Shared, *, ordered: bool) -> dict[str, int]:
        """Claim the checkpoint, and let the state have its partitions if that is ``ordered``; how many it has, by key.

        Raises:
            RepartitionFailed: it was not possible; the checkpoint is as it was.
            DriverError: a planned batch could not be run, or another driver writes the checkpoint.
            Fenced: another driver owns the job.
        """
        self.prepare()
        place = self.place
        if place is None:
            if ordered and self.query.state_partitions is not None:
                raise DriverError(f"The checkpoint {self.checkpoint} is no directory of this host.")
            return {}
        self._claim(shared.lock_file)
        work = Repartitioner(
            [self.query],
            session=self._session_for,
            place=lambda _: place,
            run_planned_batch=lambda _: ProgramQuery(self, shared).run_planned_batch(),
            may_commit=shared.may_commit,
        )
        work.finish()
        if ordered and not self._has_limit:
            work.run()
        # Another directory may be in its place.
        self._claim(shared.lock_file)
        complete_sink_log(self.session, partial(folder_of_files, self.session, self.facts), place)
        return {} if self._has_limit else work.found()

    def _claim(self, lock_file: str) -> None:
        if self.checkpoint is not None and self.place is not None:
            claim_own_checkpoint(self.place, lock_file=lock_file)

    def _session_for(self, partitions: int) -> SparkSession:
        settings = {str(key): str(value) for key, value in self.session.conf.getAll.items()}
        return own_session(self.session, {**settings, SHUFFLE_PARTITIONS: str(partitions)})


class ProgramQuery(StartedQuery):
    """One run of a query of a program."""

    def __init__(self, asked: Asked, shared: Shared) -> None:
        asked.prepare()
        (asked.own_dir / SINK_NOTE).write_text(asked.query.sink.name, encoding="utf-8")
        if asked.checkpoint is None:
            (asked.own_dir / PLAN_NOTE).write_text(plan_digest(asked.frame), encoding="ascii")
        place = asked.place or Path(asked.location)
        super().__init__(asked.query, shared, checkpoint_dir=place, begun_in=asked.own_dir)
        self.ends_by_itself = asked.facts.ends_by_itself
        self.asked = asked
        # Spark has told of its end, and tells nothing of it any more.
        self.is_silent = False

    def ended(self) -> None:
        super().ended()
        self.is_silent = True

    def start(self) -> None:
        """In the thread of the program, and when it is started again in that of the attempt.

        Raises:
            DriverError: a file of the batch that is planned and not committed is not what it was.
        """
        asked = self.asked
        if asked.place is not None:
            check_planned_files(asked.place, notes=asked.own_dir, may_be_gone=asked.files_may_be_gone)
        started = start_behind(self.gateway, asked.session, self._begin)
        self._started(started, asked.session.sparkContext)

    def _begin(self) -> StreamingQuery:
        asked, parallelism = self.asked, self._plans.current.parallelism
        writer = copy_of_writer(asked.writer).option("checkpointLocation", asked.location)
        # Spark's thread of a query takes them, such as its scheduler pool, from the one that starts it.
        scala_context(asked.session.sparkContext).setLocalProperties(asked.properties.clone())
        ids = {vertex.name: vertex.id for vertex in self.query.flow}
        replace_frame(writer, insert_valves(asked.frame, asked.vertices, ids, parallelism))
        with asked.state_partitions():
            if self._once:
                return asked.handle.begin_unseen(writer.trigger(once=True))
            return asked.handle.begin(writer)
