"""Where a part of a log begins and ends, and how much around it is looked at, so that no secret is cut in two. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_AROUND_BYTES: Final = 16 << 10
# Bytes of UTF-8 for one character.
_CHARACTER_BYTES: Final = 4


def around_bytes(known: Iterable[str]) -> int:
    """How many bytes before and after a part are looked at for secrets, of which the values ``known`` are."""
    return max(_AROUND_BYTES, _CHARACTER_BYTES * max(map(len, known), default=0))


def whole_lines(window: bytes, at: int, stop: int) -> int:
    """Where the last line that ends before ``stop`` has its end; 0 if none does behind ``at``."""
    return window.rfind(b"\n", at, stop) + 1


def whole_characters(window: bytes, at: int, stop: int) -> int:
    """Where the last character that ends before ``stop`` has its end; that of the first one if there is no other."""
    begin = character(window, stop)
    first = window[at]
    length = 1 + (first >= 0xC0) + (first >= 0xE0) + (first >= 0xF0)
    return begin if begin > at else min(at + length, len(window))


def character(window: bytes, at: int) -> int:
    """Where the character of UTF-8 begins that ``at`` is in."""
    if at < len(window) and window[at] & 0xC0 == 0x80:
        for begin in range(at - 1, max(-1, at - _CHARACTER_BYTES), -1):
            if window[begin] & 0xC0 != 0x80:
                return begin if window[begin] >= 0xC0 else at
    return at


def texts(window: bytes, at: int, stop: int) -> tuple[str, str, str]:
    """What stands before ``at``, up to ``stop``, and behind it."""
    before, text, after = (
        part.decode(errors="replace") for part in (window[:at], window[at:stop], window[stop:])
    )
    return before, text, after
