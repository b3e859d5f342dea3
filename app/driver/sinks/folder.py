"""The folder of Spark's sink of files.

Spark keeps a log there, `_spark_metadata`, and leaves out a batch whose number is in it, in silence. So the folder has
to be this query's alone. The log has to have every batch of its query, also one that redistributed the state: Spark's
redistribution takes a number of a batch and gives nothing out, so the sink does not hear of it; where its log is
compacted, every tenth batch, Spark then looks for the number and fails.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from app.driver.arrivals import is_on_this_host, once_whole
from app.driver.checkpoints import newest_batch, newest_in_sink, repartition_batches, standing
from app.driver.directories import directory_of, path_of_uri
from app.driver.failures import DriverError
from app.driver.locks import BeingWritten, claim_own_checkpoint
from app.driver.scala import scala_option
from app.driver.sinks.base import os_error
from app.driver.valves.spark import WriterFacts
from app.model.formats import FILE_FORMATS

_CLAIM: Final = "_slotwise"
"""Readers that list the folder leave out what begins so."""


@dataclass
class SinkFolder:
    """The folder of the sink ``vertex`` of a document. ``folder``: None if it is not on this host."""

    vertex: str
    session: SparkSession
    checkpoint: Path
    folder: Path | None
    _planned: int = -1

    @classmethod
    def open(cls, vertex: str, path: str, session: SparkSession, checkpoint: Path) -> SinkFolder:
        return cls(vertex, session, checkpoint, directory_of(session, path))

    def prepare(self, lock_file: str) -> None:
        """See, before the query starts, whether the folder can be written and is that of before. ``lock_file``: that of
        the driver.

        Raises:
            DriverError: it is not.
        """
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self.folder, os.W_OK | os.X_OK):
                raise PermissionError(13, os.strerror(13))
            # Of two queries that commit a batch of the same number at the same moment, Spark would leave one out.
            claim_own_checkpoint(self.folder / _CLAIM, lock_file=lock_file)
            self._planned = newest_batch(self.checkpoint / "offsets")
            committed, logged = newest_batch(self.checkpoint / "commits"), newest_in_sink(self.folder)
        except OSError as error:
            raise os_error(error, f"The directory {self.folder} cannot be written", self.vertex) from error
        except BeingWritten as error:
            raise self._error(
                "the driver of another job is writing now. Give each job a folder of its own."
            ) from error
        if logged < committed:
            raise self._error(
                f"Spark's log ends with batch {logged}, and the checkpoint with batch {committed}. An earlier "
                "version of Slotwise wrote these files, or the log was removed. Submit the job anew, with an empty "
                "folder."
            )
        if logged > committed:
            # Spark would not write it again.
            self.check_written(logged)

    def check_batch(self, batch_id: int) -> None:
        """See whether Spark will write the batch, or has written it for this query before.

        Raises:
            DriverError: another job writes into the folder.
        """
        logged = -1 if self.folder is None else newest_in_sink(self.folder)
        # One that was planned when the query started may have been written by then.
        if logged > batch_id or logged == batch_id > self._planned:
            raise self._error(
                f"the log of another query has batches up to {logged}, and Spark would leave out what is new in batch "
                f"{batch_id}. Give the sink a folder of its own."
            )

    def check_written(self, batch_id: int) -> None:
        """See whether the driver sees the files that tasks on a cluster have written, and not only Spark's log of them.

        Raises:
            DriverError: it does not.
        """
        folder = self.folder
        if folder is None or is_on_this_host(self.session) or newest_in_sink(folder) != batch_id:
            return
        files, missing = once_whole(lambda: _missing_files(folder, batch_id), lambda found: not found[1])
        if missing:
            raise DriverError(
                f"Tasks wrote {files} file(s) of batch {batch_id} into {folder}, and {missing} of them are not there: "
                "the driver and all executors have to see the same directory under this path (it is that of the "
                "sink's path).",
                vertex=self.vertex,
                recoverable=True,
            )

    def _error(self, what: str) -> DriverError:
        return DriverError(
            f"The sink {self.vertex} writes files to {self.folder}, where {what}", vertex=self.vertex
        )


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
        return facts.path if facts.format in FILE_FORMATS else None
    rows = session.sql(f"DESCRIBE TABLE EXTENDED {facts.table}").collect()
    about = {row["col_name"]: row["data_type"] for row in rows}
    return about.get("Location") if str(about.get("Provider")).lower() in FILE_FORMATS else None


def _missing_files(folder: Path, batch_id: int) -> tuple[int, int]:
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
    missing = sum((written := path_of_uri(path)) is None or not written.exists() for path in paths)
    return len(paths), missing


def _write_of(path: str) -> str:
    return path.rpartition("/")[2].partition("-c0")[0][-36:]
