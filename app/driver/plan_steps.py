"""How a plan for more executors is taken up: in steps, with those that have come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from app.driver.executors import Executors
from app.driver.plans import Plans
from app.model.protocol import Orders

log = logging.getLogger(__name__)


class PlanSteps:
    """Takes plans up. ``executors`` None: the job runs in its driver, and nothing is waited for.

    A newcomer's first batch takes longer, since it opens its part of the state and compiles what it runs. When the
    query goes over to each newcomer in a batch of its own, none of these batches is as long as one with all newcomers
    would be; and nobody waits idle for the last one. For the attempt's own thread, `is_waiting` apart.
    """

    def __init__(
        self,
        plans: Plans,
        executors: Executors | None,
        *,
        changed: Callable[[], None],
        settled: Callable[[], int],
    ) -> None:
        """``changed`` is called whenever batches run otherwise from now on; ``settled`` tells the number of the plan
        that every query has run a batch at, its state where it belongs.
        """
        self._plans = plans
        self._executors = executors
        self._changed = changed
        self._settled = settled
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
        if self._executors is None or not orders.slots:
            self._change(orders, orders.parallelism, whole=True)
            return
        # Before fewer are asked for: until the plan is in force nobody gives any up.
        self._waiting = orders
        self._executors.request(orders.slots)
        self._ready_before = self._executors.ready
        self._before = self._plans.current.parallelism
        self.turn()

    def turn(self) -> None:
        """Look which executors have come meanwhile, or do not come."""
        orders, executors = self._waiting, self._executors
        if orders is None or executors is None:
            return
        ready = executors.ready
        missing = executors.wanted - ready
        if self._settled() >= self._plans.current.number:
            executors.settled()
        if missing > 0 and not executors.have_had_time:
            step = self._step(orders, ready)
            if step != self._plans.current.parallelism:
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
        assert self._executors is not None
        come = max(0, ready - self._ready_before)
        to_come = max(1, self._executors.wanted - self._ready_before)
        goal = orders.parallelism
        return {
            vertex: now + max(0, goal.get(vertex, now) - now) * come // to_come
            for vertex, now in self._before.items()
        }

    def _change(self, orders: Orders, parallelism: Mapping[str, int], *, whole: bool) -> None:
        if self._plans.change(orders.plan_version, parallelism, whole=whole):
            self._changed()
