"""Programs of the simulated world: what their queries look like. In worlds that grow a job is one of them more often
than not; `growing` has what a driver does with it.

Each program has a few queries that it may run, by number. A query looks the same in every attempt.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.model.graphdoc import parse_document
from app.model.ids import vertex_id
from app.model.jobgraph import JobGraph, Role
from app.model.planned import PlannedVertex

SCRIPT = "main_program.py"
MOST_QUERIES = 8
ENDED_KEPT = 2
"""In worlds that grow. In others `app.scheduler.adaptive.growth` keeps many more, for which a world has no time."""
STATELESS_UPPER = 12
"""The upper bound of a vertex of which nothing is said and whose query has no state."""
PARTITIONS = 8
_EVERY, _ONE_OF = 7, 3


def grows(seed: int) -> bool:
    """Whether jobs of the world of ``seed`` may be programs that start queries while they run."""
    return seed % _EVERY == _ONE_OF


def is_program(seed: int, number: int) -> bool:
    """Whether the streaming job of this number is one of them."""
    return grows(seed) and random.Random(f"program/{seed}/{number}").random() < 0.8


@dataclass(frozen=True)
class ProgramQuery:
    """One that a program of the job ``job`` may run: a source, perhaps an operator with state, and a sink."""

    job: str
    number: int

    @property
    def key(self) -> str:
        return vertex_id(self.job, f"out{self.number}")

    @property
    def ids(self) -> dict[str, str]:
        """The ids of its vertices, by name."""
        return {vertex.name: vertex_id(self.job, vertex.name) for vertex in self.planned(None)}

    @property
    def is_stateful(self) -> bool:
        return random.Random(f"query/{self.job}/{self.number}").random() < 0.4

    def planned(self, partitions: int | None) -> tuple[PlannedVertex, ...]:
        """``partitions``: of its state, as its checkpoint has them."""
        number, last = self.number, f"in{self.number}"
        vertices = [PlannedVertex(last, Role.SOURCE, "rate")]
        if self.is_stateful:
            counts = f"agg{number}"
            vertices.append(
                PlannedVertex(
                    counts, Role.OPERATOR, "Aggregate", (last,), stateful=True, state_partitions=partitions
                )
            )
            last = counts
        return (*vertices, PlannedVertex(f"out{number}", Role.SINK, "noop", (last,)))

    def uppers(self, partitions: int) -> dict[str, int]:
        """The upper bounds that its vertices get when they come, by name."""
        return dict.fromkeys(self.ids, partitions if self.is_stateful else STATELESS_UPPER)


def queries_of(job: str) -> tuple[ProgramQuery, ...]:
    """All that the program of this job may run."""
    return tuple(ProgramQuery(job, number) for number in range(MOST_QUERIES))


def program_graph(name: str, config: Mapping[str, str], seed: int, number: int) -> JobGraph:
    """The job graph of a program as it was planned: of one or two queries."""
    rng = random.Random(f"program graph/{seed}/{number}")
    vertices = [
        _document(vertex, rng.randint(1, 4))
        for query in queries_of(name)[: rng.choice((1, 1, 2))]
        for vertex in query.planned(PARTITIONS)
    ]
    document = {
        "name": name,
        "type": "STREAMING",
        "script": SCRIPT,
        "artifacts": [SCRIPT],
        "config": {**config},
        "vertices": vertices,
    }
    return parse_document(document, stored=True)


def _document(vertex: PlannedVertex, upper: int) -> dict[str, Any]:
    return {
        "name": vertex.name,
        "planned": {"role": vertex.role.value, "operator": vertex.operator},
        **({"inputs": list(vertex.inputs)} if vertex.inputs else {}),
        "parallelism": upper,
        "lowerBound": 1,
        **({"maxParallelism": vertex.state_partitions} if vertex.stateful else {}),
        "stateful": vertex.stateful,
    }


def first_started(job: str, attempt: int, known: Mapping[str, object]) -> list[ProgramQuery]:
    """The queries that a program starts at once in an attempt: most of those which ran before, whose sinks are
    ``known``, and now and then another one."""
    rng = random.Random(f"first/{job}/{attempt}")
    chances = {query: rng.random() for query in queries_of(job)}
    return [
        query
        for query, dice in chances.items()
        if dice < (0.1 if query.key not in known else 0.95 if query.number == 0 else 0.75)
    ]
