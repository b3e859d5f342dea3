"""How long a control plane can be certain that it still has its leases."""

from __future__ import annotations

from app.worker.clock import Clock


class LeaseCertainty:
    """Nobody else can have a lease before it has expired by the database's clock, which is at the earliest its time to
    live after the renewal was *asked for* here. Only the length of that time is compared, so no two clocks need agree.

    Every write is checked by the database whatever this says (`app.store.batch.lost_leases`). This is for what is
    done without a write: an effect, an answer. A process that was stopped (SIGSTOP, a suspended machine) or cut off
    from the database finds here that it must ask first. Where leases cannot be lost, it is always sure.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms: int | None = None

    def is_sure(self) -> bool:
        return self._until_ms is None or self._clock.steady_ms() < self._until_ms

    def now_ms(self) -> int:
        """To be read before a renewal is asked for."""
        return self._clock.steady_ms()

    def renewed(self, asked_ms: int, ttl_ms: int) -> None:
        """All leases were renewed, by a call that began at ``asked_ms``, for ``ttl_ms``."""
        self._until_ms = asked_ms + ttl_ms
