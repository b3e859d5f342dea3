"""What is wrong with a document: every error is collected with its place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from app.model.secret_texts import without_secrets
from app.model.sentences import shown

MAX_ERRORS: Final = 100
"""Further errors are only counted: they help no reader, and a hostile document could have any number."""

MAX_NAME_LENGTH: Final = 200

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,79}\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")


class GraphErrors(ValueError):
    """A document is wrong. ``errors`` has a text for each error: its place, a colon, a sentence. What it says
    was found may have had a password."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = [without_secrets(each) for each in errors]
        super().__init__("\n".join(self.errors))


class Errors:
    """The errors found so far, in the order in which they were found."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}
        self._left_out = 0

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def count(self) -> int:
        return len(self._found) + self._left_out

    @property
    def full(self) -> bool:
        return len(self._found) >= MAX_ERRORS

    def add(self, place: str, sentence: str) -> None:
        if self.full:
            self._left_out += 1
        else:
            self._found[f"{place}: {sentence}"] = None

    def texts(self) -> list[str]:
        more = [f"There are {self._left_out} more errors."] if self._left_out else []
        return [*self._found, *more]


def below(place: str, key: object) -> str:
    """The place of a field within ``place``."""
    text = str(key)
    if not _PLAIN_KEY.match(text):
        return f"{place}[{shown(text)}]"
    return f"{place}.{text}" if place else text


def text_fault(text: str) -> str | None:
    """Why a text cannot be kept or passed on, or None. Databases and processes take neither of these."""
    if "\0" in text:
        return "must not contain the character NUL."
    if _SURROGATE.search(text):
        return "must not contain half a surrogate pair: it is not valid Unicode."
    return None


def name_fault(name: str) -> str | None:
    """Why a name (of a job, a vertex, a group) is not allowed, or None."""
    if not name.strip():
        return "must not be empty."
    if len(name) > MAX_NAME_LENGTH:
        return f"is too long: at most {MAX_NAME_LENGTH} characters are allowed, found {len(name)}."
    if name != name.strip():
        return f"must not begin or end with a blank, found {shown(name)}."
    if not name.isprintable():
        return f"must not contain line breaks or control characters, found {shown(name)}."
    return None
