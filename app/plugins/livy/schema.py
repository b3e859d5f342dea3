"""Livy's batches, with Livy's field names."""

from __future__ import annotations

from pydantic import Field

from app.api.schema.base import Camel, Id
from app.plugins.livy.document import LivyState

Number = Field(description="The number of the batch. A number is never used again.")


class AppInfo(Camel):
    """Links to further information on the job."""

    driver_log_url: str = Field(description="The attempts of the job with their logs, at this server.")
    spark_ui_url: str | None = Field(description="The web page of Spark, if the job asked for one.")


class LivyBatch(Camel):
    """A job that was submitted as a batch."""

    id: int = Number
    name: str
    owner: str | None = Field(description="The name of the token that submitted the batch.")
    proxy_user: None = Field(description="Always null: jobs do not run as other users.")
    state: LivyState
    app_id: Id = Field(description="The id of the job, for /jobs/{jobid}.")
    app_info: AppInfo
    log: list[str] = Field(description="The last ten lines of its log; empty in lists.")


class LivyBatchList(Camel):
    """A part of all batches, oldest first."""

    first: int = Field(serialization_alias="from")
    total: int = Field(description="Number of all batches.")
    sessions: list[LivyBatch]


class LivyBatchState(Camel):
    id: int = Number
    state: LivyState


class LivyLog(Camel):
    """Lines of the log of the newest attempt."""

    id: int = Number
    first: int = Field(
        serialization_alias="from",
        description="The number of the first line; the first stored line has the number 0.",
    )
    size: int = Field(description="Number of these lines.")
    total: int = Field(description="Number of all lines.")
    log: list[str]


class Deleted(Camel):
    msg: str
