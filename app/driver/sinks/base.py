"""What every sink shares: the batch it is given, what it answers, and its options."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from app.driver.failures import DriverError
from app.model.jobgraph import JobVertex, SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MayCommit = Callable[[], None]
"""Raises `Fenced` when somebody newer owns the job. A sink calls it immediately before its commit point."""

TRANSIENT_ERRNOS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN}
)
"""Errors of the operating system that may be gone at the next attempt."""


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


class Sink(Protocol):
    """Where the rows of one query go."""

    def prepare(self) -> None:
        """Check, once per start of the query, that the target can be written; make what is missing.

        Raises:
            DriverError: it cannot.
        """

    def check(self, frame: DataFrame) -> None:
        """Whether rows with the columns of ``frame``, a stream that is never run, can be written.

        Raises:
            DriverError: the options of the sink do not fit the columns.
        """

    def write(self, frame: DataFrame, batch: BatchRef, may_commit: MayCommit) -> Written:
        """Write ``frame`` by exactly one Spark action over all its partitions, repeated batch or not.

        Raises:
            DriverError: the target refuses the rows, or cannot be reached.
            Fenced: somebody newer owns the job; nothing of the batch was written.
        """

    def close(self) -> None:
        """Nothing of the query lives any more, and the process goes on: give back what it needed."""


@dataclass(frozen=True)
class Options:
    """The options of one sink, read by name. Every refusal is a `DriverError` that names the option."""

    vertex: str
    format: str
    # Not shown: a password may be in a value.
    values: dict[str, str] = field(repr=False)

    @classmethod
    def of(cls, vertex: JobVertex, spec: SinkSpec, known: Iterable[str]) -> Options:
        """The options of ``vertex``; those that are not ``known`` are refused."""
        options = cls(vertex.name, spec.format, dict(spec.options))
        names = sorted(known)
        for name in options.values:
            if name not in names:
                allowed = f"its options are {', '.join(names)}" if names else "it has none"
                raise options.error(f"does not know the option {name}: {allowed}.")
        return options

    def error(self, rest: str) -> DriverError:
        """A final error; ``rest`` goes on after 'The <format> sink <name> '."""
        return DriverError(f"The {self.format} sink {self.vertex} {rest}", vertex=self.vertex)

    def required(self, name: str) -> str:
        value = self.values.get(name, "").strip()
        if not value:
            raise self.error(f"needs the option {name}.")
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.values.get(name, default)
        if value not in allowed:
            raise self.error(f"has the option {name}: {value}, which must be one of {', '.join(allowed)}.")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def names(self, name: str) -> tuple[str, ...]:
        """A comma list of distinct names; empty when the option is not given."""
        text = self.values.get(name, "")
        found = tuple(part.strip() for part in text.split(",")) if text.strip() else ()
        if not all(found) or len(set(found)) != len(found):
            raise self.error(
                f"has the option {name}: {text}, which must be different names with commas between."
            )
        return found


def os_error(error: OSError, doing: str, vertex: str) -> DriverError:
    """``error`` as a sentence: '<doing>: <reason>.' A full disk may be a roomy one at the next attempt."""
    reason = error.strerror or type(error).__name__
    return DriverError(f"{doing}: {reason}.", vertex=vertex, recoverable=error.errno in TRANSIENT_ERRNOS)


def run_without_output(frame: DataFrame) -> None:
    """The one action, its rows thrown away: state is committed by running all partitions, whoever reads them."""
    frame.write.format("noop").mode("overwrite").save()
