"""What a run of a query is given: what the program, a script or a graph document, asked for when it started the query,
and what all queries of an attempt share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from app.driver.checkpoints import begin_anew
from app.driver.failures import DriverError
from app.driver.locks import claim_own_checkpoint
from app.driver.plans import Plans
from app.driver.program.handle import Handle
from app.driver.program.takeover import Start
from app.driver.repartition import Repartitioner
from app.driver.scala import scala_context
from app.driver.session import own_session
from app.driver.sinks.folder import complete_sink_log, folder_of_files
from app.driver.sources.planned_files import may_be_gone
from app.driver.state_places import StatePlaces
from app.driver.upkeep import Upkeep
from app.driver.valves.insert import insert_valves
from app.driver.valves.shape import options_of_sources
from app.driver.valves.spark import WriterFacts, copy_of_writer, writer_frame
from app.model.analysis import Query
from app.model.ownsettings import SHUFFLE_PARTITIONS
from app.model.planned import PlannedVertex

_setting = threading.Lock()


@dataclass(frozen=True, slots=True)
class Shared:
    """What the queries of an attempt have in common.

    ``may_commit`` raises if the job is somebody else's. ``limit_ms``: for how long a batch may run; 0: for ever.
    ``target_ms``: for how long one should run, see `app.driver.intake.Intake`. ``max_wait_ms``, ``interruptible``: see
    `app.driver.interruption`. ``spread_sources``: whether rows may be spread
    (`app.driver.valves.spreading`); None: by the sink.
    ``places`` makes those of some state on a cluster, for a key; None: state is in this process. ``measure_load``: see
    `app.driver.load.SparkFigures.in_full`. ``since_ms``: as `GapMeter` has it, of a query that is started now.
    ``epoch``: of the job's owner.
    """

    plans: Plans
    lock_file: str
    may_commit: Callable[[], None]
    limit_ms: int = 0
    target_ms: int | None = None
    max_wait_ms: int = 0
    interruptible: bool | None = None
    spread_sources: bool | None = None
    measure_load: bool = True
    between_batches: Callable[[], None] = lambda: None
    places: Callable[[str], StatePlaces] | None = None
    since_ms: Callable[[], int] = lambda: 0
    epoch: Callable[[], int] = lambda: 0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a program asked of a query: enough to start it any number of times.

    ``writer`` is a copy of the program's, which may go on using its own; ``frame`` is without valves. ``checkpoint`` is
    where the program wants it, None if it lies in ``own_dir``, that of the job for the query, where drivers leave their
    notes. ``place`` is the checkpoint as a directory of this host, links followed; None if it is none. ``where`` in the
    program it was asked. ``properties`` are those of the thread of the program. A document has no ``vertices`` to be
    read from a plan, and has an ``upkeep``.
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
    upkeep: Upkeep = field(default_factory=Upkeep)

    @classmethod
    def of(cls, start: Start, **fields: Any) -> Asked:
        """Note what the program asks for; called in its thread."""
        frame = writer_frame(start.writer)
        return cls(
            writer=copy_of_writer(start.writer),
            frame=frame,
            facts=start.facts,
            handle=start.handle,
            where=start.where,
            properties=scala_context(frame.sparkSession.sparkContext).getLocalProperties().clone(),
            **fields,
        )

    @classmethod
    def by_document(cls, start: Start, query: Query) -> Asked:
        """The same of a document, of which it is the ``query``."""
        assert start.document is not None
        place = start.document.checkpoint
        own = {"own_dir": place, "place": place, "upkeep": start.document}
        return cls.of(start, query=query, vertices=(), checkpoint=None, **own)

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
        return may_be_gone(self.session, options_of_sources(self.frame))

    def frame_at(self, parallelism: Mapping[str, int], *, may_spread: bool) -> DataFrame:
        """The frame of a run that begins at these numbers, by vertex id, with valves. ``may_spread``: those too that
        can spread the rows of a source.

        Raises:
            DriverError: a vertex of a document cannot be built.
        """
        if (built := self.upkeep.build(parallelism)) is not None:
            return built
        ids = {vertex.name: vertex.id for vertex in self.query.flow}
        return insert_valves(self.frame, self.vertices, ids, parallelism, may_spread=may_spread)

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

    def give_partitions(
        self, shared: Shared, *, ordered: bool, run_planned_batch: Callable[[], None]
    ) -> dict[str, int]:
        """Claim the checkpoint, and let the state have its partitions if that is ``ordered``; how many it has, by key.
        ``run_planned_batch`` runs what is planned of the query, and nothing else.

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
            run_planned_batch=lambda _: run_planned_batch(),
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
