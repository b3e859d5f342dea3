"""What is declared for a job beside its bounds: its scaling policy (floor and ceiling of its vertices) with the history
of it, and its share of the slots (weight, priority and cap).
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import Response

from app.api.answers import next_page
from app.api.dependencies import WARNING, Declaration, Job, Plane, declaration, etag, warn_of_slots
from app.api.errors import bad_request
from app.api.openapi import answered, request_body
from app.api.parameters import PAGE, After, DryRun, Limit
from app.api.render import explanation as render
from app.api.requests import body_of, by_vertex, kind_of, not_known, read_json_object
from app.api.routes import Operation
from app.api.schema import rescales as schema
from app.api.schema.base import Empty
from app.api.schema.declared import PolicyVersion, ScalingPolicy, SlotShare
from app.model.graphdoc import MAX_VERTICES
from app.model.jobgraph import MAX_PARALLELISM_LIMIT, JobGraph
from app.model.scaling_policy import NO_LIMITS, FloorCeiling
from app.model.sentences import shown
from app.worker.requests.declared import ScalingPolicyUpdate, SlotShareUpdate

_ALL, _VERTICES = "allVertices", "vertices"
_LIMITS = ("floor", "ceiling")
_FORM = '{"allVertices": {"floor": 1, "ceiling": 8}, "vertices": {"<vertex id or name>": {"floor": 2}}}'
_PATH = "/jobs/{jobid}/scaling-policy"
_ENDED = "The job has ended: it is FINISHED."
_STALE = "If-Match names version 2, but the scaling policy is at version 3: read it again and decide again."

_SHARE_PATH = "/jobs/{jobid}/slot-share"

router = APIRouter(tags=["requirements"], route_class=Operation)


@router.get(_PATH, responses=answered(headers={"ETag": "The version of the scaling policy, for If-Match."}))
async def get_scaling_policy(job: Job, response: Response) -> ScalingPolicy:
    """The floor and ceiling of parallelism that an operator has set

    They apply to all declared bounds; `resource-requirements` still shows the declared bounds. The explanation has the
    effective bounds.
    """
    response.headers["ETag"] = etag(job.state.policy.version)
    return render.policy(job.state.policy)


@router.get(f"{_PATH}/history", responses=answered(headers={"Link": "The next page, if there is one."}))
async def get_scaling_policy_history(
    request: Request, response: Response, job: Job, plane: Plane, limit: Limit = PAGE, after: After = None
) -> list[PolicyVersion]:
    """The versions of the scaling policy of a job, newest first, with author, time and reason

    Empty for a job without a policy. The header Link has the next page.
    """
    # One more than asked for tells whether there is a next page.
    found = await plane.scaling_policies(job.state.job_id, limit=limit + 1, after=after)
    page = found[:limit]
    if len(found) > limit:
        response.headers.update(next_page(request, limit, page[-1].version))
    return [render.policy_version(policy) for policy in page]


_Declared = Annotated[Declaration, declaration(lambda state: state.policy.version, "The scaling policy is")]
_Limits = tuple[FloorCeiling, dict[str, FloorCeiling]]


async def _limits(request: Request, job: Job) -> _Limits:
    graph = job.state.graph
    return await read_json_object(request, lambda body: parse_policy(body, graph), what=_FORM)


@router.put(
    _PATH,
    responses=answered(
        headers={"ETag": "The version now in force.", **WARNING},
        refused={
            400: "For job vertex 1cdea45891a0a991da91c1a3d840ab55 (counts), the floor 5 (of its own) is above the "
            "ceiling 2 (for all vertices).",
            409: _ENDED,
            412: _STALE,
        },
    ),
    openapi_extra=request_body(
        "The whole policy. The content type does not matter: the body is read as JSON, strictly.",
        {
            "application/json": {
                **ScalingPolicy.model_json_schema(by_alias=True, mode="serialization"),
                "minProperties": 1,
                "examples": [{_ALL: {"ceiling": 8}, _VERTICES: {"counts": {"floor": 2}}}],
            }
        },
    ),
)
async def put_scaling_policy(
    response: Response,
    job: Job,
    plane: Plane,
    declared: _Declared,
    limits: Annotated[_Limits, Depends(_limits)],
    dry_run: DryRun = False,
) -> Empty | schema.DryRun:
    """Set the floor and ceiling of parallelism of the vertices of a job

    The body replaces the whole policy: a missing field means no limit. The policy is durable when it is answered, and a
    job outside the limits is rescaled. Limits equal to those in force change nothing and leave no record. With
    dryRun=true nothing changes, and the answer has the effect that the request would have.
    """
    update = ScalingPolicyUpdate(*limits, **declared)
    if dry_run:
        return render.dry_run(await plane.dry_run_policy(job.state.job_id, update))
    response.headers["ETag"] = etag(await plane.update_scaling_policy(job.state.job_id, update))
    warn_of_slots(response, plane, job.state.job_id)
    return Empty()


@router.delete(
    _PATH,
    responses=answered(headers={"ETag": "The version now in force."}, refused={409: _ENDED, 412: _STALE}),
)
async def delete_scaling_policy(response: Response, job: Job, plane: Plane, declared: _Declared) -> Empty:
    """Remove every floor and ceiling

    The removal is a version of the policy, and stays in the history.
    """
    version = await plane.update_scaling_policy(job.state.job_id, ScalingPolicyUpdate(**declared))
    response.headers["ETag"] = etag(version)
    return Empty()


def parse_policy(document: dict[str, Any], graph: JobGraph) -> _Limits:
    """The limits for all vertices, and those of single ones by id. Keys that are no vertex of ``graph`` are passed on.

    Raises:
        ApiError: 400 with every error of form.
    """
    if not document:
        raise bad_request(f"The request body sets nothing: {_FORM} is expected. DELETE removes the policy.")
    errors = not_known(document, (_ALL, _VERTICES))
    everywhere = _limits_of("all vertices", document.get(_ALL, {}), errors)
    entries = document.get(_VERTICES, {})
    if not isinstance(entries, dict):
        raise bad_request(
            *errors,
            f"The field {_VERTICES} should be an object with a member per vertex, found {kind_of(entries)}.",
        )
    if len(entries) > MAX_VERTICES:
        raise bad_request(
            *errors,
            f"The field {_VERTICES} names {len(entries)} vertices: no job has more than {MAX_VERTICES}.",
        )
    vertices = by_vertex(
        entries,
        graph,
        lambda key, entry: _limits_of(f"job vertex {shown(key)}", entry, errors),
        errors,
        what="limits",
    )
    if errors:
        raise bad_request(*errors)
    return everywhere, vertices


def _limits_of(place: str, entry: Any, errors: list[str]) -> FloorCeiling:
    if not isinstance(entry, dict):
        errors.append(f"For {place}, an object with floor and ceiling is expected, found {kind_of(entry)}.")
        return NO_LIMITS
    errors += not_known(entry, _LIMITS, f"For {place}, the field")
    return FloorCeiling(*(_limit(place, name, entry.get(name), errors) for name in _LIMITS))


def _limit(place: str, name: str, value: Any, errors: list[str]) -> int | None:
    if value is None:
        return None
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and 1 <= value <= MAX_PARALLELISM_LIMIT:
        return int(value)
    errors.append(
        f"For {place}, {name} should be a whole number between 1 and {MAX_PARALLELISM_LIMIT}, or null for none, found "
        f"{kind_of(value)}."
    )
    return None


@router.get(_SHARE_PATH, responses=answered(headers={"ETag": "The version of the slot share, for If-Match."}))
async def get_slot_share(job: Job, response: Response) -> SlotShare:
    """The weight, priority and cap of a job among the others

    The numbers that were declared last, or those of the graph. The explanation has their effect.
    """
    share = job.state.share
    response.headers["ETag"] = etag(share.version)
    return SlotShare(weight=share.weight, priority=share.priority, cap=share.cap)


_DeclaredShare = Annotated[Declaration, declaration(lambda state: state.share.version, "The slot share is")]


@router.put(
    _SHARE_PATH,
    responses=answered(
        headers={"ETag": "The version now in force."},
        refused={
            400: "The field weight should be a whole number between 1 and 1000, found '0'.",
            409: "The cap of 1 slot(s) is below the 2 that the lower bounds need, so the job could not run: lower "
            "the bounds first, or set the cap to at least 2.",
            412: "If-Match names version 2, but the slot share is at version 3: read it again and decide again.",
        },
    ),
    openapi_extra=request_body(
        "All three fields. The content type does not matter: the body is read as JSON, strictly.",
        {"application/json": SlotShare.model_json_schema()},
    ),
)
async def put_slot_share(
    response: Response,
    job: Job,
    plane: Plane,
    declared: _DeclaredShare,
    share: Annotated[SlotShare, body_of(SlotShare, what='{"weight": 1, "priority": 0, "cap": null}')],
) -> Empty:
    """Declare the weight, priority and cap of a job among the others

    The numbers are durable when they are answered, and the slots are distributed again at once. Numbers equal to those
    in force change nothing.
    """
    update = SlotShareUpdate(share.weight, share.priority, share.cap, **declared)
    response.headers["ETag"] = etag(await plane.update_slot_share(job.state.job_id, update))
    return Empty()
