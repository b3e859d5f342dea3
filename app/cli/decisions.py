"""`slotwise decisions`: the parallelism that was decided for the vertices of a batch job, with the numbers."""

from __future__ import annotations

from typing import Any

from app.cli.client import Client
from app.cli.options import JobArgument, JsonOption, ServerOption, TokenOption
from app.cli.output import (
    format_bytes,
    format_ms,
    format_number,
    format_time,
    or_dash,
    print_json,
    say,
    show_table,
    when_header,
)

COLUMNS = [
    "vertex",
    "run",
    "rule",
    "parallelism",
    "wanted",
    "bounds",
    "limit",
    "input",
    "rows",
    "per task",
    "state",
    "took",
    "written",
]
RIGHT = ["run", "parallelism", "wanted", "input", "rows", "per task", "took", "written"]
NONE_OF_STREAMING = (
    "No decisions: a streaming job does not make them. What changed its parallelism: slotwise rescales JOB"
)


def decisions(
    job: JobArgument, as_json: JsonOption = False, server: ServerOption = None, token_file: TokenOption = None
) -> None:
    """Show how parallel each vertex of a batch job was decided to run, and from which numbers, newest first."""
    with Client(server, token_file) as client:
        job_id = client.find_job(job)
        found: list[dict[str, Any]] = client.get(f"/jobs/{job_id}/decisions")
        is_batch = bool(found) or client.get(f"/jobs/{job_id}").get("job-type") == "BATCH"
    if as_json:
        print_json(found)
    elif found:
        when = when_header("when", [decision["timestampInMillis"] for decision in found])
        show_table([when, *COLUMNS], [row(decision) for decision in found], right=RIGHT, wrap=["vertex"])
    else:
        say("No decisions yet." if is_batch else NONE_OF_STREAMING)


def row(decision: dict[str, Any]) -> list[str]:
    """One decision as cells under when and `COLUMNS`; `-` where there is nothing, or it is not known."""
    run = decision["regionRun"]
    end_ms = run["endTimestampInMillis"]
    return [
        format_time(decision["timestampInMillis"]),
        decision["vertexName"],
        str(decision["run"]),
        decision["rule"],
        str(decision["parallelism"]),
        or_dash(decision["wanted"]),
        f"{decision['lowerBound']} to {decision['upperBound']}",
        or_dash(limit(decision)),
        or_dash(format_bytes(input_bytes(decision))),
        or_dash(format_number(decision["rows"])),
        format_bytes(decision["volumeBytes"]),
        run["state"],
        or_dash(None if end_ms is None else format_ms(end_ms - run["startTimestampInMillis"])),
        or_dash(format_bytes(run["writtenBytes"])),
    ]


def limit(decision: dict[str, Any]) -> str | None:
    """What else than the bounds led to the parallelism."""
    by = decision["limitedBy"]
    return None if by is None else f"{decision['limit']} ({by})"


def input_bytes(decision: dict[str, Any]) -> int | None:
    """All that the vertex reads of other regions, or of files; None if it is not known."""
    own = decision["bytes"]
    return None if own is None else int(own) + int(decision["broadcastBytes"])
