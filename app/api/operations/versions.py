"""New versions of a running job."""

from __future__ import annotations

from typing import Final

from app.api.documentation import Doc
from app.api.examples.common import JOB, NOW, START
from app.api.examples.jobs import GRAPH
from app.api.handlers import versions
from app.api.operations.common import JOB_PATH, query_parameter
from app.api.operations.jobs import SUBMIT
from app.api.routing import Operation
from app.api.schema import versions as schema

_REPLACE = Doc(
    id="replaceJob",
    tag="jobs",
    summary="Replace a running job by a new version of it",
    description=(
        "The new version, a graph or a program as in POST /jobs, is planned and compared with the checkpoints of the"
        " job before anything is stopped. Then the version in force stops at a batch boundary, and the new one goes on"
        " from its checkpoints, with the job's id, name and history. If it does not commit a batch, the version before"
        " comes back by itself. `GET /jobs/:jobid/versions` tells what became of it."
    ),
    status=202,
    answer=schema.Replaced,
    example={"version": 2, "versionsUrl": f"/jobs/{JOB}/versions"},
    otherwise=(200, {"type": "object"}, GRAPH),
    parameters=(
        query_parameter(
            "dryRun",
            "Answer (200) the document with everything resolved if it would be accepted; change nothing.",
            {"type": "boolean"},
            False,
        ),
    ),
    body=SUBMIT.body,
    errors={
        400: "The query of 'store' reads 'orders' now, and its checkpoint is of 'numbers': the sources of a checkpoint "
        "cannot be changed, nor their order.",
        409: "counts.py, line 12: the query of store does not go with the state in /data/counts: the key of 'counts' "
        "has field 1, k, as string now, and had it as bigint.",
        415: SUBMIT.errors[415],
    },
)
_VERSIONS = Doc(
    id="getJobVersions",
    tag="jobs",
    summary="The versions of a job, newest first",
    answer=schema.JobVersions,
    example={
        "current": 1,
        "versions": [
            {
                "version": 2,
                "outcome": "TAKEN_BACK",
                "since": NOW,
                "requestedBy": "alice",
                "requested": START,
                "why": "Vertex counts failed: KeyError: 'k'",
            },
            {
                "version": 1,
                "outcome": "IN_FORCE",
                "since": NOW,
                "requestedBy": "alice",
                "requested": START,
                "why": "It is back: version 2 was taken back.",
            },
        ],
    },
)

VERSION_OPERATIONS: Final[list[Operation]] = [
    Operation("PUT", JOB_PATH + "/graph", versions.replace, _REPLACE),
    Operation("GET", JOB_PATH + "/versions", versions.versions, _VERSIONS),
]
