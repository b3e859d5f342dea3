"""Cooldown and stabilisation: when a job may act on other slots or bounds.

This is production Flink's StateTransitionManager (FLIP-461 and FLIP-472).

A value machine of its own, one per entry into WaitingForResources or Executing. Its stages:

* Cooldown: nothing may happen yet; the first change that suffices is noted.
* Idling: nothing to do.
* Stabilizing: a change is noted; a transition begins at the next trigger or evaluation if all desired resources are
  there.
* Stabilized: the wait is over; sufficient resources are enough, at the next trigger or at the latest after max delay.

t0 is the entry into the phase, c the first change that suffices. Stabilisation and max delay both count from c, not
from the latest change. A trigger is a committed micro-batch (our checkpoint).

Timing depends on the rung of the plan that is attainable at the moment of the decision: a change in place takes the
in-place options, a change that needs a restart those of production Flink. So the cooldown that holds back a restart
does not hold back a change in place.
"""

from __future__ import annotations

from enum import Enum

from app.model.value import evolve, value
from app.scheduler.adaptive.state import Manager


@value
class Timing:
    """Cooldown, stabilisation timeout and max trigger delay, in milliseconds."""

    cooldown_ms: int = 0
    stabilization_ms: int = 0
    max_delay_ms: int = 0


@value
class Outlook:
    """What the manager needs to know about the job now.

    ``sufficient``: the slots allow a parallelism and, while executing, another one than is in force. ``desired``: so
    does the whole requirement. ``longest_cooldown_ms``: after it Cooldown ends even without a change.
    """

    sufficient: bool
    desired: bool
    timing: Timing
    longest_cooldown_ms: int = 0


class ManagerOutcome(Enum):
    """What came out: nothing, the manager fell back to Idling, or the phase is to be left now.

    On TRANSITION the manager is gone with its phase, so production Flink's stage Transitioning is never a value here.
    """

    NOTHING = 0
    IDLE = 1
    TRANSITION = 2


def start(now_ms: int, longest_cooldown_ms: int) -> Manager:
    """A new manager. Without a cooldown it begins in Idling."""
    return Manager(stage="Cooldown" if longest_cooldown_ms > 0 else "Idling", since_ms=now_ms)


def on_change(manager: Manager, outlook: Outlook, now_ms: int) -> tuple[Manager, ManagerOutcome]:
    """Slots or bounds have changed."""
    manager = _held_back(manager, outlook, now_ms)
    if manager.stage == "Cooldown" and outlook.sufficient and manager.change_ms is None:
        manager = evolve(manager, change_ms=now_ms)
    elif manager.stage == "Idling" and outlook.sufficient:
        manager = _stabilizing(manager, now_ms, outlook)
    elif manager.stage == "Stabilizing":
        latest = now_ms + outlook.timing.max_delay_ms
        pending = manager.evaluation_ms
        evaluation = latest if pending is None else min(pending, latest)
        manager = evolve(manager, last_change_ms=now_ms, evaluation_ms=evaluation)
    return on_time(manager, outlook, now_ms)


def on_trigger(manager: Manager, outlook: Outlook, now_ms: int) -> tuple[Manager, ManagerOutcome]:
    """A micro-batch was committed."""
    manager = _held_back(manager, outlook, now_ms)
    if manager.stage == "Stabilizing" and outlook.desired:
        return _transition(manager)
    if manager.stage == "Stabilized":
        return _transition(manager) if outlook.sufficient else _idle(manager)
    return on_time(manager, outlook, now_ms)


def on_time(manager: Manager, outlook: Outlook, now_ms: int) -> tuple[Manager, ManagerOutcome]:
    """Do what is due by now."""
    manager = _held_back(manager, outlook, now_ms)
    if manager.stage == "Cooldown":
        change_ms = manager.change_ms
        if change_ms is None and now_ms >= manager.since_ms + outlook.longest_cooldown_ms:
            return _idle(manager)
        if change_ms is None or now_ms < manager.since_ms + outlook.timing.cooldown_ms:
            return manager, ManagerOutcome.NOTHING
        manager = _stabilizing(manager, change_ms, outlook)
    if manager.stage == "Stabilizing":
        assert manager.change_ms is not None
        if now_ms >= manager.change_ms + outlook.timing.stabilization_ms:
            manager = evolve(manager, stage="Stabilized", evaluation_ms=None)
        elif manager.evaluation_ms is not None and now_ms >= manager.evaluation_ms:
            manager = evolve(manager, evaluation_ms=None)
            if outlook.desired:
                return _transition(manager)
    if manager.stage == "Stabilized":
        assert manager.change_ms is not None
        if now_ms >= manager.change_ms + outlook.timing.max_delay_ms:
            return _transition(manager) if outlook.sufficient else _idle(manager)
    return manager, ManagerOutcome.NOTHING


def waits_for_change(manager: Manager) -> bool:
    """Whether no trigger has an effect: nothing has changed that suffices."""
    return manager.stage == "Idling" or (manager.stage == "Cooldown" and manager.change_ms is None)


def next_due_ms(manager: Manager, outlook: Outlook) -> tuple[str, int] | None:
    """The name and instant of the timer that the manager needs, None if it waits for an event only."""
    timing = outlook.timing
    if manager.stage == "Cooldown":
        waits_ms = outlook.longest_cooldown_ms if manager.change_ms is None else timing.cooldown_ms
        return "cooldown", manager.since_ms + waits_ms
    if manager.stage == "Stabilizing":
        assert manager.change_ms is not None
        stable_ms = manager.change_ms + timing.stabilization_ms
        if manager.evaluation_ms is not None and manager.evaluation_ms < stable_ms:
            return "evaluation", manager.evaluation_ms
        return "stabilization", stable_ms
    if manager.stage == "Stabilized":
        assert manager.change_ms is not None
        return "trigger", manager.change_ms + timing.max_delay_ms
    return None


TIMERS = ("cooldown", "evaluation", "stabilization", "trigger")
"""The names of the timers of a manager; it needs one of them at a time."""


def _held_back(manager: Manager, outlook: Outlook, now_ms: int) -> Manager:
    """Back to Cooldown if the change that began in place has become one by restart, and it is too early for that."""
    if (
        outlook.sufficient
        and manager.stage in ("Stabilizing", "Stabilized")
        and now_ms < manager.since_ms + outlook.timing.cooldown_ms
    ):
        return evolve(manager, stage="Cooldown", evaluation_ms=None)
    return manager


def _stabilizing(manager: Manager, change_ms: int, outlook: Outlook) -> Manager:
    return Manager(
        "Stabilizing",
        manager.since_ms,
        change_ms,
        last_change_ms=change_ms,
        evaluation_ms=change_ms + outlook.timing.max_delay_ms,
    )


def _idle(manager: Manager) -> tuple[Manager, ManagerOutcome]:
    idle = evolve(manager, stage="Idling", change_ms=None, last_change_ms=None, evaluation_ms=None)
    return idle, ManagerOutcome.IDLE


def _transition(manager: Manager) -> tuple[Manager, ManagerOutcome]:
    return manager, ManagerOutcome.TRANSITION
