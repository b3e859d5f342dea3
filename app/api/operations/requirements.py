"""Requirements and what follows from them."""

from __future__ import annotations

from typing import Any, Final

from app.api.documentation import Body, Doc, Parameter
from app.api.examples import rescales as rescales_examples
from app.api.handlers import jobs, requirements, slot_share
from app.api.operations.common import JOB_PATH, query_parameter
from app.api.routing import Operation
from app.api.schema import rescales as rescale_schema
from app.api.schema import slot_share as share_schema
from app.api.schema.base import Empty

_WHOLE = {"type": "integer", "minimum": 1}
_BOUND = {"type": "integer", "minimum": -1, "maximum": 32768}


def _requirements(bound: dict[str, Any], *, asked: bool = False) -> dict[str, Any]:
    """The schema of bounds per vertex, each of which is a ``bound``."""
    bounds = {
        "type": "object",
        "required": ["lowerBound", "upperBound"],
        "additionalProperties": False,
        "properties": {"lowerBound": bound, "upperBound": bound},
    }
    vertex: dict[str, Any] = {
        "type": "object",
        "required": ["parallelism"],
        "additionalProperties": False,
        "properties": {"parallelism": bounds},
    }
    if asked:
        vertex["properties"]["statePartitions"] = {
            "type": "integer",
            "minimum": 1,
            "maximum": 32768,
            "description": (
                "Of a stateful vertex: into how many partitions its state is to be redistributed. Not below the"
                " upper bound. Without it there are as many as before, or as the upper bound asks for."
            ),
        }
    return {"type": "object", "additionalProperties": vertex}


def _if_match(subject: str) -> Parameter:
    return Parameter(
        "If-Match",
        "header",
        f"Only if {subject} at this version (an ETag of GET).",
        {"type": "string", "pattern": r'^("[1-9][0-9]{0,14}"|\*)$'},
        "*",
    )


def _reason(example: str) -> Parameter:
    return Parameter(
        "X-Slotwise-Reason",
        "header",
        "Why, in free text; kept with the change.",
        {"type": "string", "pattern": "^[ -~]{0,1000}$"},
        example,
    )


def _idempotency_key(example: str) -> Parameter:
    return Parameter(
        "Idempotency-Key",
        "header",
        "A repeated request with the same key and body repeats its answer and changes nothing.",
        {"type": "string", "pattern": "^[!-~]{1,255}$"},
        example,
    )


_REQUIREMENTS_SCHEMA: dict[str, Any] = {
    **_requirements(_BOUND, asked=True),
    "minProperties": 1,
    "description": (
        "Keys are vertex ids; a unique vertex name is accepted as well. Every vertex must be there."
    ),
}
_PATH = JOB_PATH + "/resource-requirements"
_READ = Doc(
    id="getResourceRequirements",
    tag="requirements",
    summary="The bounds of parallelism of every vertex",
    description="Resolved numbers: a bound that was given as -1 is shown as its default.",
    answer=_requirements(_WHOLE),
    example=rescales_examples.REQUIREMENTS,
    headers={"ETag": "The version of the requirements, for If-Match."},
)
_WRITE = Doc(
    id="putResourceRequirements",
    tag="requirements",
    summary="Declare the bounds of parallelism of every vertex",
    description=(
        "Durable when it is answered. Bounds equal to those in force change nothing and record nothing."
        " -1 asks for a default: 1, and the vertex's max parallelism. With dryRun=true nothing changes,"
        " and the answer says what would happen. An upper bound above the max parallelism of a stateful vertex,"
        " and statePartitions, redistribute its state: the job drains and restarts. Bounds that were tried and"
        " taken back (explanation: rollback) are tried again with retry=true. In reactive mode nobody declares"
        " bounds: 409."
    ),
    answer=Empty,
    example={},
    also=(rescale_schema.DryRun, rescales_examples.DRY_RUN),
    parameters=(
        query_parameter("dryRun", "Say what would happen; change nothing.", {"type": "boolean"}, False),
        query_parameter(
            "retry", "Try again what was taken back, with the same bounds.", {"type": "boolean"}, True
        ),
        _if_match("the requirements are"),
        _idempotency_key("f3c1-evening-peak"),
        _reason("the evening peak"),
    ),
    body=Body(
        "The bounds per vertex. The content type does not matter: the body is read as JSON, strictly.",
        {"application/json": (_REQUIREMENTS_SCHEMA, rescales_examples.REQUIREMENTS)},
    ),
    errors={
        400: (
            "The requested lower bound 5 for job vertex 1cdea45891a0a991da91c1a3d840ab55 (counts) is"
            " higher than its upper bound 2."
        ),
        409: "The job has ended: it is FINISHED.",
        412: 'The requirements are at version 3, not at "2" as If-Match demands.',
    },
    headers={
        "ETag": "The version now in force.",
        "X-Slotwise-Undecided": "Of a BATCH job: the vertices whose parallelism is not decided yet, by id, with commas "
        "between. The bounds count for them only.",
    },
)
_EXPLAIN = Doc(
    id="getExplanation",
    tag="requirements",
    summary="What is wanted, held and in force, and in words why they differ",
    answer=rescale_schema.Explanation,
    example=rescales_examples.EXPLANATION,
)
_SHARE_PATH = JOB_PATH + "/slot-share"
_READ_SHARE = Doc(
    id="getSlotShare",
    tag="requirements",
    summary="The weight, priority and cap of a job among the others",
    description="As they were declared last, or given with the graph. What follows from them is in the explanation.",
    answer=share_schema.SlotShare,
    example=rescales_examples.SLOT_SHARE,
    headers={"ETag": "The version of the slot share, for If-Match."},
)
_WRITE_SHARE = Doc(
    id="putSlotShare",
    tag="requirements",
    summary="Declare the weight, priority and cap of a job among the others",
    description=(
        "Durable when it is answered, and the slots of all jobs are looked at again at once. What is in force already"
        " changes nothing."
    ),
    answer=Empty,
    example={},
    parameters=(
        _if_match("the slot share is"),
        _idempotency_key("f3c1-nightly-report"),
        _reason("the nightly report is late"),
    ),
    body=Body(
        "All three fields. The content type does not matter: the body is read as JSON, strictly.",
        {
            "application/json": (
                share_schema.SlotShare.model_json_schema(by_alias=True),
                rescales_examples.SLOT_SHARE,
            )
        },
    ),
    errors={
        400: "The field weight should be a whole number between 1 and 1000, found '0'.",
        409: (
            "The cap of 1 slot(s) is below the 2 that the lower bounds need, so the job could not run: lower the"
            " bounds first, or set the cap to at least 2."
        ),
        412: 'The slot share is at version 3, not at "x" as If-Match demands.',
    },
    headers={"ETag": "The version now in force."},
)
REQUIREMENTS_OPERATIONS: Final[list[Operation]] = [
    Operation("GET", _PATH, requirements.get, _READ),
    Operation("PUT", _PATH, requirements.put, _WRITE),
    Operation("GET", _SHARE_PATH, slot_share.get, _READ_SHARE),
    Operation("PUT", _SHARE_PATH, slot_share.put, _WRITE_SHARE),
    Operation("GET", JOB_PATH + "/explanation", jobs.explain, _EXPLAIN),
]
