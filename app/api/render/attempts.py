"""Attempts of a job as the JSON of the REST contract."""

from __future__ import annotations

from collections.abc import Iterable

from app.api.schema import attempts as schema
from app.worker.requests.views_of_logs import AttemptView


def attempts(views: Iterable[AttemptView]) -> schema.Attempts:
    return schema.Attempts(attempts=[_attempt(view) for view in views])


def _attempt(view: AttemptView) -> schema.Attempt:
    row = view.row
    return schema.Attempt(
        attempt=row.attempt,
        start_timestamp_in_millis=row.started_ms,
        end_timestamp_in_millis=row.ended_ms,
        ending=row.ending,
        message=row.ended_why,
        plan_version=row.plan_version,
        parallelism=None if row.parallelism is None else dict(row.parallelism),
        driver_id=row.driver_id,
        driver_pid=row.pid,
        host=row.host,
        spark_version=row.spark_version,
        spark_ui=row.ui_url,
        log=schema.AttemptLog(
            available=view.log_bytes is not None,
            size_in_bytes=view.log_bytes or 0,
            cut_in_bytes=view.log_cut_bytes,
        ),
    )
