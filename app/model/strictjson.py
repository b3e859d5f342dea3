"""A strict JSON reader: each text has one meaning, and a refusal has a sentence with line and column.

Refused beyond what is no JSON at all: duplicate names, NaN and Infinity, numbers that no double or 64-bit integer
holds, half surrogate pairs, a byte order mark, other encodings than UTF-8, more than `MAX_DEPTH` levels, and more than
`MAX_COLLECTIONS` objects and arrays.

The standard library's decoder reads; only if it, or a check after it, objects is the text read again by a slow reader
that knows where it is.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 64
MAX_COLLECTIONS: Final = 20_000
MAX_INTEGER: Final = 2**63 - 1
_MANY_VALUES: Final = 20_000

_BLANK = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z0-9_+.-]*")
_HALF = re.compile("[\ud800-\udfff]")
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}


class StrictJsonError(ValueError):
    """A text is refused. ``errors`` holds the sentence, ``line`` and ``column`` (from 1, in characters) the place."""

    def __init__(self, sentence: str, line: int, column: int) -> None:
        super().__init__(f"The JSON is not valid in line {line}, column {column}: {sentence}")
        self.errors = [str(self)]
        self.line = line
        self.column = column


class _Objection(ValueError):
    """The fast reader met something that the slow one must look at."""


def decode_json_strict(data: bytes | str) -> Any:
    """The value that ``data`` (UTF-8 if bytes) is the JSON text of.

    Raises:
        StrictJsonError: it is none, or one that is refused.
    """
    text = data if isinstance(data, str) else _decode(data)
    # The fast reader lets no other thread have a turn, so what is long is read slowly at once; as is what may be nested
    # too deeply.
    if (
        text.count("[") + text.count("{") > MAX_DEPTH
        or text.count(",") > _MANY_VALUES
        or (("\\u" in text or not text.isascii()) and _HALF_PAIR.search(text))
    ):
        return _Reader(text).document()
    try:
        return _fast.decode(text)
    except (ValueError, RecursionError):
        return _Reader(text).document()


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise _error(before, len(before), "the text is not UTF-8.") from None


def _error(text: str, at: int, sentence: str) -> StrictJsonError:
    line = text.count("\n", 0, at) + 1
    return StrictJsonError(sentence, line, at - text.rfind("\n", 0, at))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Objection
    return value


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise _Objection
    value = int(digits)
    if not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        raise _Objection
    return value


def _number(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _Objection
    return value


def _constant(_: str) -> NoReturn:
    raise _Objection


_fast: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


class _Reader:
    """Recursive descent over one text; at most `MAX_DEPTH` calls deep."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._collections = 0

    def document(self) -> Any:
        if self._text.startswith("\ufeff"):
            raise _error(self._text, 0, "it begins with a byte order mark; send UTF-8 without one.")
        self._blank()
        if self._at == len(self._text):
            self._refuse("the text is empty: a value is expected.")
        value = self._value(0)
        self._blank()
        if self._at < len(self._text):
            self._refuse(f"nothing may follow the value, found {self._found()}.")
        return value

    def _refuse(self, sentence: str, at: int | None = None) -> NoReturn:
        raise _error(self._text, self._at if at is None else at, sentence)

    def _found(self) -> str:
        if self._at >= len(self._text):
            return "the end of the text"
        word = _WORD.match(self._text, self._at)
        assert word is not None
        return repr(word[0][:40] or self._text[self._at])

    def _blank(self) -> None:
        match = _BLANK.match(self._text, self._at)
        assert match is not None
        self._at = match.end()

    def _next(self) -> str:
        """The next character that is not blank; empty at the end."""
        self._blank()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> Any:
        char = self._next()
        if char in ("{", "["):
            self._collections += 1
            if self._collections > MAX_COLLECTIONS:
                self._refuse(f"there are too many objects and arrays: at most {MAX_COLLECTIONS} are allowed.")
            if depth == MAX_DEPTH:
                self._refuse(f"the value is nested too deeply: at most {MAX_DEPTH} levels are allowed.")
            return self._object(depth + 1) if char == "{" else self._array(depth + 1)
        if char == '"':
            return self._string()
        if char == "-" or (char.isascii() and char.isdigit()):
            return self._number()
        word = _WORD.match(self._text, self._at)
        if word is not None and word[0] in _WORDS:
            self._at = word.end()
            return _WORDS[word[0]]
        if word is not None and word[0] in ("NaN", "Infinity"):
            self._refuse(f"{word[0]} is not a JSON number.")
        self._refuse(f"a value is expected, found {self._found()}.")

    def _object(self, depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        self._at += 1
        if self._next() == "}":
            self._at += 1
            return value
        while True:
            if self._next() != '"':
                self._refuse(f"a name in double quotes is expected, found {self._found()}.")
            start = self._at
            name = self._string()
            if name in value:
                self._refuse(f"the name {name[:80]!r} is written twice in one object.", start)
            if self._next() != ":":
                self._refuse(f"':' is expected after a name, found {self._found()}.")
            self._at += 1
            value[name] = self._value(depth)
            if self._ends("}"):
                return value

    def _array(self, depth: int) -> list[Any]:
        value: list[Any] = []
        self._at += 1
        if self._next() == "]":
            self._at += 1
            return value
        while True:
            value.append(self._value(depth))
            if self._ends("]"):
                return value

    def _ends(self, bracket: str) -> bool:
        char = self._next()
        if char not in (",", bracket):
            self._refuse(f"',' or {bracket!r} is expected, found {self._found()}.")
        self._at += 1
        return char == bracket

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._at)
        word = _WORD.match(self._text, self._at)
        if match is None or word is None or match.end() != word.end():
            if word is not None and word[0] == "-Infinity":
                self._refuse("-Infinity is not a JSON number.")
            self._refuse(f"{self._found()} is not a JSON number.")
        if match[2] or match[3]:
            value = float(match[0])
            if math.isinf(value):
                self._refuse(f"the number {match[0][:40]} is too large for a double.")
            self._at = match.end()
            return value
        try:
            whole = _integer(match[1])
        except _Objection:
            self._refuse(f"the whole number {match[1][:40]} is too large: 64 bits must hold it.")
        self._at = match.end()
        return whole

    def _string(self) -> str:
        start = self._at
        try:
            value, self._at = _fast.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            found = self._text[error.pos : error.pos + 1]
            if error.pos == start:
                self._refuse("the string that begins here does not end.")
            if found < " ":
                self._refuse(f"a string must not contain {found!r}: write it as an escape.", error.pos)
            sentence = 'a backslash must be followed by one of " \\ / b f n r t or u and four digits.'
            self._refuse(sentence, self._text.rindex("\\", start, error.pos + 1))
        if _HALF.search(value):
            self._refuse("the string has half a surrogate pair: it is not valid Unicode.", start)
        assert isinstance(value, str)
        return value
