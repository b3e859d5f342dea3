"""The base of the models, which are the one description of answers and of the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AliasGenerator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Id = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="32 lower-case hexadecimal digits.")]
Millis = Annotated[int, Field(description="Epoch milliseconds.")]


@dataclass(frozen=True, slots=True)
class Expected:
    """Of a field of a body: what it should be, for the sentence that refuses another value."""

    what: str


def _camel(name: str) -> str:
    """Times are written as Flink writes them: `gap_ms` is `gapInMillis`."""
    return to_camel(f"{name.removesuffix('_ms')}_in_millis" if name.endswith("_ms") else name)


def _hyphenated(name: str) -> str:
    return name.replace("_", "-")


class Schema(BaseModel):
    """A closed object: a field that is not listed is never there. One with a default is there only if it is set."""

    model_config = ConfigDict(extra="forbid")


class Camel(Schema):
    """Fields are writtenLikeThis."""

    model_config = ConfigDict(alias_generator=AliasGenerator(serialization_alias=_camel))


class Hyphenated(Schema):
    """Fields are written-like-this."""

    model_config = ConfigDict(alias_generator=AliasGenerator(serialization_alias=_hyphenated))


S = TypeVar("S", bound=Schema)


def called(alias: str, description: str | None = None) -> Any:
    """A field that has in JSON another name than in what the model is made of (`made_of`)."""
    described = {} if description is None else {"description": description}
    return Field(serialization_alias=alias, **described)  # type: ignore[call-overload]


def made_of(model: type[S], value: object, **others: Any) -> S:
    """A ``model`` of ``others``, and for each field that is not among them of what ``value`` has under its name."""
    alike = {name: getattr(value, name) for name in model.model_fields if name not in others}
    return model(**alike, **others)


class Errors(Schema):
    """What every refusal answers: one sentence per error."""

    errors: list[str] = Field(min_length=1)


class Empty(Schema):
    """An empty object."""
