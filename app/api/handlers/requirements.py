"""GET and PUT of resource requirements (FLIP-291): the one call that the whole server is for."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import EMPTY_OBJECT, BytesResponse, json_response
from app.api.context import Context
from app.api.errors import bad_request
from app.api.handlers.conditions import etag, idempotency_key, if_match, reason
from app.api.handlers.jobs import find_job
from app.api.render.explanation import dry_run as render_dry_run
from app.api.requests import boolean, kind_of, query, read_json_object, requested_by
from app.model.graphdoc import MAX_VERTICES
from app.model.ids import InvalidId, normalize_id
from app.model.jobgraph import JobGraph
from app.model.sentences import shown
from app.scheduler.batch.scheduling import undecided
from app.worker.views import RequirementsUpdate

_KEYS_MAX = 2 * MAX_VERTICES
# Of a vertex, beside its bounds: an extension of ours.
_PARTITIONS = "statePartitions"
_FORM = '{"<vertex id or name>": {"parallelism": {"lowerBound": 1, "upperBound": 4}}, ...}'
_BOUNDS = ("lowerBound", "upperBound")


async def get(context: Context, request: Request) -> Response:
    query(request)
    requirements = find_job(context, request).state.requirements
    entries = [
        f'"{vertex_id}":{{"parallelism":{{"lowerBound":{bounds.lower},"upperBound":{bounds.upper}}}}}'
        for vertex_id, bounds in requirements
    ]
    body = "{" + ",".join(entries) + "}"
    return BytesResponse(body.encode(), headers={"ETag": etag(requirements.version)})


async def put(context: Context, request: Request) -> Response:
    parameters = query(request, ("dryRun", "retry"))
    is_dry_run, retry = boolean(parameters, "dryRun"), boolean(parameters, "retry")
    view = find_job(context, request)
    job_id = view.state.job_id
    version = if_match(request, view.state.requirements.version, "The requirements are")
    key = idempotency_key(request)
    why = reason(request)
    graph = view.state.graph
    bounds, partitions = await read_json_object(
        request, lambda document: parse_requirements(document, graph), what=_FORM
    )
    update = RequirementsUpdate(
        bounds=bounds,
        state_partitions=partitions,
        if_match=version,
        idempotency_key=key,
        requested_by=requested_by(request),
        reason=why,
        retry=retry,
    )
    if is_dry_run:
        return json_response(render_dry_run(await context.control_plane.dry_run(job_id, update)))
    result = await context.control_plane.update_requirements(job_id, update)
    headers = {"ETag": etag(result.version)}
    if graph.runs_by_regions:
        # Those that the bounds count for: what is decided stays.
        left = undecided(context.control_plane.job(job_id).state)
        headers["X-Slotwise-Undecided"] = ",".join(vertex.id for vertex in left)
    return BytesResponse(EMPTY_OBJECT, headers=headers)


def parse_requirements(
    document: dict[str, Any], graph: JobGraph
) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
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
    bounds: dict[str, tuple[int, int]] = {}
    partitions: dict[str, int] = {}
    errors: list[str] = []
    for key, entry in document.items():
        vertex_id = _vertex_id(key, graph)
        if vertex_id in bounds:
            errors.append(
                f"The bounds of job vertex {shown(key)} are given twice (its id and its name, or in two"
                " cases)."
            )
            continue
        found = _bounds_of(key, entry, errors)
        bounds[vertex_id] = found
        if isinstance(entry, dict) and _PARTITIONS in entry:
            partitions[vertex_id] = _partitions(key, entry[_PARTITIONS], errors)
    if errors:
        raise bad_request(*errors)
    return bounds, partitions


def _partitions(key: str, value: Any, errors: list[str]) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        errors.append(
            f"For job vertex {shown(key)}, {_PARTITIONS} should be an integer, found {kind_of(value)}."
        )
        return 0
    return value


def _vertex_id(key: str, graph: JobGraph) -> str:
    try:
        lowered = normalize_id(key)
    except InvalidId:
        lowered = None
    if lowered is not None and lowered in graph.by_id:
        return lowered
    vertex = graph.by_name.get(key)
    if vertex is not None:
        return vertex.id
    return lowered or key


def _bounds_of(key: str, entry: Any, errors: list[str]) -> tuple[int, int]:
    place = f"job vertex {shown(key)}"
    if not isinstance(entry, dict):
        errors.append(f'For {place}, an object with "parallelism" is expected, found {kind_of(entry)}.')
        return (0, 0)
    errors.extend(
        f"For {place}, the field {shown(name)} is not known: only parallelism and {_PARTITIONS} are."
        for name in entry
        if name not in ("parallelism", _PARTITIONS)
    )
    if "parallelism" not in entry:
        errors.append(f"For {place}, the field parallelism is missing.")
        return (0, 0)
    parallelism = entry["parallelism"]
    if not isinstance(parallelism, dict):
        errors.append(
            f"For {place}, parallelism should be an object with lowerBound and upperBound, found"
            f" {kind_of(parallelism)}."
        )
        return (0, 0)
    errors.extend(
        f"For {place}, the field {shown(name)} in parallelism is not known: only lowerBound and upperBound"
        " are."
        for name in parallelism
        if name not in _BOUNDS
    )
    lower, upper = (_bound(place, name, parallelism, errors) for name in _BOUNDS)
    return (lower, upper)


def _bound(place: str, name: str, parallelism: dict[str, Any], errors: list[str]) -> int:
    if name not in parallelism:
        errors.append(f"For {place}, the field {name} in parallelism is missing.")
        return 0
    value = parallelism[name]
    if isinstance(value, bool) or not isinstance(value, int):
        errors.append(
            f"For {place}, {name} should be an integer (-1 for the default), found {kind_of(value)}."
        )
        return 0
    return value
