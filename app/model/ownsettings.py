"""Spark settings that a job may not have: on no cluster those that Slotwise sets, and those without effect; on a
cluster of executors those that its slots depend on. The rule applies at submission; the driver of a STREAMING job again
refuses the settings that would break it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from app.model.kubenames import MASTER_PREFIX
from app.model.sentences import shown
from app.model.sparkui import UI_KILL

FIXED_SETTINGS: Final = {
    # Two repartitions in a row are merged by the optimizer, which gives the stateful stage the number of tasks of
    # the stage behind it.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.CollapseRepartition",
    # Adaptive execution would choose the number of tasks itself, and splits a batch into several jobs.
    "spark.sql.adaptive.enabled": "false",
    # The page has no password, and who reaches it could end tasks.
    UI_KILL: "false",
}
"""What every driver sets. Rescaling in place, exactly-once or the metrics rest on it."""

FIXED_BATCH_SETTINGS: Final = {
    # A result is read by its buckets although nothing in the plan may ask for that yet: they are the tasks.
    "spark.sql.sources.bucketing.enabled": "true",
    "spark.sql.sources.bucketing.autoBucketedScan.enabled": "false",
    "spark.sql.bucketing.coalesceBucketsInJoin.enabled": "false",
    # Plans are looked at as texts, whole.
    "spark.sql.debug.maxToStringFields": "10000",
}
"""What every region of a BATCH job sets: how results are read rests on it."""

SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
"""In a graph document it follows from the stateful vertices; in a program it is the state partitions of its queries."""

APP_NAME: Final = "spark.app.name"

CHECKPOINT_LOCATION: Final = "spark.sql.streaming.checkpointLocation"

TASK_FAILURES: Final = "spark.task.maxFailures"
_TIMES = re.compile(r"[1-9][0-9]{0,8}")

_OWN: Final = {
    "spark.master": "Slotwise decides where the driver runs",
    APP_NAME: "it is the name of the job",
    CHECKPOINT_LOCATION: "Slotwise keeps a checkpoint per query",
    SHUFFLE_PARTITIONS: "give maxParallelism at the stateful vertices",
    "spark.sql.adaptive.enabled": "it would choose the number of tasks itself",
    "spark.sql.optimizer.excludedRules": "rescaling in place depends on the rules that are excluded",
    "spark.local.dir": "Slotwise removes what a driver spilled",
    "spark.python.unix.domain.socket.dir": "Slotwise removes the sockets of a driver",
    UI_KILL: "everybody who reaches the page could end tasks of the job by it",
}

_TOO_LATE: Final = "it would have no effect, because the JVM of a driver has read it before it gets the job"
_JARS: Final = (
    "list the libraries of a job under packages, by their coordinates group:artifact:version; for a BATCH graph, and "
    "on a cluster, install them in the pyspark/jars of every host"
)
_PYTHON: Final = (
    "say under environment which Python a job runs with; a BATCH graph, and a job on a cluster, has that of the "
    "server"
)
_WITHOUT_EFFECT: Final = {
    "spark.jars": _JARS,
    "spark.driver.extraClassPath": _JARS,
    "spark.driver.userClassPathFirst": _JARS,
    "spark.driver.extraLibraryPath": _TOO_LATE,
    "spark.driver.cores": _TOO_LATE,
    "spark.driver.memoryOverhead": _TOO_LATE,
    "spark.driver.memoryOverheadFactor": _TOO_LATE,
    "spark.pyspark.python": _PYTHON,
    "spark.pyspark.driver.python": _PYTHON,
    "spark.submit.deployMode": "Slotwise starts the driver itself",
    "spark.submit.pyFiles": "list the Python files of a job under artifacts",
}
_PREFIXES: Final = {
    "spark.jars.": _JARS,
    "spark.submit.": "Slotwise starts the driver itself, without spark-submit",
}


_IN_PROGRAMS: Final = {
    CHECKPOINT_LOCATION: "a query that is to have its checkpoint somewhere else than with the job says so itself, with "
    "option('checkpointLocation', ...)"
}


_FREE_IN_BATCH_PROGRAMS: Final = frozenset(
    {SHUFFLE_PARTITIONS, "spark.sql.adaptive.enabled", "spark.sql.optimizer.excludedRules"}
)
"""No valve is in the plans of a BATCH program, and how many tasks they have is Spark's to say."""

_ONLY_IN_BATCH_PROGRAMS: Final = {
    "spark.task.cpus": ("1", "a slot is for one task at a time"),
}

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


def refused_setting(name: str, value: str, *, batch: bool, program: bool = False) -> str | None:
    """Why a job may not have this setting, without a full stop; None if it may."""
    if batch and program:
        if name in _FREE_IN_BATCH_PROGRAMS:
            return None
        only, why_only = _ONLY_IN_BATCH_PROGRAMS.get(name, (value, ""))
        if value != only:
            return why_only
        batch = False
    if program and name in _IN_PROGRAMS:
        return _IN_PROGRAMS[name]
    if name == UI_KILL and value == FIXED_SETTINGS[name]:
        return None
    if batch and name in FIXED_BATCH_SETTINGS and value != FIXED_BATCH_SETTINGS[name]:
        return "how the results of a BATCH job are read rests on it"
    why = _OWN.get(name) or _WITHOUT_EFFECT.get(name)
    return why or next((each for prefix, each in _PREFIXES.items() if name.startswith(prefix)), None)


def task_failures_fault(name: str, value: str) -> str | None:
    """What is wrong with the number of times that a task may fail, to follow the name of the setting."""
    if name != TASK_FAILURES or _TIMES.fullmatch(value):
        return None
    return f"should be how often a task may fail, a whole number from 1 to 999999999, found {shown(value)}."


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
        slot = "an executor of one core, with the memory that the server's settings say"
        if kubernetes:
            slot = "a pod with one executor of one core, as the server's settings and its pod template say"
        sentences.append(_refusal(of_slots, f"each slot is {slot}"))
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
