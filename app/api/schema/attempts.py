"""The attempts of a job: what ran it, from when to when, and where its log ends."""

from __future__ import annotations

from pydantic import Field

from app.api.schema.base import Camel, Millis
from app.store.tables import AttemptEnding


class AttemptLog(Camel):
    """The log of the driver, as far as it belongs to the attempt."""

    available: bool = Field(description="Whether the log is there: logs of older drivers are removed.")
    size_in_bytes: int = Field(description="Where it ends now: `from` may be as much. 0 if it is not there.")
    cut_in_bytes: int = Field(description="How much of its begin was cut off because it had grown too long.")


class Attempt(Camel):
    """One attempt to run a job. What a driver has not said yet, or an older version did not keep, is null."""

    attempt: int = Field(description="Its number; those of a job are counted from 1.")
    start_timestamp_in_millis: Millis
    end_timestamp_in_millis: Millis | None = Field(description="Null while it runs.")
    ending: AttemptEnding | None = Field(
        description="How it ended. STOPPED: by order, to be followed by another one or because the job ended."
    )
    message: str | None = Field(description="Why it failed, in a sentence.")
    plan_version: int | None = Field(description="The version of the plan that it began with.")
    parallelism: dict[str, int] | None = Field(description="By vertex id: what it began with.")
    driver_id: str
    driver_pid: int | None
    host: str | None = Field(description="Where its driver runs, or ran.")
    spark_version: str | None
    spark_ui: str | None = Field(description="The web page of Spark, if the job asked for one.")
    log: AttemptLog


class Attempts(Camel):
    """Newest first."""

    attempts: list[Attempt]
