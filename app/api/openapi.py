"""The OpenAPI document: its additions to FastAPI's document, and the refusals that many operations share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Any, Literal

from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute

from app.api.errors import UNAUTHORIZED
from app.api.plugin import Plugin
from app.api.schema.base import Errors
from app.documents.form import Form
from app.documents.graph import GraphForm
from app.documents.program import ProgramForm

_REFERENCE = "#/components/schemas/{model}"
_DOCUMENTS = (GraphForm, ProgramForm)
"""What clients submit; their dependencies read them, and not the framework."""

_TAGS = {
    "requirements": "The bounds of parallelism of a job's vertices, and what follows from them.",
    "rescales": "The durable history of every rescale of a job.",
    "jobs": "Submitting, reading and ending jobs.",
    "metrics": "Numbers of jobs and vertices.",
    "events": "What happens to jobs and servers, as it happens.",
    "cluster": "The server and the TaskManagers that offer slots.",
    "flink": "Paths for the web page of Flink. Many answers are empty.",
    "health": "For load balancers and supervisors. Needs no token.",
}
_DESCRIPTION = """\
The control plane of elastic PySpark jobs. A client declares how parallel each vertex of a job may be; Slotwise
decides from the slots that there are, and changes the parallelism of the running job.

The paths of Flink's REST API answer in the form of Flink 2.3, each with and without the prefix `/v1`. Errors
are `{"errors": [...]}`, one sentence each. Ids are 32 hexadecimal digits. Unknown query parameters are refused.
"""


def openapi_document(
    routes: Sequence[BaseRoute], version: str, plugins: Sequence[type[Plugin]] = (), *, with_tokens: bool
) -> dict[str, Any]:
    """The document. ``routes`` has those of ``plugins`` too; ``with_tokens``: the server asks for bearer tokens."""
    tags = [*_TAGS.items(), *(tag for each in plugins for tag in each.tags.items())]
    documents: list[type[Form]] = [*_DOCUMENTS, *(form for each in plugins for form in each.forms)]
    document = get_openapi(
        title="Slotwise",
        version=version,
        description=_DESCRIPTION,
        routes=routes,
        servers=[{"url": "/"}, {"url": "/v1"}],
        tags=[{"name": name, "description": text} for name, text in tags],
    )
    for operation in (each for methods in document["paths"].values() for each in methods.values()):
        # The framework's refusal of parameters, which here is 400.
        operation["responses"].pop("422", None)
    components = document["components"]
    forms: list[tuple[type[BaseModel], Literal["validation"]]] = [(form, "validation") for form in documents]
    _, described = models_json_schema(forms, ref_template=_REFERENCE)
    components["schemas"] |= described["$defs"]
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    components["schemas"]["Errors"] = Errors.model_json_schema()
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    if with_tokens:
        document["security"] = [{"token": []}]
    return document


def refusals(sentences: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """Status to an example of a refusal, for ``responses=`` of a route."""
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/Errors"},
                    "example": {"errors": [sentence]},
                }
            },
        }
        for status, sentence in sorted(sentences.items())
    }


def usual_refusals(
    path: str, methods: Collection[str], *, has_body: bool, needs_token: bool
) -> dict[int | str, dict[str, Any]]:
    """The refusals that an operation has by its path, its method, its body and who may call it."""
    sentences = {
        400: "The query parameter 'foo' is not known here; allowed: none.",
        500: "An internal error occurred; the server's log has it under the error id 0123456789abcdef.",
    }
    if needs_token:
        sentences[401] = UNAUTHORIZED
    if "{jobid}" in path:
        sentences[400] = "The path parameter jobid should be 32 hexadecimal digits, found 'abc'."
        sentences[404] = "Job 0123456789abcdef0123456789abcdef was not found."
        sentences[409] = (
            "Job 0123456789abcdef0123456789abcdef cannot be read by this server: its job graph is not valid by the "
            "rules of this version ('OTHER' is not a valid JobType)."
        )
    elif "{" in path:
        sentences[404] = "No TaskManager has the id 'tm-9'."
    if has_body:
        sentences[413] = "The body is too large: at most 1048576 bytes are allowed."
    if "GET" not in methods:
        sentences[503] = "The database cannot be written now. Nothing was changed; try again."
    return refusals(sentences)


def answered(
    status: int = 200,
    *,
    headers: dict[str, str] | None = None,
    schema: dict[str, Any] | None = None,
    refused: dict[int, str] | None = None,
) -> dict[int | str, dict[str, Any]]:
    """An answer for ``responses=`` of a route: its headers with what they mean, or its schema if it has no model; and
    refusals as `refusals` has them."""
    answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if headers:
        answer["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in headers.items()
        }
    if schema:
        answer["content"] = {"application/json": {"schema": schema}}
    return {status: answer, **refusals(refused or {})}


def form_schema(*forms: type[Form]) -> dict[str, Any]:
    """The schema of a body that is one of ``forms``."""
    one_of = [{"$ref": _REFERENCE.format(model=form.__name__)} for form in forms]
    return {"anyOf": one_of, "examples": [form.example for form in forms]}


def request_body(
    description: str, content: dict[str, dict[str, Any]], *, required: bool = True
) -> dict[str, Any]:
    """``openapi_extra=`` of a route whose body is read by a dependency. ``content``: media type to schema."""
    media = {name: {"schema": schema} for name, schema in content.items()}
    return {"requestBody": {"description": description, "required": required, "content": media}}
