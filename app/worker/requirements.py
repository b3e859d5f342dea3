"""Deciding a PUT of resource requirements, seeing the state that is current when its turn comes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from app.model.ids import derive_id
from app.model.jobgraph import JobGraph
from app.model.requirements import Bounds, Requirements, validate_bounds
from app.scheduler.adaptive.events import RequirementsUpdated
from app.scheduler.adaptive.state import JobState
from app.scheduler.adaptive.step import status_of
from app.worker.mailbox import Verdict
from app.worker.slot_shares import refusal_by_cap
from app.worker.views import (
    InvalidRequest,
    RequirementsResult,
    RequirementsUpdate,
    StaleVersion,
    StateConflict,
)


def initial_requirements(job_id: str, graph: JobGraph, requested_by: str | None) -> Requirements:
    """The bounds that the graph declares: version 1."""
    return Requirements(
        uuid=derive_id(job_id, "requirements", 1),
        version=1,
        bounds=tuple(
            (vertex.id, Bounds(vertex.lower_bound, vertex.parallelism)) for vertex in graph.vertices
        ),
        requested_by=requested_by,
    )


def resolve_bounds(
    graph: JobGraph, wanted: Mapping[str, tuple[int, int]]
) -> tuple[dict[str, Bounds], list[str]]:
    """Bounds by vertex id or unique name, as bounds by id in the graph's order, and all errors."""
    by_id: dict[str, tuple[int, int]] = {}
    errors: list[str] = []
    for key, bounds in wanted.items():
        vertex = graph.by_id.get(key.lower()) or graph.by_name.get(key)
        target = vertex.id if vertex else key
        if target in by_id:
            errors.append(f"Job vertex {target} is given twice (as {key!r} and by another key).")
        by_id[target] = bounds
    resolved, more = validate_bounds(graph, by_id)
    return {v.id: resolved[v.id] for v in graph.vertices if v.id in resolved}, errors + more


def refuse_stale(state: JobState, update: RequirementsUpdate) -> None:
    """Refuse an update whose If-Match names another version than the one in force."""
    if update.if_match is not None and update.if_match != state.requirements.version:
        raise StaleVersion(
            f"If-Match names version {update.if_match}, but the requirements are at version "
            f"{state.requirements.version}: read them again and decide anew."
        )


def request_hash(update: RequirementsUpdate) -> str:
    """What makes two requests with one Idempotency-Key the same request."""
    text = json.dumps([sorted(update.bounds.items()), update.if_match, update.reason], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def decide_update(state: JobState, update: RequirementsUpdate) -> Verdict:
    """What a PUT of requirements does, seeing the state that is current when its turn comes."""
    status = status_of(state)
    if status.is_globally_terminal:
        raise StateConflict(
            f"Job {state.job_id} has reached the terminal state {status.value}: "
            "its resource requirements cannot be changed."
        )
    refuse_stale(state, update)
    bounds, errors = resolve_bounds(state.graph, update.bounds)
    if errors:
        raise InvalidRequest(*errors)
    if state.requirements.same_bounds(bounds):
        return Verdict(None, RequirementsResult(state.requirements.version, changed=False))
    version = state.requirements.version + 1
    requirements = Requirements(
        uuid=derive_id(state.job_id, "requirements", version),
        version=version,
        bounds=tuple(bounds.items()),
        requested_by=update.requested_by,
        reason=update.reason,
    )
    refused = refusal_by_cap(state, requirements)
    if refused is not None:
        raise StateConflict(refused)
    return Verdict(RequirementsUpdated(requirements), RequirementsResult(version, changed=True))
