"""The progress of a running query, as Spark reports it: committed batches, and its end."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from app.driver.failures import one_line
from app.model.measured import TOPICS_TOLD, IntakeReason

log = logging.getLogger(__name__)

T = TypeVar("T")

_said: set[str] = set()


def measured(what: str, read: Callable[[], T], otherwise: T) -> T:
    """What ``read`` gives, or ``otherwise`` if it fails, which is logged once for each ``what`` in a process."""
    try:
        return read()
    except Exception as error:
        if what not in _said:
            _said.add(what)
            log.warning("%s cannot be read: %s", what, one_line(str(error)))
        return otherwise


@dataclass(frozen=True, slots=True)
class IntakeLimit:
    """Of what a source gives to a batch at most: ``most`` of ``unit``. None: it has no limit of ours; ``why`` not, if
    batches take longer than they should."""

    unit: str = ""
    most: int | None = None
    why: IntakeReason = ""


@dataclass(frozen=True, slots=True)
class SourceTold:
    """What a source gave to a batch. ``waiting``: records that waited there when Spark planned it, beyond its own; None
    if it is not known. ``topics``: of Kafka, how many of them are in which topic; ``lag_max``: in the partition with
    most. ``log``: of files, the numbers in the source's log up to which files had been read before the batch and with
    it; ``files``, ``size_bytes``: those that wait, see `FileBacklog`. ``limit``: of the next batch."""

    rows: int
    waiting: int | None = None
    topics: Mapping[str, int] = field(default_factory=dict)
    lag_max: int | None = None
    log: tuple[int, int] | None = None
    files: int | None = None
    size_bytes: int | None = None
    limit: IntakeLimit = IntakeLimit()


@dataclass(frozen=True, slots=True)
class StateTold:
    """What an operator keeps after a batch."""

    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch is in the commit log. ``sources`` and ``states`` are in the order of Spark's plan. ``watermark_ms``: that
    of the event time; None without one, and before there is any. ``phases_ms``: how long each phase took. Not
    ``has_input``: no source has got further; Spark makes such batches to let time pass for what keeps state."""

    run_id: str
    query_id: str
    batch_id: int
    input_rows: int
    duration_ms: int
    output_rows: int | None = None
    sources: tuple[SourceTold, ...] = ()
    states: tuple[StateTold, ...] = ()
    watermark_ms: int | None = None
    phases_ms: dict[str, int] = field(default_factory=dict)
    has_input: bool = True

    @property
    def backlog_rows(self) -> int | None:
        """Records that waited at all the sources; None if one of them does not tell."""
        known = [source.waiting for source in self.sources if source.waiting is not None]
        return sum(known) if known and len(known) == len(self.sources) else None

    @property
    def state_rows(self) -> int | None:
        return sum(state.rows for state in self.states) if self.states else None


@dataclass(frozen=True, slots=True)
class Ended:
    """The query has stopped, for whatever reason."""

    run_id: str


Happening = Committed | Ended


class Listener:
    """Hears Spark's events of one session, as Java has them: PySpark's own conversion makes dozens of calls into the
    JVM."""

    def listen(self, session: SparkSession) -> None:
        """Hear the events of ``session``, until `close`."""
        context = session.sparkContext
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        jvm: Any = context._jvm
        self._manager: Any = session._jsparkSession.streams()
        self._wrapper = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(self)
        self._manager.addListener(self._wrapper)

    def close(self) -> None:
        """Hear no more."""
        self._manager.removeListener(self._wrapper)

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        pass

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


class QueryListener(Listener):
    """Turns Spark's events of one session into happenings, in its listener thread."""

    def __init__(self, tell: Callable[[Happening], None]) -> None:
        self._tell = tell

    def onQueryProgress(self, event: Any) -> None:
        progress = json.loads(event.progress().json())
        # A trigger that found nothing to do reports progress too now and then; it has not run a batch.
        if "addBatch" in (progress.get("durationMs") or {}):
            self._tell(committed_of(progress))

    def onQueryTerminated(self, event: Any) -> None:
        self._tell(Ended(event.runId().toString()))


def committed_of(progress: Mapping[str, Any]) -> Committed:
    """What a progress of Spark's says, that of a batch. Without the figures of its load, if they cannot be read."""
    # -1 where the sink does not count.
    written = (progress.get("sink") or {}).get("numOutputRows", -1)
    committed = Committed(
        run_id=progress["runId"],
        query_id=progress["id"],
        batch_id=int(progress["batchId"]),
        input_rows=int(progress.get("numInputRows") or 0),
        duration_ms=int(progress.get("batchDuration") or 0),
        output_rows=written if written >= 0 else None,
        has_input=_has_input(progress.get("sources") or ()),
    )
    return measured("what Spark tells of a batch", lambda: _with_load(committed, progress), committed)


def _has_input(sources: Sequence[Mapping[str, Any]]) -> bool:
    """Without rows too: files may be empty, and Spark cannot count the rows of every plan."""
    return not sources or any(each.get("startOffset") != each.get("endOffset") for each in sources)


def _with_load(committed: Committed, progress: Mapping[str, Any]) -> Committed:
    return replace(
        committed,
        sources=tuple(_source(each) for each in progress.get("sources") or ()),
        states=tuple(
            StateTold(int(each["numRowsTotal"]), _state_bytes(each))
            for each in progress.get("stateOperators") or ()
        ),
        watermark_ms=_watermark_ms(progress.get("eventTime") or {}),
        phases_ms={name: int(ms) for name, ms in progress["durationMs"].items()},
    )


def _state_bytes(operator: Mapping[str, Any]) -> int:
    """What Spark says that state takes: in memory, and in the files of RocksDB."""
    files = (operator.get("customMetrics") or {}).get("rocksdbSstFileSize") or 0
    return int(operator.get("memoryUsedBytes") or 0) + int(files)


def _watermark_ms(event_time: Mapping[str, str]) -> int | None:
    text = event_time.get("watermark")
    try:
        return (_epoch_ms(text) or None) if text else None
    except ValueError:
        # Spark writes years of five digits too, such as that of an event time in milliseconds read as one in seconds.
        return None


def _source(said: Mapping[str, Any]) -> SourceTold:
    rows, kind = int(said.get("numInputRows") or 0), str(said.get("description"))
    end = said.get("endOffset")
    if kind.startswith("FileStreamSource"):
        before = (said.get("startOffset") or {"logOffset": -1})["logOffset"]
        return SourceTold(rows, log=(int(before), int(end["logOffset"])) if end else None)
    lags = records_between(end, said.get("latestOffset"))
    if lags is None:
        return SourceTold(rows)
    topics = {topic: sum(partitions) for topic, partitions in lags.items()}
    waiting = sum(topics.values())
    if not kind.startswith("Kafka"):
        return SourceTold(rows, waiting)
    most = sorted(topics.items(), key=lambda each: -each[1])[:TOPICS_TOLD]
    return SourceTold(
        rows, waiting, dict(most), max((max(each) for each in lags.values() if each), default=0)
    )


def records_between(begin: Any, end: Any) -> dict[str, list[int]] | None:
    """How many records there are in each partition, by topic, between two offsets of Kafka's form. Other sources have
    other offsets, and do not say."""
    try:
        return {
            topic: [
                max(0, offset - begin[topic].get(number, offset)) for number, offset in partitions.items()
            ]
            for topic, partitions in end.items()
        }
    except (AttributeError, KeyError, TypeError):
        return None


def _epoch_ms(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp() * 1000)
