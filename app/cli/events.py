"""`slotwise events`: the events of a job or of all jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from app.cli import streams
from app.cli.client import Client, Json
from app.cli.errors import CliError
from app.cli.options import Call
from app.cli.output import format_time, print_json, say, until_interrupted, warn
from app.cli.streams import EventStream, is_away

_ID_CHARS: Final = 8

JobOption = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        show_default=False,
        help="Its id, the start of its id, or its name; default: all jobs, and the servers.",
    ),
]


def events(
    call: Call,
    job: JobOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new events, until Ctrl-C.")] = False,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Only events after this id; 0: from the oldest stored event."),
    ] = None,
    types: Annotated[
        str | None,
        typer.Option(help="Only events of these types, separated by commas; default: all, also batches."),
    ] = None,
) -> None:
    """Show the stored events of a job, or of all jobs and the servers; with -f, new events.

    With --json one JSON document per line.
    """
    path = "/events" if job is None else f"/jobs/{call.client.find_job(job)}/events"
    params = {} if types is None else {"types": types}
    read = _followed if follow else _stored
    with until_interrupted():
        for event in read(call.client, path, params, after):
            print_json(event, compact=True) if call.as_json else say(line_of(event, with_job=job is None))


def _stored(client: Client, path: str, params: dict[str, str], after: int | None) -> Iterator[Json]:
    asked = {**params, "follow": "false", "after": str(after or 0)}
    for event in EventStream(client, path, asked):
        if event is not None and event["type"] == "closing":
            raise CliError(event["message"])
        if event is not None:
            yield event


def _followed(client: Client, path: str, params: dict[str, str], after: int | None) -> Iterator[Json]:
    """Until the caller stops. A stream that ends is begun again behind the last event."""
    stream = EventStream(client, path, params if after is None else {**params, "after": str(after)})
    away = ""
    while True:
        try:
            for event in stream:
                away = ""
                if event is not None and event["type"] == "closing":
                    warn(event["message"])
                elif event is not None:
                    yield event
        except CliError as error:
            if (stream.last_id is None and after is None) or not is_away(error):
                raise
            if str(error) != away:
                away = str(error)
                warn(away)
        time.sleep(streams.COME_AGAIN_S)


def line_of(event: dict[str, Any], *, with_job: bool) -> str:
    """`2026-11-25 10:00:00  rescale-ended   rescale 2 COMPLETED after 350 ms, ...`."""
    job = [str(event.get("jid") or "-")[:_ID_CHARS].ljust(_ID_CHARS)] if with_job else []
    told = event.get("summary") or event.get("message") or ""
    return "  ".join([format_time(event.get("timestampInMillis")), *job, f"{event['type']:14}", told])
