"""Programs of the simulated world: what their queries look like. In worlds that grow a job is one of them more often
than not; `growing` has what a driver does with it.

Each program has a few queries that it may run, by number. A query looks the same in every attempt at a version of the
program. Another version may have another sink behind it, read its source under another name, leave it out or add it.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from app.model.environment import Runtime
from app.model.graphdoc_program import ProgramDocument, graph_of, graph_of_version
from app.model.ids import vertex_id
from app.model.jobgraph import JobGraph, JobType, NamedBounds, ProgramSpec, Role
from app.model.planned import PlannedVertex

MOST_QUERIES = 8
ENDED_KEPT = 2
"""In worlds that grow. In others `app.scheduler.adaptive.growth` keeps many more, for which a world has no time."""
STATELESS_UPPER = 12
"""The upper bound of a vertex of which nothing is said and whose query has no state."""
PARTITIONS = 8
_EVERY, _ONE_OF = 7, 3
_NEVER = ("never", "in99", "agg98")
_UPPERS = (None, 1, 2, 3, 5, 9, 14)


def grows(seed: int) -> bool:
    """Whether jobs of the world of ``seed`` may be programs that start queries while they run."""
    return seed % _EVERY == _ONE_OF


def is_program(seed: int, number: int) -> bool:
    """Whether the streaming job of this number is one of them."""
    return grows(seed) and random.Random(f"program/{seed}/{number}").random() < 0.8


@dataclass(frozen=True)
class ProgramQuery:
    """One that a program of the job ``job`` may run: a source, perhaps an operator with state, and a sink.
    ``version``: the file of the version of the program that has changed it; empty if none has."""

    job: str
    number: int
    version: str = ""

    @property
    def key(self) -> str:
        return _id(self.job, f"out{self.number}")

    @property
    def ids(self) -> dict[str, str]:
        """The ids of its vertices, by name."""
        return {vertex.name: _id(self.job, vertex.name) for vertex in self.planned(None)}

    @property
    def is_stateful(self) -> bool:
        return _is_stateful(self.job, self.number)

    def planned(self, partitions: int | None) -> tuple[PlannedVertex, ...]:
        """``partitions``: of its state, as its checkpoint has them."""
        return _planned(self, partitions)

    def uppers(self, partitions: int) -> dict[str, int]:
        """The upper bounds that its vertices get when they come and nothing is said of them, by name."""
        return dict.fromkeys(self.ids, partitions if self.is_stateful else STATELESS_UPPER)


@cache
def _id(job: str, name: str) -> str:
    return vertex_id(job, name)


@cache
def _is_stateful(job: str, number: int) -> bool:
    return random.Random(f"query/{job}/{number}").random() < 0.4


@cache
def _planned(query: ProgramQuery, partitions: int | None) -> tuple[PlannedVertex, ...]:
    number, last, sink = query.number, f"in{query.number}", "noop"
    if query.version and (query.is_stateful or random.Random(str(query)).random() < 0.5):
        sink = f"sink of {query.version}"
    elif query.version:
        # Nothing but the state of a query ties it to the names of its sources.
        last = f"in{number}-{query.version.partition('.')[0]}"
    vertices = [PlannedVertex(last, Role.SOURCE, "rate")]
    if query.is_stateful:
        counts = f"agg{number}"
        vertices.append(
            PlannedVertex(
                counts, Role.OPERATOR, "Aggregate", (last,), stateful=True, state_partitions=partitions
            )
        )
        last = counts
    return (*vertices, PlannedVertex(f"out{number}", Role.SINK, sink, (last,)))


# ---- what is submitted


def program_graph(name: str, config: Mapping[str, str], seed: int, number: int) -> JobGraph:
    """The job graph of a program that has not run yet."""
    rng = random.Random(f"program graph/{seed}/{number}")
    # What stands for the program may have the name of a vertex that comes.
    script = f"{rng.choice(('main_program', 'main_program', 'in0', 'out0', 'agg1'))}.py"
    bounds = some_bounds(rng)
    program = ProgramDocument(
        name.replace("job", f"job-of-{seed}", 1),
        JobType.STREAMING,
        ProgramSpec(script),
        (script,),
        tuple(config.items()),
        bounds,
    )
    return graph_of(program)


def some_bounds(rng: random.Random) -> tuple[NamedBounds, ...]:
    """Of vertices of queries that come, soon or late or not at all, and of some that there are not."""
    if rng.random() < 0.2:
        return ()
    names = [f"{part}{query}" for query in range(MOST_QUERIES) for part in ("in", "agg", "out")]
    named = [one for one in names if rng.random() < 0.3] + [one for one in _NEVER if rng.random() < 0.3]
    rng.shuffle(named)
    found = []
    for one in named:
        upper = rng.choice(_UPPERS)
        lower = rng.choice((None, None, 1, 2, 3))
        if lower is not None and upper is not None:
            lower = min(lower, upper)
        found.append(NamedBounds(one, lower, upper))
    return tuple(found)


def next_version(
    graph: JobGraph,
    artifacts: Sequence[str],
    bounds: tuple[NamedBounds, ...],
    known: JobGraph,
    packages: tuple[str, ...] = (),
) -> JobGraph:
    """The graph of a new version of the program of ``graph``, with these files, bounds and packages, where ``known``
    runs."""
    assert graph.program is not None
    program = ProgramDocument(
        *(graph.name, JobType.STREAMING, graph.program, tuple(artifacts), graph.config, bounds),
        runtime=Runtime(packages=packages),
    )
    return graph_of_version(program, known)


# ---- what it runs


def version_of(artifacts: Sequence[str]) -> str:
    """The file that names the version of a program; empty for what was submitted."""
    return next((name for name in artifacts if name.endswith(".txt")), "")


@cache
def queries_of(job: str, version: str = "") -> tuple[ProgramQuery, ...]:
    """All that this version of the program of a job may run."""
    rng = random.Random(f"queries/{job}/{version}")
    return tuple(
        ProgramQuery(job, number, version if version and rng.random() < 0.3 else "")
        for number in range(MOST_QUERIES)
    )


def first_started(spec: Mapping[str, Any], attempt: int, known: Collection[str]) -> list[ProgramQuery]:
    """The queries that the program of ``spec``, a graph document, starts at once in an attempt: most of those which ran
    before, whose sinks are ``known``, and now and then another one. A version leaves some out in each attempt."""
    job, version = spec["name"], version_of(spec["artifacts"])
    rng = random.Random(f"first/{job}/{attempt}")
    own = queries_of(job, version)
    chances = {query: rng.random() for query in own}
    by_version = random.Random(f"left out/{job}/{version}")
    dice_of_version = {query: by_version.random() if version else 1.0 for query in own}
    is_known = any(query.key in known for query in own)
    found = []
    for query, dice in chances.items():
        chance = 0.1 if query.key not in known else 0.95 if query.number == 0 else 0.75
        if not is_known:
            chance = 0.9 if query.number == 0 else 0.25
        if dice < chance and dice_of_version[query] > 0.5:
            found.append(query)
    # Of a version that starts nothing nobody can say whether it is good.
    return found if found or (is_known and not version) else [own[0]]
