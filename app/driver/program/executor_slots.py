"""How many tasks a BATCH program runs at once on a cluster, changed while it runs: its executors, of one core each.

More are asked for and let in as they come. One that is given up is decommissioned: it gets no more tasks, ends those
that it has, hands its shuffle files to the others, and goes.
"""

from __future__ import annotations

from app.driver.executors import Executors


class ExecutorSlots:
    """For the attempt's own thread."""

    def __init__(self, executors: Executors) -> None:
        self._executors = executors
        self._more = False

    def set(self, slots: int) -> None:
        """Let the program have ``slots`` executors, as soon as they come, or others have ended their tasks."""
        self._more = slots > self._executors.wanted
        self._executors.request(slots)
        self._executors.let_in_all()
        self.tend()

    def tend(self) -> None:
        """
        Raises:
            DriverError: there have been no executors for too long.
        """
        self._executors.check()
        self._executors.retire()

    @property
    def is_settled(self) -> bool:
        """Whether the program has the executors that it should have and no more, or does not wait for others."""
        executors = self._executors
        if self._more:
            return executors.ready >= executors.wanted or executors.have_had_time
        return executors.count <= executors.wanted
