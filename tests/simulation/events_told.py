"""The events of a job, as stored in the end, tell what its records and its status tell: all of it, once, in order."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

from app.model.jobgraph import JobType
from app.model.public_event import PublicEvent, PublicEventType
from app.scheduler.adaptive.state import JobState
from app.store.store import Store
from app.worker.job import persistence
from tests.simulation.planted_batch_bugs import instead
from tests.simulation.rules import bounds_now, most_slots, parallelism
from tests.simulation.truth import JobTruth

_MORE_THAN_ALL = 1_000_000


async def complaints(store: Store, jobs: dict[str, JobTruth]) -> list[str]:
    """What is wrong with them."""
    by_job: dict[str, list[dict[str, Any]]] = {}
    numbers = []
    for event in (await store.events(0, _MORE_THAN_ALL)).events:
        numbers.append(event.id)
        if event.job_id is not None:
            by_job.setdefault(event.job_id, []).append({"type": event.type, **json.loads(event.fields)})
    found = [] if numbers == list(range(1, len(numbers) + 1)) else ["numbers of events are missing"]
    statuses = {job.job_id: job.status.value for job in await store.list_jobs()}
    for job_id, truth in jobs.items():
        if truth.state is not None:
            found += _of_job(job_id[-2:], by_job.get(job_id, []), truth, statuses[job_id])
    return found


def noted(truth: JobTruth, state: JobState) -> str | None:
    """Take down why a job that was saved is left as it is; what is wrong if it does not say why, None if it does."""
    for one in state.no_change:
        truth.no_changes[str(one.reason), one.version, one.first_ms, one.policy_version] = one.count
    if state.graph.type is not JobType.STREAMING or state.phase.kind != "Executing" or state.plan is None:
        return None
    bounds = bounds_now(state.graph, state.requirements, None, state.policy)
    if dict(state.plan.parallelism) == parallelism(state.graph, bounds, most_slots(state.graph, bounds)):
        return None
    if any(one.version == state.requirements.version for one in state.no_change):
        return None
    return "it does not run at its upper bounds, and nothing says why it is left so"


def _untold(*types: PublicEventType) -> contextlib.AbstractContextManager[None]:
    original = persistence.step_events

    def step_events(*step: Any) -> list[PublicEvent]:
        return [event for event in original(*step) if event.type not in types]

    return instead(persistence, "step_events", step_events)


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "the end of a rescale is no event": lambda: _untold(PublicEventType.RESCALE_ENDED),
    "the end of an attempt is no event": lambda: _untold(PublicEventType.ATTEMPT_ENDED),
    "a decision not to act is no event": lambda: _untold(PublicEventType.NO_CHANGE),
}


def _of_job(name: str, told: list[dict[str, Any]], truth: JobTruth, status_now: str) -> list[str]:
    found = []
    begun = [one["number"] for one in told if one["type"] == "rescale-begun"]
    if begun != sorted(truth.records):
        found.append(f"job {name}: events tell that records {begun} began; there are {sorted(truth.records)}")
    ended = [(one["number"], one["terminatedReason"]) for one in told if one["type"] == "rescale-ended"]
    closed = [(record.number, str(record.reason)) for record in truth.records.values() if not record.is_open]
    if sorted(ended) != sorted(closed):
        found.append(f"job {name}: events tell of the ends {ended}; they were {closed}")
    changes = [(one["previousStatus"], one["status"]) for one in told if one["type"] == "status"]
    now = None
    for previous, status in changes:
        if previous != now:
            found.append(f"job {name}: an event tells of {previous} to {status} after {now}")
        now = status
    assert truth.state is not None
    if now != status_now:
        found.append(f"job {name}: the last event tells of {now}, it is {status_now}")
    attempts = [one["attempt"] for one in told if one["type"] == "attempt-begun"]
    if attempts != list(range(1, truth.state.attempt + 1)):
        found.append(f"job {name}: events tell of attempts {attempts} of {truth.state.attempt}")
    ends = [one["attempt"] for one in told if one["type"] == "attempt-ended"]
    if ends != attempts[: len(attempts) - truth.state.driver.alive]:
        found.append(f"job {name}: events tell of ends of attempts {ends} of {attempts}")
    found += [f"job {name}: {complaint}" for complaint in _no_changes(told, truth)]
    versions = [one["version"] for one in told if one["type"] == "requirements"]
    if versions != sorted(truth.stored):
        found.append(f"job {name}: events tell of bounds {versions}; there are {sorted(truth.stored)}")
    return found


def _no_changes(told: list[dict[str, Any]], truth: JobTruth) -> list[str]:
    """Each reason that was ever durable is told: once, at each power of ten, and at its end with a count between."""
    by_reason: dict[tuple[str, int, int, int], list[tuple[int, bool]]] = {}
    policy = 1
    for one in told:
        if one["type"] == "scaling-policy":
            policy = one["version"]
        elif one["type"] == "no-change":
            key = one["reason"], one["requirementsVersion"], one["firstTimestampInMillis"], policy
            if one["over"]:
                # The event of the policy that has ended it comes before.
                key = next((begun for begun in reversed(by_reason) if begun[:3] == key[:3]), key)
            by_reason.setdefault(key, []).append((one["count"], one["over"]))
    # A version that is proven may change the policy, of which it forgets limits, and nothing of what is not done.
    most: dict[tuple[str, int, int], int] = {}
    for key, count in truth.no_changes.items():
        most[key[:3]] = max(count, most.get(key[:3], 0))
    begun = {key[:3] for key in by_reason}
    found = [f"no event tells of {key}" for key in most if key not in begun]
    for key, tellings in by_reason.items():
        counts = [count for count, over in tellings if not over]
        last = [count for count, over in tellings if over]
        if counts != [10**power for power in range(len(counts))] or len(last) > 1:
            found.append(f"events tell of {key} with the counts {tellings}")
        elif max(counts + last) * 10 <= (count := most.get(key[:3], 0)):
            found.append(f"events tell of {key} with the counts {tellings}, not {count}")
    return found
