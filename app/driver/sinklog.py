"""The log of Spark's own file sink. It has to have every batch of its query, also one that redistributed the state.

Spark's redistribution takes a number of a batch and gives nothing out, so the sink does not hear of it; where its log
is compacted, every tenth batch, Spark then looks for the number and fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from app.driver.checkpoints import standing
from app.driver.recovery import repartition_batches
from app.driver.scala import scala_option
from app.driver.valves.spark import WriterFacts
from app.model.sink_formats import FILE_SINKS


def complete_sink_log(session: SparkSession, folder_of: Callable[[], str | None], checkpoint: Path) -> None:
    """Let the log have the redistributions behind its newest batch, each as one without files. ``folder_of`` says which
    folder it is in; None: it is no file sink's.

    Only once they count, in ``checkpoint``: what the log has is given out no more, so an entry for a redistribution
    that is given up would swallow the batch that gets its number.
    """
    made = repartition_batches(checkpoint)
    if not made or standing(checkpoint).committed not in made or (folder := folder_of()) is None:
        return
    jvm: Any = session._jvm
    gateway: Any = session.sparkContext._gateway
    state = session._jsparkSession.sessionState()
    sinks = jvm.org.apache.spark.sql.execution.streaming.sinks
    path = jvm.org.apache.hadoop.fs.Path(folder)
    place = sinks.FileStreamSink.getMetadataLogPath(
        path.getFileSystem(state.newHadoopConf()), path, state.conf()
    )
    log = sinks.FileStreamSinkLog(
        sinks.FileStreamSinkLog.VERSION(), session._jsparkSession, place.toString(), scala_option(jvm, None)
    )
    latest = log.getLatestBatchId()
    newest = int(latest.get()) if latest.isDefined() else -1
    for batch_id in sorted(made):
        if batch_id > newest:
            log.add(batch_id, gateway.new_array(sinks.SinkFileStatus, 0))


def folder_of_files(session: SparkSession, facts: WriterFacts) -> str | None:
    """Where a file sink writes; None if the sink is another."""
    if facts.table is None:
        return facts.path if facts.format in FILE_SINKS else None
    rows = session.sql(f"DESCRIBE TABLE EXTENDED {facts.table}").collect()
    about = {row["col_name"]: row["data_type"] for row in rows}
    return about.get("Location") if str(about.get("Provider")).lower() in FILE_SINKS else None


def missing_files(folder: Path, batch_id: int) -> tuple[int, int]:
    """How many files a batch has by the log in ``folder``, which has it as its newest, and how many of them are not
    there."""
    log = folder / "_spark_metadata"
    compacted = log / f"{batch_id}.compact"
    file = compacted if compacted.exists() else log / str(batch_id)
    paths = [json.loads(line)["path"] for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    if file == compacted:
        # It has those of all batches. The names of the files of one have the same number in them.
        last = _write_of(paths[-1]) if paths else ""
        paths = [path for path in paths if _write_of(path) == last]
    missing = sum(not Path(unquote(urlparse(path).path)).exists() for path in paths)
    return len(paths), missing


def _write_of(path: str) -> str:
    return path.rpartition("/")[2].partition("-c0")[0][-36:]
