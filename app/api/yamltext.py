"""Strict YAML: PyYAML reads it, and every accepted text could have been written as JSON.

Unlike YAML 1.1, and like what people expect: dates, times and version numbers stay text, 010 is no octal number, and
unquoted yes, no, on, off, which some readers take for booleans, are refused rather than guessed. Refused are also
duplicate keys, keys that are no texts, tags, merge keys, several documents, and aliases beyond a limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import yaml

from app.model.strictjson import MAX_DEPTH, StrictTextError, finite_number, utf8_text, whole_number

MAX_ALIASES: Final = 100
MAX_NODES: Final = 50_000

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_GUESSED: Final = frozenset({"yes", "no", "on", "off"})
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_PLAIN: Final = "!plain"
_TEXT: Final = "tag:yaml.org,2002:str"
_TOO_DEEP: Final = f"it is nested too deeply: at most {MAX_DEPTH} levels are allowed."
_TOO_MANY: Final = f"it has too many values: at most {MAX_NODES} are allowed, aliases counted in full."


def decode_yaml_strict(data: bytes) -> Any:
    """The value of the only document in ``data``, which is UTF-8: dicts, lists, texts, numbers, booleans, None.

    Raises:
        StrictTextError: it is no YAML, or something that is refused.
    """
    text = utf8_text(data, "YAML")
    try:
        _check_events(text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        sentence = " ".join(part for part in (error.context, error.problem) if part)
        _refuse(yaml.Event(error.problem_mark or error.context_mark), f"{sentence or 'it cannot be read'}.")
    except yaml.reader.ReaderError as error:
        # The position is one in bytes.
        line = data.count(b"\n", 0, error.position) + 1
        raise StrictTextError("YAML", f"{error.reason}.", line, 1) from None
    return None if node is None else _value(node, 0, iter(range(MAX_NODES)))


class _Loader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    def resolve(self, kind: type[yaml.Node], value: Any, implicit: tuple[bool, bool]) -> str:
        """The tag of a node that has none: `_value` finds out what a scalar without quotes is."""
        return _PLAIN if kind is yaml.ScalarNode and implicit[0] else _TEXT


def _check_events(text: str) -> None:
    """Events come one by one: what is refused here has cost no memory, and no stack of PyYAML's composer."""
    documents = depth = nodes = aliases = 0
    anchors = set()
    for event in yaml.parse(text, Loader=_Loader):
        documents += isinstance(event, yaml.DocumentStartEvent)
        nodes += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if documents > 1:
            _refuse(event, "exactly one document is expected, and here begins another.")
        if depth > MAX_DEPTH:
            _refuse(event, _TOO_DEEP)
        if nodes > MAX_NODES:
            _refuse(event, _TOO_MANY)
        if isinstance(event, yaml.AliasEvent):
            aliases += 1
            if aliases > MAX_ALIASES:
                _refuse(event, f"it has too many aliases: at most {MAX_ALIASES} are allowed.")
            if event.anchor not in anchors:
                _refuse(
                    event, "an alias has no anchor before it: a text that begins with * belongs in quotes."
                )
        elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
            anchors.add(event.anchor)
            if event.tag and not (event.tag == _TEXT and isinstance(event, yaml.ScalarEvent)):
                # It does not say which: a password that begins with ! is one.
                _refuse(
                    event,
                    "tags such as !!set are not supported: a text that begins with ! belongs in quotes.",
                )


def _value(node: yaml.Node, depth: int, room: Iterator[int]) -> Any:
    """``room`` is for so many nodes. An alias is the node of its anchor: it is counted, and becomes a value, again."""
    if depth > MAX_DEPTH:
        _refuse(node, _TOO_DEEP)
    if next(room, None) is None:
        _refuse(node, _TOO_MANY)
    if isinstance(node, yaml.ScalarNode):
        return _plain(node) if node.tag == _PLAIN else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_value(each, depth + 1, room) for each in node.value]
    value: dict[str, Any] = {}
    for key, each in node.value:
        if not isinstance(key, yaml.ScalarNode):
            _refuse(key, "a key should be a text, not a list or a mapping.")
        name = _value(key, depth, room)
        if not isinstance(name, str):
            _refuse(key, f"a key should be a text: put {key.value[:80]!r} in quotes.")
        if name == "<<" and key.tag == _PLAIN:
            _refuse(key, "merge keys (<<) are not supported: write the fields out.")
        if name in value:
            _refuse(key, f"the key {name[:80]!r} is written twice.")
        value[name] = _value(each, depth + 1, room)
    return value


def _plain(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    if text in _WORDS:
        return _WORDS[text]
    if text.lower() in _GUESSED:
        _refuse(
            node,
            f"{text!r} without quotes is a boolean to some readers and a text to others: write true or false, or put "
            "it in quotes.",
        )
    if _NOT_FINITE.match(text):
        _refuse(node, f"{text} is not a number that is allowed; put it in quotes if it is meant as text.")
    try:
        if _INTEGER.match(text):
            return whole_number(text)
        return finite_number(text) if _FLOAT.match(text) else text
    except ValueError as error:
        _refuse(node, str(error))


def _refuse(found: yaml.Event | yaml.Node, sentence: str) -> NoReturn:
    mark = found.start_mark
    raise StrictTextError("YAML", sentence, *((mark.line + 1, mark.column + 1) if mark else ())) from None
