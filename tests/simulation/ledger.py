"""The bounds of one job that wait for their deadline, as `tests.simulation.deadlines` follows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from app.model.requirements import OnTimeout
from tests.simulation.goals import Holds


@dataclass
class Waiting:
    """Bounds of ``version``, by vertex, that have a deadline. ``former``: they were applied in the place of these.
    ``records``: the numbers of their records, as they were seen."""

    version: int
    bounds: Holds
    on_timeout: OnTimeout
    former: Holds | None = None
    records: set[int] = field(default_factory=set)

    def without(self, vertices: Iterable[str]) -> Waiting:
        gone = set(vertices)
        former = None if self.former is None else _but(self.former, gone)
        return replace(self, bounds=_but(self.bounds, gone), former=former)


@dataclass
class Ledger:
    """Of one job. ``wishes``: what each PUT asks for in case of a timeout, by mark. ``patches``: what waits, or was
    applied and is not in force, oldest first. ``queued``: of each version of the requirements, what waited behind it;
    and what was asked for and held, in whose place bounds that had waited were applied. ``last``: by vertex, what it
    had before its bounds changed last. ``canceled``: the records that were to be canceled, by mark. ``known``: the
    marks of PUTs that are durable. ``is_moved``: the graph has changed in the commit of now."""

    wishes: dict[str, OnTimeout] = field(default_factory=dict)
    patches: list[Waiting] = field(default_factory=list)
    queued: dict[int, Holds] = field(default_factory=dict)
    last: Holds = field(default_factory=dict)
    canceled: dict[str, int] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    is_moved: bool = False

    @property
    def waiting(self) -> Holds:
        return {
            vertex: own for one in self.patches if one.former is None for vertex, own in one.bounds.items()
        }

    def leave_out(self, vertices: Iterable[str]) -> None:
        left = [one.without(vertices) for one in self.patches]
        self.patches = [one for one in left if one.bounds]


def _but(bounds: Holds, gone: set[str]) -> Holds:
    return {vertex: own for vertex, own in bounds.items() if vertex not in gone}
