"""What the tests of database sinks share: a database of either kind, its sinks, and rows to write."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from app.driver.sinks.base import Sink
from app.model.jobgraph import JobVertex, OutputMode
from tests.integration.driver.sink_support import opened, vertex


@dataclass
class Store:
    """A database, its sinks, and what is in it."""

    kind: str
    where: str
    work_dir: Path

    def vertex(
        self, *, table: str = "results", mode: OutputMode = OutputMode.APPEND, **options: str
    ) -> JobVertex:
        if self.kind == "sqlite":
            return vertex("sqlite", self.where, mode=mode, table=table, **options)
        return vertex("postgresql", mode=mode, url=self.where, table=table, **options)

    def sink(self, **options: Any) -> Sink:
        return opened(self.work_dir, self.vertex(**options))

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.where)) as db:
                rows = db.execute(statement).fetchall()
                db.commit()
                return rows
        with psycopg.connect(self.where) as db:
            cursor = db.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def staged_files(self) -> list[Path]:
        return [path for path in (self.work_dir / "staging").rglob("*.parquet") if path.is_file()]


def store_of(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty database of the kind that the request has as its parameter."""
    where = (
        str(tmp_path / "results.db")
        if request.param == "sqlite"
        else request.getfixturevalue("postgresql_url")
    )
    return Store(request.param, where, tmp_path / "work")


def numbers(spark: SparkSession, first: int, end: int, tasks: int = 3, name: str = "row ") -> DataFrame:
    return spark.range(first, end, 1, tasks).selectExpr("id", f"concat('{name}', id) AS name")


def upsert(store: Store, keys: str = "id", output: OutputMode = OutputMode.UPDATE) -> Sink:
    return store.sink(mode="upsert", keys=keys, output=output)
