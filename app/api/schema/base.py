"""What the models share. They are the one description of an answer: it and the OpenAPI document are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AliasGenerator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Id = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="32 lower-case hexadecimal digits.")]
Millis = Annotated[int, Field(description="Epoch milliseconds.")]


@dataclass(frozen=True, slots=True)
class Expected:
    """Of a field of a body: what it should be, for the sentence that refuses another value."""

    what: str


def _hyphenated(name: str) -> str:
    return name.replace("_", "-")


class Schema(BaseModel):
    """A closed object: a field that is not listed is never there. One with a default is there only if it is set."""

    model_config = ConfigDict(extra="forbid")


class Camel(Schema):
    """Fields are writtenLikeThis."""

    model_config = ConfigDict(alias_generator=AliasGenerator(serialization_alias=to_camel))


class Hyphenated(Schema):
    """Fields are written-like-this."""

    model_config = ConfigDict(alias_generator=AliasGenerator(serialization_alias=_hyphenated))


class Errors(Schema):
    """What every refusal answers: one sentence per error."""

    errors: list[str] = Field(min_length=1)


class Empty(Schema):
    """An empty object."""
