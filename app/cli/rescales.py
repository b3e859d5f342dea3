"""`slotwise rescales`: the rescale history of a job."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from app.cli.client import Client
from app.cli.options import JobArgument, JsonOption, ServerOption, TokenOption
from app.cli.output import format_ms, format_number, format_time, print_json, say, show_table


class Cause(StrEnum):
    INITIAL_SCHEDULE = "INITIAL_SCHEDULE"
    UPDATE_REQUIREMENT = "UPDATE_REQUIREMENT"
    NEW_RESOURCE_AVAILABLE = "NEW_RESOURCE_AVAILABLE"
    RECOVERABLE_FAILOVER = "RECOVERABLE_FAILOVER"


class Terminal(StrEnum):
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    IGNORED = "IGNORED"


HEADERS = ["when", "cause", "who", "parallelism", "outcome", "rung", "took", "output gap", "why"]
RIGHT = ["took", "output gap"]


def rescales(
    job: JobArgument,
    limit: Annotated[int, typer.Option(min=1, help="At most this many, newest first.")] = 20,
    cause: Annotated[Cause | None, typer.Option(help="Only records of this cause.")] = None,
    state: Annotated[Terminal | None, typer.Option(help="Only records that ended like this.")] = None,
    uuid: Annotated[str | None, typer.Option(help="One record, in full.")] = None,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token_file: TokenOption = None,
) -> None:
    """Show the rescales of a job: cause, who asked, before and after, rung, duration and output gap."""
    with Client(server, token_file) as client:
        job_id = client.find_job(job)
        if uuid is not None:
            record = client.get(f"/jobs/{job_id}/rescales/details/{uuid}")
            print_json(record) if as_json else show_one(record)
            return
        records = history(client, job_id, limit=limit, cause=cause, state=state)
    if as_json:
        print_json(records)
    elif records:
        show_table(HEADERS, [row(record) for record in records], right=RIGHT)
    else:
        say("No rescales.")


def history(
    client: Client, job_id: str, *, limit: int, cause: str | None = None, state: str | None = None
) -> list[dict[str, Any]]:
    """Records newest first."""
    params: dict[str, str | int] = {"limit": limit}
    if cause:
        params["cause"] = str(cause)
    if state:
        params["state"] = str(state)
    return list(client.get(f"/jobs/{job_id}/rescales/history", params))


def row(record: dict[str, Any]) -> list[str]:
    """One record as cells under `HEADERS`."""
    end = record["endTimestampInMillis"]
    took = "" if end is None else format_ms(end - record["startTimestampInMillis"])
    reason = record.get("terminatedReason") or ""
    outcome = record["terminalState"] or "in progress"
    if reason and reason != "SUCCEEDED":
        outcome += f" ({reason})"
    return [
        format_time(record["startTimestampInMillis"]),
        record["triggerCause"],
        record.get("requestedBy") or "-",
        before_after(record),
        outcome,
        record.get("rung") or "-",
        took,
        format_ms(record.get("outputGapInMillis")),
        record.get("reason") or "",
    ]


def before_after(record: dict[str, Any]) -> str:
    """`delays 1->4, store 1->2`: the vertices that changed, or the parallelism that stayed."""
    changed, kept = [], []
    for vertex in (record.get("vertices") or {}).values():
        before, after = vertex["preRescaleParallelism"], vertex["postRescaleParallelism"]
        if after is None or after == before:
            kept.append(f"{vertex['jobVertexName']} {before if before is not None else '-'}")
        else:
            changed.append(f"{vertex['jobVertexName']} {'' if before is None else before}->{after}")
    if changed:
        return ", ".join(changed)
    return "unchanged: " + ", ".join(kept) if kept else "-"


def show_one(record: dict[str, Any]) -> None:
    for header, cell in zip(HEADERS, row(record), strict=True):
        say(f"{header + ':':13}{cell}")
    say(f"{'id:':13}{record['rescaleUuid']}")
    reprocessed = record.get("reprocessedRecords")
    say(f"{'reprocessed:':13}{'unknown' if reprocessed is None else format_number(reprocessed)} records")
    for span in record.get("schedulerStates") or []:
        error = f"  {span['stringifiedException']}" if span.get("stringifiedException") else ""
        say(f"  {span['state']:30}{format_ms(span['durationInMillis']):>12}{error}")
