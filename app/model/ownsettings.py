"""Spark settings that no job may have on any cluster: those that Slotwise sets, and those without effect. The
rule applies at submission; the driver of a STREAMING job again refuses the settings that would break it.
"""

from __future__ import annotations

from typing import Final

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

CHECKPOINT_LOCATION: Final = "spark.sql.streaming.checkpointLocation"

_OWN: Final = {
    "spark.master": "Slotwise decides where the driver runs",
    "spark.app.name": "it is the name of the job",
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
    "option('checkpointLocation', ...)",
}


_FREE_IN_BATCH_PROGRAMS: Final = frozenset(
    {SHUFFLE_PARTITIONS, "spark.sql.adaptive.enabled", "spark.sql.optimizer.excludedRules"}
)
"""No valve is in the plans of a BATCH program, and how many tasks they have is Spark's to say."""

_ONLY_IN_BATCH_PROGRAMS: Final = {
    "spark.scheduler.mode": ("FAIR", "slots are brought and given up by it while the program runs"),
    "spark.task.cpus": ("1", "a slot is for one task at a time"),
}


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
