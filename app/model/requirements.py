"""Resource requirements of a job: lower and upper bound of parallelism per vertex, checked (FLIP-291)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from app.model.ids import derive_id
from app.model.jobgraph import JobGraph, JobVertex
from app.model.value import value


@value
class Bounds:
    """1 <= lower <= upper; resolved numbers only, never -1.

    ``upper`` is at most the vertex's max parallelism, or what that is to become by a redistribution of its state.
    """

    lower: int
    upper: int

    def within(self, most: int) -> Bounds:
        """These, of a vertex that may have ``most`` tasks."""
        return Bounds(min(self.lower, most), min(self.upper, most))


def bounds_at_first(vertex: JobVertex, *, reactive: bool) -> Bounds:
    """What ``vertex`` has until something else is declared. In reactive mode there is no upper bound but the max
    parallelism."""
    return Bounds(vertex.lower_bound, vertex.highest_bound if reactive else vertex.parallelism)


class OnTimeout(StrEnum):
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


@value
class Deadline:
    """Until when new bounds may wait for their slots. Then they are brought into force as far as the slots that there
    are allow (COMMIT), or are dropped (ROLLBACK)."""

    at_ms: int
    on_timeout: OnTimeout


@value
class Requirements:
    """What a client declared, for every vertex of the job.

    ``uuid`` changes with each effective update, ``version`` counts them from 1 (it is the ETag). ``requested_by`` and
    ``reason`` say who asked and why, for the history. ``state_partitions``: numbers that were asked for expressly, of
    vertices whose state has other ones.
    """

    uuid: str
    version: int
    bounds: tuple[tuple[str, Bounds], ...]
    requested_by: str | None = None
    reason: str | None = None
    state_partitions: tuple[tuple[str, int], ...] = ()

    def __getitem__(self, vertex_id: str) -> Bounds:
        for candidate, bounds in self.bounds:
            if candidate == vertex_id:
                return bounds
        raise KeyError(vertex_id)

    def __iter__(self) -> Iterator[tuple[str, Bounds]]:
        return iter(self.bounds)

    def as_dict(self) -> dict[str, Bounds]:
        return dict(self.bounds)

    def following(
        self,
        job_id: str,
        bounds: tuple[tuple[str, Bounds], ...],
        *,
        requested_by: str | None,
        reason: str | None,
        state_partitions: tuple[tuple[str, int], ...] = (),
    ) -> Requirements:
        """The next version of the requirements of ``job_id``."""
        version = self.version + 1
        uuid = derive_id(job_id, "requirements", version)
        return Requirements(uuid, version, bounds, requested_by, reason, state_partitions)

    def same_as(self, other: Requirements) -> bool:
        """Whether ``other`` declares exactly the same."""
        return self.bounds == other.bounds and self.state_partitions == other.state_partitions


def changed_between(before: Requirements, after: Requirements) -> frozenset[str]:
    """The vertices of which the two ask for something else."""
    was, numbers = before.as_dict(), set(before.state_partitions) ^ set(after.state_partitions)
    moved = {vertex for vertex, _ in numbers}
    return frozenset([vertex for vertex, own in after.bounds if was[vertex] != own or vertex in moved])


def validate_bounds(
    graph: JobGraph,
    wanted: Mapping[str, tuple[int, int]],
    beyond: Callable[[JobVertex, int], str | None] = lambda vertex, upper: "",
) -> tuple[dict[str, Bounds], list[str]]:
    """``wanted`` (vertex id -> (lower, upper), -1 for the default) resolved against ``graph``, and all its errors.

    The rules and their order are production Flink's (FLIP-291), but -1 is replaced by its number before it is stored.
    The bounds may be used only when there is no error. ``beyond(vertex, upper)`` is asked about an upper bound above
    the max parallelism. None: it is allowed; a text, also an empty one, refuses it and ends the sentence of the
    refusal.
    """
    resolved: dict[str, Bounds] = {}
    errors: list[str] = []
    for vid, (lower, upper) in wanted.items():
        vertex = graph.by_id.get(vid)
        if vertex is None:
            errors.append(f"Job vertex {vid} was not found in the job graph.")
            continue
        low = 1 if lower == -1 else lower
        high = vertex.highest_bound if upper == -1 else upper
        if low < 1 or high < 1:
            errors.append(
                f"The requested lower bound {lower} and upper bound {upper} for {_label(vertex)} must both be greater "
                "than zero, or -1 for the default."
            )
            continue
        if low > high:
            errors.append(
                f"The requested lower bound {low} for {_label(vertex)} is higher than its upper bound {high}."
            )
        if high > vertex.highest_bound and (why_not := beyond(vertex, high)) is not None:
            sentence = (
                f"The requested upper bound {high} for {_label(vertex)} exceeds its maximum parallelism "
                f"{vertex.highest_bound}. {why_not}"
            )
            errors.append(sentence.rstrip())
        resolved[vid] = Bounds(low, high)
    missing = [v for v in graph.vertices if v.id not in wanted]
    if missing:
        names = ", ".join(f"{v.id} ({v.name})" for v in missing)
        errors.append(f"The request is incomplete: bounds are missing for job vertices {names}.")
    return resolved, errors


def _label(vertex: JobVertex) -> str:
    return f"job vertex {vertex.id} ({vertex.name})"
