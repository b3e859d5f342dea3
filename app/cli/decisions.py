"""`slotwise decisions`: the parallelism that was decided for the vertices of a batch job, with the numbers."""

from __future__ import annotations

from typing import Any

from app.cli.options import Call, JobArgument
from app.cli.output import Columns, format_bytes, format_ms, format_number, show_table, time_column
from app.cli.rescales import duration_ms

NONE_OF_STREAMING = (
    "No decisions: a streaming job does not make them. What changed its parallelism: slotwise rescales JOB"
)

COLUMNS: Columns = {
    "~vertex": lambda one: one["vertexName"],
    ">run": lambda one: one["run"],
    "rule": lambda one: one["rule"],
    ">parallelism": lambda one: one["parallelism"],
    ">wanted": lambda one: one["wanted"],
    "bounds": lambda one: f"{one['lowerBound']} to {one['upperBound']}",
    # What else than the bounds led to the parallelism.
    "limit": lambda one: None if one["limitedBy"] is None else f"{one['limit']} ({one['limitedBy']})",
    # All that the vertex reads of other regions, or of files.
    ">input": lambda one: format_bytes(
        None if one["bytes"] is None else int(one["bytes"]) + int(one["broadcastBytes"])
    ),
    ">rows": lambda one: format_number(one["rows"]),
    ">per task": lambda one: format_bytes(one["volumeBytes"]),
    "state": lambda one: one["regionRun"]["state"],
    ">took": lambda one: format_ms(duration_ms(one["regionRun"])),
    ">written": lambda one: format_bytes(one["regionRun"]["writtenBytes"]),
}


def decisions(job: JobArgument, call: Call) -> None:
    """Show how parallel each vertex of a batch job was decided to run, and from which numbers, newest first."""
    job_id = call.client.find_job(job)
    found: list[dict[str, Any]] = call.client.get(f"/jobs/{job_id}/decisions")
    is_batch = bool(found) or call.client.get(f"/jobs/{job_id}").get("job-type") == "BATCH"
    call.answer(found, _show if found else "No decisions yet." if is_batch else NONE_OF_STREAMING)


def _show(found: list[dict[str, Any]]) -> None:
    show_table({**time_column("when", "timestampInMillis", found), **COLUMNS}, found)
