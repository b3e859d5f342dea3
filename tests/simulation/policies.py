"""Floors and ceilings in the simulated world: an operator who sets them, and what must hold of them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from app.model.jobgraph import JobGraph, JobType
from app.model.requirements import Bounds, Requirements
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.scheduler.adaptive.state import JobState
from app.store.store import Store
from app.worker.requests.declared import ScalingPolicyUpdate
from tests.simulation import versions
from tests.simulation.jobs import MOST_SLOTS_NEEDED
from tests.simulation.rules import limits_of

if TYPE_CHECKING:
    from tests.simulation.oracles import Oracles
    from tests.simulation.plane import Incarnation
    from tests.simulation.world import World

MOST_CEILING = 8


@dataclass
class Policies:
    """What is known of the policies of a job from outside, by version: as committed, and as answered."""

    stored: dict[int, ScalingPolicy] = field(default_factory=dict)
    promised: dict[int, ScalingPolicyUpdate] = field(default_factory=dict)


class PolicyOracles:
    """A policy that was answered is durable, each version is one policy, and no plan that is decided upon is outside of
    the one in force."""

    def __init__(self, oracles: Oracles) -> None:
        self._oracles = oracles
        self._jobs: dict[str, Policies] = {}

    def committed(self, job_id: str, state: JobState) -> None:
        known, policy = self._jobs.setdefault(job_id, Policies()), state.policy
        mark = policy.reason or ""
        by_client = policy.version > 1 and not mark.startswith(versions.REASON)
        if by_client and policy.version not in known.stored:
            self._oracles.told.became_durable(
                policy.reason or "", f"policy {policy.version} of {job_id[-2:]}"
            )
        before = known.stored.setdefault(policy.version, policy)
        self._oracles.check(before == policy, "policy", f"version {policy.version} was written twice")
        newest = max(known.stored)
        self._oracles.check(
            policy.version == newest, "policy", f"version {newest} was lost to {policy.version}"
        )

    def answered(self, job_id: str, version: int, update: ScalingPolicyUpdate) -> None:
        self._oracles.count("policy answered")
        known = self._jobs.setdefault(job_id, Policies())
        self._oracles.check(
            _is_as_asked(known.stored.get(version), update),
            "policy",
            f"version {version} of {job_id[-2:]} was answered to {update}: {known.stored.get(version)}",
        )
        known.promised[version] = update

    def complaint(self, job_id: str, state: JobState) -> str | None:
        """Of a job at rest, which has the slots for its floors: none if it runs within its policy."""
        if state.plan is None or state.graph.type is JobType.BATCH:
            return None
        for vertex, count in state.plan.parallelism:
            limits = limits_of(state.policy, vertex)
            floor = min(limits.floor or 1, state.graph.by_id[vertex].max_parallelism)
            if limits.ceiling is not None and count > limits.ceiling:
                return f"job {job_id[-2:]} runs {vertex[-2:]} at {count}, above its ceiling {limits.ceiling}"
            # Where its slots are limited, a job has what its lower bounds need, of which floors are a part.
            if count < floor and state.trial.taken_back is None:
                return f"job {job_id[-2:]} runs {vertex[-2:]} at {count}, below its floor {floor}"
            if limits:
                self._oracles.count("at rest within a policy")
        return None

    def between(self, job_id: str, first: int, last: int) -> list[ScalingPolicy]:
        """The versions from ``first`` to ``last`` that are durable."""
        known = self._jobs[job_id].stored
        return [known[version] for version in range(first, last + 1) if version in known]

    async def check_database(self, store: Store) -> None:
        """What is really stored, read by somebody else."""
        for job_id, known in self._jobs.items():
            rows = {row.version: row for row in await store.scaling_policies(job_id)}
            wanted = {version: one for version, one in known.stored.items() if version > 1}
            missing = {version for version in known.promised if version > 1} - set(rows)
            self._oracles.check(not missing, "policy", f"{job_id[-2:]}: versions {missing} were answered")
            same = all(rows.get(version) == one for version, one in wanted.items())
            self._oracles.check(same, "policy", f"{job_id[-2:]}: {rows} are stored, {wanted} were committed")


def _is_as_asked(stored: ScalingPolicy | None, update: ScalingPolicyUpdate) -> bool:
    if stored is None or stored.all_vertices != update.all_vertices:
        return False
    asked = {
        vertex: own for vertex, own in update.vertices.items() if (own.floor, own.ceiling) != (None, None)
    }
    return dict(stored.vertices) == asked


class Operator:
    """Whether, when and how somebody sets floors and ceilings of one job, drawn apart from everything else."""

    def __init__(self, seed: int, number: int, graph: JobGraph, *, fragile: bool) -> None:
        self._rng = random.Random(f"policies/{seed}/{number}")
        self._graph = graph
        # A floor that such a job fails with is taken back and tried again at each change: not what it is there for.
        self._may = not fragile and self._rng.random() < 0.3

    def is_time(self) -> bool:
        return self._may and self._rng.random() < 0.25

    def make(
        self, world: World, job_id: str, mark: str
    ) -> Callable[[Incarnation], Coroutine[Any, Any, None]]:
        """A request for another policy."""
        known = world.oracles.truth(job_id).state
        if known is not None and known.graph.program is not None:
            self._graph = known.graph
        version = known.policy.version if known is not None and self._rng.random() < 0.3 else None
        update = ScalingPolicyUpdate(*self._some(), if_match=version, requested_by="olga", reason=mark)

        async def put(plane: Incarnation) -> None:
            answer = await plane.plane.update_scaling_policy(job_id, update)
            world.tell(f"PUT of {update} answered {answer}")
            if not plane.dead:
                world.oracles.policies.answered(job_id, answer, update)

        return world.oracles.told.heard(mark, put)

    def _some(self) -> tuple[FloorCeiling, dict[str, FloorCeiling]]:
        if self._rng.random() < 0.2:
            return FloorCeiling(), {}
        vertices = {one.id: self._limits() for one in self._graph.vertices if self._rng.random() < 0.5}
        return FloorCeiling(None, self._rng.choice((None, MOST_SLOTS_NEEDED, MOST_CEILING))), vertices

    def _limits(self) -> FloorCeiling:
        floor = self._rng.choice((None, self._rng.randint(1, MOST_SLOTS_NEEDED)))
        return FloorCeiling(floor, self._rng.choice((None, self._rng.randint(floor or 1, MOST_CEILING))))


@contextlib.contextmanager
def floor_forgotten() -> Iterator[None]:
    """A floor above an upper bound gives way to it."""
    original = JobState.bounds

    def bounds(self: JobState) -> Requirements:
        found, declared = original.fget(self), self.requirements.as_dict()  # type: ignore[attr-defined]
        capped = tuple(
            (vertex, Bounds(min(own.lower, declared[vertex].upper), min(own.upper, declared[vertex].upper)))
            for vertex, own in found
        )
        return replace(found, bounds=capped)

    JobState.bounds = property(bounds)  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        JobState.bounds = original  # type: ignore[method-assign]


PLANTED: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "a floor gives way to an upper bound": floor_forgotten,
}
