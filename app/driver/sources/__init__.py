"""Streaming sources whose parallelism can change between two micro-batches, as Spark Python data sources.

The number of partitions of a micro-batch is the parallelism of the vertex in the plan that is in force when Spark
plans the batch (`app.driver.sources.control`). What a source must know after a crash lies in the query's checkpoint.

They need pyarrow and PySpark 4.2, which the environment of a program may lack: `opening` is loaded when a source is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from app.driver.sources.control import ControlFile, PlanNumber
from app.model.jobgraph import JobVertex

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["ControlFile", "PlanNumber", "open_stream", "read_static", "register_all", "state_directory"]


def state_directory(checkpoint_dir: Path, vertex_id: str) -> Path:
    """Where in a query's checkpoint a built-in source keeps what it must know after a crash."""
    return checkpoint_dir / f"slotwise-source-{vertex_id}"


def register_all(spark: SparkSession) -> None:
    """See `opening.register_all`."""
    from app.driver.sources import opening

    opening.register_all(spark)


def open_stream(
    spark: SparkSession, vertex: JobVertex, control: ControlFile, query_key: str, checkpoint_dir: Path
) -> DataFrame:
    """See `opening.open_stream`."""
    from app.driver.sources import opening

    return opening.open_stream(spark, vertex, control, query_key, checkpoint_dir)


def read_static(spark: SparkSession, vertex: JobVertex, schema: StructType | None = None) -> DataFrame:
    """See `opening.read_static`."""
    from app.driver.sources import opening

    return opening.read_static(spark, vertex, schema)
