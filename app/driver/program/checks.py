"""What is looked at before a query of a program is started and anything of it is written: whether it can run here at
all, and whether it goes with the checkpoint that it goes on from. What Spark refuses by itself is left to Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from app.driver.checkpoints import begins_anew, standing
from app.driver.directories import directory_of
from app.driver.failures import DriverError
from app.driver.program.facts import own_directory
from app.driver.program.origin import Origin, StateMismatch, adopt, check_state
from app.driver.valves.shape import count_sources
from app.driver.valves.spark import WriterFacts
from app.model.analysis import Query
from app.model.compatibility import query_incompatibilities
from app.model.formats import FILE_FORMATS
from app.model.jobgraph import PlannedSpec
from app.model.planned import PlannedVertex
from app.model.protocol import DriverSpec

_REFUSED_TRIGGERS: Final = {
    "real-time": "a real-time trigger (realTime)",
    "continuous": "a continuous trigger (continuous)",
}


def check_runs_here(facts: WriterFacts) -> None:
    """
    Raises:
        DriverError: Spark would run the query, or fail at its first batch; here it cannot be.
    """
    if facts.trigger in _REFUSED_TRIGGERS:
        raise DriverError(
            f"{_REFUSED_TRIGGERS[facts.trigger]} is not possible: its tasks run for ever and cannot be rescaled. "
            "Use processingTime, availableNow or once."
        )
    if facts.format in FILE_FORMATS and not facts.path and not facts.table:
        raise DriverError(
            f"the query has no sink: start() without a format is {facts.format}, which needs a path. Give it a "
            "format(...), or start(path), or toTable(name)."
        )


@dataclass(frozen=True, slots=True)
class FirstStart:
    """A query that this run of its program has not started before. ``checkpoint`` is the one that the program has
    chosen, and ``place`` where it is on this host; ``own_dir`` that of the job for the query."""

    frame: DataFrame
    facts: WriterFacts
    vertices: Sequence[PlannedVertex]
    checkpoint: str | None
    place: Path | None
    own_dir: Path

    def check(self, spec: DriverSpec, origin: Origin | None, stored: Iterable[str]) -> None:
        """See whether the query goes with its checkpoint, which is a copy of that in ``origin`` from here on, if there
        is one. ``stored``: the sinks of the queries that the job has, or has had.

        Raises:
            DriverError: it does not, or it could not be copied.
        """
        if origin is not None:
            self._adopt(origin, stored, spec)
        if self.place is not None and (spec.on_trial or (origin is None and spec.attempt == 1)):
            self._compare_state(self.place, spec)

    @property
    def begins_anew(self) -> bool:
        """Whether the query has been further than its checkpoint, which is empty or gone."""
        return self.place is not None and begins_anew(self.own_dir, self.place)

    def _adopt(self, origin: Origin, stored: Iterable[str], spec: DriverSpec) -> None:
        if self.place is None:
            raise DriverError(
                f"from: the query of {self._sink} has the checkpointLocation {self.checkpoint} on another file system, "
                "to which no checkpoint can be copied."
            )

        if spec.attempt == 1:
            # Whatever is in its place is not of an attempt before.
            found = self.find(spec, origin, stored)
            adopt(lambda: found, self.place)
        else:
            adopt(lambda: self.find(spec, origin, stored), self.place)

    def find(self, spec: DriverSpec, origin: Origin, stored: Iterable[str]) -> Path:
        """The checkpoint in ``origin`` that the query is to go on from. ``stored`` as in `check`.

        Raises:
            DriverError: there is none, or the query does not go with it.
        """
        others = [sink for sink in stored if sink != self._sink]
        found = origin.checkpoint_of(self._sink, others, self.own_dir.name)
        path = self.facts.path if self.facts.format in FILE_FORMATS and not self.facts.table else None
        folder = directory_of(self.frame.sparkSession, path) if path else None
        own = self.place if self.checkpoint else None
        origin.check(found, self.vertices, count_sources(self.frame), own, folder)
        try:
            self._compare_state(found, spec)
        except StateMismatch as error:
            raise StateMismatch(f"from: {error}") from None
        return found

    def _compare_state(self, checkpoint: Path, spec: DriverSpec) -> None:
        with tempfile.TemporaryDirectory(prefix="state-", dir=spec.work_dir) as scratch:
            check_state(self.frame, self.facts.output_mode, self.vertices, checkpoint, Path(scratch) / "new")

    def check_successor(self, before: Query, now: Query) -> None:
        """``before``: the query as the job has had it, in an earlier attempt or version; ``now``: as it is to be.

        Raises:
            DriverError: it has a checkpoint with which the query of now cannot go on.
        """
        of = before.sink.operation
        assert isinstance(of, PlannedSpec)
        session = self.frame.sparkSession
        place = self.own_dir if of.checkpoint is None else own_directory(session, of.checkpoint)
        has_begun = place is None or standing(place).planned >= 0
        if has_begun and (told := query_incompatibilities(before, now)):
            raise DriverError(" ".join(told))

    @property
    def _sink(self) -> str:
        return self.vertices[-1].name
