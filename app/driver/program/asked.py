"""What a program asked of one query when it started it: enough to start it again, any number of times."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.driver.failures import DriverError
from app.driver.locks import claim_own_checkpoint
from app.driver.plans import Plans
from app.driver.program.handle import Beginning
from app.driver.program.query import ProgramQuery
from app.driver.repartition import Repartitioner
from app.driver.scala import scala_context
from app.driver.session import own_session
from app.driver.sinklog import complete_sink_log, folder_of_files
from app.driver.sources.planned_files import check_planned_files, may_be_gone
from app.driver.state_places import StatePlaces
from app.driver.valves.insert import insert_valves
from app.driver.valves.shape import options_of_sources
from app.driver.valves.spark import WriterFacts, copy_of_writer, replace_frame, writer_frame
from app.model.analysis import Query
from app.model.ownsettings import SHUFFLE_PARTITIONS
from app.model.planned import PlannedVertex

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_setting = threading.Lock()


@dataclass(frozen=True, slots=True)
class Asked:
    """``writer`` is a copy of the program's, which may go on using its own; ``frame`` is without valves.

    ``checkpoint`` is where the program wants it, None if it lies in ``own_dir``, that of the job for the query.
    ``place`` is the checkpoint as a directory of this host; None if it is none. ``properties`` are those of the thread
    of the program.
    """

    query: Query
    vertices: tuple[PlannedVertex, ...]
    facts: WriterFacts
    writer: DataStreamWriter
    frame: DataFrame
    begin: Beginning
    checkpoint: str | None
    own_dir: Path
    place: Path | None
    properties: Any

    @classmethod
    def of(cls, writer: DataStreamWriter, **fields: Any) -> Asked:
        """In the thread of the program."""
        frame = writer_frame(writer)
        properties = scala_context(frame.sparkSession.sparkContext).getLocalProperties().clone()
        return cls(writer=copy_of_writer(writer), frame=frame, properties=properties, **fields)

    @property
    def session(self) -> SparkSession:
        return self.frame.sparkSession

    def run(
        self,
        plans: Plans,
        may_commit: Callable[[], None],
        *,
        between_batches: Callable[[], None] = lambda: None,
        places: Callable[[str], StatePlaces] | None = None,
        once: bool = False,
    ) -> ProgramQuery:
        """A run of the query that is to be started. ``once``: it ends behind the batch that is planned, unseen by the
        program.

        Raises:
            DriverError: a file of the batch that is planned and not committed is not what it was.
        """
        if self.place is not None:
            check_planned_files(self.place, may_be_gone=self._files_may_be_gone)
        writer = copy_of_writer(self.writer).option(
            "checkpointLocation", self.checkpoint or str(self.own_dir)
        )
        if once:
            writer = writer.trigger(once=True)

        ids = {vertex.name: vertex.id for vertex in self.query.flow}

        def begin(parallelism: Mapping[str, int]) -> StreamingQuery:
            # Spark's thread of a query takes them, such as its scheduler pool, from the one that starts it.
            scala_context(self.session.sparkContext).setLocalProperties(self.properties.clone())
            replace_frame(writer, insert_valves(self.frame, self.vertices, ids, parallelism))
            with self._state_partitions():
                return self.begin.unseen(writer) if once else self.begin(writer)

        return ProgramQuery(
            self.query,
            session=self.session,
            plans=plans,
            checkpoint_dir=self.place or Path(self.checkpoint or self.own_dir),
            own_dir=self.own_dir,
            ends_by_itself=self.facts.trigger in ("available-now", "once"),
            may_commit=may_commit,
            begin=begin,
            between_batches=between_batches,
            places=places,
        )

    def _files_may_be_gone(self) -> bool:
        return may_be_gone(self.session, options_of_sources(self.frame, self.facts.output_mode))

    @contextmanager
    def _state_partitions(self) -> Iterator[None]:
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

    def give_partitions(
        self,
        plans: Plans,
        *,
        lock_file: str,
        ordered: bool,
        limit_ms: int,
        may_commit: Callable[[], None],
    ) -> dict[str, int]:
        """Claim the checkpoint, and let the state have its partitions if that is ``ordered``; how many it has, by key.

        Raises:
            RepartitionFailed: it was not possible; the checkpoint is as it was.
            DriverError: a planned batch could not be run, or another driver writes the checkpoint.
            Fenced: ``may_commit`` says that the job is somebody else's.
        """
        place = self.place
        if place is None:
            if ordered and self.query.state_partitions is not None:
                raise DriverError(f"The checkpoint {self.checkpoint} is no directory of this host.")
            return {}
        self._claim(lock_file)
        work = Repartitioner(
            [self.query],
            session=self._session_for,
            place=lambda _: place,
            settle=lambda _: self.run(plans, may_commit, once=True).settle(limit_ms, may_commit),
            may_commit=may_commit,
        )
        work.finish()
        if ordered and not self._has_limit:
            work.run()
        # Another directory may be in its place.
        self._claim(lock_file)
        complete_sink_log(self.session, partial(folder_of_files, self.session, self.facts), place)
        return {} if self._has_limit else work.found()

    def _claim(self, lock_file: str) -> None:
        if self.checkpoint is not None and self.place is not None:
            claim_own_checkpoint(self.place, lock_file=lock_file)

    def _session_for(self, partitions: int) -> SparkSession:
        settings = {str(key): str(value) for key, value in self.session.conf.getAll.items()}
        return own_session(self.session, {**settings, SHUFFLE_PARTITIONS: str(partitions)})
