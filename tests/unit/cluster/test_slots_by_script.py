"""Three jobs on eight slots through scripts of arrivals, departures and PUTs: the pool and the cores of the jobs end
where the brute-force checker says, whatever the order in which the drivers answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from app.cluster.slot_pool import SlotPool
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.effects import (
    DeclareResources,
    JobTerminated,
    ReleaseSlots,
    SendPlan,
    StartAttempt,
    StopAttempt,
)
from app.scheduler.adaptive.events import (
    CancelRequested,
    SlotsChanged,
    SlotShareUpdated,
    StartScheduling,
    TimerFired,
)
from app.scheduler.adaptive.slot_declaration import releasable_of
from tests.slot_rules import Asks, at_rest, division
from tests.unit.scheduler.driving import Job, chain

TOTAL = 8
SCRIPTS = 200
STEPS = 20
TICK_MS = 200
NAMES = ("one", "two", "three")
AT_ONCE: dict[str, object] = {
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0 ms",
    "slot.idle.timeout": "0 ms",
}


@dataclass
class Host:
    """The pool with the jobs on it. Drivers answer one after the other, in an order that ``rng`` draws."""

    rng: random.Random
    jobs: dict[str, Job] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pool = SlotPool({"host": TOTAL}, holding_ms=0)
        self.now_ms = 0
        self._answers: list[tuple[str, Any]] = []

    def submit(self, asks: Asks) -> None:
        options = {
            **AT_ONCE,
            "slotwise.slots.weight": asks.weight,
            "slotwise.slots.priority": asks.priority,
            "slotwise.slots.cap": "none" if asks.cap is None else asks.cap,
        }
        self.jobs[asks.name] = Job(chain(), lower=asks.lower, upper=asks.upper, options=options)
        self.do(asks.name, StartScheduling())

    def cancel(self, name: str) -> None:
        self.do(name, CancelRequested())

    def bounds(self, name: str, lower: int, upper: int) -> None:
        self._after(name, self.jobs[name].put(lower, upper))

    def share(self, asks: Asks) -> None:
        version = self.jobs[asks.name].state.share.version + 1
        self.do(asks.name, SlotShareUpdated(SlotShare(version, asks.weight, asks.priority, asks.cap)))

    def do(self, name: str, event: Any) -> None:
        self._after(name, self.jobs[name].do(event))

    def _after(self, name: str, job: Job) -> None:
        for effect in job.effects:
            match effect:
                case DeclareResources():
                    self.pool.declare(name, job.state.supply.declared, job.state.supply.minimal)
                    self.pool.set_share(name, job.state.share)
                case ReleaseSlots():
                    self.pool.release(name, effect.slot_ids)
                case JobTerminated():
                    self.pool.forget(name)
                    del self.jobs[name]
                    return
                case StartAttempt() | SendPlan() | StopAttempt():
                    self._answers.append((name, effect))
        self.pool.note_releasable(name, releasable_of(job.state))

    def _answer(self) -> None:
        name, effect = self._answers.pop(self.rng.randrange(len(self._answers)))
        job = self.jobs.get(name)
        if job is None:
            return
        match effect:
            case StartAttempt():
                self._after(name, job.starts())
                self._after(name, job.commit())
            case SendPlan():
                self._after(name, job.applied())
            case StopAttempt():
                self._after(name, job.stops())

    def settle(self) -> None:
        """Until nobody has anything to say, and time changes nothing either."""
        still = 0
        while still < 3:
            still += 1
            if self._answers:
                self._answer()
                still = 0
            for name in sorted(self.pool.review(self.now_ms)):
                still = 0
                granted = (self.pool.held_by(name), self.pool.allowed(name), self.pool.reason(name))
                self.do(name, SlotsChanged(*granted))
            for name, job in list(self.jobs.items()):
                if self._pass_time(name, job):
                    still = 0
            self.now_ms += TICK_MS

    def _pass_time(self, name: str, job: Job) -> bool:
        """Fire the timers that are due within a tick, one after the other; whether any was."""
        end_ms, fired = job.now_ms + TICK_MS, False
        while due := [timer for timer in job.state.timers if timer.at_ms <= end_ms]:
            first = min(due, key=lambda timer: timer.at_ms)
            job.now_ms, fired = max(job.now_ms, first.at_ms), True
            self.do(name, TimerFired(first.name, first.version))
        job.now_ms = end_ms
        return fired

    def used(self) -> dict[str, int]:
        return {
            name: 0 if job.state.plan is None else job.state.plan.slot_count
            for name, job in self.jobs.items()
        }


def drawn(rng: random.Random, name: str) -> Asks:
    lower = rng.choice((1, 1, 1, 2, 3, rng.randint(1, TOTAL)))
    upper = rng.randint(lower, TOTAL)
    cap = rng.choice((None, None, rng.randint(lower, TOTAL)))
    return Asks(name, lower, upper, rng.choice((1, 1, 2, 3)), rng.choice((0, 0, 1, -1)), cap)


def step(rng: random.Random, host: Host, asked: list[Asks]) -> tuple[str, list[Asks]]:
    """One arrival, departure or PUT; what it was, and what is asked then."""
    names = [one.name for one in asked]
    absent = [name for name in NAMES if name not in names]
    dice = rng.random()
    if absent and (dice < 0.5 or not asked):
        new = drawn(rng, rng.choice(absent))
        host.submit(new)
        return f"{new} comes", [*asked, new]
    known = rng.choice(asked)
    if dice < 0.65:
        host.cancel(known.name)
        return f"{known.name} goes", [one for one in asked if one is not known]
    other = drawn(rng, known.name)
    if dice < 0.85:
        if known.cap is not None and other.lower > known.cap:
            return "nothing: the cap forbids it", asked
        changed = replace(known, lower=other.lower, upper=other.upper)
        host.bounds(known.name, other.lower, other.upper)
    else:
        cap = None if other.cap is None else max(other.cap, known.lower)
        changed = replace(known, weight=other.weight, priority=other.priority, cap=cap)
        host.share(changed)
    return f"{changed} now", [changed if one is known else one for one in asked]


def run(seed: int) -> None:
    rng = random.Random(seed)
    host, asked, story = Host(rng), list[Asks](), list[str]()
    for _ in range(STEPS):
        what, asked = step(rng, host, asked)
        story.append(what)
        host.settle()
        expected = division(asked, TOTAL)
        assert host.used() == expected, f"seed {seed}: {host.used()} instead of {expected}\n" + "\n".join(
            story
        )
        assert sum(expected.values()) + host.pool.free == TOTAL
        asked = at_rest(asked, TOTAL)


def test_scripts_end_where_the_checker_says() -> None:
    for seed in range(SCRIPTS):
        run(seed)
