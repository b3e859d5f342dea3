"""The JobGraph: the vertices and edges of a job, as frozen values.

A graph is built by `app.model.graphdoc` from the document of the REST contract, which has checked it; code that
holds a `JobGraph` may rely on the rules named at the fields. Vertices are in topological order, inputs first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from app.model.environment import SERVERS, Runtime

DEFAULT_SLOT_SHARING_GROUP = "default"

MAX_PARALLELISM_LIMIT = 32768
"""The largest legal parallelism and max parallelism (Flink's upper bound of key groups)."""

MAX_SETTING_CHARS = 32_768
"""The longest value of a setting or an option."""

MAX_SETTINGS_CHARS = 262_144
"""How long all settings and options of a graph may be together: each view of them is searched for secrets."""

DEFAULT_BATCH_PARALLELISM = 32
"""The upper bound of a vertex of a BATCH job that does not say it.

Flink's is 128. Here each task that writes a result writes a file per possible reader, so more than the data need costs
more than it brings (docs/batch.md has the measurement).
"""


class JobType(StrEnum):
    STREAMING = "STREAMING"
    BATCH = "BATCH"


class Partitioner(StrEnum):
    """How the rows of an edge are spread over the consumer's tasks."""

    HASH = "HASH"
    REBALANCE = "REBALANCE"
    BROADCAST = "BROADCAST"
    FORWARD = "FORWARD"


class Exchange(StrEnum):
    """PIPELINED: producer and consumer run together. BLOCKING: the consumer starts when the result is complete."""

    PIPELINED = "PIPELINED"
    BLOCKING = "BLOCKING"


class OutputMode(StrEnum):
    """Spark's output modes that a sink may ask for."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


class InPlace(StrEnum):
    """Whether the parallelism of a vertex can change between two micro-batches.

    It lifts what FLIP-160 names as a limitation: non-zero downtime rescaling.
    """

    YES = "yes"
    QUERY_RESTART = "query-restart"
    """Spark was seen to run other tasks than the plan of the running query said. It is planned anew then."""


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source: a file format with a path, `rate`, `rate-micro-batch`, or any Spark/Python DataSource by name.

    ``static``: a side table, read whole and once per batch instead of streamed. ``options`` are texts.
    """

    format: str
    path: str | None = None
    schema: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    static: bool = False


@dataclass(frozen=True, slots=True)
class SqlSpec:
    """A SQL text that reads its inputs by their vertex names."""

    text: str


@dataclass(frozen=True, slots=True)
class PythonSpec:
    """``module:function`` in one of the job's artifacts: one DataFrame per input in, one DataFrame out."""

    entry: str

    @property
    def module(self) -> str:
        return self.entry.partition(":")[0]

    @property
    def function(self) -> str:
        return self.entry.partition(":")[2]


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """A sink: ``format`` is one of ours, of Spark's or of a package, or python (then ``python`` is the entry)."""

    format: str
    path: str | None = None
    output_mode: OutputMode = OutputMode.APPEND
    options: tuple[tuple[str, str], ...] = ()
    python: PythonSpec | None = None


class Role(StrEnum):
    """What a vertex of a program is, in its streaming query if it has any."""

    SOURCE = "SOURCE"
    OPERATOR = "OPERATOR"
    SINK = "SINK"
    PROGRAM = "PROGRAM"
    """All of a BATCH program, which has no query; and a program of which no streaming query is known yet."""


@dataclass(frozen=True, slots=True)
class PlannedSpec:
    """A vertex that was read from the plan that Spark made of a program. ``operator`` says in Spark's words what it is:
    the operator that keeps state (`Aggregate`), the format of a source or of a sink. ``checkpoint``, of a sink: where
    the program wants that of its query; None if it lies with the job. ``path``: of a sink that has one. ``fixed``, of
    an operator: why its state cannot be redistributed, as a clause; None if it can."""

    role: Role
    operator: str
    checkpoint: str | None = None
    path: str | None = None
    fixed: str | None = None


Operation = SourceSpec | SqlSpec | PythonSpec | SinkSpec | PlannedSpec


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """An ordinary PySpark program: ``script`` is one of the job's artifacts, ``args`` what follows it on the command
    line."""

    script: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedBounds:
    """What a document says of the bounds of a vertex, by name; None is the default."""

    vertex: str
    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True)
class VertexInput:
    """An edge, seen from its consumer. ``vertex_id`` is the producer."""

    vertex_id: str
    vertex_name: str
    partitioner: Partitioner = Partitioner.REBALANCE
    keys: tuple[str, ...] = ()
    exchange: Exchange = Exchange.PIPELINED


@dataclass(frozen=True, slots=True)
class JobVertex:
    """A vertex. ``parallelism`` is the initial upper bound, ``lower_bound`` the initial lower one.

    ``max_parallelism`` is, for a stateful vertex, the number of its state partitions, which bounds can change.
    ``is_assumed``: Spark has not analysed the vertex yet, and until then it counts as stateful; ``max_is_assumed``: its
    document does not say its max parallelism either. ``in_place`` says whether its parallelism can change without
    restarting the query.
    """

    id: str
    name: str
    operation: Operation
    inputs: tuple[VertexInput, ...]
    parallelism: int
    lower_bound: int
    max_parallelism: int
    slot_sharing_group: str
    slot_sharing_group_id: str
    stateful: bool = False
    in_place: InPlace = InPlace.YES
    is_assumed: bool = False
    max_is_assumed: bool = False

    @property
    def highest_bound(self) -> int:
        """The highest upper bound that may be declared as long as no state is redistributed for it."""
        return MAX_PARALLELISM_LIMIT if self.max_is_assumed else self.max_parallelism

    @property
    def is_source(self) -> bool:
        if isinstance(self.operation, PlannedSpec):
            return self.operation.role is Role.SOURCE
        return isinstance(self.operation, SourceSpec)

    @property
    def is_sink(self) -> bool:
        if isinstance(self.operation, PlannedSpec):
            return self.operation.role is Role.SINK
        return isinstance(self.operation, SinkSpec)


@dataclass(frozen=True)
class JobGraph:
    """A whole job. ``artifacts`` are file names; ``config`` holds ``spark.*`` settings and scheduler options.

    ``program``: what makes the vertices, which are all of `PlannedSpec`; None for a job that is a graph document.
    ``runtime``: what its drivers run in. ``ended``: the queries of a program, by the ids of their sinks, that have
    ended and were not started again, in the order in which they ended. ``left_out``: those that had not ended, and that
    the last attempt has not started. ``bounds``: what the document of a program says of vertices that the graph has not
    yet, and what was declared for those that have left it. ``origin``: the directory of another's checkpoints, copies
    of which the queries go on from.
    """

    name: str
    type: JobType
    vertices: tuple[JobVertex, ...]
    artifacts: tuple[str, ...] = ()
    config: tuple[tuple[str, str], ...] = field(default=())
    program: ProgramSpec | None = None
    runtime: Runtime = SERVERS
    ended: tuple[str, ...] = ()
    bounds: tuple[NamedBounds, ...] = ()
    left_out: tuple[str, ...] = ()
    origin: str | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Worked out once: a graph is the key under which is kept what follows from it.
        own = (self.name, self.type, self.vertices, self.artifacts, self.config, self.program, self.runtime)
        return hash((*own, self.ended, self.bounds, self.left_out, self.origin))

    @cached_property
    def by_id(self) -> dict[str, JobVertex]:
        return {vertex.id: vertex for vertex in self.vertices}

    @cached_property
    def by_name(self) -> dict[str, JobVertex]:
        return {vertex.name: vertex for vertex in self.vertices}

    @cached_property
    def groups(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Slot sharing groups in declared order: (group name, ids of its vertices)."""
        members: dict[str, list[str]] = {}
        for vertex in self.vertices:
            members.setdefault(vertex.slot_sharing_group, []).append(vertex.id)
        return tuple((name, tuple(ids)) for name, ids in members.items())

    @cached_property
    def over(self) -> frozenset[str]:
        """The ids of the vertices of queries that have ended."""
        return self._vertices_of(self.ended)

    @cached_property
    def resting(self) -> frozenset[str]:
        """The ids of vertices that need no slots: those of queries that have ended or were left out, while another one
        runs. When all have, the program may start one again at any moment."""
        found = self._vertices_of((*self.ended, *self.left_out))
        return frozenset() if found >= self.by_id.keys() else found

    def _vertices_of(self, sinks: tuple[str, ...]) -> frozenset[str]:
        """The ids of the vertices of queries of a program."""
        found = set(sinks)
        for vertex in reversed(self.vertices if found else ()):
            if vertex.id in found:
                found |= {edge.vertex_id for edge in vertex.inputs}
        return frozenset(found)

    @cached_property
    def awaits_query(self) -> bool:
        """Whether no query of the program is known yet: it has one vertex, which stands for the program itself."""
        return self.type is JobType.STREAMING and any(
            isinstance(vertex.operation, PlannedSpec) and vertex.operation.role is Role.PROGRAM
            for vertex in self.vertices[:1]
        )

    @property
    def is_batch_program(self) -> bool:
        return self.type is JobType.BATCH and self.program is not None

    @property
    def runs_by_regions(self) -> bool:
        """Whether it is a BATCH job of regions, which start one after another with bounds of their own moment. A BATCH
        program is one vertex, which is given and gives up slots while it runs, as those of a STREAMING job are."""
        return self.type is JobType.BATCH and self.program is None

    @property
    def max_parallelism(self) -> int:
        return max(vertex.max_parallelism for vertex in self.vertices)
