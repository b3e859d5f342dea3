"""`slotwise events`: the events of a job or of all jobs; and the wait for a job by its events, without asking again and
again.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from app.cli.client import Client, Json
from app.cli.errors import CliError, Stranger, is_away
from app.cli.options import Call
from app.cli.output import format_time, print_json, say, until_interrupted, warn

_ID_CHARS: Final = 8

JobOption = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        show_default=False,
        help="Its id, the start of its id, or its name; default: all jobs, and the servers.",
    ),
]
COME_AGAIN_S = 1.0
LOOK_S = 2.0
"""What is no event, such as a savepoint that failed, is looked for so often."""
REST_S = 0.2
"""Between two looks, however many events come."""
POLL_S = 0.3
"""How often a job is looked at where events cannot be followed."""


def events(
    call: Call,
    job: JobOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new events, until Ctrl-C.")] = False,
    after: Annotated[
        int | None, typer.Option(min=0, help="Only events after this id; 0: from the oldest stored event.")
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
        time.sleep(COME_AGAIN_S)


def line_of(event: dict[str, Any], *, with_job: bool) -> str:
    """`2026-11-25 10:00:00  rescale-ended   rescale 2 COMPLETED after 350 ms, ...`."""
    job = [str(event.get("jid") or "-")[:_ID_CHARS].ljust(_ID_CHARS)] if with_job else []
    told = event.get("summary") or event.get("message") or ""
    return "  ".join([format_time(event.get("timestampInMillis")), *job, f"{event['type']:14}", told])


class EventStream:
    """The events of ``path``. Iterated over again, it goes on behind the last event that came."""

    def __init__(self, client: Client, path: str, params: Mapping[str, str]) -> None:
        self._client = client
        self._path = path
        self._params = params
        self.last_id: str | None = None

    def __iter__(self) -> Iterator[Json]:
        """The events of one connection, and None where only the id moves on: at the begin, and as a sign of life.

        Raises:
            CliError: as from `Client.lines`.
        """
        headers = {} if self.last_id is None else {"Last-Event-ID": self.last_id}
        for number, event in parsed(self._client.lines(self._path, self._params, headers)):
            self.last_id = number or self.last_id
            yield event


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


class JobChanges:
    """Tells who waits for a job when to look at it again: as soon as an event of the job comes.

    An event only says that something has changed. What the change is, the next look says, so an event that is missed
    or comes twice does no harm. Where the stream cannot be had (too many clients follow events, or a proxy keeps them
    back), the job is looked at every ``poll_s`` instead. The stream begins with the first `wait`, and a thread reads
    it; use it in a ``with`` block.
    """

    def __init__(self, client: Client, job_id: str, *, poll_s: float | None = None) -> None:
        self._client = client
        self._stream = EventStream(client, f"/jobs/{job_id}/events", {})
        self._poll_s = POLL_S if poll_s is None else poll_s
        self._has_changed = threading.Event()
        self._is_over = threading.Event()
        self._is_followed = False
        self._looked_s = 0.0
        self._thread: threading.Thread | None = None

    def __enter__(self) -> JobChanges:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread is not None:
            self._client.end_lines()
            self._thread.join(COME_AGAIN_S)

    def wait(self, at_most_s: float | None = None) -> None:
        """Until an event has come since the last `wait`, or for ``at_most_s``, `LOOK_S` if not given."""
        limit_s = LOOK_S if at_most_s is None else at_most_s
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="events", daemon=True)
            self._thread.start()
        self._has_changed.wait(limit_s if self._is_followed else min(self._poll_s, limit_s))
        if self._is_followed:
            # A job that restarts again and again has many events: each look is several requests.
            time.sleep(max(0.0, self._looked_s + REST_S - time.monotonic()))
        self._looked_s = time.monotonic()
        self._has_changed.clear()

    def _follow(self) -> None:
        while not self._is_over.is_set():
            try:
                for event in self._stream:
                    if self._is_over.is_set():
                        return
                    # What happened before the stream began has to be looked for too.
                    if event is not None or not self._is_followed:
                        self._is_followed = True
                        self._has_changed.set()
            except CliError as error:
                if not is_away(error) or (isinstance(error, Stranger) and self._stream.last_id is None):
                    # A proxy may answer for the stream only, and go on so.
                    return
            except (ValueError, RuntimeError):
                # What came is no event, or the client was closed.
                return
            finally:
                self._is_followed = False
            self._is_over.wait(COME_AGAIN_S)
