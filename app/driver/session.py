"""The SparkSession of a driver, with the settings on which Slotwise's promises depend."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.core.context import DEFAULT_CONFIGS
from pyspark.sql import SparkSession

from app.driver.executors import first_number_conf, stop_dynamic_allocation
from app.driver.failures import DriverError, describe
from app.driver.jvm import JARS_VARIABLE, JAVA_OPTIONS, archive_options
from app.driver.localfiles import CHECKPOINT_FILES, HADOOP_CLASS, checkpoint_files
from app.driver.scala import scala_context
from app.driver.working_dir import WAREHOUSE, warehouse_in
from app.model.batch import Skew, SkewStrategy
from app.model.javaoptions import (
    DEFAULT_EXECUTOR_OPTIONS,
    EXECUTOR_OPTIONS,
    JAVA_OPTION_SETTINGS,
    MEMORY_SETTING,
)
from app.model.kubenames import MASTER_PREFIX
from app.model.ownsettings import (
    APP_NAME,
    FIXED_BATCH_SETTINGS,
    FIXED_SETTINGS,
    TASK_FAILURES,
    refused_on_cluster,
    task_failures_fault,
)
from app.model.sparkui import ADDRESS_VARIABLE, LOOPBACK, UI_ENABLED, UI_PORT, ui_fault, wants_ui
from app.model.variables import executor_settings, hiding_settings

log = logging.getLogger(__name__)

_modifiable: set[str] = set()
"""Settings that a session may set, as Spark said. A session of a region sets some twenty. What Spark does not know may
be known later, when the library that has it is loaded."""

# On a cluster of executors, besides `FIXED_SETTINGS`.
CLUSTER_CONF = {
    # A worker that is told to leave announces it.
    "spark.decommission.enabled": "true",
    # Executors that are silent are given up after this, and their tasks run elsewhere.
    "spark.executor.heartbeatInterval": "3s",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    EXECUTOR_OPTIONS: shlex.join(("-Xss4m", *JAVA_OPTIONS)),
}

# A job may set these in its `config`.
DEFAULT_CONF = {
    # The only provider whose state can be repartitioned later.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A commit writes what the batch changed, not the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Hadoop's local file system with checksums makes two files for each of Spark's, and child processes for each file.
    # Where Spark runs in this process alone, `app.driver.localfiles` saves those too.
    CHECKPOINT_FILES: HADOOP_CLASS,
    # A query without data looks for some ten times a second: with Spark's 10 ms many idle queries are a load.
    "spark.sql.streaming.pollingDelay": "100ms",
    # Regions of a batch job have a pool each: a short one need not wait for the tasks of a long one. All else is in one
    # pool, first come, first served.
    "spark.scheduler.mode": "FAIR",
    # Between the JVM and its Python workers: half the time of a task that hardly does anything.
    "spark.python.unix.domain.socket.enabled": "true",
    # What is kept of the past for the metrics: the batches in flight are enough. Jobs and stages as Spark does it: a
    # program may ask for them (`statusTracker`).
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.showConsoleProgress": "false",
    UI_ENABLED: "false",
    UI_PORT: "0",
    "spark.cleaner.referenceTracking.blocking": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

# Without a cluster Spark makes a secret of its own for each SparkContext. Without one, the ports of its RPC deserialize
# Java objects from whoever connects.
_LOCAL_CONF = {"spark.authenticate": "true"}

# Read when a JVM starts: `app.worker.job.job` turns them into options of a JVM of the job's own.
_JVM_CONF = (MEMORY_SETTING, *JAVA_OPTION_SETTINGS)

# Read whenever the first session of a SparkContext is made, and not by the context.
_OF_SESSIONS = (APP_NAME, "spark.sql.", "spark.hadoop.")


def check_cluster_conf(conf: Mapping[str, str], master: str) -> None:
    """
    Raises:
        DriverError: a job sets what its cluster decides.
    """
    if refusal := refused_on_cluster(conf, master):
        raise DriverError(refusal)


def executor_java_options(conf: Mapping[str, str]) -> str:
    """The Java options of every executor, followed by those of the job, which win."""
    return f"{CLUSTER_CONF[EXECUTOR_OPTIONS]} {conf.get(EXECUTOR_OPTIONS, '')}".strip()


def local_master(master: str, conf: Mapping[str, str]) -> str:
    """``master``, with how often a task may fail: on one host Spark reads it there alone."""
    times = conf.get(TASK_FAILURES, "")
    if not master.startswith("local[") or not times or task_failures_fault(TASK_FAILURES, times):
        return master
    return f"{master.removesuffix(']')},{times}]"


def unfit_setting(conf: Mapping[str, str], started_with: Mapping[str, str]) -> str | None:
    """The first setting of ``conf`` that no session can have in a SparkContext that was ``started_with`` others, or
    None."""
    return next(
        (
            key
            for key, value in conf.items()
            if not _is_of_sessions(key) and key not in _JVM_CONF and started_with.get(key) != value
        ),
        None,
    )


def _is_of_sessions(key: str) -> bool:
    return key.startswith(_OF_SESSIONS) or not key.startswith("spark.")


def add_files(session: SparkSession, files: Iterable[str]) -> None:
    """Make the job's Python files known to Python workers that start from now on."""
    for file in files:
        session.sparkContext.addPyFile(file)


def own_session(session: SparkSession, conf: Mapping[str, str]) -> SparkSession:
    """A session with its own views in the same SparkContext, and those of the settings that a session can have."""
    own = session.newSession()
    for key, value in conf.items():
        if key in _modifiable or own.conf.isModifiable(key):
            _modifiable.add(key)
            own.conf.set(key, value)
    return own


def query_session(session: SparkSession, conf: Mapping[str, str], shuffle_partitions: int) -> SparkSession:
    """A session for one query: its own settings, views and listeners in the same SparkContext."""
    return own_session(session, {**conf, "spark.sql.shuffle.partitions": str(shuffle_partitions)})


def region_session(
    session: SparkSession,
    conf: Mapping[str, str],
    *,
    splits: int,
    partitions: int,
    volume_bytes: int,
    skew: Skew,
) -> SparkSession:
    """A session for one run of a region of a BATCH job.

    Files are read by about ``splits`` tasks. Behind that Spark adapts, up to ``partitions`` tasks a stage.
    """
    defaults = {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.optimizer.excludedRules": "",
        # As many tasks as the data ask for, not as there are cores.
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(volume_bytes),
        "spark.sql.shuffle.partitions": str(partitions),
        # Nothing else is to decide how many tasks read a source: not the cores, not a largest size.
        "spark.sql.files.minPartitionNum": str(splits),
        "spark.sql.files.maxPartitionBytes": "1t",
        "spark.sql.adaptive.skewJoin.enabled": str(skew.strategy is not SkewStrategy.NONE).lower(),
        "spark.sql.adaptive.forceOptimizeSkewedJoin": str(skew.strategy is SkewStrategy.FORCED).lower(),
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": str(skew.factor),
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": str(skew.threshold_bytes),
    }
    return own_session(session, {**defaults, **conf, **FIXED_BATCH_SETTINGS})


def open_session(
    *,
    app_name: str,
    master: str,
    work_dir: str,
    socket_dir: str,
    conf: Mapping[str, str],
    executors: int = 0,
    executor_conf: Mapping[str, str] | None = None,
    archive: str = "",
    before: SparkSession | None = None,
    working_dir: str = "",
    variables: Mapping[str, str] | None = None,
) -> SparkSession:
    """A new SparkSession, with nothing of any that was before, in the JVM that is the gateway of this process.

    ``app_name``: under which a cluster knows the SparkContext; the session has the name that is in ``conf``, if any.
    ``socket_dir`` has a short name: the path of a Unix socket has at most 107 bytes. ``working_dir``: that of the
    job, if there is one yet.
    ``executors``: how many to ask a cluster for, with ``executor_conf``; 0 if ``master`` is this process. ``archive``:
    the class data that they start from, ``variables``: their environment variables. ``before``: a session in whose
    SparkContext, which these settings fit, it is made instead of in a new one.

    Raises:
        DriverError: Spark refuses the settings.
    """
    chosen = {key: value for key, value in conf.items() if key not in _JVM_CONF}
    places = {"spark.local.dir": work_dir, "spark.python.unix.domain.socket.dir": socket_dir}
    if working_dir:
        places[WAREHOUSE] = warehouse_in(working_dir)
    is_pods = master.startswith(MASTER_PREFIX)
    if is_pods:
        # Pods would get this directory too. Theirs are their own; this process' is that of its temporary files.
        del places["spark.local.dir"]
    fixed: dict[str, str] = {}
    if executors:
        # Executors on other hosts read this setting too, and have no directory of this process, nor its TMPDIR.
        places["spark.python.unix.domain.socket.dir"] = "/tmp"  # noqa: S108
        places |= executor_settings(variables or {})
        fixed = _executors_conf(executors, executor_conf or {}, chosen, None if is_pods else archive)
    if before is None:
        fixed |= _page_conf(chosen)
    local = {} if executors else _LOCAL_CONF
    try:
        connect()
        if not executors:
            local = {**local, CHECKPOINT_FILES: checkpoint_files(SparkContext._jvm, Path(work_dir))}
        # Those of a job may be others than the fixed ones where that was allowed.
        settings = {
            APP_NAME: app_name,
            **places,
            **DEFAULT_CONF,
            **local,
            **FIXED_SETTINGS,
            **chosen,
            **fixed,
        }
        context = _new_context(app_name, master, settings) if before is None else before.sparkContext
        _set_conf(context, settings)
        if before is not None:
            _clear(context, before)
        elif executors:
            stop_dynamic_allocation(context)
        hide_session()
        SparkContext._active_spark_context = context
        # Without a default session Spark makes one that shares nothing with any other.
        return SparkSession(context)
    except Exception as error:
        failure = describe(error)
        raise DriverError(f"Spark could not be started: {failure.sentence}", recoverable=True) from error


def _new_context(app_name: str, master: str, settings: Mapping[str, str]) -> SparkContext:
    context = SparkContext(
        conf=SparkConf().setAll(list(settings.items())).setMaster(master).setAppName(app_name)
    )
    context.setLogLevel("WARN")
    _expect_the_end(context)
    return context


def _executors_conf(
    number: int, conf: Mapping[str, str], chosen: Mapping[str, str], archive: str | None
) -> dict[str, str]:
    """The settings of a SparkContext with a ``number`` of executors, for a job that has ``chosen`` others. ``archive``:
    the class data on their hosts; None in pods, which have none."""
    found = {**CLUSTER_CONF, **first_number_conf(number), **hiding_settings(chosen), **conf}
    found[EXECUTOR_OPTIONS] = executor_java_options(chosen)
    if jars := os.environ.get(JARS_VARIABLE):
        # The driver has them on its class path, and gives them to its executors.
        found["spark.jars"] = ",".join(jars.split(os.pathsep))
    if archive is not None:
        # On hosts that have no such file Java goes on without it.
        asked = chosen.get(DEFAULT_EXECUTOR_OPTIONS, "")
        found[DEFAULT_EXECUTOR_OPTIONS] = f"{shlex.join(archive_options(archive))} {asked}".strip()
    return found


def _set_conf(context: SparkContext, settings: Mapping[str, str]) -> None:
    """Let the first session of ``context`` find what it would if that had been started with ``settings``."""
    live = scala_context(context).conf()
    wanted = {**DEFAULT_CONFIGS, **dict(SparkConf().getAll()), **settings}
    for key, _ in context._conf.getAll():
        if _is_of_sessions(key) and key not in wanted:
            live.remove(key)
    for key, value in wanted.items():
        if _is_of_sessions(key):
            live.set(key, value)
    context.appName = wanted[APP_NAME]


def _clear(context: SparkContext, session: SparkSession) -> None:
    """Take from ``context`` what went with ``session``, and what the calling thread has set there."""
    scala, jvm = scala_context(context), context._jvm
    assert jvm is not None
    hadoop = context._jsc.hadoopConfiguration()
    hadoop.clear()
    hadoop.addResource(jvm.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(scala.conf()))
    # It would note each execution once more.
    scala.listenerBus().removeListener(session._jsparkSession.sharedState().statusStore().listener().get())
    scala.setLocalProperties(jvm.java.util.Properties())
    scala.setCheckpointDir(None)
    for cached in context._jsc.getPersistentRDDs().values():
        cached.unpersist()


def connect() -> None:
    """Let PySpark use the JVM of this process."""
    SparkContext._ensure_initialized()
    SparkContext._jvm = SparkContext._gateway.jvm  # type: ignore[union-attr]


def hide_session() -> None:
    """Let PySpark know of no session, as behind stop(); its SparkContext goes on."""
    if SparkContext._active_spark_context is not None:
        sessions = SparkSession._get_j_spark_session_class(SparkContext._active_spark_context._jvm)
        sessions.clearDefaultSession()
        sessions.clearActiveSession()
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _page_conf(conf: Mapping[str, str]) -> dict[str, str]:
    """What becomes of the page of Spark that a job asks for. Said in any case: what is no request for us may be one for
    Spark, which takes " true" for true."""
    if not wants_ui(conf.items()):
        return {UI_ENABLED: "false"}
    if os.environ.get(ADDRESS_VARIABLE) != LOOPBACK:
        # A program asks for it by itself; others are refused when they are submitted.
        log.warning("the page of Spark is not opened: it would be open to the network")
        return {UI_ENABLED: "false"}
    asked = conf.get(UI_PORT, "0")
    port = int(asked) if ui_fault(UI_PORT, asked) is None else 0
    try:
        with socket.socket() as probe:
            # As Java does it.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
    except OSError as error:
        log.warning("the page of Spark is not at port %d, but at one that is free: %s", port, error)
        port = 0
    return {UI_ENABLED: "true", UI_PORT: str(port)}


def _expect_the_end(context: SparkContext) -> None:
    """The server of PySpark's accumulators takes it for an error, with a traceback, when the JVM hangs up on it."""
    server: Any = context._accumulatorServer
    report = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        # The second one: the JVM ended before it had read all that was sent to it.
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            report(request, address)

    server.handle_error = handle_error


def close_session(session: SparkSession) -> None:
    """Stop the SparkContext; the JVM stays. Failures are logged: the caller ends or starts another."""
    try:
        session.stop()
    except Exception as error:
        log.warning("the SparkContext did not stop cleanly: %s", error)


def is_stopped(session: SparkSession) -> bool:
    """Whether the JVM of ``session`` or its SparkContext has ended."""
    try:
        return bool(scala_context(session.sparkContext).isStopped())
    except Exception:
        return True
