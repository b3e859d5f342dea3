"""GET and PUT of resource requirements (FLIP-291), and the explanation of their effect."""

from __future__ import annotations

import functools
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import BytesResponse
from app.api.dependencies import WARNING, Declaration, Job, Plane, declaration, etag, warn_of_slots
from app.api.errors import bad_request
from app.api.openapi import answered, request_body
from app.api.parameters import Boolean, Deadline, DryRun, JobId, OnDeadline
from app.api.render import explanation as render
from app.api.requests import by_vertex, kind_of, not_known, read_json_object
from app.api.routes import Operation
from app.api.schema import rescales as schema
from app.api.schema.base import Empty
from app.model.graphdoc import MAX_VERTICES
from app.model.job_state.changes import Patch
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, JobGraph
from app.model.requirements import OnTimeout
from app.model.sentences import shown
from app.scheduler.batch.scheduling import undecided
from app.worker.requests.requirements import instant, refuse_early
from app.worker.views import GivenDeadline, RequirementsUpdate

_KEYS_MAX = 2 * MAX_VERTICES
# Of a vertex, beside its bounds: an extension of ours.
_PARTITIONS = "statePartitions"
_FORM = '{"<vertex id or name>": {"parallelism": {"lowerBound": 1, "upperBound": 4}}, ...}'
_FIELDS = ("parallelism", _PARTITIONS)
_BOUNDS = ("lowerBound", "upperBound")
_PATH = "/jobs/{jobid}/resource-requirements"

router = APIRouter(tags=["requirements"], route_class=Operation)


def _schema(lowest: int, **members: Any) -> dict[str, Any]:
    """The schema of bounds per vertex, each at least ``lowest``. ``members``: what a vertex has beside them."""
    bound = {"type": "integer", "minimum": lowest, "maximum": MAX_PARALLELISM_LIMIT}
    bounds = {
        "type": "object",
        "required": list(_BOUNDS),
        "additionalProperties": False,
        "properties": dict.fromkeys(_BOUNDS, bound),
    }
    vertex = {
        "type": "object",
        "required": ["parallelism"],
        "additionalProperties": False,
        "properties": {"parallelism": bounds, **members},
    }
    return {"type": "object", "additionalProperties": vertex}


_ASKED = {
    **_schema(
        -1,
        statePartitions={
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_PARALLELISM_LIMIT,
            "description": "For a stateful vertex: redistribute its state to this number of partitions, not below the "
            "upper bound. Default: the present number, or the upper bound if that is higher.",
        },
    ),
    "minProperties": 1,
    "description": "Keys are vertex ids; a unique vertex name is accepted too. Every vertex is required.",
    "examples": [
        {
            "numbers": {"parallelism": {"lowerBound": 1, "upperBound": 2}},
            "counts": {"parallelism": {"lowerBound": 1, "upperBound": 4}},
        }
    ],
}


@router.get(
    _PATH,
    responses=answered(
        headers={
            "ETag": "The version of the requirements, for If-Match.",
            "X-Slotwise-Queued": "The versions whose bounds wait for their deadline and do not hold yet, each with "
            'that deadline: `5;deadline="2026-12-01T00:00:00Z";on-timeout=ROLLBACK`. Absent if there are none. The '
            "explanation of the job has their bounds.",
        },
        schema=_schema(1),
    ),
)
async def get_resource_requirements(job: Job) -> Response:
    """The bounds of parallelism of every vertex

    A bound that was declared as -1 is shown as its default. A program has no vertices before it has started a query.
    Bounds that wait for their deadline do not hold yet: a header names them.
    """
    requirements = job.state.requirements
    entries = [
        f'"{vertex_id}":{{"parallelism":{{"lowerBound":{bounds.lower},"upperBound":{bounds.upper}}}}}'
        for vertex_id, bounds in (() if job.state.graph.awaits_query else requirements)
    ]
    body = "{" + ",".join(entries) + "}"
    headers = {"ETag": etag(requirements.version)}
    # Those that were applied hold.
    if queued := [_queued(one) for one in job.state.queued if one.begun is None]:
        headers["X-Slotwise-Queued"] = ", ".join(queued)
    return BytesResponse(body.encode(), headers=headers)


def _queued(one: Patch) -> str:
    """As RFC 8941 has it: a list of whole numbers with parameters."""
    return f'{one.version};deadline="{instant(one.deadline.at_ms)}";on-timeout={one.deadline.on_timeout}'


_Declared = Annotated[
    Declaration, declaration(lambda state: state.requirements.version, "The requirements are")
]
_Bounds = tuple[dict[str, tuple[int, int]], dict[str, int]]


async def _bounds(request: Request, job: Job) -> _Bounds:
    refuse_early(job.state)
    graph = job.state.graph
    return await read_json_object(request, lambda body: parse_requirements(body, graph), what=_FORM)


@router.put(
    _PATH,
    responses=answered(
        headers={
            "ETag": "The version now in force.",
            "X-Slotwise-Rescale": "The uuid of the rescale record that the bounds lead to, if they are a change.",
            **WARNING,
            "X-Slotwise-Undecided": "For a BATCH job: the ids of the vertices whose parallelism is not decided "
            "yet, separated by commas. The bounds apply only to them.",
            "X-Slotwise-Deadline": "`unchanged` if the deadline of the request has no effect, because its bounds are "
            'declared already; `unchanged; vertices="<ids>"` if it does not count for these vertices, whose bounds '
            "wait for the deadline of an earlier request.",
        },
        refused={
            400: "The requested lower bound 5 for job vertex 1cdea45891a0a991da91c1a3d840ab55 (counts) is higher "
            "than its upper bound 2.",
            409: "The job has ended: it is FINISHED.",
            412: "If-Match names version 2, but the requirements are at version 3: read them again and decide again.",
        },
    ),
    openapi_extra=request_body(
        "The bounds per vertex. The content type does not matter: the body is read as JSON, strictly.",
        {"application/json": _ASKED},
    ),
)
async def put_resource_requirements(
    response: Response,
    job: Job,
    plane: Plane,
    declared: _Declared,
    bounds: Annotated[_Bounds, Depends(_bounds)],
    dry_run: DryRun = False,
    retry: Annotated[Boolean, Query(description="Try bounds again that were taken back.")] = False,
    deadline: Deadline = None,
    on_timeout: OnDeadline = None,
) -> Empty | schema.DryRun:
    """Declare the bounds of parallelism of every vertex

    Durable when it is answered. Bounds equal to those that hold, or that wait for their deadline, change nothing and
    record nothing. -1 asks for a default: 1, and the vertex's max parallelism. With dryRun=true nothing changes, and
    the answer says what would happen. An upper bound above the max parallelism of a stateful vertex, and
    statePartitions, redistribute its state: the job drains and restarts. Bounds that were tried and taken back
    (explanation: rollback) are tried again with retry=true. In reactive mode bounds are refused: 409. With a deadline
    the new bounds wait until all their slots are there, and the bounds before hold; deadlines of other vertices do not
    change. To drop bounds that wait, cancel their rescale: a PUT of the bounds that hold leaves them alone. Bounds that
    are declared already do not get another deadline: the answer then has the header X-Slotwise-Deadline: unchanged,
    with the vertices if it is so for some.
    """
    job_id = job.state.job_id
    update = RequirementsUpdate(
        bounds=bounds[0],
        state_partitions=bounds[1],
        retry=retry,
        deadline=_given(deadline, on_timeout, retry=retry),
        **declared,
    )
    if dry_run:
        return render.dry_run(await plane.dry_run(job_id, update))
    result = await plane.update_requirements(job_id, update)
    response.headers["ETag"] = etag(result.version)
    if result.rescale is not None:
        response.headers["X-Slotwise-Rescale"] = result.rescale
    if deadline is not None and not result.changed:
        response.headers["X-Slotwise-Deadline"] = "unchanged"
    elif result.kept_waiting:
        response.headers["X-Slotwise-Deadline"] = f'unchanged; vertices="{",".join(result.kept_waiting)}"'
    warn_of_slots(response, plane, job_id)
    if job.state.graph.runs_by_regions:
        # Those that the bounds count for: what is decided stays.
        left = undecided(plane.job(job_id).state)
        response.headers["X-Slotwise-Undecided"] = ",".join(vertex.id for vertex in left)
    return Empty()


def _given(
    deadline: tuple[int | None, int] | None, on_timeout: OnTimeout | None, *, retry: bool
) -> GivenDeadline | None:
    if deadline is None:
        if on_timeout is not None:
            raise bad_request("The header X-Slotwise-On-Timeout needs X-Slotwise-Deadline, which is missing.")
        return None
    if retry:
        raise bad_request(
            "The header X-Slotwise-Deadline and retry=true exclude each other: bounds that are tried again take effect "
            "at once, with the slots that can be used. Send one of them."
        )
    at_ms, wait_ms = deadline
    return GivenDeadline(on_timeout or OnTimeout.ROLLBACK, at_ms, wait_ms)


@router.get("/jobs/{jobid}/explanation")
async def get_explanation(jobid: JobId, plane: Plane) -> schema.Explanation:
    """The wanted, held and used slots and parallelism, and sentences about the differences"""
    return render.explanation(plane.explanation(jobid))


def parse_requirements(document: dict[str, Any], graph: JobGraph) -> _Bounds:
    """The bounds per vertex id, and the numbers of state partitions where one is asked for. Keys that are no vertex of
    ``graph`` are passed on: validation names them all.

    Raises:
        ApiError: 400 with every error of form.
    """
    if not document:
        raise bad_request(f"The request body does not specify resource requirements: {_FORM} is expected.")
    if len(document) > _KEYS_MAX:
        raise bad_request(
            f"The request body names {len(document)} vertices: no job has more than {MAX_VERTICES}."
        )
    errors: list[str] = []
    found = by_vertex(document, graph, functools.partial(_asked_of, errors), errors, what="bounds")
    if errors:
        raise bad_request(*errors)
    bounds = {vertex_id: own for vertex_id, (own, _) in found.items()}
    return bounds, {vertex_id: number for vertex_id, (_, number) in found.items() if number is not None}


def _asked_of(errors: list[str], key: str, entry: Any) -> tuple[tuple[int, int], int | None]:
    """The bounds of a vertex, and its number of state partitions if one is asked for."""
    wrong: list[str] = []
    asked = _bounds_of(entry, wrong), _partitions(entry, wrong)
    errors += [f"For job vertex {shown(key)}, {one}" for one in wrong]
    return asked


def _partitions(entry: Any, wrong: list[str]) -> int | None:
    if not isinstance(entry, dict) or _PARTITIONS not in entry:
        return None
    return _integer(_PARTITIONS, entry[_PARTITIONS], "an integer", wrong)


def _bounds_of(entry: Any, wrong: list[str]) -> tuple[int, int]:
    if not isinstance(entry, dict):
        wrong.append(f'an object with "parallelism" is expected, found {kind_of(entry)}.')
        return (0, 0)
    wrong += not_known(entry, _FIELDS, "the field")
    if "parallelism" not in entry:
        wrong.append("the field parallelism is missing.")
        return (0, 0)
    parallelism = entry["parallelism"]
    if not isinstance(parallelism, dict):
        wrong.append(
            f"parallelism should be an object with lowerBound and upperBound, found {kind_of(parallelism)}."
        )
        return (0, 0)
    wrong += not_known(parallelism, _BOUNDS, "the field", " in parallelism")
    return _bound("lowerBound", parallelism, wrong), _bound("upperBound", parallelism, wrong)


def _bound(name: str, parallelism: dict[str, Any], wrong: list[str]) -> int:
    if name not in parallelism:
        wrong.append(f"the field {name} in parallelism is missing.")
        return 0
    return _integer(name, parallelism[name], "an integer (-1 for the default)", wrong)


def _integer(name: str, value: Any, what: str, wrong: list[str]) -> int:
    if type(value) is int:  # nor a boolean
        return value
    wrong.append(f"{name} should be {what}, found {kind_of(value)}.")
    return 0
