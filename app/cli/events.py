"""`slotwise events`: what happens, as it happens."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

import typer

from app.cli.client import Client, Json
from app.cli.errors import CliError
from app.cli.options import JsonOption, ServerOption, TokenOption
from app.cli.output import format_ms, format_time, or_dash, print_json, say, warn
from app.cli.watch import is_away

_COME_AGAIN_S = 1.0
_ID_CHARS: Final = 8

JobOption = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        show_default=False,
        help="Its id, the start of its id, or its name; not given: all jobs, and the servers.",
    ),
]


def events(
    job: JobOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show what happens from now on, until Ctrl-C.")
    ] = False,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Only events behind the one of this id; 0: from the oldest that is kept."),
    ] = None,
    types: Annotated[
        str | None, typer.Option(help="Only events of these types, separated by commas.")
    ] = None,
    as_json: JsonOption = False,
    server: ServerOption = None,
    token_file: TokenOption = None,
) -> None:
    """Show what has happened to a job, or to all jobs and the servers; with -f, what happens from now on.

    With --json one JSON document per line.
    """
    with Client(server, token_file) as client:
        path = "/events" if job is None else f"/jobs/{client.find_job(job)}/events"
        params = {} if types is None else {"types": types}
        try:
            for event in (
                _followed(client, path, params, after) if follow else _stored(client, path, params, after)
            ):
                print_json(event, compact=True) if as_json else say(line_of(event, with_job=job is None))
        except KeyboardInterrupt:
            # Ctrl-C is how a person ends following: not a failure.
            return


def _stored(client: Client, path: str, params: dict[str, str], after: int | None) -> Iterator[Json]:
    asked = {**params, "follow": "false", "after": str(after or 0)}
    for _, event in parsed(client.lines(path, asked)):
        if event is not None and event["type"] == "closing":
            raise CliError(event["message"])
        if event is not None:
            yield event


def _followed(client: Client, path: str, params: dict[str, str], after: int | None) -> Iterator[Json]:
    """Until the caller stops. A stream that ends is begun again behind the last event."""
    last = None if after is None else str(after)
    away = ""
    while True:
        try:
            for number, event in parsed(
                client.lines(path, params if last is None else {**params, "after": last})
            ):
                last, away = number or last, ""
                if event is not None and event["type"] == "closing":
                    warn(event["message"])
                elif event is not None:
                    yield event
        except CliError as error:
            if last is None or not is_away(error):
                raise
            if str(error) != away:
                away = str(error)
                warn(away)
        time.sleep(_COME_AGAIN_S)


def parsed(lines: Iterable[str]) -> Iterator[tuple[str | None, Json]]:
    """Each event of a stream: its id if it has one, and its data, which are None if it only moves the id on. What was
    cut off at the end of a stream is none."""
    last: str | None = None
    data: Json = None
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            last = value
        elif name == "data":
            data = json.loads(value)
        elif not line:
            if last is not None or data is not None:
                yield last, data
            last, data = None, None


def line_of(event: dict[str, Any], *, with_job: bool) -> str:
    """`2026-11-25 10:00:00  rescale-ended   number 2, COMPLETED, ...`."""
    job = [str(event.get("jid") or "-")[:_ID_CHARS].ljust(_ID_CHARS)] if with_job else []
    return "  ".join([format_time(event.get("timestampInMillis")), *job, f"{event['type']:14}", words(event)])


def words(event: dict[str, Any]) -> str:
    """What is worth a line of an event, whatever its type: parts that it has, in the order in which they are read."""
    if event["type"] == "gone":
        return str(event["message"])
    parts = [_named(event, name, text) for name, text in _PARTS]
    if event.get("bounds"):
        bounds = [f"{one['lowerBound']}-{one['upperBound']}" for one in event["bounds"].values()]
        parts.append(f"bounds {' '.join(bounds)}")
    if "allVertices" in event:
        limits = [event["allVertices"], *event["vertices"].values()]
        told = [f"{or_dash(one['floor'])}:{or_dash(one['ceiling'])}" for one in limits]
        parts.append(f"floor:ceiling {' '.join(told)}")
    after = (event.get("postRescaleParallelism") or event.get("parallelism") or {}).values()
    if any(count is not None for count in after):
        parts.append(f"parallelism {' '.join(or_dash(count) for count in after)}")
    for name, text in _LAST_PARTS:
        parts.append(_named(event, name, text))
    return ", ".join(part for part in parts if part)


def _named(event: dict[str, Any], name: str, text: str) -> str:
    value = event.get(name)
    if value is None:
        return ""
    return text.format(format_ms(value) if name.endswith("InMillis") else value)


_PARTS: Final = (
    ("status", "{}"),
    ("previousStatus", "was {}"),
    ("version", "version {}"),
    ("number", "number {}"),
    ("attempt", "attempt {}"),
    ("outcome", "{}"),
    ("scope", "of the {}"),
    ("triggerCause", "{}"),
    ("terminalState", "{}"),
    ("schedulerState", "{}"),
    ("rung", "{}"),
    ("durationInMillis", "in {}"),
    ("outputGapInMillis", "gap {}"),
    ("backoffInMillis", "after {}"),
    ("weight", "weight {}"),
    ("priority", "priority {}"),
    ("cap", "cap {}"),
    ("vertex", "{}"),
    ("url", "{}"),
    ("forgottenJob", "{}"),
    ("count", "{} time(s)"),
    ("batches", "{} batch(es)"),
    ("records", "{} records"),
    ("longestBatchInMillis", "longest {}"),
    ("pendingRecords", "{} wait"),
)
_LAST_PARTS: Final = (
    ("onTimeout", "{} at a deadline"),
    ("requestedBy", "by {}"),
    ("reason", "{}"),
    ("message", "{}"),
    ("error", "{}"),
    ("cause", "{}"),
)
