"""The versions of a job, as its state stores them: the one in force, and the progress of a newer one (ADR 35)."""

from __future__ import annotations

from typing import Literal

from app.model.jobgraph import JobGraph
from app.model.options import JobOptions
from app.model.requirements import Bounds
from app.model.value import value

BoundsOfVertices = tuple[tuple[str, Bounds], ...]
"""By vertex id, in the graph's order."""

Outcome = Literal["STARTING", "TRIAL", "IN_FORCE", "REPLACED", "TAKEN_BACK", "DROPPED"]


@value
class JobVersion:
    """What a version is made of. Versions are counted from 1, which is what was submitted; no number comes twice.

    ``max_parallelism``: as in the state of a job, if ``graph`` is as that was while the version was in force.
    """

    number: int
    graph: JobGraph
    options: JobOptions
    max_parallelism: tuple[tuple[str, int], ...] = ()


@value
class Replacement:
    """Version ``number`` is to take the place of version ``before``, or has taken it and is on trial.

    ``stage``: "Builds": what it is to run in is built, and ``before`` runs on; "Waits" until nothing of an attempt at
    ``before`` is alive; "Trial": it is in force and has not proven itself; "Back": it is in force and has failed, and
    ``before`` comes back once nothing of its attempt is alive.
    ``kept`` are the bounds of ``before`` when it was replaced, and ``given`` those that ``number`` began with.
    ``batch``: it has committed one with rows; ``applied``: each of its queries has, or has nothing to do.
    ``failed``: attempts that were ended from outside. ``until_ms``: when the trial of the attempt that runs is over;
    None for no limit.
    """

    number: int
    before: int
    stage: Literal["Builds", "Waits", "Trial", "Back"]
    kept: BoundsOfVertices = ()
    given: BoundsOfVertices = ()
    batch: bool = False
    applied: bool = False
    failed: int = 0
    until_ms: int | None = None
    why: str = ""


@value
class VersionNote:
    """What became of a version: ``outcome`` since ``since_ms``, and ``why`` in a sentence if there is more to say."""

    number: int
    since_ms: int
    outcome: Outcome
    requested_by: str | None = None
    requested_ms: int = 0
    why: str = ""


@value
class Versions:
    """``current`` is the version in force, ``newest`` the highest number that was given. ``notes``: oldest first."""

    current: int = 1
    newest: int = 1
    replacement: Replacement | None = None
    notes: tuple[VersionNote, ...] = ()

    @property
    def is_on_trial(self) -> bool:
        """Whether the version in force has not proven itself."""
        return self.replacement is not None and self.replacement.stage == "Trial"

    @property
    def spare(self) -> int | None:
        """The number of the version that is not in force and is needed: the one to come, or the one to go back to."""
        one = self.replacement
        return None if one is None else one.number if one.stage in ("Builds", "Waits") else one.before

    @property
    def builds(self) -> int | None:
        """The number of the version whose environment is being built, if one is."""
        one = self.replacement
        return one.number if one is not None and one.stage == "Builds" else None
