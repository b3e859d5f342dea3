"""Tells the control plane how many of the executors that a job should have are there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from app.driver.executor_sight import ExecutorSight
from app.driver.executors import Executors

_LOOK_EVERY_S = 2.0


class ExecutorNews:
    """``executors`` None: the job runs in its driver, and there is nothing to tell. For the attempt's own thread."""

    def __init__(
        self, executors: Executors | None, report: Callable[..., None], sight: ExecutorSight | None = None
    ) -> None:
        self._executors = executors
        self._sight = sight
        self._report = report
        self._looked_at = time.monotonic()
        self.known: dict[str, Any] = {}
        """The fields of a report, by the last look."""

    def figures(self) -> dict[str, Any]:
        """The fields of a report, by a look now. They are told with it."""
        if self._executors is not None:
            self.known = {"executors": self._executors.ready, "executors_wanted": self._executors.wanted}
            if self._sight is not None and (why := self._sight.why):
                self.known["executors_why"] = why
        return self.known

    def turn(self) -> None:
        """Look now and then, and say so if there are more or fewer than was told last, or should be."""
        now = time.monotonic()
        if self._executors is None or now - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at, before = now, self.known
        if self.figures() != before:
            self._report(type="executors", **self.known)
