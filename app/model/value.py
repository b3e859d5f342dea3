"""`value`: a dataclass that nobody changes, as the scheduler makes them by the dozen in each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(kind: type[T]) -> type[T]:
    """As ``dataclass(frozen=True, slots=True)``, but that the type checker alone sees to it that nobody sets a field.

    A class that is frozen at run time too calls ``object.__setattr__`` for each field of a new value. That takes six
    times as long as an assignment, and was a twentieth of a PUT of requirements (ADR 40).
    """
    return dataclass(slots=True, unsafe_hash=True)(kind)
