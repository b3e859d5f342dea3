"""The plans that a driver knows: what it was told to run at, and what each query has reached."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

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
    """The plan in force and those before it, which a batch that started earlier may still use. Thread-safe."""

    def __init__(self, version: int, parallelism: Mapping[str, int]) -> None:
        self._lock = threading.Lock()
        self._current = DriverPlan(1, version, dict(parallelism))
        self._plans = {1: self._current}

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
            self._current = DriverPlan(current.number + 1, version, dict(parallelism), whole)
            self._plans[self._current.number] = self._current
            for old in sorted(self._plans)[:-_PLANS_KEPT]:
                del self._plans[old]
            return True

    def newest_with(self, parallelism: Mapping[str, int]) -> DriverPlan | None:
        """The newest plan that has these numbers for these vertices; None if it is none of those that are known."""
        with self._lock:
            for number in sorted(self._plans, reverse=True):
                plan = self._plans[number]
                if all(plan.parallelism.get(vertex) == tasks for vertex, tasks in parallelism.items()):
                    return plan
            return None
