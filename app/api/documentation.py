"""How an operation is described; `app.api.openapi` makes the OpenAPI document of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or header. Path parameters are known by their names (`PATH_PARAMETERS`)."""

    name: str
    place: str
    description: str
    schema: Mapping[str, Any]
    example: Any
    required: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """``content``: media type to (schema, example)."""

    description: str
    content: Mapping[str, tuple[Mapping[str, Any], Any]]
    required: bool = True


@dataclass(frozen=True, slots=True)
class Doc:
    """``answer`` is a model, or a list of one. ``errors``: status to an example sentence, besides the usual
    ones.

    ``also``: a second form of the answer (model, example) under the same status. ``otherwise``: another status of
    success, its schema and an example.
    """

    id: str
    tag: str
    summary: str
    answer: type[BaseModel] | Mapping[str, Any]
    example: Any
    description: str = ""
    status: int = 200
    is_list: bool = False
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    errors: Mapping[int, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    also: tuple[type[BaseModel], Any] | None = None
    otherwise: tuple[int, Mapping[str, Any], Any] | None = None


TAGS = {
    "requirements": "The bounds of parallelism of a job's vertices, and what follows from them.",
    "rescales": "The durable history of every rescale of a job.",
    "jobs": "Submitting, reading and ending jobs.",
    "metrics": "Numbers of jobs and vertices.",
    "cluster": "The server and the TaskManagers that offer slots.",
    "health": "For load balancers and supervisors. Needs no token.",
}
