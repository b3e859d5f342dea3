"""The shape of JSON: which fields there are, where, and of which types. Values do not count.

Keys that are ids are all the same key, elements of an array are all the same element. A shape is a mapping of places
(such as `vertices/*/parallelism`) to the types that were seen there.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).parent / "flink"
_ID = re.compile(r"[0-9a-f]{32}\Z")

Shape = dict[str, set[str]]


def sample(number: str) -> dict[str, Any]:
    """A recorded exchange, by the number that its file name begins with."""
    (path,) = SAMPLES.glob(f"{number}_*.json")
    exchange: dict[str, Any] = json.loads(path.read_text())
    return exchange


def shape_of(*values: Any) -> Shape:
    """The shape of all ``values`` together."""
    shape: Shape = defaultdict(set)
    for value in values:
        _add(shape, "", value)
    return dict(shape)


def required(*values: Any) -> set[str]:
    """Places that are there in every object that could have them."""
    seen: dict[str, int] = defaultdict(int)
    objects: dict[str, int] = defaultdict(int)
    for value in values:
        _count(seen, objects, "", value)
    return {place for place in seen if seen[place] == objects[place.rpartition("/")[0]]}


def _add(shape: Shape, place: str, value: Any) -> None:
    shape[place].add(_type(value))
    for name, inner in _members(value):
        _add(shape, f"{place}/{name}", inner)


def _count(seen: dict[str, int], objects: dict[str, int], place: str, value: Any) -> None:
    if isinstance(value, dict | list):
        objects[place] += len(value) if _is_open(value) else 1
    for name, inner in _members(value):
        seen[f"{place}/{name}"] += 1
        _count(seen, objects, f"{place}/{name}", inner)


def _members(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [("*" if _ID.match(key) else key, inner) for key, inner in value.items()]
    return [("[]", inner) for inner in value] if isinstance(value, list) else []


def _is_open(value: Any) -> bool:
    """Whether it has any number of members of one kind."""
    return isinstance(value, list) or any(_ID.match(key) for key in value)


def _type(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "double", str: "text", list: "array", dict: "object"}
    return "NaN" if value == "NaN" else names[type(value)]
