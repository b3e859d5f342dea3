"""Jobs that are replaced by new versions of themselves while everything goes wrong, and what has to be true of it.

A version has a file that is named after it. One that is called bad fails before its first batch, every time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from app.cluster.ports import DriverLaunchError
from app.model.environment import Runtime
from app.model.jobgraph import JobGraph, JobType
from app.scheduler.adaptive.state import JobState
from tests.simulation.programs import next_version, some_bounds

if TYPE_CHECKING:
    from tests.simulation.plane import Incarnation
    from tests.simulation.process import SimAttempt
    from tests.simulation.world import World

_BAD: Final = "bad"
REASON: Final = "Version "
"""What the reason of requirements begins with that a change of version made."""


class Replacements:
    """Whether, when and how one job is replaced, drawn apart from everything else."""

    def __init__(self, seed: int, number: int, graph: JobGraph, *, fragile: bool) -> None:
        self._rng = random.Random(f"versions/{seed}/{number}")
        self._graph, self._seed = graph, f"{seed}/{number}"
        self._may = (
            graph.type is JobType.STREAMING
            and not fragile
            and self._rng.random() < (0.95 if graph.program else 0.3)
        )
        self._made = 0

    def is_time(self) -> bool:
        return self._may and self._rng.random() < 0.25

    def make(self, job_id: str) -> Callable[[Incarnation], Coroutine[Any, Any, None]]:
        """A request for another version."""
        self._made += 1
        name = f"{_BAD if self._rng.random() < 0.3 else 'good'}{self._made}.txt"
        files = {**dict.fromkeys(self._graph.artifacts, b""), name: b"version"}
        graph = dataclasses.replace(self._graph, artifacts=tuple(files))
        bounds = some_bounds(self._rng)
        # In an environment of its own, which has to be built.
        has_own = random.Random(f"environment of {self._seed}/{name}").random() < 0.3

        async def replace(plane: Incarnation) -> None:
            state = plane.world.oracles.truth(job_id).state
            if graph.program is None:
                coming = await plane.plane.replacing.graph_of(job_id, graph, files)
            elif state is None:
                return
            else:
                packages = ("a:b:1",) if has_own else ()
                coming = next_version(graph, tuple(files), bounds, state.graph, packages)
                plane.world.oracles.growth.asked(job_id, tuple(files), bounds)
            number = await plane.plane.replacing.replace(job_id, coming, files, requested_by="ann")
            plane.world.tell(f"version {number} of {job_id[-2:]} is {name}")
            plane.world.oracles.count("version")

        return replace


async def build_environment(world: World, runtime: Runtime) -> None:
    """What the host does for a new version that has one of its own."""
    await asyncio.sleep(world.rng.uniform(0.1, 2 if world.quiet else 20))
    if world.chance(0.3):
        raise DriverLaunchError("packages: a:b:1 was not found.", recoverable=False)
    world.built.add(runtime.artifacts_dir)
    world.oracles.count("environment")


def comes_too_early(world: World, spec: dict[str, Any]) -> bool:
    """Whether an attempt is at a version whose environment was not built."""
    return "packages" in spec["graph"] and spec["artifacts_dir"] not in world.built


def is_bad(attempt: SimAttempt) -> str | None:
    """Why this attempt fails before its first batch."""
    bad = any(name.startswith(_BAD) for name in attempt.spec["graph"]["artifacts"])
    return "NameError: this version is bad." if bad else None


def complaint(job_id: str, state: JobState, driver: SimAttempt) -> str | None:
    """What is wrong with the versions of a job at rest; None if nothing is."""
    versions = state.versions
    if versions.replacement is not None:
        return f"job {job_id[-2:]}: version {versions.replacement.number} is not decided upon"
    if tuple(driver.spec["graph"]["artifacts"]) != state.graph.artifacts:
        return f"the driver of job {job_id[-2:]} runs another version than {versions.current}"
    if any(name.startswith(_BAD) for name in state.graph.artifacts):
        return f"job {job_id[-2:]} runs a version that never commits a batch"
    outcomes = {note.number: note.outcome for note in versions.notes}
    if outcomes and outcomes[versions.current] != "IN_FORCE":
        return f"job {job_id[-2:]}: version {versions.current} is {outcomes[versions.current]}"
    if list(outcomes.values()).count("IN_FORCE") > 1:
        return f"job {job_id[-2:]} has two versions in force: {outcomes}"
    return None
