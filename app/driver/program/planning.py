"""The assignment that plans a program: from the file to the answer. What the program waits for meanwhile does not come,
and nothing is written behind that."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import DataFrameWriter, DataFrameWriterV2, SparkSession
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

from app.driver.program.handle import Queries
from app.driver.program.main_thread import run_program
from app.driver.program.origin import Origin
from app.driver.program.places import Places
from app.driver.program.planner import Planner
from app.driver.program.takeover import Takeover
from app.driver.session import add_files
from app.durablefiles import write_whole
from app.model.ids import vertex_id
from app.model.jobgraph import ProgramSpec
from app.model.planned import Planned
from app.model.protocol import PlanningSpec

log = logging.getLogger(__name__)

_WRITES = {
    DataFrameWriter: (
        "save", "saveAsTable", "insertInto", "json", "parquet", "text", "csv", "xml", "orc", "jdbc",
    ),
    DataFrameWriterV2: ("create", "replace", "createOrReplace", "append", "overwrite", "overwritePartitions"),
}  # fmt: skip
_COMMAND = re.compile(
    r"\s*(?:insert|merge|delete|update|truncate|drop|create|replace|alter|load|optimize|vacuum|call)\b",
    re.IGNORECASE,
)


class PlannedQueries(Queries):
    """The queries of a program that is planned: they would run."""

    def __init__(self, calls: Takeover, planner: Planner) -> None:
        super().__init__(calls)
        self._planner = planner

    def running(self) -> list[StreamingQuery]:
        return [query for query in self._planner.queries if not query.has_ended]

    def active(self, manager: StreamingQueryManager) -> list[StreamingQuery]:
        return self.running()

    def get(self, manager: StreamingQueryManager, query_id: str) -> StreamingQuery | None:
        return next((query for query in self.running() if query.id == query_id), None)

    def await_any(self, manager: StreamingQueryManager, timeout: int | None) -> bool | None:
        if timeout is None:
            self._planner.wait(None)
            return None
        if self._planner.has_running and not all(query.ends_by_itself for query in self._planner.queries):
            self._planner.wait_a_while(None)
            return False
        self._planner.wait(None)
        return True


class PlanningTakeover(Takeover):
    """`takeover.Takeover`, without any query that runs."""

    def __init__(self, planner: Planner, places: Places, conf: Mapping[str, str]) -> None:
        super().__init__(planner, places, conf)
        self.queries = PlannedQueries(self, planner)
        self._planner = planner

    def install(self) -> None:
        super().install()
        clock: Any = time
        event: Any = threading.Event
        usual_sleep, usual_wait = time.sleep, threading.Event.wait
        ours, planner = self, self._planner

        def sleep(secs: float) -> None:
            if ours.places.is_caller() and planner.has_running and planner.has_started_here():
                planner.wait_a_while(None)
            else:
                usual_sleep(secs)

        def wait(self: threading.Event, timeout: float | None = None) -> bool:
            if ours.places.is_caller() and planner.has_running and timeout and planner.has_started_here():
                planner.wait_a_while(None)
                return self.is_set()
            return usual_wait(self, timeout)

        clock.sleep, event.wait = sleep, wait
        for kind, names in _WRITES.items():
            for name in names:
                if hasattr(kind, name):
                    setattr(kind, name, self._unless_skipped(getattr(kind, name)))
        session: Any = SparkSession
        usual_sql = session.sql

        def sql(self: Any, sqlQuery: str, *given: Any, **named: Any) -> Any:
            if planner.skipped and _COMMAND.match(sqlQuery):
                log.warning("not run while the program is planned: %s", sqlQuery)
                return usual_sql(self, "SELECT 1 AS planned WHERE false")
            return usual_sql(self, sqlQuery, *given, **named)

        session.sql = sql

    def _unless_skipped(self, write: Any) -> Any:
        planner = self._planner

        def maybe(*given: Any, **named: Any) -> Any:
            if planner.skipped:
                log.warning("not written while the program is planned: %s", write.__qualname__)
                return None
            return write(*given, **named)

        return maybe


def plan_program(
    spec: PlanningSpec, open_session: Callable[[PlanningSpec], SparkSession], leave: Callable[[int], NoReturn]
) -> NoReturn:
    """Run the program of ``spec`` in this thread until it is planned, and end the process."""
    graph: Any = spec.graph
    program = ProgramSpec(str(graph["script"]), tuple(map(str, graph.get("args", ()))))
    artifacts = tuple(map(str, graph.get("artifacts", ())))
    artifacts_dir = Path(spec.artifacts_dir)
    places = Places(artifacts_dir, program.script)

    def opened(conf: Mapping[str, str]) -> SparkSession:
        session = open_session(replace(spec, spark_conf=dict(conf)))
        add_files(session, (str(artifacts_dir / name) for name in artifacts))
        return session

    def done(planned: Planned) -> NoReturn:
        write_whole(Path(spec.answer_file), json.dumps(asdict(planned)).encode())
        leave(0)

    before = Path(spec.checkpoint_dir) if spec.checkpoint_dir else None
    origin = Origin(Path(str(graph["from"]))) if "from" in graph else None
    planner = Planner(
        places,
        opened,
        done,
        Path(spec.work_dir) / "state",
        origin=origin,
        before=lambda sink: before / vertex_id(spec.job_name, sink) if before is not None else None,
    )
    PlanningTakeover(planner, places, spec.spark_conf).install()
    planner.program_ended(run_program(program, artifacts_dir, artifacts, places))
    raise AssertionError("a planner that is told of the end answers")
