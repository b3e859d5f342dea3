"""The plans of a driver: the ordered plan, and the plan that each query has reached."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from app.driver.executors import Executors
from app.model.protocol import Orders

log = logging.getLogger(__name__)

_PLANS_KEPT = 16


@dataclass(frozen=True, slots=True)
class DriverPlan:
    """``version`` is the control plane's, ``number`` the driver's own: it may take a plan up in steps, all but the last
    not ``whole``.
    """

    number: int
    version: int
    parallelism: Mapping[str, int]
    whole: bool = True


class Plans:
    """The plan in force and those before it, which a batch that started earlier may still use. Thread-safe.

    ``program``: the vertex that stands for a program until its first query is there; its number is that of the slots. A
    vertex of the query may have the same id.
    """

    def __init__(self, version: int, parallelism: Mapping[str, int], program: str | None = None) -> None:
        self._lock = threading.Lock()
        self._program, self._program_is_gone = program, False
        self._current = DriverPlan(1, version, dict(parallelism))
        self._plans = {1: self._current}
        # When each was taken up.
        self._taken_at = {1: time.monotonic()}

    @property
    def current(self) -> DriverPlan:
        with self._lock:
            return self._current

    def change(self, version: int, parallelism: Mapping[str, int], *, whole: bool = True) -> bool:
        """Take up a newer plan, or one more step of it; whether it was. Batches that start from now on run at it."""
        with self._lock:
            current = self._current
            if version < current.version or (version == current.version and current.whole):
                return False
            # Its author may not have heard of vertices that were added meanwhile: they stay within its slots.
            most = max(parallelism.values(), default=1)
            merged = {vertex: min(own, most) for vertex, own in current.parallelism.items()}
            merged |= self.of_vertices(parallelism)
            self._current = DriverPlan(current.number + 1, version, merged, whole)
            self._plans[self._current.number] = self._current
            self._taken_at[self._current.number] = time.monotonic()
            for old in sorted(self._plans)[:-_PLANS_KEPT]:
                del self._plans[old], self._taken_at[old]
            return True

    def waited_s(self, number: int) -> float:
        """How long ago the first plan behind plan ``number`` was taken up; 0 if there is none."""
        with self._lock:
            behind = [at for newer, at in self._taken_at.items() if newer > number]
        return time.monotonic() - min(behind) if behind else 0.0

    def grow(self, bounds: Mapping[str, int]) -> dict[str, int]:
        """Let vertices with these upper bounds be in the plans, and in them at once: batches that run have none of
        those that are new. The numbers of these vertices in the plan in force."""
        with self._lock:
            most = max(self._current.parallelism.values(), default=1)
            self._program_is_gone = self._program is not None
            now = self.of_vertices(self._current.parallelism)
            numbers = {vertex: now.get(vertex, min(bound, most)) for vertex, bound in bounds.items()}
            if not numbers.keys() <= now.keys():
                for number, plan in self._plans.items():
                    parallelism = {**numbers, **self.of_vertices(plan.parallelism)}
                    self._plans[number] = replace(plan, parallelism=parallelism)
                self._current = self._plans[self._current.number]
            return numbers

    def of_vertices(self, parallelism: Mapping[str, int]) -> dict[str, int]:
        """What ``parallelism`` says of vertices that there are: nothing, if it is of before the first query. Any query
        has more than one vertex."""
        is_of_before = self._program_is_gone and parallelism.keys() == {self._program}
        return {} if is_of_before else dict(parallelism)

    def newest_with(self, parallelism: Mapping[str, int]) -> DriverPlan | None:
        """The newest plan that has these numbers for these vertices; None if it is none of those that are known."""
        with self._lock:
            for number in sorted(self._plans, reverse=True):
                plan = self._plans[number]
                if all(plan.parallelism.get(vertex) == tasks for vertex, tasks in parallelism.items()):
                    return plan
            return None


@dataclass
class PlanSteps:
    """Takes plans up. ``executors`` None: the job runs in its driver, and nothing is waited for.

    A newcomer's first batch takes longer, since it opens its part of the state and compiles what it runs. When the
    query goes over to each newcomer in a batch of its own, none of these batches is as long as one with all newcomers
    would be; and nobody waits idle for the last one. For the attempt's own thread, `is_waiting` apart.

    ``changed`` is called whenever batches run otherwise from now on; ``settled`` tells the number of the plan that
    every query has run a batch at, its state where it belongs.
    """

    plans: Plans
    executors: Executors | None
    changed: Callable[[], None]
    settled: Callable[[], int]

    def __post_init__(self) -> None:
        # The plan that waits for executors, how many were ready before, and what the query ran at.
        self._waiting: Orders | None = None
        self._ready_before = 0
        self._before: Mapping[str, int] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether executors are still to come for a plan."""
        return self._waiting is not None

    def order(self, orders: Orders) -> None:
        """Take this plan up, as soon as that can be done and as far as it can."""
        if self.executors is None or not orders.slots:
            self._change(orders, orders.parallelism, whole=True)
            return
        # Before fewer are requested: no executor is given up until the plan is in force.
        self._waiting = orders
        self.executors.request(orders.slots)
        self._ready_before = self.executors.ready
        self._before = self.plans.current.parallelism
        self.turn()

    def turn(self) -> None:
        """Look which executors have come meanwhile, or do not come."""
        orders, executors = self._waiting, self.executors
        if orders is None or executors is None:
            return
        ready = executors.ready
        missing = executors.wanted - ready
        if self.settled() >= self.plans.current.number:
            executors.settled()
        if missing > 0 and not executors.have_had_time:
            step = {**self.plans.current.parallelism, **self._step(orders, ready)}
            if step != self.plans.current.parallelism:
                self._change(orders, step, whole=False)
            executors.let_in_ready()
            return
        if missing > 0:
            log.warning(
                "%d executors have not come; plan %d begins without them", missing, orders.plan_version
            )
        self._change(orders, orders.parallelism, whole=True)
        self._waiting = None
        executors.let_in_all()

    def _step(self, orders: Orders, ready: int) -> dict[str, int]:
        """The part of the way up that ``ready`` executors are for; down it goes with the last step."""
        assert self.executors is not None
        come = max(0, ready - self._ready_before)
        to_come = max(1, self.executors.wanted - self._ready_before)
        goal = orders.parallelism
        return {
            vertex: now + max(0, goal.get(vertex, now) - now) * come // to_come
            for vertex, now in self.plans.of_vertices(self._before).items()
        }

    def _change(self, orders: Orders, parallelism: Mapping[str, int], *, whole: bool) -> None:
        if self.plans.change(orders.plan_version, parallelism, whole=whole):
            self.changed()
