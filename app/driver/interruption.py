"""A batch that a plan waits for too long is interrupted, and runs again at the plan.

A rescale in place waits for the end of the batch in flight. If that has more tasks before it than behind it, it is
cancelled, which ends its query; the attempt starts the query again in the same session, and Spark runs the batch again
from its offset log. What such a batch has begun to write must count for nothing then, so this is done by itself only
for sinks that are known to take a batch once. It is done at most once for a batch, in whichever attempt: a batch that
is longer than the time between two changes would never end.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.driver.causes import carries
from app.model.sink_formats import DATABASES, WHOLE_BATCHES

if TYPE_CHECKING:
    from app.driver.gateway import Gateway
    from app.driver.valves.spark import WriterFacts

log = logging.getLogger(__name__)

MARK: Final = "slotwise-batch-interrupted"
"""In the error with which a query ends whose batch was interrupted."""
NOTE: Final = "slotwise-interrupted"
"""In the directory of a query: the last batch of it that was interrupted."""
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Interruption:
    """Of batch ``batch_id``, which had run for ``ran_s``. ``rows`` of it once it has run again and is committed."""

    sink: str
    batch_id: int
    ran_s: float
    done: int
    known: int
    rows: int | None = None
    at: float = field(default_factory=time.monotonic)

    @property
    def sentence(self) -> str:
        return (
            f"A batch of {self.sink} that had run for {self.ran_s:.0f} s, with {self.done} of {self.known} tasks done, "
            "was interrupted and ran again at the new parallelism."
        )


def is_of_interruption(error: BaseException) -> bool:
    """Whether a query that ended with ``error`` ended because its batch was interrupted."""
    return carries(error, MARK)


def takes_again(facts: WriterFacts, own_format: str | None) -> bool:
    """Whether the sink takes a batch once, however often it is begun. ``own_format``: that of a sink of a document."""
    if own_format in DATABASES:
        return True
    if facts.foreach or facts.format is None:
        return False
    name = facts.format.lower()
    if facts.table is not None:
        # What the table is written with is not said by the default format.
        return name == "delta"
    if name == "memory":
        # In other modes Spark cannot start it again with what the table has.
        return facts.output_mode == "complete"
    return name in WHOLE_BATCHES


class Interrupter:
    """Looks after the batches of one run of a query. For the attempt's own thread.

    ``vertices``: ids of those of the query. ``tasks``: how many of a batch are done, and how many are known.
    ``cancel``: all that runs of the query, with an error that has this text.
    """

    def __init__(
        self,
        own_dir: Path,
        gateway: Gateway,
        *,
        sink: str,
        vertices: tuple[str, ...],
        max_wait_ms: int,
        tasks: Callable[[int], tuple[int, int]],
        cancel: Callable[[str], None],
    ) -> None:
        """``max_wait_ms`` 0: never."""
        self._note = own_dir / NOTE
        self._gateway = gateway
        self._sink = sink
        self._vertices = vertices
        self._max_wait_s = max_wait_ms / 1000
        self._tasks = tasks
        self._cancel = cancel
        self._look_at = 0.0

    def look(self) -> Interruption | None:
        """Interrupt the batch in flight, if it is to be; what came of it."""
        batch, now = self._gateway.running_batch, time.monotonic()
        if not self._max_wait_s or batch is None or now < self._look_at:
            return None
        if self._gateway.waited_s(self._vertices) <= self._max_wait_s or self.has_interrupted(batch):
            return None
        self._look_at = now + _LOOK_S
        done, known = self._tasks(batch)
        if known - done <= done:
            return None
        made = Interruption(self._sink, batch, self._gateway.batch_age_s, done, known)
        try:
            # First: if this process dies here, the batch runs again in any case.
            self._note.write_text(str(batch), encoding="ascii")
        except OSError as error:
            log.warning("batch %d is not interrupted, as that could not be noted: %s", batch, error)
            return None
        return made if self._gateway.cancel_batch(batch, self._cancel_now) else None

    def _cancel_now(self) -> None:
        self._cancel(f"{MARK}: a plan has waited for this batch too long")

    def has_interrupted(self, batch_id: int) -> bool:
        """Whether this batch was interrupted before, in whichever attempt."""
        with contextlib.suppress(OSError, ValueError):
            return int(self._note.read_text(encoding="ascii")) == batch_id
        return False
