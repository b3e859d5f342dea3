"""Parts of a log: where each begins and ends, and its text without the secrets of the job. Pure.

A part is cut from a window, which has some bytes before and after it too, so that a secret across the border of two
parts is found completely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from app.model.secret_texts import part_without_secrets
from app.worker.refusals import BeyondLog

LINE_PATIENCE_S: Final = 2.0
"""A line that goes on growing is shown when it has its end, or has not grown for so long."""

_AROUND_BYTES: Final = 16 << 10
# Bytes of UTF-8 for one character.
_CHARACTER_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Window:
    """What stands in a log from byte ``begin`` on; a negative one is before its begin in the file. ``first``: the first
    byte that was not cut off; ``end``: where the log ends now. ``is_over``: nothing more is written; ``is_growing``: a
    last line without an end may go on."""

    content: bytes
    begin: int
    end: int
    is_over: bool
    is_growing: bool
    first: int = 0


@dataclass(frozen=True, slots=True)
class LogPart:
    """Of the log of an attempt: ``text`` is what stands from byte ``begin`` up to byte ``next``, without secrets.
    ``is_complete``: the attempt is over and nothing comes behind it. ``size``: of the whole log."""

    text: str
    begin: int
    next: int
    is_complete: bool
    size: int = field(default=0, compare=False)


def around_bytes(known: Iterable[str]) -> int:
    """How many bytes before and after a part are looked at for secrets, of which the values ``known`` are."""
    return max(_AROUND_BYTES, _CHARACTER_BYTES * max(map(len, known), default=0))


def part_of(window: Window, offset: int, limit: int, known: Sequence[str]) -> LogPart:
    """At most ``limit`` bytes from ``offset``, whole lines if there are any.

    Raises:
        BeyondLog: the log does not go so far.
    """
    if offset > window.end:
        raise BeyondLog(
            f"The query parameter from should be at most {window.end}, where the log ends now, found {offset}."
        )
    begin = max(offset, window.first)
    until = min(begin + limit, window.end)
    note = f"... {begin - offset} bytes were cut off here\n" if begin > offset else ""
    content = window.content
    # Less may be there by now: somebody may have emptied the file.
    at, stop = (min(place - window.begin, len(content)) for place in (begin, until))
    if until < window.end and at < stop:
        stop = _whole_lines(content, at, stop) or _whole_characters(content, at, stop)
    elif window.is_growing:
        stop = _whole_lines(content, at, stop) or at
    if stop <= at:
        # Also if the attempt's whole part was cut off, and others come behind it.
        return LogPart(note, begin, begin, window.is_over and begin >= window.end, window.end)
    at = _character(content, at)
    before, text, after = (
        piece.decode(errors="replace") for piece in (content[:at], content[at:stop], content[stop:])
    )
    following = window.begin + stop
    return LogPart(
        note + part_without_secrets(before, text, after, known),
        window.begin + at,
        following,
        is_complete=window.is_over and following >= window.end,
        size=window.end,
    )


def _whole_lines(content: bytes, at: int, stop: int) -> int:
    """Where the last line that ends before ``stop`` has its end; 0 if none does behind ``at``."""
    return content.rfind(b"\n", at, stop) + 1


def _whole_characters(content: bytes, at: int, stop: int) -> int:
    """Where the last character that ends before ``stop`` has its end; that of the first one if there is no other."""
    begin = _character(content, stop)
    first = content[at]
    length = 1 + (first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0)
    return begin if begin > at else min(at + length, len(content))


def _character(content: bytes, at: int) -> int:
    """Where the character of UTF-8 begins that ``at`` is in."""
    if at < len(content) and content[at] & 0xC0 == 0x80:
        for begin in range(at - 1, max(-1, at - _CHARACTER_BYTES), -1):
            if content[begin] & 0xC0 != 0x80:
                return begin if content[begin] >= 0xC0 else at
    return at
