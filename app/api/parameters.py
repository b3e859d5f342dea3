"""Types of path, query and header parameters. Each has a text of the expected value, and FastAPI documents it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Header, Path, Query
from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from app.model.ids import InvalidId, normalize_id
from app.model.option_values import InvalidValue, parse_duration_ms
from app.model.requirements import OnTimeout

MAX_REASON_LENGTH = 1000
MAX_IDEMPOTENCY_KEY_LENGTH = 255
MAX_NUMBER = 10**15
"""Of what is counted without a bound."""
PAGE = 50
MAX_PAGE = 1000

_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}\Z")
_IDEMPOTENCY_KEY = re.compile(rf"[\x21-\x7e]{{1,{MAX_IDEMPOTENCY_KEY_LENGTH}}}\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_DAY = re.compile(r"[0-9]{4}-")
_DEADLINE_FORMS = "a duration such as '120 s' or '5 min', or an instant such as 2026-11-26T03:00:00Z"
_HEX = WithJsonSchema({"type": "string", "pattern": "^[0-9a-fA-F]{32}$"})


def expected(what: str) -> PydanticCustomError:
    """A value is not ``what``, which goes on from *should be*."""
    return PydanticCustomError("expected", "{expected}", {"expected": what})


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """Decimal digits within bounds."""

    lowest: int
    highest: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        number = core_schema.int_schema(ge=self.lowest, le=self.highest)
        return core_schema.no_info_before_validator_function(self._read, number)

    def _read(self, value: str) -> int:
        if not _WHOLE_NUMBER.match(value) or not self.lowest <= int(value) <= self.highest:
            raise expected(f"a whole number between {self.lowest} and {self.highest}")
        return int(value)


@dataclass(frozen=True, slots=True)
class SomeOf:
    """Some of these names, with commas between."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        one = f"({'|'.join(self.names)})"
        text = core_schema.str_schema(pattern=f"^{one}(,{one})*$")
        return core_schema.no_info_before_validator_function(self._read, text)

    def _read(self, value: str) -> str:
        if not set(value.split(",")) <= set(self.names):
            raise expected(f"some of {', '.join(self.names)}, with commas between")
        return value


def _boolean(value: str) -> bool:
    if value not in ("true", "false"):
        raise expected("true or false")
    return value == "true"


def _id(value: str) -> str:
    try:
        return normalize_id(value)
    except InvalidId:
        raise expected("32 hexadecimal digits") from None


def header_text(raw: bytes) -> str:
    """The value of a header: UTF-8 if it is that, else Latin-1."""
    try:
        return raw.decode().strip()
    except UnicodeDecodeError:
        return raw.decode("latin-1").strip()


def _text(value: str) -> str:
    """What FastAPI has decoded as Latin-1."""
    return header_text(value.encode("latin-1"))


def _reason(value: str) -> str:
    text = _text(value)
    if len(text) > MAX_REASON_LENGTH or _CONTROL.search(text):
        raise expected(f"at most {MAX_REASON_LENGTH} characters without control characters")
    return text


def _idempotency_key(value: str) -> str:
    text = _text(value)
    if not _IDEMPOTENCY_KEY.match(text):
        raise expected(f"1 to {MAX_IDEMPOTENCY_KEY_LENGTH} visible ASCII characters")
    return text


def _deadline(value: str) -> tuple[int | None, int]:
    """(instant, wait) in milliseconds: an instant, or else how long."""
    text = _text(value)
    if _DAY.match(text):
        try:
            at = datetime.fromisoformat(text)
            # At the ends of the calendar there is no such instant in UTC.
            at_ms = None if at.tzinfo is None else int(at.astimezone(UTC).timestamp() * 1000)
        except (ValueError, OverflowError):
            at_ms = None
        if at_ms is None:
            raise expected(_DEADLINE_FORMS)
        return at_ms, 0
    try:
        wait_ms = parse_duration_ms(text)
    except InvalidValue:
        raise expected(_DEADLINE_FORMS) from None
    if wait_ms < 1:
        raise expected(_DEADLINE_FORMS)
    return None, wait_ms


def names(text: str) -> list[str] | None:
    """A comma-separated list; None when it is empty, which means everything."""
    return [part for part in text.split(",") if part] or None


Boolean = Annotated[bool, BeforeValidator(_boolean)]
DryRun = Annotated[Boolean, Query(alias="dryRun", description="Say what would happen; change nothing.")]
Limit = Annotated[
    int, WholeNumber(1, MAX_PAGE), Query(description=f"The most entries of the answer; default {PAGE}.")
]
After = Annotated[
    int | None, WholeNumber(0, MAX_NUMBER), Query(description="Only entries below this number.")
]
GivenId = Annotated[str, AfterValidator(_id), _HEX]
"""An id as clients write it, in either case."""
JobId = Annotated[GivenId, Path(description="The job's id.")]
VertexId = Annotated[GivenId, Path(description="The vertex's id.")]
RescaleUuid = Annotated[GivenId, Path(description="The id of a rescale record.")]
TriggerId = Annotated[GivenId, Path(description="The id of a stop, as POST to stop answered it.")]
TaskManagerId = Annotated[str, Path(min_length=1, description="The TaskManager's id.")]
IfMatch = Annotated[
    str | None,
    BeforeValidator(_text),
    WithJsonSchema({"type": "string", "pattern": r'^("[1-9][0-9]{0,14}"|\*)$'}),
    Header(
        alias="If-Match",
        description="Carry the request out only if this version (an ETag of GET) is in force.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    BeforeValidator(_idempotency_key),
    WithJsonSchema({"type": "string", "pattern": "^[!-~]{1,255}$"}),
    Header(
        alias="Idempotency-Key",
        description="A repeated request with an equal key and body gets the first answer and changes nothing.",
    ),
]
Reason = Annotated[
    str | None,
    BeforeValidator(_reason),
    WithJsonSchema({"type": "string", "pattern": "^[ -~]{0,1000}$"}),
    Header(alias="X-Slotwise-Reason", description="Why, in free text; kept with the change."),
]
Deadline = Annotated[
    Any,
    BeforeValidator(_deadline),
    WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]{0,3} (ms|s|min)$"}),
    Header(
        alias="X-Slotwise-Deadline",
        description="Until when new bounds may wait for their slots, while those before hold: a duration, or an "
        "instant (ISO 8601) with its offset from UTC. At most 30 days ahead.",
    ),
]
OnDeadline = Annotated[
    OnTimeout | SkipJsonSchema[None],
    Header(
        alias="X-Slotwise-On-Timeout",
        description="What happens at the deadline: COMMIT brings the bounds into force as far as the slots allow, "
        "ROLLBACK (if not given) drops them.",
    ),
]
