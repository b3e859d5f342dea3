"""A job graph or a program as JSON or YAML, alone or in a form with the files that it lists: POST /jobs, and PUT of a
job's graph, which makes a new version of the job, with the outcomes of its versions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from python_multipart.exceptions import MultipartParseError
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import json_response
from app.api.dependencies import Job, Plane, Principal
from app.api.errors import ApiError, bad_request
from app.api.limits import BODY_LIMIT_BYTES, FORM_LIMIT_BYTES
from app.api.openapi import answered, form_schema, request_body
from app.api.parameters import Boolean, IdempotencyKey, JobId
from app.api.requests import body_chunks, decoded, header, read_body, too_large, while_connected
from app.api.routes import Operation
from app.api.schema import runs as schema
from app.api.schema.base import made_of
from app.api.schema.jobs import Submitted
from app.api.yamltext import decode_yaml_strict
from app.documents.fields import FILE_NAME
from app.documents.graph import GraphForm
from app.documents.program import ProgramForm, parse_submitted
from app.model.graphdoc import to_document
from app.model.graphdoc_program import ProgramDocument
from app.model.grapherrors import GraphErrors
from app.model.job_state.versions import VersionNote
from app.model.jobgraph import JobGraph
from app.model.masking import masked_document
from app.model.sentences import shown
from app.model.strictjson import StrictTextError, decode_json_strict
from app.worker.requests.submission_keys import key_of, key_of_version

_MAX_FILES = 100
_JSON = frozenset({"application/json", "text/json"})
_YAML = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain"})
_FORM = "multipart/form-data"
_FORM_HINT = "a part `graph`, and a part `files` for each file that the graph lists under artifacts"
_NOT_SUPPORTED = (
    "The Content-Type 'text/html' is not supported: send application/json, application/yaml or "
    "multipart/form-data."
)
_FILE = {"type": "string", "format": "binary"}
_BODY = request_body(
    "The job graph, or the program.",
    {
        "application/json": form_schema(GraphForm, ProgramForm),
        "application/yaml": {"type": "string"},
        "multipart/form-data": {
            "type": "object",
            "required": ["graph"],
            "properties": {"graph": _FILE, "files": {"type": "array", "items": _FILE}},
        },
    },
)
"""Of a route that takes a job graph or a program."""

router = APIRouter(tags=["jobs"], route_class=Operation)


@dataclass(slots=True)
class _Form:
    graph: bytes | None = None
    graph_is_json: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


class _InMemory(MultiPartParser):
    """Starlette's, which would put files into the directory for temporary files; that may be full, and what there is
    room for in memory is counted (`app.api.held_bytes`)."""

    spool_max_size = FORM_LIMIT_BYTES


@dataclass(frozen=True, slots=True)
class Sent:
    """What a request sends: a graph or a program, the ``document`` that says so, and the files that go with it."""

    graph: JobGraph | ProgramDocument
    files: dict[str, bytes]
    document: object


async def _sent(request: Request) -> Sent:
    content_type = header(request, "content-type") or "application/json"
    media = content_type.partition(";")[0].strip().lower()
    if media == _FORM:
        form = await _read_form(request)
        if form.graph is None:
            form.errors.append("The form has no part named graph.")
        if form.errors or form.graph is None:
            raise bad_request(*form.errors)
        return await _read(form.graph, form.files, is_json=form.graph_is_json)
    if media in _JSON or media in _YAML:
        return await _read(await read_body(request), {}, is_json=media in _JSON)
    raise ApiError(
        415,
        f"The Content-Type {shown(media)} is not supported: send application/json, application/yaml or {_FORM}.",
    )


async def _read(body: bytes, files: dict[str, bytes], *, is_json: bool) -> Sent:
    if not body.strip():
        raise bad_request("The job graph is empty: a document with name and vertices is expected.")

    def parsed(text: bytes) -> Sent:
        document = decode_json_strict(text) if is_json else decode_yaml_strict(text)
        return Sent(parse_submitted(document), files, document)

    try:
        return await decoded(parsed, body)
    except (StrictTextError, GraphErrors) as error:
        raise bad_request(*error.errors) from None


async def _read_form(request: Request) -> _Form:
    # Starlette's own limit is for parts that are no files, and the whole is bounded already.
    headers = Headers(scope=request.scope)
    chunks = body_chunks(request, FORM_LIMIT_BYTES)
    parser = _InMemory(headers, chunks, max_files=_MAX_FILES, max_fields=1, max_part_size=BODY_LIMIT_BYTES)
    try:
        parts = await parser.parse()
    except (MultiPartException, MultipartParseError, KeyError, ValueError, LookupError):
        raise bad_request(f"The form cannot be read: {_FORM_HINT} is expected.") from None
    form = _Form()
    try:
        for name, part in parts.multi_items():
            await _take(form, name, part)
    finally:
        await parts.close()
    return form


async def _take(form: _Form, name: str, part: UploadFile | str) -> None:
    content = part.encode() if isinstance(part, str) else await part.read()
    if name == "graph":
        if form.graph is not None:
            form.errors.append("The form has the part graph twice.")
        if len(content) > BODY_LIMIT_BYTES:
            raise too_large(BODY_LIMIT_BYTES)
        form.graph = content
        form.graph_is_json = isinstance(part, UploadFile) and (
            part.content_type in _JSON or (part.filename or "").endswith(".json")
        )
    elif name == "files" and isinstance(part, UploadFile):
        file_name = part.filename or ""
        if not FILE_NAME.match(file_name):
            form.errors.append(
                f"The file name {shown(file_name)} is not allowed; use letters, digits, dots, dashes and"
                " underscores."
            )
        elif file_name in form.files:
            form.errors.append(f"The form has the file {file_name} twice.")
        else:
            form.files[file_name] = content
    else:
        form.errors.append(f"The part {shown(name)} is not known: {_FORM_HINT} is expected.")


_Sent = Annotated[Sent, Depends(_sent)]
_DryRun = Annotated[
    Boolean,
    Query(
        alias="dryRun",
        description="Answer 200 with the document and all defaults; store nothing. Nothing of a program is run.",
    ),
]


@router.post(
    "/jobs",
    status_code=202,
    response_model=Submitted,
    responses=answered(
        200,
        schema={"type": "object"},
        refused={
            400: "vertices[1].inputs[0]: 'number' is not a vertex of the graph.",
            409: "The checkpoint /data/counts of store is that of job counts, which is RUNNING: end that job "
            "first.",
            415: _NOT_SUPPORTED,
        },
    ),
    openapi_extra=_BODY,
)
async def submit_job(
    request: Request,
    response: Response,
    plane: Plane,
    principal: Principal,
    sent: _Sent,
    idempotency_key: IdempotencyKey = None,
    dry_run: _DryRun = False,
) -> Response | Submitted:
    """Submit a job

    The graph as JSON or YAML, or a multipart form with the part `graph` and the files that it lists under artifacts.
    All errors of a graph are answered at once, each with its place. A document with `script` is a program: its syntax
    is checked, and its vertices come when it starts its queries. With `from` they continue from copies of checkpoints.
    A repeated request with its Idempotency-Key is answered with the job of the first one, and submits nothing.
    """
    files = sent.files

    async def graph_of() -> JobGraph:
        return await while_connected(request, plane.submission.graph_of(sent.graph, files))

    if dry_run:
        graph = await graph_of()
        await plane.submission.checked("", graph, files, principal)
        return json_response(masked_document(to_document(graph)))
    key = await key_of(principal, idempotency_key, sent.document, files)

    async def submitted() -> str:
        return await plane.submit(await graph_of(), files, principal, key=key)

    job_id = await plane.submission.keys.once(key, submitted)
    response.headers["Location"] = url = f"/jobs/{job_id}"
    return Submitted(jobid=job_id, job_url=url)


@router.put(
    "/jobs/{jobid}/graph",
    status_code=202,
    response_model=schema.Replaced,
    responses=answered(
        200,
        schema={"type": "object"},
        refused={
            400: "The query of 'store' reads 'orders' now, and its checkpoint is of 'numbers': the sources of a "
            "checkpoint cannot be changed, nor their order.",
            409: "counts.py, line 12: the query of store does not go with the state in /data/counts: the key of "
            "'counts' has field 1, k, as string now, and had it as bigint.",
            415: _NOT_SUPPORTED,
        },
    ),
    openapi_extra=_BODY,
)
async def replace_job(
    request: Request,
    response: Response,
    jobid: JobId,
    plane: Plane,
    principal: Principal,
    sent: _Sent,
    idempotency_key: IdempotencyKey = None,
    dry_run: _DryRun = False,
) -> Response | schema.Replaced:
    """Replace a running job by a new version of it

    What can be said of the new version, a graph or a program as in POST /jobs, without running it is said before
    anything is stopped. Then the version in force stops at a batch boundary, and the new version continues from its
    checkpoints, with the job's id, name and history. If it fails, or commits no batch, the previous version comes back.
    `GET /jobs/:jobid/versions` has the outcome. With dryRun=true nothing changes, and the answer (200) is
    the document with all defaults if it would be accepted.
    """
    files = sent.files

    async def graph_of() -> JobGraph:
        return await while_connected(request, plane.replacing.graph_of(jobid, sent.graph, files))

    if dry_run:
        return json_response(masked_document(to_document(await graph_of())))
    key = await key_of_version(idempotency_key, sent.document, files)

    async def replaced() -> int:
        return await plane.replacing.replace(jobid, await graph_of(), files, principal, key)

    number = await plane.replacing.once(jobid, key, replaced)
    url = f"/jobs/{jobid}/versions"
    response.headers["Location"] = url
    return schema.Replaced(version=number, versions_url=url)


@router.get("/jobs/{jobid}/versions")
async def get_job_versions(job: Job) -> schema.JobVersions:
    """The versions of a job, newest first"""
    own = job.state.versions
    notes = own.notes or (
        VersionNote(own.current, job.submitted_ms, "IN_FORCE", job.submitted_by, job.submitted_ms),
    )
    versions = [
        made_of(schema.Version, note, requested_ms=note.requested_ms or note.since_ms, why=note.why or None)
        for note in reversed(notes)
    ]
    return schema.JobVersions(current=own.current, versions=versions)
