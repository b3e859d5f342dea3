"""What Spark says of a running query: batches committed, nothing to do, ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Committed:
    """A batch is in the commit log. ``backlog_rows``: records that waited at the sources when Spark planned it, beyond
    its own; None if one of the sources does not tell Spark."""

    run_id: str
    query_id: str
    batch_id: int
    input_rows: int
    state_rows: int | None
    duration_ms: int
    output_rows: int | None = None
    backlog_rows: int | None = None


@dataclass(frozen=True, slots=True)
class Idle:
    """At ``at_ms`` the query had no data and no batch under way."""

    run_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The query has stopped, for whatever reason."""

    run_id: str


Happening = Committed | Idle | Ended


def tell_nobody(_happening: Happening) -> None:
    pass


class QueryListener:
    """Turns Spark's events of one session into happenings, in its listener thread.

    The events are fetched as one JSON text each: PySpark's own conversion makes dozens of calls into the JVM.
    """

    def __init__(self, session: SparkSession, tell: Callable[[Happening], None]) -> None:
        context = session.sparkContext
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        jvm: Any = context._jvm
        self._manager: Any = session._jsparkSession.streams()
        self._listener = jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(
            _Adapter(tell)
        )
        self._manager.addListener(self._listener)

    def close(self) -> None:
        """Hear no more."""
        self._manager.removeListener(self._listener)


class _Adapter:
    def __init__(self, tell: Callable[[Happening], None]) -> None:
        self._tell = tell

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        progress = json.loads(event.progress().json())
        operators = progress.get("stateOperators") or []
        # A trigger that found nothing to do reports progress too now and then; it has not run a batch.
        if "addBatch" not in (progress.get("durationMs") or {}):
            return
        self._tell(
            Committed(
                run_id=progress["runId"],
                query_id=progress["id"],
                batch_id=int(progress["batchId"]),
                input_rows=int(progress.get("numInputRows") or 0),
                state_rows=sum(int(each["numRowsTotal"]) for each in operators) if operators else None,
                duration_ms=int(progress.get("batchDuration") or 0),
                # -1 where the sink does not count.
                output_rows=written
                if (written := (progress.get("sink") or {}).get("numOutputRows", -1)) >= 0
                else None,
                backlog_rows=_backlog_rows(progress.get("sources") or []),
            )
        )

    def onQueryIdle(self, event: Any) -> None:
        self._tell(Idle(event.runId().toString(), _epoch_ms(event.timestamp())))

    def onQueryTerminated(self, event: Any) -> None:
        self._tell(Ended(event.runId().toString()))

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def _backlog_rows(sources: Sequence[Mapping[str, Any]]) -> int | None:
    waiting = [_behind(source.get("latestOffset"), source.get("endOffset")) for source in sources]
    known = [rows for rows in waiting if rows is not None]
    return sum(known) if known and len(known) == len(waiting) else None


def _behind(latest: Any, end: Any) -> int | None:
    """How many records there are between two offsets of Kafka's form: by topic and partition. Others do not say."""
    try:
        rows: int = sum(
            max(0, offset - end[topic].get(partition, offset))
            for topic, partitions in latest.items()
            for partition, offset in partitions.items()
        )
        return rows
    except (AttributeError, KeyError, TypeError):
        return None


def _epoch_ms(timestamp: str) -> int:
    return int(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp() * 1000)
