"""`slotwise logs` and `slotwise attempts`: the runs of a job, and their output."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import httpx
import typer

from app.cli.client import Client
from app.cli.errors import CliError, Refused
from app.cli.options import Call, JobArgument
from app.cli.output import (
    Columns,
    format_bytes,
    format_time,
    or_dash,
    print_json,
    say,
    say_wrapped,
    show_table,
    time_column,
    until_interrupted,
    warn,
)
from app.model.status import TERMINAL_STATUSES

Executor = dict[str, Any] | None
"""The executor whose output is asked for, and which output; None for the driver."""
Part = tuple[int, str]
"""The number of an attempt, and some lines of its log."""
Driver = tuple[str, int] | None
"""The process that runs an attempt, by its host and number."""

_POLL_S = 0.5
_LOOK_S = 2.0
# A log that was removed, or an attempt that is not kept any more.
_GONE = (404, 410)
_NOT_THERE = 410
_BEHIND_THE_END = 416
_LAST_BYTES = 1 << 20
_LAST_CHARACTERS = 1_000
_MARK_CHARACTERS = 200
_NO_ATTEMPT = "The job has had no attempt yet, so there is no log."


class Output(StrEnum):
    """Of an executor."""

    STDERR = "stderr"
    STDOUT = "stdout"


def attempts(job: JobArgument, call: Call) -> None:
    """List the attempts of a job, newest first: when each ran, how it ended, and how long its log is."""
    found = _attempts(call.client, call.client.find_job(job))
    call.answer(found, _show_attempts if found else "No attempts yet.")


def _show_attempts(found: list[dict[str, Any]]) -> None:
    columns: Columns = {
        ">attempt": lambda each: each["attempt"],
        **time_column("started", "startTimestampInMillis", found),
        "ended": lambda each: format_time(each["endTimestampInMillis"]),
        "how": lambda each: "runs" if each["endTimestampInMillis"] is None else or_dash(each["ending"]),
        ">driver": lambda each: each["driverPid"],
        "host": lambda each: or_dash(each["host"]),
        "Spark": lambda each: or_dash(each["sparkVersion"]),
        ">log": lambda each: (
            format_bytes(each["log"]["sizeInBytes"]) if each["log"]["available"] else "removed"
        ),
    }
    show_table(columns, found)
    for each in found:
        if each["message"]:
            say_wrapped(f"attempt {each['attempt']}: {each['message']}")
        if each["sparkUi"] and each["endTimestampInMillis"] is None:
            say_wrapped(f"attempt {each['attempt']}: Spark's page is at {each['sparkUi']}")


def logs(
    job: JobArgument,
    call: Call,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Continue with new lines.")] = False,
    attempt: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="The number of an attempt; default: the newest."),
    ] = None,
    executor: Annotated[
        int | None,
        typer.Option(min=0, show_default=False, help="The number of an executor, in place of the driver."),
    ] = None,
    output: Annotated[Output, typer.Option(help="Which output of the executor.")] = Output.STDERR,
) -> None:
    """Print what the driver of a job logged, or an executor of its newest attempt. With -f until the job ends, or the
    attempt if one is named."""
    if executor is None and output is Output.STDOUT:
        raise CliError("--output is for the log of an executor: give --executor too.")
    client, job_id = call.client, call.client.find_job(job)
    of = None if executor is None else {"executor": executor, "output": output.value}
    parts = (_followed if follow else _once)(client, job_id, attempt, of)
    if follow and job_id == job.lower():
        # An id is not looked up. Only a server that has answered once is waited for.
        client.get(f"/jobs/{job_id}/status")
    # The job may well go on without a server.
    with until_interrupted(), client.outlasting(math.inf if follow else 0.0):
        for part in parts:
            _show(*part, as_json=call.as_json)


def _show(attempt: int, text: str, *, as_json: bool) -> None:
    # Not `str.splitlines`, for which a line also ends at U+2028 and others.
    for line in re.sub(r"\r\n?", "\n", text).removesuffix("\n").split("\n"):
        print_json({"attempt": attempt, "line": line}, compact=True) if as_json else say(line)


def _attempts(client: Client, job_id: str) -> list[dict[str, Any]]:
    return list(client.get(f"/jobs/{job_id}/attempts")["attempts"])


def _once(client: Client, job_id: str, attempt: int | None, of: Executor) -> Iterator[Part]:
    number = attempt or max((int(each["attempt"]) for each in _attempts(client, job_id)), default=None)
    if number is None:
        raise CliError(_NO_ATTEMPT)
    at, following, size = -1, 0, None
    while at < following and (size is None or following < size):
        at = following
        text, headers = _asked(client, job_id, number, at, of)
        if size is None and "X-Slotwise-Size" in headers:
            # A job may log faster than it is printed: what is there now is what is asked for.
            size = int(headers["X-Slotwise-Size"])
        following = int(headers["X-Slotwise-Next"])
        if text:
            yield number, text


def _asked(client: Client, job_id: str, attempt: int, at: int, of: Executor) -> tuple[str, httpx.Headers]:
    """What stands from byte ``at``, and the headers, which say how to go on."""
    return client.get_text(f"/jobs/{job_id}/attempts/{attempt}/logs", {"from": at, **(of or {})})


def _followed(client: Client, job_id: str, attempt: int | None, of: Executor) -> Iterator[Part]:
    """One attempt to its end, or the newest and all that come until the job ends."""
    if attempt is not None:
        yield from _to_the_end(client, job_id, attempt, of, {})
        return
    last = 0
    reached: dict[Driver, int] = {}
    while True:
        # In this order: the last attempt of a job that has ended is among those that are read then.
        status = client.get(f"/jobs/{job_id}/status")["status"]
        numbers = sorted(int(each["attempt"]) for each in _attempts(client, job_id))
        newer = [number for number in numbers if number > last] if last else numbers[-1:]
        for last in newer:
            try:
                yield from _to_the_end(client, job_id, last, of, reached)
            except Refused as error:
                if error.status not in _GONE:
                    raise
                warn(str(error))
        if not newer and status in TERMINAL_STATUSES:
            return
        time.sleep(_POLL_S)


def _to_the_end(
    client: Client, job_id: str, attempt: int, of: Executor, reached: dict[Driver, int]
) -> Iterator[Part]:
    """``reached``: where the log of an executor goes on, since all attempts of a driver have the same executors."""
    driver = None if of is None else _driver_of(client, job_id, attempt)
    place, is_complete, told = _Place(reached.get(driver, 0), can_move=of is not None), False, ""
    while not is_complete:
        try:
            text, headers = _asked(client, job_id, attempt, place.begin, of)
        except Refused as error:
            if of is not None and error.status == _BEHIND_THE_END:
                place.search()
                continue
            if of is None or error.status != _NOT_THERE or not _is_running(client, job_id, attempt):
                raise
            # Executors come and go. To look for one all workers are asked.
            if not told:
                told = str(error)
                warn(told)
            time.sleep(_LOOK_S)
            continue
        following = int(headers["X-Slotwise-Next"])
        new = place.take(text, following, int(headers.get("X-Slotwise-Size", following)))
        if new is None:
            continue
        if place.has_gap:
            warn(
                "Spark has removed old files of this log: lines before the next one may be missing, or come again."
            )
        is_complete, reached[driver] = headers["X-Slotwise-Complete"] == "true", place.at
        if new:
            yield attempt, new
        elif not is_complete:
            time.sleep(_POLL_S)


class _Place:
    """Where a log goes on. That of an executor ``can_move``: if Spark keeps a limited number of its files, bytes count
    from the oldest one that is left, and after the removal of one what was printed stands elsewhere. So the end of that
    is read again each time, and is searched for if something else is there."""

    def __init__(self, at: int, *, can_move: bool) -> None:
        self.at = at
        self.has_gap = False
        """Whether the search that has just ended found nothing."""
        self._can_move = can_move
        self._printed = ""
        self._is_searched = False

    @property
    def begin(self) -> int:
        """The byte from which to read."""
        return self.at - len(self._mark().encode())

    def search(self) -> None:
        """What was printed stands elsewhere."""
        self.at, self._is_searched = 0, True

    def take(self, text: str, following: int, size: int) -> str | None:
        """What is new in the ``text`` between `begin` and ``following``, in a log of ``size`` bytes; None if it has to
        be read from elsewhere."""
        mark, self.has_gap = self._mark(), False
        if self._is_searched and self.at == 0 and size > _LAST_BYTES:
            self.at = size - _LAST_BYTES
            return None
        if following < min(self.at, size):
            # The line that was printed last goes on growing, and is held back until it has its end.
            return ""
        if not text.startswith(mark):
            self.search()
            return None
        new, self.at = text.removeprefix(mark), following
        if self._is_searched:
            self._is_searched = False
            # Where nothing is found, places may be uncertain, and are not compared any more.
            self._can_move = len(self._printed) == _LAST_CHARACTERS and new.count(self._printed) == 1
            self.has_gap = not self._can_move
            new = new.rpartition(self._printed)[2] if self._can_move else new
        self._printed = (self._printed + new)[-_LAST_CHARACTERS:]
        return new

    def _mark(self) -> str:
        """The end of what was printed, as far as it has as many bytes in the log: none that are hidden or replaced."""
        if self._is_searched or not self._can_move:
            return ""
        return re.split(r"[*\ufffd]", self._printed)[-1][-_MARK_CHARACTERS:]


def _driver_of(client: Client, job_id: str, attempt: int) -> Driver:
    found = _attempts(client, job_id)
    return next(((one["host"], one["driverPid"]) for one in found if one["attempt"] == attempt), None)


def _is_running(client: Client, job_id: str, attempt: int) -> bool:
    """Whether it is the newest attempt and has not ended."""
    newest = max(_attempts(client, job_id), key=lambda one: int(one["attempt"]))
    return bool(newest["attempt"] == attempt and newest["endTimestampInMillis"] is None)
