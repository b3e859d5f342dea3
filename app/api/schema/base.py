"""What the models share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Id = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="32 lower-case hexadecimal digits.")]
Millis = Annotated[int, Field(description="Epoch milliseconds.")]


class Schema(BaseModel):
    """A closed object: a field that is not listed is never there."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Errors(Schema):
    """What every refusal answers: one sentence per error."""

    errors: list[str] = Field(min_length=1)


class Empty(Schema):
    """An empty object."""
