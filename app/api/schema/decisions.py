"""The decisions of a BATCH job."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from app.api.schema.base import Id, Millis, Schema


class RegionRun(Schema):
    """The run of a region that a decision was for."""

    state: Literal["RUNNING", "FINISHED", "DISCARDED"] = Field(
        description=(
            "DISCARDED: nothing of it counts, since it failed, was cancelled, lost its driver, or what it had left"
            " was lost."
        )
    )
    start: Millis = Field(alias="startTimestampInMillis")
    end: int | None = Field(
        alias="endTimestampInMillis",
        description="When it was finished; null if it was not, and of all but the last run of a region.",
    )
    written_bytes: int | None = Field(
        alias="writtenBytes",
        description="What the vertex left for other regions; null while not finished, and if nobody reads it.",
    )
    written_rows: int | None = Field(alias="writtenRows")


class Decision(Schema):
    """The parallelism of a vertex for one run of its region, with the numbers that led to it."""

    vertex_id: Id = Field(alias="vertexId")
    vertex_name: str = Field(alias="vertexName")
    region: int = Field(description="Regions are numbered from 0, producers first.")
    run: int = Field(description="Runs of a region are numbered from 1.")
    timestamp: Millis = Field(alias="timestampInMillis")
    rule: Literal["flip-187", "even-data", "fixed", "source", "pipelined"] = Field(
        description=(
            "fixed: the bounds leave no choice, or the size of a source is not known. source: from the sizes of its"
            " files. pipelined: Spark divides the rows, and the parallelism is its limit."
        )
    )
    parallelism: int
    lower: int = Field(alias="lowerBound", description="As they were when it was decided.")
    upper: int = Field(alias="upperBound")
    wanted: int | None = Field(description="What the bytes ask for, before the bounds.")
    bytes: int | None = Field(
        description="Of the inputs from other regions, without broadcast ones; of files."
    )
    rows: int | None = Field(description="Of the inputs from other regions, broadcast ones once.")
    broadcast_bytes: int = Field(alias="broadcastBytes", description="What each task reads whole.")
    volume_bytes: int = Field(alias="volumeBytes", description="About so much a task is to read.")
    subpartitions: int | None = Field(description="Of the inputs that are partitioned by keys.")
    groups: list[list[int]] | None = Field(
        description=(
            "With ?detail=true: the subpartitions of each task, where they were chosen by their bytes; empty where each"
            " task reads equally many."
        )
    )
    sentence: str = Field(description="The same in words.")
    region_run: RegionRun = Field(alias="regionRun")
