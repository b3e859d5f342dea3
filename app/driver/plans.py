"""The plans that a driver knows: what it was told to run at, and what each query has reached."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from app.driver.sources.control import ControlFile

_PLANS_KEPT = 16


@dataclass(frozen=True, slots=True)
class DriverPlan:
    version: int
    parallelism: Mapping[str, int]


class Plans:
    """The plan in force and those before it, which a batch that started earlier may still use. Thread-safe."""

    def __init__(self, control: ControlFile, version: int, parallelism: Mapping[str, int]) -> None:
        self._lock = threading.Lock()
        self._control = control
        self._plans = {version: DriverPlan(version, dict(parallelism))}
        self._current = version
        control.publish(version, parallelism)

    @property
    def current(self) -> DriverPlan:
        with self._lock:
            return self._plans[self._current]

    def change(self, version: int, parallelism: Mapping[str, int]) -> bool:
        """Take up a newer plan; whether it was newer. Batches that start from now on run at it."""
        with self._lock:
            if version <= self._current:
                return False
            self._plans[version] = DriverPlan(version, dict(parallelism))
            self._current = version
            for old in sorted(self._plans)[:-_PLANS_KEPT]:
                del self._plans[old]
            self._control.publish(version, parallelism)
            return True

    def for_batch(self, sources: tuple[str, ...], query_key: str) -> DriverPlan:
        """The plan of the batch that is about to run: the one by which its sources were split, in all its parts.

        A source without new data was not split for this batch and names an older plan, so the newest counts.
        """
        used = [
            v for source in sources if (v := self._control.planned_version(source, query_key)) is not None
        ]
        with self._lock:
            known = [version for version in used if version in self._plans]
            return self._plans[max(known)] if known else self._plans[self._current]
