"""A strict YAML reader: every accepted text could have been written as JSON.

Unlike YAML 1.1, and like what people expect: dates, times and version numbers stay text, 010 is no octal number, and
unquoted yes, no, on, off, which some readers take for booleans, are refused rather than guessed. Refused are also
duplicate keys, keys that are no texts, tags, merge keys, several documents, and aliases beyond a limit.

It is built on the parser's events, which come one by one: neither the depth nor the number of the aliases of a
hostile text can make it use more memory or stack than its length allows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from app.model.strictjson import MAX_DEPTH, MAX_INTEGER

MAX_ALIASES: Final = 100
MAX_NODES: Final = 50_000

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_GUESSED: Final = frozenset({"yes", "no", "on", "off"})
_WORDS: Final[dict[str, Any]] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TEXT_TAGS: Final = ("!", "tag:yaml.org,2002:str")
# It does not say which: a password that begins with ! is one.
_NO_TAGS: Final = "tags such as !!set are not supported: a text that begins with ! belongs in quotes."


class StrictYamlError(ValueError):
    """A text is refused. ``errors`` holds the sentence, with the place: ``line`` and ``column``, from 1."""

    def __init__(self, sentence: str, line: int, column: int) -> None:
        super().__init__(f"The YAML is not valid in line {line}, column {column}: {sentence}")
        self.errors = [str(self)]


def decode_yaml_strict(data: bytes) -> Any:
    """The value of the only document in ``data``, which is UTF-8: dicts, lists, texts, numbers, booleans, None.

    Raises:
        StrictYamlError: it is no YAML, or something that is refused.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        line = before.count("\n") + 1
        raise StrictYamlError("the text is not UTF-8.", line, len(before) - before.rfind("\n")) from None
    if text.startswith("\ufeff"):
        raise StrictYamlError("it begins with a byte order mark; send UTF-8 without one.", 1, 1)
    return _Builder().build(_events(text))


def _events(text: str) -> Iterator[Event]:
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        sentence = " ".join(part for part in (error.context, error.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise StrictYamlError(f"{sentence or 'it cannot be read'}.", line, column) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise StrictYamlError(f"{error.reason}.", line, 1) from None


@dataclass(slots=True)
class _Open:
    """A collection that is being read."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    nodes_before: int
    key: str | None = None
    lines: dict[str, int] = field(default_factory=dict)


class _Builder:
    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._unfinished: set[str] = set()
        self._aliases = 0
        self._nodes = 0
        self._documents = 0
        self._result: Any = None

    def build(self, events: Iterator[Event]) -> Any:
        for event in events:
            if isinstance(event, DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    _refuse(event, "exactly one document is expected, and here begins another.")
            elif isinstance(event, CollectionEndEvent):
                self._close()
            elif isinstance(event, NodeEvent):
                self._node(event)
        return self._result

    def _node(self, event: NodeEvent) -> None:
        self._nodes += 1
        if isinstance(event, AliasEvent):
            self._alias(event)
        elif isinstance(event, ScalarEvent):
            self._scalar(event)
        else:
            assert isinstance(event, MappingStartEvent | SequenceStartEvent)
            self._collection(event)
        if self._nodes > MAX_NODES:
            _refuse(
                event, f"it has too many values: at most {MAX_NODES} are allowed, aliases counted in full."
            )

    def _alias(self, event: AliasEvent) -> None:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            _refuse(event, f"it has too many aliases: at most {MAX_ALIASES} are allowed.")
        if event.anchor in self._unfinished:
            _refuse(event, f"the alias *{event.anchor} stands within what it means.")
        if event.anchor not in self._anchors:
            _refuse(event, "an alias has no anchor before it: a text that begins with * belongs in quotes.")
        value, nodes = self._anchors[event.anchor]
        self._nodes += nodes
        if self._nodes <= MAX_NODES:
            self._put(event, _copy(value))

    def _scalar(self, event: ScalarEvent) -> None:
        if event.tag not in (None, *_TEXT_TAGS):
            _refuse(event, _NO_TAGS)
        plain = event.implicit[0] and event.tag is None
        if self._expects_key():
            self._key(event, plain=plain)
            return
        value = _resolve(event) if plain else event.value
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._put(event, value)

    def _expects_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1].value, dict) and self._open[-1].key is None

    def _key(self, event: ScalarEvent, *, plain: bool) -> None:
        collection = self._open[-1]
        if event.anchor:
            _refuse(event, "a key must not have an anchor.")
        if plain and event.value == "<<":
            _refuse(event, "merge keys (<<) are not supported: write the fields out.")
        if plain and not isinstance(_resolve(event), str):
            _refuse(event, f"a key should be a text: put {event.value[:80]!r} in quotes.")
        line, _ = _place(event)
        if event.value in collection.lines:
            first = collection.lines[event.value]
            _refuse(event, f"the key {event.value[:80]!r} is written twice; the first is in line {first}.")
        collection.key = event.value
        collection.lines[event.value] = line

    def _collection(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        if self._expects_key():
            _refuse(event, "a key should be a text, not a list or a mapping.")
        if not event.implicit:
            _refuse(event, _NO_TAGS)
        if len(self._open) == MAX_DEPTH:
            _refuse(event, f"it is nested too deeply: at most {MAX_DEPTH} levels are allowed.")
        value: dict[str, Any] | list[Any] = {} if isinstance(event, MappingStartEvent) else []
        self._put(event, value)
        if event.anchor:
            self._unfinished.add(event.anchor)
        self._open.append(_Open(value, event.anchor, self._nodes))

    def _close(self) -> None:
        done = self._open.pop()
        if done.anchor:
            self._unfinished.discard(done.anchor)
            self._anchors[done.anchor] = (done.value, self._nodes - done.nodes_before + 1)

    def _put(self, event: NodeEvent, value: Any) -> None:
        if not self._open:
            self._result = value
            return
        collection = self._open[-1]
        if isinstance(collection.value, list):
            collection.value.append(value)
        elif collection.key is None:
            _refuse(event, "a key should be a text, not an alias.")
        else:
            collection.value[collection.key] = value
            collection.key = None


def _resolve(event: ScalarEvent) -> Any:
    """The value of a scalar without quotes."""
    text: str = event.value
    if text in _WORDS:
        return _WORDS[text]
    if text.lower() in _GUESSED:
        _refuse(
            event,
            f"{text!r} without quotes is a boolean to some readers and a text to others: write true or false, or put "
            "it in quotes.",
        )
    if _INTEGER.match(text):
        if len(text) > 20 or not -MAX_INTEGER - 1 <= int(text) <= MAX_INTEGER:
            _refuse(event, f"the whole number {text[:40]} is too large: 64 bits must hold it.")
        return int(text)
    if _NOT_FINITE.match(text):
        _refuse(event, f"{text} is not a number that is allowed; put it in quotes if it is meant as text.")
    if _FLOAT.match(text):
        value = float(text)
        if math.isinf(value):
            _refuse(event, f"the number {text[:40]} is too large for a double.")
        return value
    return text


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _refuse(event: Event, sentence: str) -> NoReturn:
    raise StrictYamlError(sentence, *_place(event))


def _place(event: Event) -> tuple[int, int]:
    """Line and column, from 1."""
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
