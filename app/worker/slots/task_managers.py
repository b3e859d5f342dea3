"""What offers slots, as the API shows it: the workers of a cluster; or this host, and, where several control planes
share it, the part of it that each of them has."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from app.cluster.kubernetes.cluster import KubernetesCluster, whole_cores
from app.cluster.ports import Offer
from app.cluster.slot_pool import SlotPool
from app.cluster.standalone.cluster import StandaloneCluster
from app.worker.views import TaskManager

Shown = Callable[[SlotPool], Sequence[TaskManager]]


def pool_of(host: Mapping[str, int], offer: Offer | None, *, holding_ms: int) -> SlotPool:
    """The slots of this host, or what a cluster offers."""
    if offer is None:
        return SlotPool(host, holding_ms=holding_ms)
    pool = SlotPool({}, holding_ms=holding_ms)
    pool.take_offer(offer)
    return pool


def members_of_host(since_ms: int) -> Shown:
    """This process, or those that share its slots, by seat."""

    def shown(pool: SlotPool) -> Sequence[TaskManager]:
        memory = psutil.virtual_memory()
        return [
            TaskManager(
                id=name,
                host="localhost",
                slots=slots,
                free_slots=pool.free_on(name),
                since_ms=since_ms,
                cpu_cores=os.cpu_count() or 1,
                memory_bytes=memory.total,
                free_memory_bytes=memory.free,
            )
            for name, slots in pool.task_managers.items()
        ]

    return shown


@dataclass(frozen=True, slots=True)
class Free:
    """A worker: its free slots, all its slots, and its used cores."""

    worker: str
    free: int
    slots: int
    cores_used: int


def free_of_workers(workers: Sequence[Free], free: int) -> dict[str, int]:
    """The slots of each worker that can be given out, ``free`` in all: without those that others use.

    How many these are is known for the whole cluster only. They are looked for first on workers of which more cores are
    used than jobs hold slots.
    """
    shown = {one.worker: one.free for one in workers}
    withheld = sum(shown.values()) - free
    for only_used in (True, False):
        for one in reversed(workers):
            strangers = one.cores_used - (one.slots - one.free) if only_used else one.free
            taken = max(0, min(shown[one.worker], strangers, withheld))
            shown[one.worker] -= taken
            withheld -= taken
    return shown


def workers_of(cluster: StandaloneCluster) -> Shown:
    """The workers of a Spark cluster. Which of them has the slots of a job is what was last said of them."""

    def shown(pool: SlotPool) -> Sequence[TaskManager]:
        free = free_of_workers(
            [
                Free(worker.id, pool.free_on(worker.id), slots, worker.cores_used)
                for worker, slots, _ in cluster.workers
            ],
            pool.free,
        )
        return [
            TaskManager(
                id=worker.id,
                host=worker.host,
                slots=slots,
                free_slots=free[worker.id],
                since_ms=since_ms,
                cpu_cores=worker.cores,
                memory_bytes=worker.memory_mb << 20,
                free_memory_bytes=(worker.memory_mb - worker.memory_used_mb) << 20,
            )
            for worker, slots, since_ms in cluster.workers
        ]

    return shown


def namespace_of(cluster: KubernetesCluster) -> Shown:
    """One for all: which node a pod is on comes after its slot was given, and is not for the server to say."""

    def shown(pool: SlotPool) -> Sequence[TaskManager]:
        slots, demand = cluster.slots, cluster.demand
        free = min(pool.free, slots)
        return [
            TaskManager(
                id=cluster.task_manager,
                host=cluster.host,
                slots=slots,
                free_slots=free,
                since_ms=cluster.since_ms,
                cpu_cores=whole_cores(slots, demand.cpu),
                memory_bytes=slots * demand.memory_bytes,
                free_memory_bytes=free * demand.memory_bytes,
            )
        ]

    return shown
