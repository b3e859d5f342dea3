"""The logs of drivers, read in parts and without the secrets of their jobs.

Each part is read with some text before and after it, so that a secret across the border of two parts is found
completely.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from app.cluster.driverlogs import OpenLog, log_file_of, open_log
from app.model.secret_texts import part_without_secrets, secrets_of
from app.store.store import Store
from app.store.tables import AttemptState
from app.store.writes import Attempt
from app.worker.refusals import BeyondLog, LogGone, Unavailable, UnknownAttempt
from app.worker.requests.log_borders import around_bytes, character, texts, whole_characters, whole_lines
from app.worker.requests.log_lines import MOST_BYTES, FoundLines, find_lines
from app.worker.retrying import reading
from app.worker.views import JobView

T = TypeVar("T")
IsGone = Callable[[], Awaitable[bool]]

_PART_BYTES = 64 << 10
# A line that goes on growing is shown when it has its end, or has not grown for so long.
LINE_PATIENCE_S = 2.0
_POLL_S = 0.25
_LOOK_EVERY_S = 1.0
_FOLLOWERS_MAX = 100
# A client that is gone without a word is found out only when something is sent to it.
_QUIET_MAX_S = 30 * 60.0
# Each may take a second of the one thread.
_READERS_MAX = 16
# So that they are not in the way of other readers.
_ASKING_FOR_LINES_MAX = 2


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt. ``log_bytes``: how much its driver has logged in it, None if the log is not there;
    ``log_cut_bytes``: how much of that was cut off."""

    row: Attempt
    log_bytes: int | None
    log_cut_bytes: int = 0


@dataclass(frozen=True, slots=True)
class LogPart:
    """Of the log of an attempt: ``text`` is what stands from byte ``begin`` up to byte ``next``, without secrets.
    ``is_complete``: the attempt is over and nothing comes behind it. ``size``: of the whole log."""

    text: str
    begin: int
    next: int
    is_complete: bool
    size: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class LogLines:
    """Lines of a log from number ``first`` on, which is counted from 0, and how many there are in all."""

    lines: tuple[str, ...]
    first: int
    total: int


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What of a file is the log of an attempt: from one place to another, or to the end. A driver that runs several
    attempts has one file. ``is_over``: nothing more is written."""

    path: Path
    begin: int
    end: int | None
    is_over: bool

    def find(self, first: int | None, most: int, behind: int) -> FoundLines:
        with open_log(self.path) as opened:
            bounds = self.bounds_in(opened)
            return find_lines(opened, bounds, first, most, behind=behind, is_over=self.is_over)

    def bounds_in(self, opened: OpenLog) -> tuple[int, int]:
        """The places of the first byte that is there, and behind the last one."""
        end = opened.end if self.end is None else min(self.end, opened.end)
        return min(max(self.begin, opened.first), max(end, self.begin)), max(end, self.begin)


class DriverLogs:
    """The attempts of jobs with their logs. ``is_closing``: whether this process stops answering."""

    def __init__(self, store: Store, is_closing: Callable[[], bool]) -> None:
        self._store, self._is_closing = store, is_closing
        self._followers = self._readers = 0
        self._turns = asyncio.Semaphore(_ASKING_FOR_LINES_MAX)
        # To look for secrets takes some 0.4 s of CPU a MiB: however many read logs, one thread does it, and it is
        # nobody else's.
        self._reader = ThreadPoolExecutor(1, "logs")

    async def attempts(self, job_id: str) -> list[AttemptView]:
        """Newest first."""
        rows = await reading(self._store.attempts(job_id))
        return await asyncio.to_thread(
            lambda: [_view(row, _stretch(rows, row)) for row in reversed(rows)],
        )

    async def read(self, job: JobView, number: int, offset: int, limit: int, is_gone: IsGone) -> LogPart:
        """At most ``limit`` bytes of the log of an attempt from ``offset``, whole lines if there are any.
        ``is_gone``: whether the client has closed the connection."""
        if self._readers >= _READERS_MAX:
            raise Unavailable(f"{_READERS_MAX} clients read logs at this server already: try again.")
        self._readers += 1
        try:
            stretch, known = await self._stretch(job.job_id, number), secrets_of_job(job)
            parts = [await self._part(job.job_id, number, stretch, offset, min(limit, _PART_BYTES), known)]
            # With less room than for a part, it would end within a line.
            while (last := parts[-1]).next + _PART_BYTES <= offset + limit and not await is_gone():
                part = await self._part(job.job_id, number, stretch, last.next, _PART_BYTES, known)
                if part.next <= last.next:
                    break
                parts.append(part)
        finally:
            self._readers -= 1
        text = "".join(part.text for part in parts)
        return LogPart(text, parts[0].begin, last.next, last.is_complete, last.size)

    async def lines(
        self, job: JobView, first: int | None, most: int, last_words: Sequence[str], is_gone: IsGone
    ) -> LogLines:
        """Up to ``most`` lines of the log of the newest attempt, with ``last_words`` behind them: from number ``first``
        on, or without it the last ones. A log that is not there has one line, which says so. ``is_gone``: as in `read`.

        Those who ask wait for their turn, and are not refused: clients of Livy take that for the failure of a job.
        """
        async with self._turns:
            if await is_gone():
                return _chosen((), first, most)
            return await self._lines(job, first, most, last_words, is_gone)

    async def _lines(
        self, job: JobView, first: int | None, most: int, last_words: Sequence[str], is_gone: IsGone
    ) -> LogLines:
        job_id, rows = job.job_id, await reading(self._store.attempts(job.job_id))
        if not rows:
            return _chosen(last_words, first, most)
        number = rows[-1].attempt
        try:
            stretch, known = await self._stretch(job_id, number), secrets_of_job(job)
            found = await self._of_file(job_id, number, lambda: stretch.find(first, most, len(last_words)))
            texts, at = [], found.begin - stretch.begin
            while at < (end := found.end - stretch.begin):
                part = await self._part(job_id, number, stretch, at, min(_PART_BYTES, end - at), known)
                if part.next <= at or await is_gone():
                    break
                texts.append(part.text)
                at = part.next
        except LogGone as gone:
            return _chosen([*gone.errors, *last_words], first, most)
        lines = "".join(texts).removesuffix("\n").split("\n") if texts else []
        if found.is_cut:
            lines.append(
                f"... the rest of these {most} lines is left out: they have more than {MOST_BYTES} bytes"
            )
        behind = found.first - found.lines
        lines += last_words[max(0, behind) : max(0, behind + most)]
        return LogLines(tuple(lines), found.first, found.lines + len(last_words))

    async def follow(
        self, job_of: Callable[[], JobView], number: int, offset: int
    ) -> AsyncGenerator[LogPart]:
        """The log of an attempt from ``offset``, part by part as it is written, until the attempt is over."""
        if self._followers >= _FOLLOWERS_MAX:
            raise Unavailable(
                f"{_FOLLOWERS_MAX} clients follow logs at this server already: read it without follow, or try again."
            )
        self._followers += 1
        try:
            job = job_of()
            stretch, known = await self._stretch(job.job_id, number), secrets_of_job(job)
            at = offset
            looked_s = moved_s = time.monotonic()
            while True:
                # Before each part: a log that grows all the time leaves no pause in which to look.
                if self._is_closing():
                    raise Unavailable("This server is stopping.")
                if time.monotonic() - looked_s > _LOOK_EVERY_S:
                    job, looked_s = job_of(), time.monotonic()
                    stretch, known = await self._stretch(job.job_id, number), secrets_of_job(job)
                part = await self._part(job.job_id, number, stretch, at, _PART_BYTES, known)
                yield part
                if part.is_complete:
                    return
                if part.next > at:
                    at, moved_s = part.next, time.monotonic()
                    continue
                if time.monotonic() - moved_s > _QUIET_MAX_S:
                    raise Unavailable(f"Nothing was logged for {_QUIET_MAX_S / 60:.0f} minutes.")
                await asyncio.sleep(_POLL_S)
        finally:
            self._followers -= 1

    async def _stretch(self, job_id: str, number: int) -> _Stretch:
        rows = await reading(self._store.attempts(job_id))
        for row in rows:
            if row.attempt == number:
                if (stretch := _stretch(rows, row)) is None:
                    raise LogGone(
                        f"It is not known where the log of attempt {number} of job {job_id} begins and ends: an older "
                        "version of Slotwise ran it, or the file could not be read when the attempt began."
                    )
                return stretch
        raise no_such_attempt(job_id, number, rows)

    async def _part(
        self, job_id: str, number: int, stretch: _Stretch, offset: int, size: int, known: tuple[str, ...]
    ) -> LogPart:
        return await self._of_file(job_id, number, lambda: _read_part(stretch, offset, size, known))

    async def _of_file(self, job_id: str, number: int, look: Callable[[], T]) -> T:
        """What ``look`` finds in the log of an attempt."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, look)
        except FileNotFoundError:
            raise _gone(job_id, number) from None
        except OSError as error:
            raise Unavailable(
                f"The log of attempt {number} of job {job_id} cannot be read: {error.strerror}."
            ) from error


def no_such_attempt(job_id: str, number: int, rows: Sequence[Attempt]) -> UnknownAttempt:
    """``rows``: those that are kept."""
    if not rows:
        return UnknownAttempt(f"Job {job_id} has had no attempt yet.")
    oldest, newest = rows[0].attempt, rows[-1].attempt
    if number > newest:
        return UnknownAttempt(f"Job {job_id} has no attempt {number}: its newest is {newest}.")
    return UnknownAttempt(
        f"Attempt {number} of job {job_id} is not kept any more: the oldest that is kept is {oldest}."
    )


def _chosen(lines: Sequence[str], first: int | None, most: int) -> LogLines:
    """Of lines that are all there is."""
    first = max(0, len(lines) - most) if first is None else first
    return LogLines(tuple(lines[first : first + most]), first, len(lines))


def _gone(job_id: str, number: int) -> LogGone:
    return LogGone(
        f"The log of attempt {number} of job {job_id} is not there: it was removed (a server keeps the newest logs of "
        "its drivers), or is in the data directory of a server on another host."
    )


def _stretch(rows: list[Attempt], row: Attempt) -> _Stretch | None:
    """None if it is not known where in which file the driver of the attempt wrote."""
    later = [each for each in rows if each.attempt > row.attempt and each.driver_id == row.driver_id]
    end = later[0].log_from if later else None
    if row.lock_file is None or row.log_from is None or (later and end is None):
        return None
    return _Stretch(log_file_of(row.lock_file), row.log_from, end, row.state is AttemptState.DEAD)


def _view(row: Attempt, stretch: _Stretch | None) -> AttemptView:
    try:
        if stretch is None:
            return AttemptView(row, None)
        with open_log(stretch.path) as opened:
            first, end = stretch.bounds_in(opened)
        return AttemptView(row, end - stretch.begin, first - stretch.begin)
    except OSError:
        return AttemptView(row, None)


def secrets_of_job(job: JobView) -> tuple[str, ...]:
    """Those of the version in force, and of the one that comes or was before it."""
    spare = job.state.spare
    return (*secrets_of(job.state.graph), *(secrets_of(spare.graph) if spare is not None else ()))


def _read_part(stretch: _Stretch, offset: int, size: int, known: tuple[str, ...]) -> LogPart:
    """
    Raises:
        BeyondLog: it does not go so far.
        OSError: it cannot be read.
    """
    around = around_bytes(known)
    with open_log(stretch.path) as opened:
        first, end = stretch.bounds_in(opened)
        if stretch.begin + offset > end:
            raise BeyondLog(
                f"The query parameter from should be at most {end - stretch.begin}, where the log ends now, found "
                f"{offset}."
            )
        begin = max(stretch.begin + offset, first)
        until = min(begin + size, end)
        lost = begin - stretch.begin - offset
        note = f"... {lost} bytes were cut off here\n" if lost > 0 else ""
        place, length = begin - stretch.begin, end - stretch.begin
        nothing = LogPart(note, place, place, stretch.is_over and begin >= end, length)
        if begin >= until:
            # Also if the attempt's whole part was cut off, and others come behind it.
            return nothing
        window_begin = max(opened.first, begin - around)
        window = opened.read(window_begin, until + around)
        is_young = time.time() - opened.written_s < LINE_PATIENCE_S
    # Less may be there by now: somebody may have emptied the file.
    at, stop = (min(place - window_begin, len(window)) for place in (begin, until))
    if until < end and at < stop:
        stop = whole_lines(window, at, stop) or whole_characters(window, at, stop)
    elif is_young and not stretch.is_over:
        stop = whole_lines(window, at, stop) or at
    if stop <= at:
        return nothing
    at = character(window, at)
    following = window_begin + stop
    return LogPart(
        note + part_without_secrets(*texts(window, at, stop), known),
        window_begin + at - stretch.begin,
        following - stretch.begin,
        is_complete=stretch.is_over and following >= end,
        size=length,
    )
