"""Spark settings that a job may not have on a cluster, because the slots depend on them."""

from __future__ import annotations

from collections.abc import Iterable

from app.model.kubenames import MASTER_PREFIX

FIRST_EXECUTOR_SETTING = "spark.slotwise.firstExecutorTimeout"
"""For how many seconds an attempt waits for its first executor: of our own, Spark does not know it."""

FIRST_EXECUTOR_S = 60.0
"""The default, unless the cluster may take longer."""

# One core for each executor, as many as the job holds slots.
_CLUSTERS_OWN = (
    "spark.executor.cores",
    "spark.executor.memory",
    "spark.cores.max",
    "spark.executor.instances",
    "spark.task.cpus",
)
_CLUSTERS_OWN_PREFIXES = ("spark.dynamicAllocation.", "spark.slotwise.")
# How executors find their driver, and how soon one that is lost is noticed: the server's account of slots relies on it.
_CONNECTIONS = (
    "spark.decommission.enabled",
    "spark.driver.bindAddress",
    "spark.driver.host",
    "spark.executor.heartbeatInterval",
    "spark.network.timeout",
    "spark.network.timeoutInterval",
)

# The driver keeps new executors from a query until it is their turn.
_PLACES = ("spark.locality.", "spark.scheduler.mode")

# And the size of a pod, what is in it, and in whose name it is made: a job could mount what only the server may read.
_KUBERNETES_OWN = (
    "spark.app.id",
    "spark.authenticate",
    "spark.driver.port",
    "spark.executor.maxNumFailures",
    "spark.executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor",
    "spark.executor.minMemoryOverhead",
    "spark.executor.pyspark.memory",
    "spark.scheduler.minRegisteredResourcesRatio",
)
_KUBERNETES_OWN_PREFIXES = (
    "spark.authenticate.",
    "spark.executor.resource.",
    "spark.kubernetes.",
    "spark.memory.offHeap.",
)


def refused_on_cluster(keys: Iterable[str], master: str) -> str | None:
    """Why a job with these settings cannot run there, in a sentence; None if it can."""
    kubernetes = master.startswith(MASTER_PREFIX)
    names = _CLUSTERS_OWN + (_KUBERNETES_OWN if kubernetes else ())
    prefixes = _CLUSTERS_OWN_PREFIXES + (_KUBERNETES_OWN_PREFIXES if kubernetes else ())
    keys = sorted(keys)
    of_slots = [key for key in keys if key in names or key.startswith(prefixes)]
    of_connections = [key for key in keys if key in _CONNECTIONS]
    sentences = []
    if of_slots:
        sentences.append(_refusal(of_slots, f"each slot is {_slot(kubernetes)}"))
    if of_connections:
        sentences.append(
            _refusal(
                of_connections,
                "how executors reach their driver, and how soon a lost one is noticed, is the server's to say",
            )
        )
    if of_places := [key for key in keys if key.startswith(_PLACES)]:
        sentences.append(_refusal(of_places, "which executor gets a task is the driver's to say"))
    return " ".join(sentences) or None


def _refusal(keys: Iterable[str], reason: str) -> str:
    return f"The config of the job may not change {', '.join(keys)} on this cluster: {reason}."


def _slot(kubernetes: bool) -> str:
    return (
        "a pod with one executor of one core, as the server's settings and its pod template say"
        if kubernetes
        else "an executor of one core, with the memory that the server's settings say"
    )
