"""The OpenAPI document, made of the table of operations once, at start."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api.documentation import TAGS, Doc
from app.api.examples.common import COUNTS, JOB, RESCALE, TRIGGER
from app.api.routing import Access, Operation, OperationTable
from app.api.schema.base import Errors

_REF = "#/components/schemas/{model}"
_HEX = {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"}
_PATH_PARAMETERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "jobid": ("The job's id.", _HEX, JOB),
    "vertexid": ("The vertex's id.", _HEX, COUNTS),
    "rescaleuuid": ("The id of a rescale record.", _HEX, RESCALE),
    "triggerid": ("The id of a stop, as POST to stop answered it.", _HEX, TRIGGER),
    "taskmanagerid": ("The TaskManager's id.", {"type": "string", "minLength": 1}, "host"),
}
_NOT_FOUND = {
    "jobid": f"Job {JOB} was not found.",
    "taskmanagerid": "No TaskManager has the id 'tm-9'.",
}
_DESCRIPTION = """\
The control plane of elastic PySpark jobs. A client declares how parallel each vertex of a job may be; Slotwise
decides from the slots that there are, and changes the parallelism of the running job.

The paths of Flink's REST API answer in the form of Flink 2.3, each with and without the prefix `/v1`. Errors
are `{"errors": [...]}`, one sentence each. Ids are 32 hexadecimal digits. Unknown query parameters are refused.
"""


def build_openapi(table: OperationTable, version: str, *, with_tokens: bool) -> dict[str, Any]:
    """The document. ``with_tokens``: the server asks for bearer tokens."""
    documented = [(operation, operation.doc) for operation in table.operations if operation.doc is not None]
    models = _models([doc for _, doc in documented])
    _, definitions = models_json_schema(
        [(model, "serialization") for model in models], by_alias=True, ref_template=_REF
    )
    paths: dict[str, dict[str, Any]] = {}
    for operation, doc in documented:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, doc)
    components: dict[str, Any] = {"schemas": dict(sorted(definitions["$defs"].items()))}
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Slotwise", "version": version, "description": _DESCRIPTION},
        "servers": [{"url": "/"}, {"url": "/v1"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        **({"security": [{"token": []}]} if with_tokens else {}),
        "paths": paths,
        "components": components,
    }


def _models(docs: list[Doc]) -> list[type[BaseModel]]:
    found: dict[type[BaseModel], None] = {Errors: None}
    for doc in docs:
        if isinstance(doc.answer, type):
            found[doc.answer] = None
        if doc.also is not None:
            found[doc.also[0]] = None
    return list(found)


def schema_of(answer: type[BaseModel] | Any, *, is_list: bool) -> dict[str, Any]:
    schema: dict[str, Any] = (
        {"$ref": _REF.format(model=answer.__name__)} if isinstance(answer, type) else dict(answer)
    )
    return {"type": "array", "items": schema} if is_list else schema


def _operation(operation: Operation, doc: Doc) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", operation.path)
    parameters = [_path_parameter(name) for name in names]
    parameters += [
        {
            "name": parameter.name,
            "in": parameter.place,
            "required": parameter.required,
            "description": parameter.description,
            "schema": dict(parameter.schema),
            "example": parameter.example,
        }
        for parameter in doc.parameters
    ]
    result: dict[str, Any] = {
        "operationId": doc.id,
        "tags": [doc.tag],
        "summary": doc.summary,
        "description": doc.description,
        "parameters": parameters,
        "responses": {str(doc.status): _answer(doc), **_otherwise(doc), **_errors(operation, doc, names)},
    }
    if operation.access is Access.PUBLIC:
        result["security"] = []
    if doc.body is not None:
        result["requestBody"] = {
            "description": doc.body.description,
            "required": doc.body.required,
            "content": {
                media: {"schema": dict(schema), "example": example}
                for media, (schema, example) in doc.body.content.items()
            },
        }
    return {name: value for name, value in result.items() if value != ""}


def _path_parameter(name: str) -> dict[str, Any]:
    description, schema, example = _PATH_PARAMETERS[name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
        "example": example,
    }


def _answer(doc: Doc) -> dict[str, Any]:
    schema = schema_of(doc.answer, is_list=doc.is_list)
    content: dict[str, Any] = {"schema": schema, "example": doc.example}
    if doc.also is not None:
        model, example = doc.also
        content = {
            "schema": {"anyOf": [schema, schema_of(model, is_list=False)]},
            "examples": {"usual": {"value": doc.example}, model.__name__: {"value": example}},
        }
    answer: dict[str, Any] = {
        "description": HTTPStatus(doc.status).phrase,
        "content": {"application/json": content},
    }
    if doc.headers:
        answer["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in doc.headers.items()
        }
    return answer


def _otherwise(doc: Doc) -> dict[str, Any]:
    if doc.otherwise is None:
        return {}
    status, schema, example = doc.otherwise
    content = {"application/json": {"schema": dict(schema), "example": example}}
    return {str(status): {"description": HTTPStatus(status).phrase, "content": content}}


def _errors(operation: Operation, doc: Doc, names: list[str]) -> dict[str, Any]:
    sentences = {400: "The query parameter 'foo' is not known here; allowed: none."}
    if "jobid" in names:
        sentences[400] = "The path parameter jobid should be 32 hexadecimal digits, found 'abc'."
        sentences[409] = (
            "Job 0123456789abcdef0123456789abcdef cannot be read by this server: its job graph is not valid by the "
            "rules of this version (type: should be one of STREAMING, BATCH)."
        )
    if operation.access is Access.USER:
        sentences[401] = (
            "A bearer token is required: send the header 'Authorization: Bearer <token>' with a known token."
        )
    for name, sentence in _NOT_FOUND.items():
        if name in names:
            sentences[404] = sentence
    if doc.body is not None:
        sentences[413] = "The body is too large: at most 1048576 bytes are allowed."
    sentences[500] = (
        "An internal error occurred; the server's log has it under the error id 0123456789abcdef."
    )
    if operation.method != "GET":
        sentences[503] = "The database cannot be written now. Nothing was changed; try again."
    sentences.update(doc.errors)
    return {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": {
                "application/json": {
                    "schema": {"$ref": _REF.format(model="Errors")},
                    "example": {"errors": [sentence]},
                }
            },
        }
        for status, sentence in sorted(sentences.items())
    }
