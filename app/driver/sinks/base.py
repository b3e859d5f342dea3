"""The base of all sinks: the batch that a sink gets, its answer, and its errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from app.driver.failures import TRANSIENT_ERRNOS, DriverError

MayCommit = Callable[[], None]
"""Raises `Fenced` when a newer driver owns the job. A sink calls it immediately before its commit point."""


@dataclass(frozen=True, slots=True)
class BatchRef:
    """A micro-batch. One that is re-run has the same ``query_id`` and ``batch_id``; ``epoch`` is the owner's."""

    query_id: str
    batch_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Written:
    """``rows`` of the batch, None where the sink does not know.

    ``repeated``: the batch had been written before, nothing was written again, and ``rows`` are those of then.
    """

    rows: int | None
    repeated: bool = False


class Sink(ABC):
    """Where the rows of one query go. Its options were checked when the job was submitted."""

    def prepare(self) -> None:
        """Check, once per start of the query, that the target can be written; make what is missing.

        Raises:
            DriverError: it cannot.
        """
        return

    def check(self, frame: DataFrame) -> None:
        """Whether rows with the columns of ``frame``, a stream that is never run, can be written.

        Raises:
            DriverError: the options of the sink do not fit the columns.
        """
        return

    def check_records(self, next_batch: BatchRef) -> None:
        """Whether a query can go on with ``next_batch`` here, which comes from a job of before.

        Raises:
            DriverError: what is on record here of the query is later than that.
        """
        return

    @abstractmethod
    def write(self, frame: DataFrame, batch: BatchRef, may_commit: MayCommit) -> Written:
        """Write ``frame`` by exactly one Spark action over all its partitions, repeated batch or not.

        Raises:
            DriverError: the target refuses the rows, or cannot be reached.
            Fenced: a newer driver owns the job; nothing of the batch was written.
        """


def os_error(error: OSError, doing: str, vertex: str) -> DriverError:
    """``error`` as a sentence: '<doing>: <reason>.' A full disk may be a roomy one at the next attempt."""
    reason = error.strerror or type(error).__name__
    return DriverError(f"{doing}: {reason}.", vertex=vertex, recoverable=error.errno in TRANSIENT_ERRNOS)


def run_without_output(frame: DataFrame) -> None:
    """The one action, without using its rows: running all partitions commits the state."""
    frame.write.format("noop").mode("overwrite").save()
