"""Redistributing the state of a job's queries, before they are started.

What Spark has for it writes a batch of its own into a checkpoint whose batches are all committed, and leaves that batch
half done when it fails. So it is given a copy, which takes the place of the checkpoint when it is complete:

1. The query of a checkpoint with a planned batch runs that batch once more, and nothing else.
2. The checkpoints of all queries concerned are copied, and the copies redistributed.
3. The fence is looked at, and the copies take the places of the checkpoints.

Until 3 a failure leaves the state as it was; from 3 on whoever comes next goes on with 3.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any

from pyspark import __version__
from pyspark.sql import SparkSession

from app.driver import checkpoints
from app.driver.failures import DriverError, describe
from app.model.analysis import Query
from app.model.protocol import DriverSpec
from app.model.sentences import duration_in_words

log = logging.getLogger(__name__)

_MANAGER = "_streamingCheckpointManager"


class RepartitionFailed(DriverError):
    """The state could not be redistributed, and is as it was."""


@contextmanager
def limited(spec: DriverSpec, put: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """If a redistribution takes too long here, what is ``put`` raises `RepartitionFailed`, for the attempt."""
    limit_ms, is_done = spec.repartition_timeout_ms, threading.Event()

    def look() -> None:
        if not is_done.is_set():
            told = f"it took longer than {duration_in_words(limit_ms)} (slotwise.state.repartition.timeout)"
            raise RepartitionFailed(told, recoverable=True)

    timer = threading.Timer(limit_ms / 1000, put, [look])
    if spec.repartition and limit_ms:
        timer.start()
    try:
        yield
    finally:
        is_done.set()
        timer.cancel()


@dataclass
class Repartitioner:
    """For the queries with state of one job. Used before any of them is started.

    ``session`` gives one that is for so many state partitions, ``place`` the checkpoint of a query.
    ``run_planned_batch(query)`` runs what is planned of a query, and nothing else. ``may_commit`` raises if the job
    is somebody else's now.
    """

    queries: InitVar[Sequence[Query]]
    session: Callable[[int], SparkSession]
    place: Callable[[Query], Path]
    run_planned_batch: Callable[[Query], None]
    may_commit: Callable[[], None]

    def __post_init__(self, queries: Sequence[Query]) -> None:
        self._wanted = {query: number for query in queries if (number := query.state_partitions) is not None}

    def finish(self) -> None:
        """Go on with what a driver before had decided."""
        for query in self._wanted:
            checkpoints.finish_replacing(self.place(query))

    def found(self) -> dict[str, int]:
        """How many partitions the state of each query has, by its key; one that never ran has as many as are wanted."""
        return {query.key: self._found(query, wanted) for query, wanted in self._wanted.items()}

    def run(self) -> None:
        """Give each query the partitions that its graph says.

        Raises:
            RepartitionFailed: it was not possible; every checkpoint is as it was.
            DriverError: a planned batch could not be run.
            Fenced: another driver owns the job.
        """
        concerned = {
            query: wanted for query, wanted in self._wanted.items() if self._found(query, wanted) != wanted
        }
        for query in concerned:
            place = checkpoints.standing(self.place(query))
            if not place.is_whole and place.abandoned is None:
                self.run_planned_batch(query)
        try:
            for query, wanted in concerned.items():
                self._redistribute(query, wanted)
        except Exception as error:
            self._clear(concerned)
            raise RepartitionFailed(describe(error).sentence, recoverable=True) from error
        self.may_commit()
        for query in concerned:
            checkpoints.make_ready(self.place(query))
        for query in concerned:
            self._swap(query)

    def _found(self, query: Query, wanted: int) -> int:
        place = self.place(query)
        if not checkpoints.has_state(place):
            return wanted
        now = checkpoints.standing(place)
        found = now.planned_partitions if now.partitions is None else now.partitions
        return wanted if found is None else found

    def _redistribute(self, query: Query, wanted: int) -> None:
        copy = self._copy(query)
        now = checkpoints.standing(copy)
        # One that was begun in this checkpoint by hand: Spark lets nothing else be done before it is finished.
        abandoned = now.abandoned
        numbers = [wanted] if abandoned is None else [abandoned, wanted]
        for number in numbers:
            if checkpoints.standing(copy).partitions == number:
                continue
            _redistribute(self.session(number), copy, number)
            checkpoints.mark_repartitioned(copy, checkpoints.standing(copy).committed)
        after = checkpoints.standing(copy)
        if not after.is_whole or after.partitions != wanted:
            raise DriverError(
                f"Spark left {after.partitions} partitions instead of {wanted}, or an open batch."
            )

    def _copy(self, query: Query) -> Path:
        return checkpoints.copy_beside(self.place(query))

    def _swap(self, query: Query) -> None:
        checkpoints.finish_replacing(self.place(query))

    def _clear(self, concerned: Mapping[Query, int]) -> None:
        for query in concerned:
            try:
                checkpoints.discard(checkpoints.beside(self.place(query), "next"))
            except OSError as error:
                log.warning("the copy of a checkpoint could not be removed: %s", error)


def why_impossible() -> str | None:
    """Why this PySpark cannot redistribute state, as a clause; None if it can."""
    if hasattr(SparkSession, _MANAGER):
        return None
    return f"PySpark {__version__} cannot redistribute state, which 4.2 and newer can"


def _redistribute(session: SparkSession, checkpoint: Path, partitions: int) -> None:
    if (why := why_impossible()) is not None:
        raise DriverError(f"{why}.")
    manager: Any = getattr(session, _MANAGER)
    manager.repartition(str(checkpoint), partitions, True)
