"""The rescale history."""

from __future__ import annotations

from typing import Final

from app.api.documentation import Doc
from app.api.examples import rescales as rescales_examples
from app.api.examples.common import RESCALE
from app.api.handlers import rescales
from app.api.operations.common import JOB_PATH, query_parameter
from app.api.routing import Operation
from app.api.schema import rescales as rescale_schema
from app.model.rescale import TerminalState, TriggerCause

_BASE = JOB_PATH + "/rescales"
_TAG = "rescales"
_HISTORY = Doc(
    id="getRescaleHistory",
    tag=_TAG,
    summary="The rescales of a job, newest first",
    description=(
        "One in progress has neither an end nor a terminal state. The next page is under Link, rel=next."
    ),
    answer=rescale_schema.Rescale,
    is_list=True,
    example=[rescales_examples.RECORD],
    parameters=(
        query_parameter(
            "limit",
            f"At most so many records; {rescales.DEFAULT_LIMIT} if not given.",
            {"type": "integer", "minimum": 1, "maximum": rescales.MAX_LIMIT},
            20,
        ),
        query_parameter(
            "after",
            "Only records whose number is below this one.",
            {"type": "integer", "minimum": 0, "maximum": 10**15},
            100,
        ),
        query_parameter(
            "cause",
            "Only records of this cause.",
            {"enum": [c.value for c in TriggerCause]},
            "UPDATE_REQUIREMENT",
        ),
        query_parameter(
            "state",
            "Only records that ended so.",
            {"enum": [s.value for s in TerminalState]},
            "COMPLETED",
        ),
    ),
    headers={"Link": "The next page, if there is one."},
)
_DOCS = [
    ("/history", rescales.history, _HISTORY),
    (
        "/overview",
        rescales.overview,
        Doc(
            "getRescalesOverview",
            _TAG,
            "Counts, and the latest record of each outcome",
            rescale_schema.RescalesOverview,
            rescales_examples.RESCALES_OVERVIEW,
        ),
    ),
    (
        "/summary",
        rescales.summary,
        Doc(
            "getRescalesSummary",
            _TAG,
            "Statistics of the durations",
            rescale_schema.RescalesSummary,
            rescales_examples.RESCALES_SUMMARY,
        ),
    ),
    (
        "/config",
        rescales.config,
        Doc(
            "getRescalesConfig",
            _TAG,
            "The options that time rescales",
            rescale_schema.RescalesConfig,
            rescales_examples.RESCALES_CONFIG,
        ),
    ),
    (
        "/details/{rescaleuuid}",
        rescales.details,
        Doc(
            "getRescaleDetails",
            _TAG,
            "One rescale with the states of the scheduler",
            rescale_schema.Rescale,
            rescales_examples.RECORD_DETAILS,
            errors={404: f"Rescale {RESCALE} was not found."},
        ),
    ),
]
RESCALE_OPERATIONS: Final[list[Operation]] = [
    Operation("GET", _BASE + path, handler, doc) for path, handler, doc in _DOCS
]
