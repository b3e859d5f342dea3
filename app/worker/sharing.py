"""Lets a control plane share its slots with the others of its home."""

from __future__ import annotations

from app.cluster.ports import Offer
from app.store.members import Member
from app.store.slot_table import SlotTable
from app.store.store import Store
from app.worker.doorbell import Bells, NoBells
from app.worker.recovery import JobKeeper
from app.worker.shared_broker import SharedBroker


def share_slots(
    keeper: JobKeeper,
    store: Store,
    member: Member,
    bells: Bells | None,
    offer: Offer | None,
    holding_ms: int,
) -> None:
    """From now on the jobs of ``keeper`` ask for slots where those of other members do. ``offer``: what a cluster
    offers; None: the members themselves have slots."""
    keeper.broker.close()
    keeper.broker = broker = SharedBroker(
        SlotTable(store, member.home),
        keeper.jobs,
        keeper.tell_grants,
        keeper.spawn,
        bells=bells or NoBells(),
        offer=offer,
        holding_ms=holding_ms,
    )
    keeper.spawn(broker.run())
