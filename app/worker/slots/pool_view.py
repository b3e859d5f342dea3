"""The view that one of several control planes has of the shared pool of slots, from its last read of the
database.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.cluster.ports import Offer
from app.cluster.shared_slots import pool_of_all
from app.cluster.slot_pool import SlotPool
from app.store.slot_table import Ledger, SlotTable


class PoolView:
    """``offer``: what a cluster offers; None where each server has slots of the host that all of them are on."""

    def __init__(self, table: SlotTable, offer: Offer | None, *, holding_ms: int) -> None:
        self._table = table
        self._offer = offer
        self._is_of_cluster = offer is not None
        self._holding_ms = holding_ms
        self._ledger = Ledger()
        self._overview: SlotPool | None = None

    async def refresh(self) -> None:
        """
        Raises:
            StoreError: the database is away.
        """
        self._note(await self._table.ledger())

    @property
    def arbiter(self) -> str | None:
        """The name of the control plane that decides about slots, if one does."""
        arbiter = self._ledger.arbiter
        return None if arbiter is None or arbiter.is_over else arbiter.owner

    @property
    def total(self) -> int:
        return self._pool.total

    @property
    def free(self) -> int:
        return 0 if self.cluster_unreachable else self._pool.free

    @property
    def idle(self) -> int:
        return self._pool.idle

    @property
    def cluster_unreachable(self) -> bool:
        """Whether this control plane cannot reach the cluster, or the one that decides about its slots cannot."""
        return self._offered.unreachable or self._arbiter_without_cluster is not None

    @property
    def _arbiter_without_cluster(self) -> str | None:
        arbiter, me = self._ledger.arbiter, self._table.store.owner
        if arbiter is None or arbiter.is_over or arbiter.owner == me or not arbiter.cluster_unreachable:
            return None
        return arbiter.owner

    @property
    def why(self) -> Sequence[str]:
        arbiter = self._arbiter_without_cluster
        if arbiter is None or self._offered.unreachable:
            return self._offered.why
        return (
            f"The server that decides about slots, {arbiter}, cannot reach the cluster.",
            *self._offered.why,
        )

    def free_on(self, task_manager: str) -> int:
        return 0 if self.cluster_unreachable else self._pool.free_on(task_manager)

    def knows(self, job_id: str) -> bool:
        return self._pool.knows(job_id)

    @property
    def managers(self) -> Sequence[tuple[str, int, int]]:
        return [(name, count, self.free_on(name)) for name, count in self._offered.task_managers]

    def attainable_slots(self, job_id: str, desired: int, minimal: int) -> int:
        """How many slots ``job_id`` would get if it declared these numbers."""
        if self.cluster_unreachable:
            return len(self._pool.held_by(job_id))
        return self._pool.attainable_slots(job_id, desired, minimal)

    @property
    def _offered(self) -> Offer:
        return self._offer_by(self._ledger)

    def _offer_by(self, ledger: Ledger) -> Offer:
        return Offer(ledger.task_managers) if self._offer is None else self._offer

    @property
    def _pool(self) -> SlotPool:
        if self._overview is None:
            self._overview = pool_of_all(
                self._ledger.entries,
                self._offered,
                holding_ms=self._holding_ms,
                outlasts=not self._is_of_cluster,
            )
        return self._overview

    def _note(self, ledger: Ledger) -> None:
        self._ledger, self._overview = ledger, None
