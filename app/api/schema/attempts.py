"""The attempts of a job: what ran it, from when to when, and where its log ends."""

from __future__ import annotations

from pydantic import Field

from app.api.schema.base import Camel, Millis
from app.store.tables import AttemptEnding


class AttemptLog(Camel):
    """The log of the driver, as far as it belongs to the attempt."""

    available: bool = Field(description="Whether the log exists: logs of older drivers are removed.")
    size_in_bytes: int = Field(description="The current end: the largest `from`. 0 if there is no log.")
    cut_in_bytes: int = Field(description="Bytes that were cut off at its begin because it was too long.")


class Attempt(Camel):
    """One run of a job. A value that the driver has not reported, or an older version did not store, is null."""

    attempt: int = Field(description="The number of the attempt, from 1 for each job.")
    start_timestamp_in_millis: Millis
    end_timestamp_in_millis: Millis | None = Field(description="Null while it runs.")
    ending: AttemptEnding | None = Field(
        description="How it ended. STOPPED: by order, for another attempt or because the job ended."
    )
    message: str | None = Field(description="Why it failed, in a sentence.")
    plan_version: int | None = Field(description="The version of its first plan.")
    parallelism: dict[str, int] | None = Field(description="The first parallelism, by vertex id.")
    driver_id: str
    driver_pid: int | None
    host: str | None = Field(description="The host of its driver.")
    spark_version: str | None
    spark_ui: str | None = Field(description="The web page of Spark, if the job asked for one.")
    log: AttemptLog


class Attempts(Camel):
    """Newest first."""

    attempts: list[Attempt]
