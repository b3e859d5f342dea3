"""What clients were told decides: a refused request never has an effect, and one that was answered has its own.

Each request carries a mark that is stored with what it changes (the reason of a PUT, the trigger id of a stop, the name
of a submitted job), so that what becomes durable can be traced to who asked for it. A refusal says that nothing was
changed, unless it says that this is not known; then, and where no answer came, either is allowed.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from app.worker.job import persistence
from app.worker.job.mailbox import Request
from app.worker.job.worker import JobWorker
from app.worker.refusals import ControlPlaneError
from tests.simulation.planted_batch_bugs import instead

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.plane import Incarnation

UNKNOWN = "to see whether it was"
"""What a client is told when it is not known whether its request was carried out."""


class Told:
    """See the module. ``made`` and ``refused``: requests by mark; ``durable``: how often each led to something."""

    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        self._made: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._durable: Counter[str] = Counter()

    def heard(
        self, mark: str, work: Callable[[Incarnation], Coroutine[Any, Any, Any]]
    ) -> Callable[[Incarnation], Coroutine[Any, Any, Any]]:
        """``work``, a request with this mark, of whose arrival and refusal is taken note."""

        async def call(plane: Incarnation) -> Any:
            self._made[mark] += 1
            try:
                return await work(plane)
            except ControlPlaneError as error:
                if not plane.dead:
                    self._is_refused(mark, error)
                raise

        return call

    def _is_refused(self, mark: str, error: ControlPlaneError) -> None:
        # The answer leaves here, whether it arrives or not.
        if UNKNOWN in str(error):
            self._oracles.count("answered as unknown")
            return
        self._oracles.count("refused")
        self._refused[mark] += 1
        self._check(mark, f"{mark} was refused ({error})")

    def became_durable(self, mark: str, what: str, *, once: bool = True) -> None:
        """``what`` was stored for the request with this mark. ``once``: of all repeats of it only one may do so."""
        self._oracles.check(mark in self._made, "refusals", f"{what} was never asked for ({mark})")
        self._durable[mark] += 1
        self._check(mark, what)
        self._oracles.check(not once or self._durable[mark] == 1, "refusals", f"{what}: {mark} counts twice")

    def _check(self, mark: str, what: str) -> None:
        made, refused, durable = self._made[mark], self._refused[mark], self._durable[mark]
        self._oracles.check(
            durable <= made - refused,
            "refusals",
            f"{what}: {refused} of {made} requests were told that nothing was changed, and {durable} count",
        )


def doubt_taken_for_a_refusal() -> contextlib.AbstractContextManager[None]:
    """A commit of which nobody knows whether it was made is answered "Nothing was changed"."""
    # It is a kind of StoreUnavailable, which is looked for next.
    return instead(persistence, "OutcomeUnknown", ())


def refused_and_done_later() -> contextlib.AbstractContextManager[None]:
    """What could not be written is tried again with the facts, though its client was told that nothing was changed."""
    original = JobWorker._put_back

    async def put_back(self: JobWorker, items: list[Any], answers: Any, error: Any) -> None:
        await original(self, items, answers, error)
        self._mailbox.extend(item for item in items if isinstance(item, Request))

    return instead(JobWorker, "_put_back", put_back)


PLANTED = {
    "an unknown outcome is answered as a refusal": doubt_taken_for_a_refusal,
    "a refused request is carried out later": refused_and_done_later,
}
