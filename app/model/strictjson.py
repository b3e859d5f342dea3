"""Strict JSON: the standard decoder, with hooks for what it would accept although it has no or more than one meaning.

Refused beyond what is no JSON: duplicate names, NaN and Infinity, numbers that no double or 64-bit integer holds, half
surrogate pairs, a byte order mark, other encodings than UTF-8, and more than `MAX_DEPTH` levels or `MAX_COLLECTIONS`
objects and arrays. What YAML has in common with it is here too.
"""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 64
MAX_COLLECTIONS: Final = 20_000

# A string with or without its end, so that no text is looked through more than once.
_BRACKET = re.compile(r"[][{}]")
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


class StrictTextError(ValueError):
    """A JSON or YAML text is refused. ``errors`` holds the sentence, with line and column if they are known."""

    def __init__(self, language: str, sentence: str, *place: int) -> None:
        where = " in line {}, column {}".format(*place) if place else ""
        super().__init__(f"The {language} is not valid{where}: {sentence}")
        self.errors = [str(self)]


def decode_json_strict(data: bytes) -> Any:
    """The value that ``data`` is the JSON text of.

    Raises:
        StrictTextError: it is none, or one that is refused.
    """
    text = utf8_text(data, "JSON")
    try:
        _check_brackets(text)
        value = _decoder.decode(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        # "Unterminated string starting at", which the decoder continues with the place.
        sentence = error.msg.removesuffix(" at").removesuffix(" starting")
        sentence = f"{sentence[0].lower()}{sentence[1:]}."
        raise StrictTextError("JSON", sentence, error.lineno, error.colno) from None
    except UnicodeEncodeError:
        sentence = "a string has half a surrogate pair: it is not valid Unicode."
        raise StrictTextError("JSON", sentence) from None
    except ValueError as error:
        raise StrictTextError("JSON", str(error)) from None
    return value


def utf8_text(data: bytes, language: str) -> str:
    """``data`` as a text.

    Raises:
        StrictTextError: it is not UTF-8, or begins with a byte order mark.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        place = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise StrictTextError(language, "the text is not UTF-8.", *place) from None
    if text.startswith("\ufeff"):
        raise StrictTextError(language, "it begins with a byte order mark; send UTF-8 without one.", 1, 1)
    return text


def whole_number(digits: str) -> int:
    """
    Raises:
        ValueError: 64 bits do not hold it.
    """
    # Python itself refuses some thousands of digits.
    if len(digits) > 20 or not -(2**63) <= (value := int(digits)) < 2**63:
        raise ValueError(f"the whole number {digits[:40]} is too large: 64 bits must hold it.")
    return value


def finite_number(digits: str) -> float:
    """
    Raises:
        ValueError: no double holds it.
    """
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:40]} is too large for a double.")
    return value


def _check_brackets(text: str) -> None:
    """Before values are made: they take thirty times the room of their text, and the stack of the decoder."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    text = _STRING.sub("", text)
    if text.count("[") + text.count("{") > MAX_COLLECTIONS:
        raise ValueError(f"there are too many objects and arrays: at most {MAX_COLLECTIONS} are allowed.")
    depths = accumulate(1 if each in "[{" else -1 for each in _BRACKET.findall(text))
    if any(depth > MAX_DEPTH for depth in depths):
        raise ValueError(f"the value is nested too deeply: at most {MAX_DEPTH} levels are allowed.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for name, each in pairs:
        if name in value:
            raise ValueError(f"the name {name[:80]!r} is written twice in one object.")
        value[name] = each
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number.")


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=whole_number, parse_float=finite_number, parse_constant=_constant
)
