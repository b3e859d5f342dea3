"""Values of the model and the core as JSON texts and as rows of tables, and back.

A stored state lacks the graph and the options, which are stored once, at the submission; of the graph only the max
parallelism of stateful vertices can change, and that is in the state. Everything else round-trips exactly.

The type of stored states is made from the dataclass itself, so that a new field cannot be forgotten here. A field added
later needs a default, else states written by an older version cannot be loaded. Rows go by the names of the columns: a
new fact needs only a field and a column of this name, and a converter if the database cannot hold the value directly.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Annotated, Any, Final, Generic, TypeVar, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from sqlalchemy import Row, Table

from app.model.jobgraph import JobGraph
from app.model.options import JobOptions
from app.model.plan import Rung
from app.model.requirements import Bounds, Requirements
from app.model.rescale import (
    RescaleRecord,
    SlotGroupRescale,
    StateSpan,
    TerminalState,
    TerminatedReason,
    TriggerCause,
    VertexRescale,
)
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.model.state_partitions import Numbers, with_partitions
from app.model.status import AttemptEnding, AttemptState
from app.scheduler.adaptive.state import JobState, Phase
from app.store import statements, tables
from app.store.errors import StoreError
from app.store.former_states import in_form_of_now
from app.store.writes import Attempt

T = TypeVar("T")

STORED_ELSEWHERE = frozenset({"graph", "options", "spare"})

FORMAT: Final = 2
"""Stands at the beginning of each stored state, and counts for all documents of its job. A version that stores anything
of a job in a form that the version before it would not read, or would read wrongly, counts it up."""

_HEAD: Final = f'{{"format":{FORMAT},'
_FORMAT: Final = re.compile(r'\{"format":([0-9]{1,9}),')


class CodecError(StoreError):
    """A stored text is not what this version can read."""


def is_newer(state_text: str) -> bool:
    """Whether a newer version of Slotwise has written the job of this state in a form of its own."""
    found = _FORMAT.match(state_text)
    return found is not None and int(found[1]) > FORMAT


def _of_now(text: str) -> str:
    """A state of an earlier version as this one stores it. Somebody may have mended it, with other spaces."""
    if text.startswith(_HEAD):
        return text
    try:
        state = json.loads(text)
        number = state.get("format", 1)
        if number > FORMAT:
            raise ValueError(f"format {number} is that of a later version")
        return text if number == FORMAT else json.dumps(in_form_of_now(state))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CodecError(f"A stored job state cannot be read at its top: {error!r}.") from error


def _stored_state_type() -> Any:
    hints = get_type_hints(JobState)
    fields: list[Any] = []
    for item in dataclasses.fields(JobState):
        if item.name in STORED_ELSEWHERE:
            continue
        kind = hints[item.name]
        if item.name == "phase":
            kind = Annotated[Phase, Field(discriminator="kind")]
        if item.default_factory is not dataclasses.MISSING:
            fields.append((item.name, kind, dataclasses.field(default_factory=item.default_factory)))
        elif item.default is not dataclasses.MISSING:
            fields.append((item.name, kind, dataclasses.field(default=item.default)))
        else:
            fields.append((item.name, kind))
    return dataclasses.make_dataclass("StoredJobState", fields, frozen=True, slots=True)


_StoredJobState = _stored_state_type()
_STATE_FIELDS = tuple(item.name for item in dataclasses.fields(_StoredJobState))

# JobState serialises straight from the value that the core made; only loading needs the reduced type.
_state_writer: TypeAdapter[JobState] = TypeAdapter(JobState)
_state_reader: TypeAdapter[Any] = TypeAdapter(_StoredJobState)
_state_left_out: Any = dict.fromkeys(STORED_ELSEWHERE, True)


def _dump(adapter: TypeAdapter[T], value: T, exclude: Any = None) -> str:
    try:
        # What `dump_json` of the adapter calls, which looks at all of its own options first.
        return adapter.serializer.to_json(value, exclude=exclude).decode()
    except (PydanticSerializationError, UnicodeError):
        # A text with a lone surrogate (a file name that is not UTF-8, in an error message) has no JSON form. The
        # state must be writable whatever a user's exception says, so such characters are replaced.
        return json.dumps(_printable(adapter.dump_python(value, exclude=exclude)), separators=(",", ":"))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value


def _load(adapter: TypeAdapter[T], text: str, what: str) -> T:
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CodecError(
            f"A stored {what} cannot be read at {place or 'its top'}: {first['msg']}."
        ) from error


class Json(Generic[T]):
    """How values of a type are stored: to a text, and back. ``what`` names one of them."""

    def __init__(self, kind: type[T], what: str) -> None:
        self._adapter, self._what = TypeAdapter(kind), what

    def dump(self, value: T) -> str:
        return _dump(self._adapter, value)

    def load(self, text: str) -> T:
        return _load(self._adapter, text, self._what)


SPANS = Json(tuple[StateSpan, ...], "list of scheduler states")
BOUNDS = Json(tuple[tuple[str, Bounds], ...], "set of bounds")
NUMBERS = Json(Numbers, "set of state partitions")
OPTIONS = Json(JobOptions, "set of job options")


def dump_state(state: JobState) -> str:
    """``state`` without its graph and its options; with its format."""
    return _HEAD + _dump(_state_writer, state, _state_left_out)[1:]


def load_state(text: str, graph: JobGraph, options: JobOptions) -> JobState:
    """The state that `dump_state` wrote, completed by what is stored once.

    Raises:
        CodecError: ``text`` is not a state that this version can read.
    """
    stored = _load(_state_reader, _of_now(text), "job state")
    fields = {name: getattr(stored, name) for name in _STATE_FIELDS}
    if stored.partitions.numbers:
        graph = with_partitions(graph, stored.partitions.numbers)
    return JobState(graph=graph, options=options, **fields)


def plain_text(text: str | None) -> str | None:
    """``text`` as every database can hold it: PostgreSQL has no NUL in a text, and UTF-8 no lone surrogates."""
    if text is None or (text.isascii() and "\x00" not in text):
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


Converter = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""To what the database holds, and back; None stays None."""


_PROSE: Final[Converter] = (plain_text, str)


def _text(of: Json[Any]) -> Converter:
    return of.dump, of.load


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
        "cause": (str, TriggerCause),
        "reason": (str, TerminatedReason),
        "terminal_state": (str, TerminalState),
        "rung": (str, Rung),
        "message": _PROSE,
        "requested_by": _PROSE,
        "request_reason": _PROSE,
        "vertices": _text(Json(tuple[VertexRescale, ...], "list of rescaled vertices")),
        "groups": _text(Json(tuple[SlotGroupRescale, ...], "list of rescaled slot sharing groups")),
        "spans": _text(SPANS),
    },
)
REQUIREMENTS: Final = Rows(
    tables.requirements,
    Requirements,
    {
        "bounds": _text(BOUNDS),
        "state_partitions": (lambda numbers: NUMBERS.dump(numbers) if numbers else None, NUMBERS.load),
        "requested_by": _PROSE,
        "reason": _PROSE,
    },
    beside=("created_ms",),
)
SCALING_POLICIES: Final = Rows(
    tables.scaling_policies,
    ScalingPolicy,
    {
        "all_vertices": _text(Json(FloorCeiling, "floor and ceiling")),
        "vertices": _text(Json(tuple[tuple[str, FloorCeiling], ...], "set of floors and ceilings")),
        "requested_by": _PROSE,
        "reason": _PROSE,
    },
)
ATTEMPTS: Final = Rows(
    tables.attempts,
    Attempt,
    {
        "state": (str, AttemptState),
        "parallelism": _text(Json(tuple[tuple[str, int], ...], "set of parallelisms")),
        "host": _PROSE,
        "spark_version": _PROSE,
        "ui_url": _PROSE,
        "ending": (str, AttemptEnding),
        "ended_why": _PROSE,
    },
)
