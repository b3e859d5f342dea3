"""The logs of drivers, read in parts and without the secrets of their jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from app.cluster.driverlogs import OpenLog, log_file_of, open_log
from app.model.secret_texts import secrets_of
from app.model.status import AttemptState
from app.store.store import Store
from app.store.writes import Attempt
from app.worker.refusals import LogGone, Unavailable, UnknownAttempt
from app.worker.requests.log_lines import MOST_BYTES, FoundLines, find_lines
from app.worker.requests.log_parts import LINE_PATIENCE_S, LogPart, Window, around_bytes, part_of
from app.worker.retrying import reading
from app.worker.views import JobView

T = TypeVar("T")
IsGone = Callable[[], Awaitable[bool]]

_PART_BYTES = 64 << 10
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

    def window(self, offset: int, size: int, around: int) -> Window:
        """``size`` bytes from ``offset``, and ``around`` them. Also bytes of the attempts before and after it.

        Raises:
            OSError: the file cannot be read.
        """
        with open_log(self.path) as opened:
            first, end = self.bounds_in(opened)
            place = max(self.begin + offset, first)
            begin = max(opened.first, place - around)
            # Who follows a log in which nothing is new needs nothing around it.
            content = opened.read(begin, min(place + size, end) + around) if place < end else b""
            is_young = time.time() - opened.written_s < LINE_PATIENCE_S
        return Window(
            content,
            begin - self.begin,
            end - self.begin,
            self.is_over,
            is_growing=is_young and not self.is_over,
            first=first - self.begin,
        )

    def bounds_in(self, opened: OpenLog) -> tuple[int, int]:
        """The places of the first byte that is there, and behind the last one."""
        end = opened.end if self.end is None else min(self.end, opened.end)
        return min(max(self.begin, opened.first), max(end, self.begin)), max(end, self.begin)


class DriverLogs:
    """The attempts of jobs with their logs. ``is_closing``: whether this process stops answering."""

    def __init__(self, store: Store, is_closing: Callable[[], bool]) -> None:
        self._store, self._is_closing = store, is_closing
        self._followers, self._readers = asyncio.Semaphore(_FOLLOWERS_MAX), asyncio.Semaphore(_READERS_MAX)
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
        if self._readers.locked():
            raise Unavailable(f"{_READERS_MAX} clients read logs at this server already: try again.")
        async with self._readers:
            stretch, known = await self._stretch(job.job_id, number), secrets_of_job(job)
            parts = [await self._part(job.job_id, number, stretch, offset, min(limit, _PART_BYTES), known)]
            # With less room than for a part, it would end within a line.
            while (last := parts[-1]).next + _PART_BYTES <= offset + limit and not await is_gone():
                part = await self._part(job.job_id, number, stretch, last.next, _PART_BYTES, known)
                if part.next <= last.next:
                    break
                parts.append(part)
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
        if self._followers.locked():
            raise Unavailable(
                f"{_FOLLOWERS_MAX} clients follow logs at this server already: read it without follow, or try again."
            )
        async with self._followers:
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

    async def _stretch(self, job_id: str, number: int) -> _Stretch:
        rows = await reading(self._store.attempts(job_id))
        if (stretch := _stretch(rows, attempt_in(rows, job_id, number))) is None:
            raise LogGone(
                f"It is not known where the log of attempt {number} of job {job_id} begins and ends: an older version "
                "of Slotwise ran it, or the file could not be read when the attempt began."
            )
        return stretch

    async def _part(
        self, job_id: str, number: int, stretch: _Stretch, offset: int, size: int, known: tuple[str, ...]
    ) -> LogPart:
        around = around_bytes(known)
        return await self._of_file(
            job_id, number, lambda: part_of(stretch.window(offset, size, around), offset, size, known)
        )

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


def attempt_in(rows: Sequence[Attempt], job_id: str, number: int) -> Attempt:
    """Attempt ``number`` among ``rows``, which are those that are kept.

    Raises:
        UnknownAttempt: it is not among them.
    """
    if (row := next((each for each in rows if each.attempt == number), None)) is not None:
        return row
    if not rows:
        raise UnknownAttempt(f"Job {job_id} has had no attempt yet.")
    oldest, newest = rows[0].attempt, rows[-1].attempt
    if number > newest:
        raise UnknownAttempt(f"Job {job_id} has no attempt {number}: its newest is {newest}.")
    raise UnknownAttempt(
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
