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
            "DISCARDED: nothing of it counts, since it failed, was cancelled, lost its driver, or what it had left"
            " was lost."
        )
    )
    start_timestamp_ms: Millis
    end_timestamp_ms: int | None = Field(
        description="When it was finished; null if it was not, and of all but the last run of a region.",
    )
    written_bytes: int | None = Field(
        description="What the vertex left for other regions; null while not finished, and if nobody reads it.",
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
    lower_bound: int = Field(description="The client's, as it was when it was decided.")
    upper_bound: int
    limit: int | None = Field(
        description="What the decision had to keep to beside the bounds; null if that made no difference."
    )
    limited_by: LimitedBy | None = Field(
        description=(
            "slots: more tasks of a source would only wait for one. options: those of auto-parallelism, which may also"
            " ask for more tasks. subpartitions: the inputs are written in so many parts; then the parallelism may be"
            " below a lower bound that was raised later, which is among the violations of the explanation."
        ),
    )
    wanted: int | None = Field(description="What the bytes ask for, before bounds and limit.")
    normalized: int | None = Field(description="Of rule flip-187: the power of two next to it.")
    bytes: int | None = Field(
        description="Of the inputs from other regions, without broadcast ones; of files."
    )
    rows: int | None = Field(description="Of the inputs from other regions, broadcast ones once.")
    broadcast_bytes: int = Field(description="What each task reads whole.")
    counted_broadcast_bytes: int = Field(
        description="Of rule flip-187: what of the volume of each task was set aside for them, at most half.",
    )
    volume_bytes: int = Field(description="About so much a task is to read.")
    subpartitions: int | None = Field(
        description="Of the inputs that are partitioned by keys; the smallest number if they differ."
    )
    skewed: list[int] = Field(
        description="Of rule even-data: subpartitions that are much larger than the others, so Spark divides the rows."
    )
    groups: list[list[int]] | None = Field(
        description=(
            "With ?detail=true: the subpartitions of each task, where they were chosen by their bytes; empty where each"
            " task reads equally many."
        )
    )
    sentence: str = Field(description="The same in words.")
    region_run: RegionRun
