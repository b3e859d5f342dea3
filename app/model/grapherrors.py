"""Reading the fields of a document: every error is collected with its place, and reading continues. The modules
`graphdoc` and `graphdoc_program` have the list of fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeVar

from app.model.jobgraph import MAX_SETTING_CHARS
from app.model.secret_texts import without_secrets
from app.model.sentences import hint, kind_of, shown

MAX_ERRORS: Final = 100
"""Further errors are only counted: they help no reader, and a hostile document could have any number."""

MAX_NAME_LENGTH: Final = 200
MAX_TEXT_LENGTH: Final = 100_000

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,79}\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")
E = TypeVar("E", bound=StrEnum)


class GraphErrors(ValueError):
    """A job graph document is wrong. ``errors`` has a text for each error: its place, a colon, a sentence. What it says
    was found may have had a password."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = [without_secrets(each) for each in errors]
        super().__init__("\n".join(self.errors))


class Errors:
    """The errors found so far, in the order in which they were found.

    ``stored``: the document was accepted before, maybe by an older version. Rules that have come since do not hold for
    it, or the job could not be read any more.
    """

    def __init__(self, *, stored: bool = False) -> None:
        self.stored = stored
        self.settings_chars = 0
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


class Fields:
    """The fields of one mapping of the document. ``what`` names it in sentences, for example 'a vertex'."""

    def __init__(
        self, errors: Errors, place: str, value: Mapping[object, object], allowed: Sequence[str], what: str
    ) -> None:
        self.errors = errors
        self.place = place
        self._value = value
        for key in value:
            if key not in allowed:
                near = "" if errors.full else hint(str(key), allowed)
                errors.add(
                    below(place, key), f"is not a field of {what}.{near} Allowed are {', '.join(allowed)}."
                )

    def __contains__(self, name: str) -> bool:
        return name in self._value

    def at(self, name: str) -> str:
        return below(self.place, name)

    def raw(self, name: str) -> object:
        return self._value.get(name)

    def wrong(self, name: str, sentence: str) -> None:
        self.errors.add(self.at(name), sentence)

    def wrong_option(self, key: str, sentence: str) -> None:
        self.errors.add(below(self.at("options"), key), sentence)

    def present(self, name: str, expected: str) -> bool:
        """Whether the field is there; an error if not."""
        if name not in self._value:
            self.wrong(name, f"is missing: {expected} is expected.")
        return name in self._value

    def text(self, name: str, expected: str = "a text", *, longest: int = MAX_TEXT_LENGTH) -> str | None:
        """A text that is not empty; None if it is left out or wrong."""
        if name not in self._value:
            return None
        return self.as_text(self.at(name), self._value[name], expected, longest)

    def needed(self, name: str, expected: str, *, longest: int = MAX_TEXT_LENGTH) -> str | None:
        """`text` of a field that has to be there."""
        return self.text(name, expected, longest=longest) if self.present(name, expected) else None

    def as_text(self, place: str, value: object, expected: str, longest: int = MAX_TEXT_LENGTH) -> str | None:
        if not isinstance(value, str):
            quotes = (
                " (put it in quotes if it is meant as text)" if isinstance(value, bool | int | float) else ""
            )
            self.errors.add(place, f"should be {expected}, found {kind_of(value)}{quotes}.")
            return None
        if not value.strip():
            self.errors.add(place, f"must not be empty: {expected} is expected.")
        elif len(value) > longest:
            self.errors.add(
                place, f"is too long: at most {longest} characters are allowed, found {len(value)}."
            )
        elif fault := text_fault(value):
            self.errors.add(place, fault)
        else:
            return value
        return None

    def name(self, name: str, *, needed: bool = False) -> str | None:
        """A text that is fit for a name; ``needed``: it is an error to leave it out."""
        value = self.needed(name, "a text") if needed else self.text(name)
        if value is not None and (fault := name_fault(value)):
            self.wrong(name, fault)
            return None
        return value

    def _if(self, name: str, expected: str, fits: Callable[[Any], bool]) -> Any:
        """The field if it ``fits`` what is ``expected``; None if it is left out or wrong."""
        if name not in self._value:
            return None
        value = self._value[name]
        if not fits(value):
            self.wrong(name, f"should be {expected}, found {kind_of(value)}.")
            return None
        return value

    def integer(self, name: str, lowest: int, highest: int) -> int | None:
        """A whole number; None if it is left out or wrong. Neither true nor 1.0 is one."""
        expected = f"a whole number between {lowest} and {highest}"
        found: int | None = self._if(name, expected, lambda it: type(it) is int and lowest <= it <= highest)
        return found

    def boolean(self, name: str) -> bool | None:
        found: bool | None = self._if(name, "true or false", lambda it: isinstance(it, bool))
        return found

    def choice(self, name: str, kind: type[E]) -> E | None:
        if name not in self._value:
            return None
        value = self._value[name]
        names = [member.value for member in kind]
        if isinstance(value, str) and value in names:
            return kind(value)
        near = hint(value, names) if isinstance(value, str) else ""
        self.wrong(name, f"should be one of {', '.join(names)}, found {kind_of(value)}.{near}")
        return None

    def sequence(self, name: str, expected: str, longest: int) -> list[object]:
        """A list; empty if it is left out or wrong, its first elements only if it is too long."""
        value = self._if(name, expected, lambda it: isinstance(it, list | tuple)) or ()
        if len(value) > longest:
            self.wrong(name, f"has {len(value)} elements: at most {longest} are allowed.")
        return list(value[:longest])

    def elements(self, name: str, expected: str, longest: int) -> Iterator[tuple[str, object]]:
        """Each element of a list, and its place before it."""
        for index, value in enumerate(self.sequence(name, expected, longest)):
            yield f"{self.at(name)}[{index}]", value

    def mapping(self, name: str, expected: str) -> Mapping[object, object] | None:
        found: Mapping[object, object] | None = self._if(name, expected, lambda it: isinstance(it, Mapping))
        return found

    def texts(self, name: str, expected: str, longest: int) -> tuple[tuple[str, str], ...]:
        """A mapping of names to texts. Numbers and booleans are taken and written as text: 5 as 5, true as true."""
        found: list[tuple[str, str]] = []
        value = self.mapping(name, expected) or {}
        if len(value) > longest:
            self.wrong(name, f"has {len(value)} entries: at most {longest} are allowed.")
            return ()
        for key, item in value.items():
            place = below(self.at(name), key)
            if not isinstance(key, str) or name_fault(key):
                self.errors.add(place, "should have a name that is a text without blanks around it.")
            elif isinstance(item, bool):
                found.append((key, str(item).lower()))
            elif isinstance(item, int | float) and abs(item) < 1e30:
                found.append((key, str(item)))
            elif not isinstance(item, str):
                self.errors.add(place, f"should be a text, a number or a boolean, found {kind_of(item)}.")
            elif len(item) > MAX_SETTING_CHARS and not self.errors.stored:
                self.errors.add(place, f"is too long: at most {MAX_SETTING_CHARS} characters are allowed.")
            elif fault := text_fault(item):
                self.errors.add(place, fault)
            else:
                found.append((key, item))
        self.errors.settings_chars += sum(len(key) + len(item) for key, item in found)
        return tuple(found)
