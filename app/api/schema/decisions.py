"""The decisions of a BATCH job."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.api.schema.base import Camel, Id, Millis
from app.model.batch import LimitedBy

Rule = Literal["flip-187", "even-data", "fixed", "source", "pipelined"]


class RegionRun(Camel):
    """The run of a region that a decision was for."""

    state: Literal["RUNNING", "FINISHED", "DISCARDED"] = Field(
        description=(
            "DISCARDED: its results are not used, because it failed, was canceled, lost its driver, or its results"
            " were lost."
        )
    )
    start_timestamp_ms: Millis
    end_timestamp_ms: int | None = Field(
        description="When it was finished; null if it was not, and for all runs except the last of a region.",
    )
    written_bytes: int | None = Field(
        description="Bytes of the vertex for other regions; null while not finished, and if no region reads them.",
    )
    written_rows: int | None


class Decision(Camel):
    """The parallelism of a vertex for one run of its region, with the numbers that led to it."""

    vertex_id: Id
    vertex_name: str
    region: int = Field(description="Regions are numbered from 0, producers first.")
    run: int = Field(description="Runs of a region are numbered from 1.")
    timestamp_ms: Millis
    rule: Rule = Field(
        description=(
            "fixed: the bounds leave no choice. source: from the sizes of its files; the highest possible if they are"
            " not known. pipelined: Spark divides the rows, and the parallelism is its limit."
        )
    )
    parallelism: int
    lower_bound: int = Field(description="The bound that was declared when the decision was made.")
    upper_bound: int
    limit: int | None = Field(
        description="A further limit that changed the decision; null if there was none."
    )
    limited_by: LimitedBy | None = Field(
        description=(
            "slots: more tasks of a source would have to wait. options: those of auto-parallelism, which may also"
            " ask for more tasks. subpartitions: the number of parts of the inputs; then the parallelism may be below a"
            " lower bound that was raised later, which is among the violations of the explanation."
        ),
    )
    wanted: int | None = Field(description="The parallelism by bytes, before bounds and limit.")
    normalized: int | None = Field(description="Rule flip-187: the power of two nearest to `wanted`.")
    bytes: int | None = Field(
        description="Bytes of the inputs from other regions, without broadcast inputs; bytes of files of a source."
    )
    rows: int | None = Field(description="Rows of the inputs from other regions, broadcast inputs once.")
    broadcast_bytes: int = Field(description="Bytes that each task reads completely.")
    counted_broadcast_bytes: int = Field(
        description="Rule flip-187: the part of the volume per task that was subtracted for them, at most half.",
    )
    volume_bytes: int = Field(description="The approximate number of bytes that a task should read.")
    subpartitions: int | None = Field(
        description="Subpartitions of the inputs that are partitioned by keys; the smallest number if they differ."
    )
    skewed: list[int] = Field(
        description="Rule even-data: subpartitions that are much larger than the others, so Spark divides their rows."
    )
    groups: list[list[int]] | None = Field(
        description=(
            "With ?detail=true: the subpartitions of each task, if they were chosen by their bytes; empty if each task"
            " reads an equal number."
        )
    )
    sentence: str = Field(description="The decision in words.")
    region_run: RegionRun
