"""The explanation of a job and the answer of a dry run: our own face."""

from __future__ import annotations

from typing import Any

from app.scheduler.adaptive.state import JobState
from app.worker.views import DryRun, Explanation


def explanation(value: Explanation) -> dict[str, Any]:
    state = value.state
    bounds = state.requirements.as_dict()
    return {
        "jid": state.job_id,
        "name": state.graph.name,
        "status": value.status.value,
        "schedulerState": state.phase.kind,
        "requirementsVersion": state.requirements.version,
        "slots": {
            "desired": value.desired_slots,
            "minimal": value.minimal_slots,
            "held": value.held_slots,
            "used": value.used_slots,
        },
        "slotShare": _slot_share(value),
        "executors": _executors(value),
        "supply": {
            "total": value.supply.total,
            "idle": value.supply.idle,
            "outOfSight": value.supply.is_blind,
            "why": list(value.supply.why),
        },
        "vertices": {
            vertex.id: {
                "name": vertex.name,
                "lowerBound": bounds[vertex.id].lower,
                "upperBound": bounds[vertex.id].upper,
                "maxParallelism": vertex.max_parallelism,
                "attainable": None if value.attainable is None else value.attainable.get(vertex.id),
                "inForce": None if value.in_force is None else value.in_force.get(vertex.id),
            }
            for vertex in state.graph.vertices
        },
        "reactive": state.options.is_reactive,
        "rollback": _rollback(state),
        "onTrialUntilInMillis": None if state.watch is None else state.watch.until_ms,
        "sentences": list(value.sentences),
        "violations": list(value.violations),
        "lastBatchTimestampInMillis": value.last_batch_ms,
    }


def _executors(value: Explanation) -> dict[str, Any] | None:
    seen = value.executors
    if seen is None:
        return None
    return {"present": seen.present, "wanted": seen.wanted, "shortSinceInMillis": seen.short_since_ms}


def _slot_share(value: Explanation) -> dict[str, Any]:
    share, verdict = value.state.share, value.verdict
    return {
        "weight": share.weight,
        "priority": share.priority,
        "cap": share.cap,
        "version": share.version,
        "requestedBy": share.requested_by,
        "reason": share.reason,
        "changedTimestampInMillis": share.changed_ms,
        "share": None if verdict is None else verdict.share,
        "allowed": None if verdict is None else verdict.allowed,
        "why": None if verdict is None else verdict.why.value,
        "missing": 0 if verdict is None else verdict.missing,
        "dueTimestampInMillis": None if verdict is None else verdict.due_ms,
    }


def _rollback(state: JobState) -> dict[str, Any] | None:
    taken = state.taken_back
    if taken is None:
        return None
    return {
        "rescale": taken.record or None,
        "timestampInMillis": taken.at_ms,
        "reason": taken.why,
        "tried": dict(taken.tried),
        "backAt": dict(taken.good),
    }


def dry_run(value: DryRun) -> dict[str, Any]:
    return {
        "bounds": {
            vertex_id: {"lowerBound": bounds.lower, "upperBound": bounds.upper}
            for vertex_id, bounds in value.bounds.items()
        },
        "currentParallelism": value.current,
        "parallelism": value.parallelism,
        "slotsBefore": value.slots_before,
        "slotsAfter": value.slots_after,
        "rung": None if value.rung is None else value.rung.value,
        "refused": list(value.refused),
        "explanation": list(value.explanation),
    }
