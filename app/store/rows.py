"""Conversion between values of the model and rows of tables. Both directions go by the names of the columns: a
new fact needs only a field and a column of this name, and a converter if the database cannot hold the value
directly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Row, Table

from app.model.plan import Rung
from app.model.requirements import Requirements
from app.model.rescale import RescaleRecord, TerminalState, TerminatedReason, TriggerCause
from app.model.scaling_policy import ScalingPolicy
from app.store import codec, statements, tables
from app.store.writes import Attempt

T = TypeVar("T")
Converter = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""To what the database holds, and back; None stays None."""


def _named(kind: type[StrEnum]) -> Converter:
    return str, kind


_PROSE: Final[Converter] = (codec.plain_text, str)


class Rows(Generic[T]):
    """A dataclass whose fields are columns of ``table``, between `job_id`, the first, and those ``beside``, the last.
    Other columns between these are properties of it, which are written for queries and not read back."""

    def __init__(
        self, table: Table, kind: type[T], converters: Mapping[str, Converter], beside: tuple[str, ...] = ()
    ) -> None:
        fields = tuple(one.name for one in dataclasses.fields(kind))  # type: ignore[arg-type]
        names = table.columns.keys()
        columns = names[1 : len(names) - len(beside)]
        if names != ["job_id", *columns, *beside]:
            raise TypeError(
                f"{table.name} should have job_id first, and last {', '.join(beside) or 'a field'}"
            )
        if missing := {*fields, *converters}.difference(columns):
            raise TypeError(f"{table.name} has no columns {', '.join(sorted(missing))}")
        self._kind = kind
        self._columns_of = attrgetter(*columns)
        self._fields, self._fields_of = fields, attrgetter(*fields)
        self._write = [(1 + columns.index(name), write) for name, (write, _) in converters.items()]
        self._read = [(name, read) for name, (_, read) in converters.items() if name in fields]

    def row(self, job_id: str, value: T, *beside: Any) -> statements.Row:
        """The values in the order of the columns."""
        row = [job_id, *self._columns_of(value), *beside]
        _convert(row, self._write)
        return tuple(row)

    def value(self, row: Row[Any]) -> T:
        """A field whose column is NULL has its default.

        Raises:
            CodecError: another version wrote what this one cannot read.
        """
        fields = dict(zip(self._fields, self._fields_of(row), strict=True))
        _convert(fields, self._read)
        return self._kind(**{name: value for name, value in fields.items() if value is not None})


def _convert(values: Any, converters: Iterable[tuple[Any, Callable[[Any], Any]]]) -> None:
    """``values``: a list, or a mapping, of whose places ``converters`` tell."""
    for place, convert in converters:
        if (value := values[place]) is not None:
            values[place] = convert(value)


RESCALES: Final = Rows(
    tables.rescales,
    RescaleRecord,
    {
        "cause": _named(TriggerCause),
        "reason": _named(TerminatedReason),
        "terminal_state": _named(TerminalState),
        "rung": _named(Rung),
        "message": _PROSE,
        "requested_by": _PROSE,
        "request_reason": _PROSE,
        "vertices": (codec.VERTICES.dump, codec.VERTICES.load),
        "groups": (codec.GROUPS.dump, codec.GROUPS.load),
        "spans": (codec.SPANS.dump, codec.SPANS.load),
    },
)
REQUIREMENTS: Final = Rows(
    tables.requirements,
    Requirements,
    {
        "bounds": (codec.BOUNDS.dump, codec.BOUNDS.load),
        "state_partitions": (
            lambda numbers: codec.NUMBERS.dump(numbers) if numbers else None,
            codec.NUMBERS.load,
        ),
        "requested_by": _PROSE,
        "reason": _PROSE,
    },
    beside=("created_ms",),
)
SCALING_POLICIES: Final = Rows(
    tables.scaling_policies,
    ScalingPolicy,
    {
        "all_vertices": (codec.LIMITS.dump, codec.LIMITS.load),
        "vertices": (codec.LIMITS_OF_VERTICES.dump, codec.LIMITS_OF_VERTICES.load),
        "requested_by": _PROSE,
        "reason": _PROSE,
    },
)
ATTEMPTS: Final = Rows(
    tables.attempts,
    Attempt,
    {
        "state": _named(tables.AttemptState),
        "parallelism": (codec.PARALLELISM.dump, codec.PARALLELISM.load),
        "host": _PROSE,
        "spark_version": _PROSE,
        "ui_url": _PROSE,
        "ending": _named(tables.AttemptEnding),
        "ended_why": _PROSE,
    },
)
