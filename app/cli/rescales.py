"""What changed the parallelism of a job: `slotwise rescales`, its rescale history, and `slotwise decisions`, what was
decided for the vertices of a batch job, with the numbers.
"""

from __future__ import annotations

import re
import shutil
import textwrap
import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from app.cli.client import Client, new_key
from app.cli.errors import CliError, UsageError
from app.cli.options import Call, JobArgument, ReasonOption
from app.cli.output import (
    STATUS_STYLES,
    Columns,
    Table,
    format_bytes,
    format_moment,
    format_ms,
    format_number,
    is_terminal,
    or_dash,
    printable,
    say,
    say_wrapped,
    show_table,
    time_column,
)
from app.model.rescale import TerminalState, TriggerCause

_UUID = re.compile(r"[0-9a-f]{32}\Z")
_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_NONE_OF_STREAMING = (
    "No decisions: a streaming job does not make them. What changed its parallelism: slotwise rescales JOB"
)
_DECISIONS: Columns = {
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


def rescales(
    job: JobArgument,
    call: Call,
    limit: Annotated[int, typer.Option(min=1, help="At most this many, newest first.")] = 20,
    cause: Annotated[TriggerCause | None, typer.Option(help="Only records of this cause.")] = None,
    state: Annotated[TerminalState | None, typer.Option(help="Only records that ended like this.")] = None,
    record: Annotated[
        str | None, typer.Option("--record", "--uuid", metavar="NUMBER|UUID", help="One record, in full.")
    ] = None,
) -> None:
    """Show the rescales of a job: cause, who asked, before and after, rung, duration and output gap."""
    client, job_id = call.client, call.client.find_job(job)
    if record is not None:
        uuid = find_record(client, job_id, record)
        call.answer(client.get(f"/jobs/{job_id}/rescales/details/{uuid}"), show_one)
    else:
        call.answer(history(client, job_id, limit=limit, cause=cause, state=state), show_history)


def cancel_rescale(
    job: JobArgument,
    call: Call,
    record: Annotated[
        str | None,
        typer.Argument(
            metavar="NUMBER|UUID",
            show_default=False,
            help="The rescale's record; default: the newest that waits.",
        ),
    ] = None,
    reason: ReasonOption = None,
) -> None:
    """Cancel a rescale that waits for slots or for its time: the bounds before it hold."""
    client, job_id = call.client, call.client.find_job(job, "change")
    uuid = uuid_of_waiting(client, job_id) if record is None else find_record(client, job_id, record)
    headers = new_key() | ({"X-Slotwise-Reason": reason} if reason else {})
    _, answer = client.request("DELETE", f"/jobs/{job_id}/rescales/{uuid}", headers=headers)
    version = int(answer["ETag"].strip('"'))
    call.answer(
        {"jobid": job_id, "rescaleUuid": uuid, "version": version},
        f"Canceled; the bounds before hold, as version {version}.",
    )


def uuid_of_waiting(client: Client, job_id: str) -> str:
    """The newest rescale that can be canceled; the newest of all if none can, for the server to say why."""
    if numbers := client.get(f"/jobs/{job_id}/explanation")["cancelableRescales"]:
        return find_record(client, job_id, str(max(numbers)))
    newest = history(client, job_id, limit=1)
    if not newest:
        raise CliError("The job has no rescales.")
    return str(newest[0]["rescaleUuid"])


def show_history(records: list[dict[str, Any]]) -> None:
    """On a terminal lines that fit it; elsewhere a table with one line for each record, nothing cut."""
    if not records:
        say("No rescales.")
    elif is_terminal():
        Console().print(history_text(records, shutil.get_terminal_size().columns))
    else:
        show_table({**facts_of(records), **TEXTS}, records)


def history_text(records: list[dict[str, Any]], width: int) -> Text:
    """For each record a line with its facts, in columns if they fit, and under it parallelism and remarks."""
    facts, texts = Table(facts_of(records), records), Table(TEXTS, records).rows
    lines = facts.plain()
    narrow = max(len(line) for line in lines) > width
    if narrow:
        lines = ["", *("  ".join(cells[:-2]) for cells in facts.rows)]
    indent = " " * 4
    found = [lines[0]] if lines[0] else []
    for line, (*_, took, gap), cells in zip(lines[1:], facts.rows, texts, strict=True):
        timing = [f"took {took}, gap {gap}"] if narrow else []
        detail = "; ".join(cell for cell in (*timing, *cells) if cell)
        folded = textwrap.wrap(line, max(20, width), subsequent_indent=indent, break_on_hyphens=False)
        found += [line] if len(line) <= width else folded
        found += textwrap.wrap(
            printable(detail), max(20, width), initial_indent=indent, subsequent_indent=indent
        )
    text = Text("\n".join(found))
    for outcome in TerminalState:
        if outcome.value in STATUS_STYLES:
            text.highlight_words([outcome.value], STATUS_STYLES[outcome.value])
    return text


def facts_of(records: list[dict[str, Any]]) -> Columns:
    """The columns of facts, which are short. The last two are times that it took."""
    return {
        ">#": lambda record: record.get("number"),
        **time_column("when", "startTimestampInMillis", records),
        "cause": lambda record: record["triggerCause"],
        "outcome": lambda record: record["terminalState"] or "in progress",
        "rung": lambda record: or_dash(record.get("rung")),
        ">took": lambda record: format_ms(duration_ms(record)),
        ">gap": lambda record: format_ms(record.get("outputGapInMillis")),
    }


def find_record(client: Client, job_id: str, text: str) -> str:
    """The uuid of a record that is named by it or by its number.

    Raises:
        UsageError: it is neither. CliError: no record has this number.
    """
    if _UUID.match(text.lower()):
        return text.lower()
    if not _NUMBER.match(text):
        raise UsageError(
            f"{text!r} is neither the number of a record nor its uuid; see: slotwise rescales JOB"
        )
    found = client.get(f"/jobs/{job_id}/rescales/history", {"limit": 1, "after": int(text) + 1})
    if not found or found[0].get("number") != int(text):
        raise CliError(
            f"The job has no rescale record with the number {int(text)}, or it is not kept any more."
        )
    return str(found[0]["rescaleUuid"])


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


def duration_ms(record: dict[str, Any]) -> int | None:
    end = record["endTimestampInMillis"]
    return None if end is None else int(end - record["startTimestampInMillis"])


def remarks(record: dict[str, Any]) -> str:
    """Who asked and what for; why it did not succeed; what happened: `ops: evening peak`."""
    asked = ": ".join(str(part) for part in (record.get("requestedBy"), record.get("reason")) if part)
    reason = record.get("terminatedReason")
    ended = "" if reason in (None, "SUCCEEDED") else str(reason)
    message = str(record.get("message") or "").partition("\n")[0]
    return "; ".join(part for part in (asked.removesuffix("."), ended, message) if part)


TEXTS: Columns = {"parallelism": lambda record: record.get("parallelismInWords"), "remarks": remarks}
"""The columns that can be of any length."""


def sentence_of(record: dict[str, Any]) -> str:
    """What became of a rescale, in one line."""
    parts = [f"{record['terminalState']} after {format_ms(duration_ms(record))}"]
    if record.get("rung"):
        parts.append(str(record["rung"]))
    parts.append(or_dash(record.get("parallelismInWords")))
    if record.get("outputGapInMillis") is not None:
        parts.append(f"output gap {format_ms(record['outputGapInMillis'])}")
    why = str(record.get("message") or "").partition("\n")[0].rstrip(".")
    return ", ".join(parts) + (f": {why}" if why else "")


def show_one(record: dict[str, Any]) -> None:
    """Everything about one record; its times also in UTC, as logs have them."""
    started, ended = record["startTimestampInMillis"], record["endTimestampInMillis"]
    reprocessed = record.get("reprocessedRecords")
    cells = {
        "record": f"{or_dash(record.get('number'))}, uuid {record['rescaleUuid']}",
        "started": moment_with_utc(started),
        "ended": "-" if ended is None else moment_with_utc(ended),
        "cause": record["triggerCause"],
        "asked by": or_dash(record.get("requestedBy")),
        "reason": or_dash(record.get("reason")),
        "outcome": record["terminalState"] or "in progress",
        "because": or_dash(record.get("terminatedReason")),
        "message": or_dash(record.get("message")),
        "rung": or_dash(record.get("rung")),
        "took": format_ms(duration_ms(record)),
        "output gap": format_ms(record.get("outputGapInMillis")),
        "read again": "-" if reprocessed is None else f"{format_number(reprocessed)} records",
    }
    if record.get("rollbackOf") is not None:
        cells["takes back"] = f"record {record['rollbackOf']}"
    for name, cell in cells.items():
        say_wrapped(f"{name + ':':12}{cell}")
    show_vertices(record)
    if spans := record.get("schedulerStates"):
        say()
        show_table(
            {
                "scheduler state": lambda span: span["state"],
                ">for": lambda span: format_ms(span["durationInMillis"]),
                "~exception": lambda span: or_dash(
                    (span.get("stringifiedException") or "").partition("\n")[0]
                ),
            },
            spans,
        )


def show_vertices(record: dict[str, Any]) -> None:
    if vertices := (record.get("vertices") or {}).values():
        say()
        show_table(
            {
                "vertex": lambda vertex: vertex["jobVertexName"],
                ">before": lambda vertex: vertex["preRescaleParallelism"],
                ">after": lambda vertex: vertex["postRescaleParallelism"],
                ">at least": lambda vertex: vertex.get("sufficientParallelism"),
                ">wanted": lambda vertex: vertex.get("desiredParallelism"),
            },
            vertices,
        )


def moment_with_utc(epoch_ms: int) -> str:
    local = format_moment(epoch_ms)
    if time.localtime(epoch_ms / 1000).tm_gmtoff == 0:
        return local
    return local + time.strftime(" (%Y-%m-%dT%H:%M:%SZ)", time.gmtime(epoch_ms / 1000))


def decisions(job: JobArgument, call: Call) -> None:
    """Show how parallel each vertex of a batch job was decided to run, and from which numbers, newest first."""
    job_id = call.client.find_job(job)
    found: list[dict[str, Any]] = call.client.get(f"/jobs/{job_id}/decisions")
    is_batch = bool(found) or call.client.get(f"/jobs/{job_id}").get("job-type") == "BATCH"
    call.answer(found, _show_decisions if found else "No decisions yet." if is_batch else _NONE_OF_STREAMING)


def _show_decisions(found: list[dict[str, Any]]) -> None:
    show_table({**time_column("when", "timestampInMillis", found), **_DECISIONS}, found)
