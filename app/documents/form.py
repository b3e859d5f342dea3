"""The base of all forms of documents, and the sentences on what does not fit a form.

pydantic finds what is wrong, and where; the words are ours. A form says what it `Expected` of each field.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from annotated_types import GroupedMetadata, Len
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError

from app.model.grapherrors import MAX_NAME_LENGTH, Errors, GraphErrors, below, name_fault, text_fault
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, MAX_SETTING_CHARS
from app.model.sentences import hint, kind_of, shown

MAX_TEXT_LENGTH: Final = 100_000
NO_BLANKS: Final = "should have a name that is a text without blanks around it."
"""Of a name in a mapping."""

T = TypeVar("T")


class Expected(GroupedMetadata):
    """What a value should be, for the sentence that refuses another one. ``most``: how long it may be. ``empty``: it
    must not be, and what to do instead."""

    def __init__(self, what: str, most: int | None = None, empty: str = "") -> None:
        self.what, self.most, self.empty = what, most, empty

    def __iter__(self) -> Iterator[Len]:
        if self.most or self.empty:
            yield Len(1 if self.empty else 0, self.most)


class _NeverNull:
    """Of a field that may be left out: null is no way to do so."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(get_args(source)[0])


Given = Annotated[T | None, _NeverNull()]
"""A field that may be left out, and then is None."""


def _describe(schema: dict[str, Any], form: type[Form]) -> None:
    for each in schema["properties"].values():
        if each.get("default", "") is None:
            # It is what a field is that was left out, and nothing that a document can have.
            del each["default"]
    if form.example is not None:
        schema["examples"] = [form.example]


class Form(BaseModel):
    """A mapping whose fields are listed. ``what`` names it in sentences. ``refused``: fields that it has not although
    they could be expected, and a sentence about each. ``one_of``: exactly one of them is given. ``example``: one in
    full."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, json_schema_extra=_describe
    )
    what: ClassVar[str]
    refused: ClassVar[Mapping[str, str]] = {}
    one_of: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[Mapping[str, Any] | None] = None

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        given = [name for name in self.one_of if name in self.model_fields_set]
        if self.one_of and len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"should have exactly one of {', '.join(self.one_of)}, found {found}.")
        return self

    @classmethod
    @functools.cache
    def hints(cls) -> dict[str, Any]:
        """The fields by the names that they have in documents, each with all that its annotation says."""
        hints = get_type_hints(cls, include_extras=True)
        return {field.alias or name: hints[name] for name, field in cls.model_fields.items()}


F = TypeVar("F", bound=Form)


def read_form(form: type[F], document: object) -> F:
    """
    Raises:
        GraphErrors: with all that does not fit the form, each with its place and a sentence.
    """
    if not isinstance(document, Mapping):
        found = f"should be a mapping with {', '.join(form.hints())}, found {kind_of(document)}."
        raise GraphErrors([f"The {form.what.partition(' ')[2]} {found}"])
    try:
        return form.model_validate(document)
    except ValidationError as error:
        errors = Errors()
        for each in error.errors(include_url=False):
            # pydantic counts the elements of a tuple that are right. A hostile document may have any number of errors,
            # and guesses take time.
            if each["type"] != "too_short" or not each["input"]:
                errors.add(_place(each["loc"]), "" if errors.full else _sentence(form, each))
        raise GraphErrors(errors.texts()) from None


def fault_at(place: str | int, sentence: str) -> ValidationError:
    """To be raised by a validator: what is wrong is at ``place`` within the value."""
    fault = PydanticCustomError("value_error", "{error}", {"error": sentence})
    return ValidationError.from_exception_data("", [InitErrorDetails(type=fault, loc=(place,), input=None)])


def _place(loc: Sequence[str | int]) -> str:
    place = ""
    for step in loc if loc[-1:] != ("[key]",) else loc[:-1]:
        place = f"{place}[{step}]" if isinstance(step, int) else below(place, step)
    return place


def _sentence(form: type[Form], error: ErrorDetails) -> str:
    kind, value, limits = error["type"], error["input"], error.get("ctx", {})
    if kind == "value_error":
        return str(limits["error"])
    if kind == "string_unicode":
        return "must not contain half a surrogate pair: it is not valid Unicode."
    if error["loc"][-1] == "[key]":
        return NO_BLANKS
    owner, wanted, expected = _expected(form, error["loc"])
    if kind in ("extra_forbidden", "invalid_key"):
        name, allowed = str(error["loc"][-1]), owner.hints()
        near = f"{hint(name, allowed)} Allowed are {', '.join(allowed)}."
        return owner.refused.get(name, f"is not a field of {owner.what}.{near}")
    if kind == "missing":
        return f"is missing: {expected.what} is expected."
    if kind in ("too_short", "string_too_short", "string_pattern_mismatch"):
        return f"must not be empty: {expected.empty or f'{expected.what} is expected'}."
    if kind in ("too_long", "string_too_long"):
        most, parts = limits["max_length"], "entries" if isinstance(value, Mapping) else "elements"
        if isinstance(value, str):
            return f"is too long: at most {most} characters are allowed, found {len(value)}."
        return f"has {len(value)} {parts}: at most {most} are allowed."
    is_unquoted = kind == "string_type" and isinstance(value, bool | int | float)
    quotes = " (put it in quotes if it is meant as text)" if is_unquoted else ""
    near = hint(value, [each.value for each in wanted]) if kind == "enum" and isinstance(value, str) else ""
    return f"should be {expected.what}, found {kind_of(value)}{quotes}.{near}"


def _expected(form: type[Form], loc: Sequence[str | int]) -> tuple[type[Form], Any, Expected]:
    """The innermost form on the way to a place, and the type and what is expected of a value there."""
    owner: type[Form] = form
    kind: Any = form
    expected = Expected("")
    for step in loc:
        if isinstance(kind, type) and issubclass(kind, Form):
            owner, kind = kind, kind.hints().get(str(step))
        else:
            kind = [each for each in get_args(kind) if each is not ...][-1]
        kind, expected = _unwrapped(kind)
    return owner, kind, expected


def _unwrapped(kind: Any) -> tuple[Any, Expected]:
    """A type without what is said of it, and what is expected of its values."""
    expected = None
    while get_origin(kind) in (Annotated, Union) or isinstance(kind, type(int | None)):
        inner, *said = get_args(kind)
        expected = next((each for each in reversed(said) if isinstance(each, Expected)), expected)
        kind = inner
    if expected is None and isinstance(kind, type):
        if issubclass(kind, Form):
            expected = Expected(f"a mapping with {', '.join(kind.hints())}")
        elif issubclass(kind, StrEnum):
            expected = Expected(f"one of {', '.join(kind)}")
    return kind, expected or Expected("true or false")


def checked_by(fault_of: Callable[[str], str | None]) -> AfterValidator:
    """Of a text: ``fault_of`` it is a sentence without its beginning, or None."""

    def check(value: str) -> str:
        if (fault := fault_of(value)) is not None:
            raise ValueError(fault if fault.endswith((".", "?", ")")) else f"{fault}.")
        return value

    return AfterValidator(check)


def written_as(match: Callable[[str], object], what: str) -> AfterValidator:
    """Of a text that ``match``, that of a pattern, finds; ``what`` it should be else."""
    return checked_by(lambda text: None if match(text) else f"should be {what}, found {shown(text)}.")


def _listed_once(values: tuple[str, ...]) -> tuple[str, ...]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise fault_at(index, f"{shown(value)} is listed twice.")
    return values


def _as_text(value: object) -> object:
    """Numbers and booleans are written as text: 5 as 5, true as true."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) and abs(value) < 1e30 else value


LISTED_ONCE: Final = AfterValidator(_listed_once)
_TEXT: Final = StringConstraints(pattern=r"\S")
Text = Annotated[str, _TEXT, checked_by(text_fault), Expected("a text", MAX_TEXT_LENGTH)]
Name = Annotated[Text, checked_by(name_fault), Expected("a text", MAX_NAME_LENGTH)]
Key = Annotated[str, checked_by(lambda key: NO_BLANKS if name_fault(key) else None)]
Setting = Annotated[
    str,
    checked_by(text_fault),
    BeforeValidator(_as_text, json_schema_input_type=str | int | float | bool),
    Expected("a text, a number or a boolean", MAX_SETTING_CHARS),
]
Tasks = Annotated[
    int,
    Field(strict=True, ge=1, le=MAX_PARALLELISM_LIMIT),
    Expected(f"a whole number between 1 and {MAX_PARALLELISM_LIMIT}"),
]
Flag = Annotated[bool, Field(strict=True)]
