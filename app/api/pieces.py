"""JSON that is decoded value by value: while the decoder is at work on one, no other thread is."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from app.api.errors import ApiError, bad_request
from app.model.protocol import REPORT_LIMIT_CHARS

_WINDOW_CHARS = 1024 * 1024
_COLLECTIONS_MAX = 50_000
_LONGEST_NUMBER = 19
_SPACE = re.compile(r"[ \t\n\r]*+")


def no_json() -> ApiError:
    return bad_request("The body is not JSON.")


def decode_json(body: bytes) -> Any:
    """All of a short body."""
    try:
        return _decoder.decode(body.decode())
    except (ValueError, RecursionError):
        raise no_json() from None


class Pieces:
    """A body, read from its beginning.

    The decoder gets a window of it: of two values that follow each other, the second one is mostly there already. A
    value that the window cuts off gets a window of its own, of `REPORT_LIMIT_CHARS`.
    """

    def __init__(self, body: bytes) -> None:
        try:
            self._text = body.decode()
        except UnicodeDecodeError:
            raise no_json() from None
        self._at = 0
        self._base = 0
        self._window = ""

    @property
    def is_at_end(self) -> bool:
        return self._space_end() == len(self._text)

    def passes(self, sign: str) -> bool:
        """Whether ``sign`` comes next; it is passed over."""
        start = self._space_end()
        found = self._text.startswith(sign, start)
        if found:
            self._at = start + len(sign)
        return found

    def expect(self, sign: str) -> None:
        if not self.passes(sign):
            raise no_json()

    def value(self) -> Any:
        """The value that comes next.

        Raises:
            ApiError: it is not JSON, is too long or has too many parts.
        """
        self._at = self._space_end()
        if not self._window or self._at - self._base > _WINDOW_CHARS // 2:
            self._move(_WINDOW_CHARS)
        found = self._decoded()
        if found is None and not self._reaches_end:
            self._move(REPORT_LIMIT_CHARS)
            found = self._decoded()
        if found is None:
            too_long = f"A value of the body is not JSON, or is longer than {REPORT_LIMIT_CHARS} characters."
            raise no_json() if self._reaches_end else bad_request(too_long)
        value, end = found
        self._at = self._base + end
        return value

    def _space_end(self) -> int:
        match = _SPACE.match(self._text, self._at)
        assert match is not None
        return match.end()

    @property
    def _reaches_end(self) -> bool:
        return self._base + len(self._window) == len(self._text)

    def _move(self, size_chars: int) -> None:
        self._base, self._window = self._at, self._text[self._at : self._at + size_chars]
        if self._window.count("[") + self._window.count("{") > _COLLECTIONS_MAX:
            raise bad_request("The body has too many objects and arrays.")

    def _decoded(self) -> tuple[Any, int] | None:
        """A value and its end in the window; None if the window holds no whole one."""
        try:
            value, end = _decoder.raw_decode(self._window, self._at - self._base)
        except (ValueError, RecursionError):
            return None
        # A number that ends with the window may go on behind it.
        return (value, end) if end < len(self._window) or self._reaches_end else None


def _whole(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER or not -(2**63) <= int(digits) < 2**63:
        raise ValueError("64 bits do not hold it")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a double does not hold it")
    return value


_decoder = json.JSONDecoder(parse_int=_whole, parse_float=_real, parse_constant=_real)
