"""The jobs, options and slots of random lives."""

from __future__ import annotations

from app.model.plan import Slot
from app.scheduler.adaptive.effects import (
    Effect,
    RestartQuery,
    SendPlan,
    StartAttempt,
    StopAttempt,
    StopMode,
)
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptRunning,
    AttemptStartFailed,
    AttemptStopped,
    Event,
    PlanApplied,
    QueryRecovered,
)
from app.scheduler.adaptive.goal import bounds_after_rollback
from app.scheduler.slots import Demand
from tests.unit.scheduler.driving import Job, chain, group_graph, mixed, two_sinks

_COOLDOWN = "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling"
_STABILIZATION = "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout"
_MAX_DELAY = "jobmanager.adaptive-scheduler.rescale-trigger.max-delay"
_CREATION = "jobmanager.adaptive-scheduler.retry-execution-graph-creation."

GRAPHS = {
    "in place": chain(),
    "restart": chain(in_place=False),
    "mixed": mixed(),
    "two queries": two_sinks(),
    "two queries, restart": two_sinks(in_place=False),
    "groups": group_graph(["source", "agg", "sink"]),
}
OPTIONS: dict[str, dict[str, object]] = {
    "default": {},
    "no damping": {_COOLDOWN: "0 s", _STABILIZATION: "0 s", _MAX_DELAY: "0 s"},
    "long damping": {_COOLDOWN: "2 min", _STABILIZATION: "30 s", _MAX_DELAY: "5 min"},
    "in place damped": {
        "slotwise.in-place.cooldown": "10 s",
        "slotwise.in-place.resource-stabilization-timeout": "20 s",
        "slotwise.in-place.max-delay": "5 s",
    },
    "no backoff": {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100",
        "restart-strategy.fixed-delay.delay": "0 s",
        _CREATION + "restart-strategy.type": "fixed-delay",
        _CREATION + "restart-strategy.fixed-delay.attempts": "100",
        _CREATION + "restart-strategy.fixed-delay.delay": "0 s",
    },
    "no restarts": {"restart-strategy.type": "none", _CREATION + "restart-strategy.type": "none"},
    "no rollback": {"slotwise.rollback.watch-period": "0 ms"},
    "waits for ever": {"jobmanager.adaptive-scheduler.submission.resource-wait-timeout": "-1"},
}
ENOUGH_SLOTS = tuple(Slot(f"slot-{index}", f"tm-{index // 3}") for index in range(30))
ALL_SLOTS = ENOUGH_SLOTS[:9]


def has_wish(job: Job) -> bool:
    """Whether the slots allow another parallelism than is in force."""
    state = job.state
    assert state.plan is not None
    wanted = bounds_after_rollback(state)
    attainable = Demand.of(state.graph, wanted).parallelism(state.usable_slots)
    return attainable is not None and attainable != dict(state.plan.parallelism)


def deaf(job: Job) -> tuple[tuple[str, str], ...]:
    """What a driver tells of vertices that Spark does not run as the plan says."""
    return tuple((vertex.id, f"Vertex {vertex.name} does not.") for vertex in job.graph.vertices[:2])


def obeyed(effect: Effect) -> Event | None:
    """What a world reports that does what ``effect`` asks for; None if there is nothing to report."""
    match effect:
        case StartAttempt(attempt):
            return AttemptRunning(attempt)
        case SendPlan(attempt, plan):
            return PlanApplied(attempt, plan.version)
        case StopAttempt(attempt, mode):
            return AttemptStopped(attempt, drained=mode is StopMode.DRAIN, location="/checkpoint")
        case RestartQuery(attempt, query, number):
            return QueryRecovered(attempt, query, number)
        case _:
            return None


def tells_death(event: Event) -> bool:
    """Whether nothing of the attempt writes any more once ``event`` is known."""
    return isinstance(event, AttemptStopped | AttemptStartFailed) or (
        isinstance(event, AttemptFailed) and event.stopped
    )
