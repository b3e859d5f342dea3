"""`value`: a dataclass that nobody changes; `evolve`: a changed copy of one. The scheduler makes dozens of them in a
step. `dataclasses.replace` looks at every field by its name; one `attrgetter` reads all of them several times faster.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[T]) -> type[T]:
    """As ``dataclass(frozen=True, slots=True)``, but that the type checker alone sees to it that nobody sets a field.

    A class that is frozen at run time too calls ``object.__setattr__`` for each field of a new value. That takes six
    times as long as an assignment, and was a twentieth of a PUT of requirements (ADR 40).
    """
    return dataclass(slots=True, unsafe_hash=True)(kind)


@functools.cache
def _shape(kind: type) -> tuple[Callable[[Any], tuple[Any, ...]], dict[str, int]]:
    """How to read all fields of ``kind`` at once, and the place of each."""
    names = [one.name for one in fields(kind) if one.init and not one.kw_only]
    if len(names) < max(2, len(fields(kind))):
        raise TypeError(
            f"{kind.__name__} has too few fields to evolve, or some that are not given by position"
        )
    return attrgetter(*names), {name: index for index, name in enumerate(names)}


def evolve(value: T, **changes: Any) -> T:
    """A copy of ``value``, an instance of a dataclass, with ``changes`` made.

    Raises:
        KeyError: there is no field of such a name.
    """
    kind = type(value)
    read, place = _shape(kind)  # type: ignore[arg-type]
    values = list(read(value))
    for name, changed in changes.items():
        values[place[name]] = changed
    return kind(*values)
