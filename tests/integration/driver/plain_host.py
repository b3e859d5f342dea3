"""Runs a program as a driver does, with a host that starts its queries as they are: what is taken over, and nothing of
Slotwise behind it. ``python -m tests.integration.driver.plain_host DIRECTORY SCRIPT ARGS...`` leaves what happened in
``outcome.json`` of the directory."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from app.driver.failures import Failure
from app.driver.program.main_thread import run_program
from app.driver.program.places import Places
from app.driver.program.takeover import Start, Takeover
from app.model.jobgraph import ProgramSpec


class PlainHost:
    was_stopped = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._told = threading.Event()
        self.failure: Failure | None = None
        self.started: list[str] = []

    @property
    def is_stopping(self) -> bool:
        return (self._directory / "stopping").exists()

    def open_session(self, conf: Mapping[str, str]) -> SparkSession:
        settings = SparkConf(loadDefaults=False).setMaster("local[2]").setAppName("plain")
        settings.set("spark.ui.enabled", "false")
        for name, value in {"spark.sql.adaptive.enabled": "false", **conf}.items():
            settings.set(name, value)
        rules = "org.apache.spark.sql.catalyst.optimizer.CollapseRepartition"
        settings.set("spark.sql.optimizer.excludedRules", rules)
        context = SparkContext(conf=settings)
        context.setLogLevel("ERROR")
        for file in self._directory.glob("artifacts/*.py"):
            context.addPyFile(str(file))
        self._session = SparkSession(context)
        return self._session

    def start(self, asked: Start) -> StreamingQuery:
        self.started.append(asked.where)
        asked.handle.begin(asked.writer)
        if (self._directory / "stop when it has started").exists():
            threading.Timer(3.0, self._stop).start()
        return asked.handle

    def restarts(self, error: StreamingQueryException) -> bool:
        return False

    def _stop(self) -> None:
        """As an attempt ends queries under a program."""
        (self._directory / "stopping").touch()
        for query in self._session.streams._jsqm.active():
            query.stop()
        threading.Timer(3.0, self.end).start()

    def program_ended(self, failure: Failure | None) -> None:
        self.failure = failure
        self._told.set()
        self.end()

    def end(self) -> None:
        outcome = {
            "error": self.failure.sentence if self.failure is not None else None,
            "ended": self._told.is_set(),
            "started": self.started,
        }
        (self._directory / "outcome.json").write_text(json.dumps(outcome), encoding="utf-8")
        sys.stdout.flush()
        exit_now(0)


exit_now = os._exit

if __name__ == "__main__":
    directory, script, *args = sys.argv[1:]
    host = PlainHost(Path(directory))
    artifacts = Path(directory) / "artifacts"
    places = Places(artifacts, script)
    Takeover(host, places, {"spark.sql.shuffle.partitions": "3"}).install()
    names = tuple(sorted(path.name for path in artifacts.iterdir()))
    host.program_ended(run_program(ProgramSpec(script, tuple(args)), artifacts, names, places))
