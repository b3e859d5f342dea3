"""Values of the model and the core as JSON texts, and back.

A stored state lacks the graph and the options, which are stored once, at the submission; of the graph only the max
parallelism of stateful vertices can change, and that is in the state. It lacks
`Timeline.closed` too, which only lives within a step. Everything else round-trips exactly.

The types below are made from the dataclasses themselves, so that a new field cannot be forgotten here. A field added
later needs a default, else states written by an older version cannot be loaded.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from app.model.jobgraph import JobGraph
from app.model.options import JobOptions
from app.model.requirements import Bounds
from app.model.rescale import SlotGroupRescale, StateSpan, VertexRescale
from app.model.scaling_policy import FloorCeiling
from app.model.state_partitions import Numbers, with_partitions
from app.scheduler.adaptive.state import JobState, Phase
from app.store.errors import StoreError

T = TypeVar("T")

STORED_ELSEWHERE = frozenset({"graph", "options", "spare"})


class CodecError(StoreError):
    """A stored text is not what this version can read."""


def _stored_state_type() -> Any:
    hints = get_type_hints(JobState)
    fields: list[Any] = []
    for item in dataclasses.fields(JobState):
        if item.name in STORED_ELSEWHERE:
            continue
        kind = Annotated[Phase, Field(discriminator="kind")] if item.name == "phase" else hints[item.name]
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
_state_left_out: Any = {**dict.fromkeys(STORED_ELSEWHERE, True), "timeline": {"closed"}}


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
    """How values of a type are stored; ``what`` names one of them."""

    def __init__(self, kind: type[T], what: str) -> None:
        self._adapter = TypeAdapter(kind)
        self._what = what

    def dump(self, value: T) -> str:
        return _dump(self._adapter, value)

    def load(self, text: str) -> T:
        return _load(self._adapter, text, self._what)


VERTICES = Json(tuple[VertexRescale, ...], "list of rescaled vertices")
GROUPS = Json(tuple[SlotGroupRescale, ...], "list of rescaled slot sharing groups")
SPANS = Json(tuple[StateSpan, ...], "list of scheduler states")
BOUNDS = Json(tuple[tuple[str, Bounds], ...], "set of bounds")
PARALLELISM = Json(tuple[tuple[str, int], ...], "set of parallelisms")
NUMBERS = Json(Numbers, "set of state partitions")
OPTIONS = Json(JobOptions, "set of job options")
LIMITS = Json(FloorCeiling, "floor and ceiling")
LIMITS_OF_VERTICES = Json(tuple[tuple[str, FloorCeiling], ...], "set of floors and ceilings")


def dump_state(state: JobState) -> str:
    """``state`` without its graph, its options and the records that its last step closed."""
    return _dump(_state_writer, state, _state_left_out)


def load_state(text: str, graph: JobGraph, options: JobOptions) -> JobState:
    """The state that `dump_state` wrote, completed by what is stored once.

    Raises:
        CodecError: ``text`` is not a state that this version can read.
    """
    stored = _load(_state_reader, text, "job state")
    fields = {name: getattr(stored, name) for name in _STATE_FIELDS}
    if stored.max_parallelism:
        graph = with_partitions(graph, stored.max_parallelism)
    return JobState(graph=graph, options=options, **fields)


def plain_text(text: str | None) -> str | None:
    """``text`` as every database can hold it: PostgreSQL has no NUL in a text, and UTF-8 no lone surrogates."""
    if text is None or (text.isascii() and "\x00" not in text):
        return text
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
