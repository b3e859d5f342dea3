"""A strict JSON reader: each text has one meaning, and a refusal has a sentence with line and column.

Refused beyond what is no JSON at all: duplicate names, NaN and Infinity, numbers that no double or 64-bit integer
holds, half surrogate pairs, a byte order mark, other encodings than UTF-8, more than `MAX_DEPTH` levels, and more than
`MAX_COLLECTIONS` objects and arrays.

The standard library's decoder reads, with hooks for what it would accept. Where a text has a fault, or may have one
that no hook sees, `_FaultFinder` looks for its place.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 64
MAX_COLLECTIONS: Final = 20_000
MAX_INTEGER: Final = 2**63 - 1

_BLANK = re.compile(r"[ \t\n\r]*")
_WORD = re.compile(r"[A-Za-z0-9_+.-]*")
# With or without its end, so that no text is looked through more than once.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_HALF = re.compile("[\ud800-\udfff]")
_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


class StrictJsonError(ValueError):
    """A text is refused. ``errors`` holds the sentence, ``line`` and ``column`` (from 1, in characters) the place."""

    def __init__(self, sentence: str, line: int, column: int) -> None:
        super().__init__(f"The JSON is not valid in line {line}, column {column}: {sentence}")
        self.errors = [str(self)]
        self.line = line
        self.column = column


class _Objection(ValueError):
    """A hook refuses what the decoder would accept. Its text is the sentence."""


def decode_json_strict(data: bytes | str) -> Any:
    """The value that ``data`` (UTF-8 if bytes) is the JSON text of.

    Raises:
        StrictJsonError: it is none, or one that is refused.
    """
    text = data if isinstance(data, str) else _decode(data)
    brackets = _brackets(text)
    if brackets > MAX_COLLECTIONS:
        # Those inside strings are none.
        brackets = _brackets(_STRING.sub("", text))
    if brackets > MAX_COLLECTIONS:
        # Before they are made: they take thirty times the room of their text.
        _FaultFinder(text).read()
    try:
        value = _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        _FaultFinder(text).read()
        # No text is known in which the decoder finds a fault and the finder none.
        raise _error(text, 0, f"it cannot be read ({error}).") from error
    may_have_half_pair = ("\\u" in text or not text.isascii()) and _HALF_PAIR.search(text)
    if may_have_half_pair or (brackets > MAX_DEPTH and _is_too_deep(value)):
        _FaultFinder(text).read()
    return value


def _brackets(text: str) -> int:
    return text.count("[") + text.count("{")


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise _error(before, len(before), "the text is not UTF-8.") from None


def _error(text: str, at: int, sentence: str) -> StrictJsonError:
    line = text.count("\n", 0, at) + 1
    return StrictJsonError(sentence, line, at - text.rfind("\n", 0, at))


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [one for one in level if isinstance(one, dict | list)]
        if not level:
            return False
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Objection("a name is written twice in one object.")
    return value


def _integer(digits: str) -> int:
    # Python itself refuses some thousands of digits.
    if len(digits) > 20 or not -MAX_INTEGER - 1 <= (value := int(digits)) <= MAX_INTEGER:
        raise _Objection(f"the whole number {digits[:40]} is too large: 64 bits must hold it.")
    return value


def _number(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _Objection(f"the number {digits[:40]} is too large for a double.")
    return value


def _constant(name: str) -> NoReturn:
    raise _Objection(f"{name} is not a JSON number.")


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


class _FaultFinder:
    """Reads a text up to its first fault. Recursive descent, at most `MAX_DEPTH` levels deep."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._collections = 0

    def read(self) -> None:
        """
        Raises:
            StrictJsonError: the text has a fault.
        """
        if self._text.startswith("\ufeff"):
            self._refuse("it begins with a byte order mark; send UTF-8 without one.")
        if not self._next():
            self._refuse("the text is empty: a value is expected.")
        self._value(0)
        if self._next():
            self._refuse(f"nothing may follow the value, found {self._found()}.")

    def _refuse(self, sentence: str, at: int | None = None) -> NoReturn:
        raise _error(self._text, self._at if at is None else at, sentence)

    def _next_word(self) -> str:
        word = _WORD.match(self._text, self._at)
        assert word is not None
        return word[0]

    def _found(self) -> str:
        if self._at >= len(self._text):
            return "the end of the text"
        return repr(self._next_word()[:40] or self._text[self._at])

    def _next(self) -> str:
        """The next character that is not blank; empty at the end."""
        blank = _BLANK.match(self._text, self._at)
        assert blank is not None
        self._at = blank.end()
        return self._text[self._at : self._at + 1]

    def _value(self, depth: int) -> None:
        char = self._next()
        if char in ("{", "["):
            self._collections += 1
            if self._collections > MAX_COLLECTIONS:
                self._refuse(f"there are too many objects and arrays: at most {MAX_COLLECTIONS} are allowed.")
            if depth == MAX_DEPTH:
                self._refuse(f"the value is nested too deeply: at most {MAX_DEPTH} levels are allowed.")
            self._collection("}" if char == "{" else "]", depth + 1)
        elif char == '"':
            self._string()
        else:
            self._number_or_word()

    def _collection(self, end: str, depth: int) -> None:
        names: set[str] = set()
        self._at += 1
        char = self._next()
        while char != end:
            if end == "}":
                self._name(names)
            self._value(depth)
            char = self._next()
            if char not in (",", end):
                self._refuse(f"',' or {end!r} is expected, found {self._found()}.")
            if char == ",":
                self._at += 1
        self._at += 1

    def _name(self, names: set[str]) -> None:
        if self._next() != '"':
            self._refuse(f"a name in double quotes is expected, found {self._found()}.")
        start = self._at
        name = self._string()
        if name in names:
            self._refuse(f"the name {name[:80]!r} is written twice in one object.", start)
        names.add(name)
        if self._next() != ":":
            self._refuse(f"':' is expected after a name, found {self._found()}.")
        self._at += 1

    def _number_or_word(self) -> None:
        word = self._next_word()
        try:
            _decoder.decode(word)
        except _Objection as objection:
            self._refuse(str(objection))
        except ValueError:
            if word[:1] == "-" or word[:1].isdigit():
                self._refuse(f"{self._found()} is not a JSON number.")
            self._refuse(f"a value is expected, found {self._found()}.")
        self._at += len(word)

    def _string(self) -> str:
        start = self._at
        try:
            value, self._at = _decoder.raw_decode(self._text, start)
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
