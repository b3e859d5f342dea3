"""Streams of events: read to be shown, and to wait for a job without asking again and again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType

from app.cli.client import Client, Json
from app.cli.errors import CliError, NoServer, Refused

COME_AGAIN_S = 1.0
LOOK_S = 2.0
"""What is no event, such as a savepoint that failed, is looked for so often."""
REST_S = 0.2
"""Between two looks, however many events come."""
POLL_S = 0.3
"""How often a job is looked at where events cannot be followed."""


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


def is_away(error: CliError) -> bool:
    """Whether there is, for now, no server that could tell."""
    return isinstance(error, NoServer) or (isinstance(error, Refused) and error.status == 503)


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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
                if not is_away(error):
                    return
            except (ValueError, RuntimeError):
                # What came is no event, or the client was closed.
                return
            finally:
                self._is_followed = False
            self._is_over.wait(COME_AGAIN_S)
