"""Puts valves into the plan of a streaming query. Each has a label with its purpose, so the running plan contains it.

There is one above each source and above each operator that keeps state, for the stage that begins there. Above
whatever else Spark may shuffle before, there is one that follows the vertex before it. The last is for the sink.
All but the last are narrow: they bring a stage's partitions together in fewer tasks, without a shuffle. Below an
operator with a barrier there is one that always shuffles. Over that of a source there is a second one, without effect
until the rows of the source are spread (`app.driver.valves.spreading`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from app.driver.failures import DriverError
from app.driver.valves.shape import VERTEX, Node, Part, read_tree, vertices_below, walk
from app.driver.valves.spark import analysed, frame_in, new_valve, with_children
from app.model.planned import PlannedVertex

_OTHER_ROWS: Final = frozenset({"FlatMapGroupsInPandasWithState"})
"""Operators whose rows Spark cannot shuffle as they are (a ClassCastException)."""
_WITH_BARRIER: Final = frozenset({"MapInPandas", "MapInArrow", "PythonMapInArrow"})
_COPY: Final = "spark_partition_id() >= 0"
"""A filter that lets every row pass, which Spark does not see: it makes rows that can be shuffled."""

_EXCLUDED: Final = "spark.sql.optimizer.excludedRules"
_COLLAPSE: Final = "org.apache.spark.sql.catalyst.optimizer.CollapseRepartition"

Width = str | int | dict[str, Any]
"""How many tasks a stage has: those of the vertex with this id, so many, or the sum, min or max of others."""


def width(node: Node, vertex_ids: Mapping[int, str]) -> Width:
    """The tasks of the stage that ``node`` is in. ``vertex_ids``: by the `id` of the vertex's node."""
    if node.part in VERTEX:
        return vertex_ids[id(node)]
    if node.part is Part.ONE:
        return 1
    below = [width(child, vertex_ids) for child in node.children]
    both: Width = below[0] if len(below) == 1 else {"max" if node.part is Part.SHUFFLE else "sum": below}
    return {"min": [node.number, both]} if node.number else both


def tasks(of: Width, parallelism: Mapping[str, int]) -> int:
    if isinstance(of, str):
        return parallelism[of]
    if isinstance(of, int):
        return of
    ((how, parts),) = of.items()
    return {"sum": sum, "min": min, "max": max}[how]([tasks(part, parallelism) for part in parts])  # type: ignore[operator,no-any-return]


def own_stage(root: Node) -> Node | None:
    """The operator that Spark shuffles before, if nothing but the sink is behind it: that stage is the sink's."""
    node = root
    while node.part in (Part.PASS, Part.NARROW) and len(node.children) == 1:
        node = node.children[0]
    return node if node.part in (Part.SHUFFLE, Part.ONE) else None


def has_narrow_end(root: Node) -> bool:
    """Whether the program itself says how many tasks there are at most at the sink, by a ``coalesce``."""
    node = root
    while node.part is Part.PASS and len(node.children) == 1:
        node = node.children[0]
    return node.part is Part.NARROW


def is_barrier(node: Node) -> bool:
    """Whether all tasks of the stage that ``node`` is in run at the same time: `mapInPandas` or `mapInArrow` with
    ``barrier``."""
    return node.kind in _WITH_BARRIER and bool(node.spark.isBarrier())


def spreadable(root: Node) -> set[int]:
    """The `id` of each source with something behind it that runs in its stage, other than the sink. That has a valve
    of its own, and what the rows go to tasks by elsewhere is said by the program or by Spark."""
    return {
        id(child)
        for node in walk(root)
        if node.part not in (Part.SHUFFLE, Part.NARROW, Part.ONE) and not is_barrier(node)
        for child in node.children
        if child.part is Part.SOURCE
    }


@dataclass(frozen=True, slots=True)
class Label:
    """``vertex_id``: empty at a valve that follows others. ``before``: the tasks of the stage that comes to the valve;
    None where it never moves rows by itself. ``spreads``: rows always move there. ``is_capped``: the program says how
    many tasks a sink has at most."""

    vertex_id: str = ""
    before: Width | None = None
    spreads: bool = False
    is_capped: bool = False

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Label:
        return cls(**json.loads(text))

    def setting(self, parallelism: Mapping[str, int], *, is_spread: bool = False) -> tuple[int, bool]:
        """The number of the valve, and whether it shuffles. ``parallelism`` is by vertex id. ``is_spread``: it does
        where its vertex has the tasks of the source before it, too."""
        if not self.vertex_id:
            assert self.before is not None
            return tasks(self.before, parallelism), self.spreads
        number = parallelism[self.vertex_id]
        if self.spreads or self.before is None:
            return number, self.spreads
        before = tasks(self.before, parallelism)
        if number > before:
            return number, not self.is_capped
        return number, is_spread or (number < before and not self._joins(number, parallelism))

    def _joins(self, number: int, parallelism: Mapping[str, int]) -> bool:
        """Whether it is a union of stages of ``number`` tasks each: these go together without a shuffle."""
        if not isinstance(self.before, dict) or "sum" not in self.before:
            return False
        return all(tasks(each, parallelism) == number for each in self.before["sum"])


def insert_valves(
    frame: DataFrame,
    vertices: Sequence[PlannedVertex],
    ids: Mapping[str, str],
    parallelism: Mapping[str, int],
    *,
    may_spread: bool = True,
) -> DataFrame:
    """``frame`` with valves for ``vertices``, which `read_query` has read from it. ``ids``: by the name of a vertex;
    ``parallelism``: by its id. ``may_spread``: the rows of a source may be.

    It has to be started at once: the settings of its session that valves need are set here.

    Raises:
        DriverError: the vertices are not those of ``frame``.
    """
    has_limit = any(vertex.operator == "GlobalLimit" for vertex in vertices)
    root = read_tree(frame, "append" if has_limit else "complete")
    nodes = [node for node in walk(root) if node.part in VERTEX]
    if len(nodes) != len(vertices) - 1:
        raise DriverError("The plan of the query is no longer the one that its vertices were read from.")
    vertex_ids = {id(node): ids[vertex.name] for node, vertex in zip(nodes, vertices, strict=False)}
    _prepare(frame.sparkSession)
    jvm: Any = frame.sparkSession._jvm
    own = own_stage(root)
    spreads = spreadable(root) if may_spread else set()

    def valve(child: Any, label: Label) -> Any:
        number, shuffle = label.setting(parallelism)
        return new_valve(jvm, child, number, shuffle=shuffle, label=label.text)

    def built(node: Node) -> Any:
        found = node.spark
        if node.children:
            streams = {id(child.spark): child for child in node.children}
            inputs = [
                built(streams[id(each)]) if id(each) in streams else each for each in node.spark_children
            ]
            if is_barrier(node):
                # Spark brings no partitions together within a stage whose tasks wait for each other.
                label = Label(before=width(node.children[0], vertex_ids), spreads=True)
                inputs = [valve(each, label) for each in inputs]
            found = with_children(jvm, found, inputs)
        if node.part in VERTEX:
            vertex_id = vertex_ids[id(node)]
            found = valve(found, Label(vertex_id))
            return valve(found, Label(vertex_id, before=vertex_id)) if id(node) in spreads else found
        if node.part is Part.MAYBE or (node.part is Part.SHUFFLE and node is not own):
            return valve(found, Label(before=width(node, vertex_ids)))
        return found

    before = None if own is not None else width(root, vertex_ids)
    sink = Label(ids[vertices[-1].name], before=before, is_capped=has_narrow_end(root))
    plan = built(root)
    if any(node.kind in _OTHER_ROWS for node in (root, *vertices_below(root))):
        plan = analysed(frame_in(frame.sparkSession, plan).where(_COPY))
    return frame_in(frame.sparkSession, valve(plan, sink))


def _prepare(session: SparkSession) -> None:
    """The settings that valves rest on. Spark copies them when a query is started; a program may have changed them."""
    excluded = session.conf.get(_EXCLUDED, "") or ""
    if _COLLAPSE not in excluded:
        # Two repartitions in a row would be merged, and the stage before would get the number of the stage behind.
        session.conf.set(_EXCLUDED, ",".join(filter(None, (excluded, _COLLAPSE))))
    session.conf.set("spark.sql.adaptive.enabled", "false")
