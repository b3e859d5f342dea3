"""What offers the slots, as the API shows it: this host, or the workers of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from app.cluster.embedded import host_memory_bytes
from app.cluster.ports import Offer
from app.cluster.slot_pool import SlotPool
from app.cluster.standalone.cluster import StandaloneCluster
from app.worker.views import TaskManager

HOST_TASK_MANAGER = "host"


def pool_of(slots: int, offer: Offer | None, *, holding_ms: int) -> SlotPool:
    """The slots of this host, or what a cluster offers."""
    if offer is None:
        return SlotPool({HOST_TASK_MANAGER: slots}, holding_ms=holding_ms)
    pool = SlotPool({}, holding_ms=holding_ms)
    pool.take_offer(offer)
    return pool


Shown = Callable[[SlotPool], Sequence[TaskManager]]


def this_host(since_ms: int) -> Shown:
    """The host of this process, which has all slots."""

    def shown(pool: SlotPool) -> Sequence[TaskManager]:
        total, available = host_memory_bytes()
        return [
            TaskManager(
                id=HOST_TASK_MANAGER,
                host="localhost",
                slots=pool.total,
                free_slots=pool.free,
                since_ms=since_ms,
                cpu_cores=os.cpu_count() or 1,
                memory_bytes=total,
                free_memory_bytes=available,
            )
        ]

    return shown


def workers_of(cluster: StandaloneCluster) -> Shown:
    """The workers of a Spark cluster. Which of them has the slots of a job is what was last said of them."""

    def shown(pool: SlotPool) -> Sequence[TaskManager]:
        return [
            TaskManager(
                id=worker.id,
                host=worker.host,
                slots=slots,
                free_slots=pool.free_on(worker.id),
                since_ms=since_ms,
                cpu_cores=worker.cores,
                memory_bytes=worker.memory_mb << 20,
                free_memory_bytes=(worker.memory_mb - worker.memory_used_mb) << 20,
            )
            for worker, slots, since_ms in cluster.workers
        ]

    return shown
