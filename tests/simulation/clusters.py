"""Worlds in which each life of the control plane may have another cluster in its settings: at the end no driver runs on
another one than the control plane says."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.worker.ownership import recovery

if TYPE_CHECKING:
    from tests.simulation.plane import Incarnation
    from tests.simulation.world import World


class Clusters:
    """Which cluster each life has. A source of its own: worlds with one cluster stay as they are."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"clusters/{seed}")
        self._change = self._rng.random() < 0.3
        self._now = ""

    def draw(self) -> str:
        if self._change and self._rng.random() < 0.4:
            self._now = self._rng.choice(("", "spark://one:7077", "spark://two:7077"))
        return self._now

    def check(self, world: World, plane: Incarnation) -> None:
        """Nothing is going on any more."""
        from tests.simulation.truth import Violation

        if self._change and len({one.runs_on for one in world.planes}) > 1:
            world.oracles.count("other clusters")
        for life in world.planes:
            for process in life.processes:
                if process.python and process.attempt is not None and life.runs_on != plane.runs_on:
                    raise Violation(
                        "place",
                        f"{process.attempt} runs on {life.runs_on or 'the host'}, where {life} started it; jobs run on "
                        f"{plane.runs_on or 'the host'}",
                    )


def adopts_wherever() -> contextlib.AbstractContextManager[None]:
    """A driver that runs on another cluster is left there."""
    from tests.simulation.planted_batch_bugs import instead

    return instead(recovery, "misplaced", lambda _started_on, _runs_on: None)


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "a driver is adopted on whatever cluster it runs": adopts_wherever,
}
