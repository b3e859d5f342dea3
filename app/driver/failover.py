"""Local failover in the driver: a query that failed is held, and started again once the control plane orders it.

The others run on. Nothing is decided here: the driver says what failed, and the scheduler answers with an order for
that very failure (its number), or ends the attempt. The query is reported only when nothing of it writes any more: its
thread has ended, and so has every Spark task that it had started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from app.driver.base_attempt import told_of
from app.driver.failures import Failure, describe
from app.driver.started_query import StartedQuery

END_S = 20.0
"""For how long what a failed query had begun may take to end, before the whole attempt fails."""


@dataclass(slots=True)
class _Held:
    """A failed query. ``until``: by when all that it began has to end. ``told``: all has ended, and was reported."""

    running: StartedQuery
    failure: Failure
    number: int
    until: float
    told: bool = False


@dataclass
class LocalFailover:
    """The queries of an attempt that failed. For the attempt's own thread only.

    ``restart`` makes and starts a query again; ``report`` is `ControlPlaneClient.report`.
    """

    report: Callable[..., None]
    begun_version: Callable[[], int]
    restart: Callable[[StartedQuery], StartedQuery]

    def __post_init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._numbers: dict[str, int] = {}
        self._unproven: dict[str, tuple[StartedQuery, int]] = {}
        self._ordered: Mapping[str, int] = {}

    def hold(self, running: StartedQuery, failure: Failure) -> None:
        """``running`` has failed: stop what is left of it, and wait for orders."""
        key = running.query.key
        self._unproven.pop(key, None)
        number = self._numbers[key] = self._numbers.get(key, 0) + 1
        running.close()
        self._held[key] = _Held(running, failure, number, time.monotonic() + END_S)

    def holds(self, running: StartedQuery) -> bool:
        return running.query.key in self._held

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of the queries that are held writes any more."""
        return all(held.told or held.running.is_gone() for held in self._held.values())

    def take_orders(self, restarts: Mapping[str, int]) -> None:
        self._ordered = restarts

    def turn(self) -> Failure | None:
        """Report what has ended, and start what is ordered. The failure of the attempt if a query does not end."""
        for key, held in list(self._held.items()):
            if not held.told:
                if held.running.is_gone():
                    held.told = True
                    self._tell(key, held)
            elif self._ordered.get(key, 0) >= held.number:
                self._start(key, held)
        return self.hanging()

    def hanging(self) -> Failure | None:
        """The failure of the attempt if a query does not end: also while the job is being stopped."""
        for held in self._held.values():
            if not held.told and time.monotonic() > held.until and not held.running.is_gone():
                sentence = (
                    f"{held.failure.sentence} What the query had begun did not end within {END_S:.0f} s."
                )
                return replace(held.failure, sentence=sentence)
        return None

    def awaits(self, running: StartedQuery) -> bool:
        """Whether ``running`` was started again, and has not proved itself yet."""
        known, _ = self._unproven.get(running.query.key, (None, 0))
        return known is running

    def proven(self, running: StartedQuery) -> bool:
        """``running`` has committed a batch, or is idle. Whether that proves a restart, which is then reported."""
        key = running.query.key
        if not self.awaits(running):
            return False
        _, number = self._unproven.pop(key)
        self.report(type="query-recovered", query=key, run=number, run_id=running.run_id)
        return True

    def _start(self, key: str, held: _Held) -> None:
        del self._held[key]
        try:
            running = self.restart(held.running)
        except Exception as error:
            # It is held again; whether it is tried once more is not decided here.
            failed = describe(error, vertex=held.running.query.sink.name)
            known = held.running
            self.hold(known, replace(failed, query_id=known.query_id, batch_id=known.committed_batches))
        else:
            self._unproven[key] = (running, held.number)

    def _tell(self, key: str, held: _Held) -> None:
        self.report(
            type="query-failed",
            query=key,
            run=held.number,
            run_id=held.running.run_id,
            plan_version=self.begun_version(),
            longest_batch_ms=held.running.longest_batch_ms,
            **told_of(held.failure),
        )
