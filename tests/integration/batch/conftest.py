from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from app.documents.graph import parse_document
from app.model.resultsurl import below
from tests.integration.batch.harness import KEYS, ROWS, Regions, document, mount_table

VOLUME = "execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task"

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the file system of `REMOTE` has, on this host."""
    return tmp_path_factory.mktemp("mounted")


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory, mounted: Path) -> Iterator[Any]:
    """A Spark of this process, with two cores."""
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        **mount_table(mounted),
    }
    builder = SparkSession.builder.master("local[2]").appName("regions")
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """left: k is skewed, to 7. right: one row for each k. Left has a number for each row."""
    directory = tmp_path_factory.mktemp("tables")
    left = pa.table({"k": KEYS, "n": list(range(ROWS))})
    # Row groups are what Spark can divide.
    parquet.write_table(left, directory / "left.parquet", row_group_size=ROWS // 8)
    parquet.write_table(
        pa.table({"k": list(range(50)), "m": [key * 10 for key in range(50)]}), directory / "right.parquet"
    )
    return directory


@pytest.fixture
def regions(session: Any, tables: Path, tmp_path: Path) -> Callable[..., Regions]:
    """Makes jobs of ``vertices`` as `document` has them, which write to ``directory``/out."""

    def make(
        *vertices: tuple[str, list[str], str],
        rule: str = "even-data",
        directory: Path = tmp_path,
        config: dict[str, str] | None = None,
        conf: dict[str, str] | None = None,
        root: str | None = None,
        upper: dict[str, int] | None = None,
    ) -> Regions:
        options = {"slotwise.batch.parallelism-decider": rule, VOLUME: "4 kb", **(config or {})}
        made_of = document(tables, directory / "out", vertices, options)
        for vertex in made_of["vertices"]:
            vertex["parallelism"] = (upper or {}).get(vertex["name"], vertex["parallelism"])
        graph = parse_document(made_of)
        job_id = f"test{next(_numbers)}"
        results = None if root is None else below(root, job_id)
        made = Regions(session, graph, directory, job_id=job_id, conf=conf, results=results)
        made.directory.mkdir(parents=True, exist_ok=True)
        return made

    return make
