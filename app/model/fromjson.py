"""Values of dataclasses from the JSON that `dataclasses.asdict` makes of them, for drivers, which have no pydantic."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_json(kind: type[T], value: object) -> T:
    """The inverse of ``dataclasses.asdict`` and JSON, which has lists for tuples. Names that ``kind`` does not have are
    those of a newer version and passed over; one that is missing has its default.

    Raises:
        TypeError, ValueError: it is nothing of that kind.
    """
    found: T = _read(kind, value)
    return found


_hints = functools.cache(get_type_hints)


def _read(kind: Any, value: Any) -> Any:
    whole, args = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        given = [each.name for each in fields(kind) if each.name in value]
        return kind(**{name: _read(_hints(kind)[name], value[name]) for name in given})
    if whole is tuple and isinstance(value, list | tuple):
        # Results have tens of thousands of numbers.
        plain = all(type(each) is args[0] for each in value)
        return tuple(value) if plain else tuple(_read(args[0], each) for each in value)
    if whole is dict and isinstance(value, Mapping):
        return {_read(args[0], key): _read(args[1], each) for key, each in value.items()}
    if whole is UnionType:
        return None if value is None else _read(args[0], value)
    if whole is Literal and value in args:
        return value
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind and kind is not object:
        raise TypeError(f"{value!r:.80} is no {kind}")
    return value
