"""Settings of Spark that a job may not have on a cluster: those that the slots rest on."""

from __future__ import annotations

from collections.abc import Iterable

from app.model.kubenames import MASTER_PREFIX

# One core for each executor, as many as the job holds slots.
_CLUSTERS_OWN = (
    "spark.executor.cores",
    "spark.executor.memory",
    "spark.cores.max",
    "spark.executor.instances",
)
_CLUSTERS_OWN_PREFIXES = ("spark.dynamicAllocation.",)

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
    refused = sorted(key for key in keys if key in names or key.startswith(prefixes))
    if not refused:
        return None
    what = (
        "a pod with one executor of one core, as the server's settings and its pod template say"
        if kubernetes
        else "an executor of one core, with the memory that the server's settings say"
    )
    return f"The config of the job may not change {', '.join(refused)} on this cluster: each slot is {what}."
