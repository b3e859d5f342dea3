"""The valves of a graph document's query: one behind each of its vertices, and one in front of those without state.

A valve is an operator of Spark's logical plan that says into how many tasks rows go. Spark plans each micro-batch anew
from the logical plan of its query, so a number that is set there counts from the next batch on.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from app.driver.scala import plan_children, scala_option
from app.driver.valves.spark import execution_of, frame_of, java_field, kind_of
from app.model.analysis import Query
from app.model.jobgraph import Partitioner, VertexInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_TAG: Final = "slotwise.vertex"
KINDS: Final = ("Repartition", "RepartitionByExpression")
_PHYSICAL_KINDS: Final = ("CoalesceExec", "ShuffleExchangeExec")
_NUMBERS: Final = re.compile(
    r"^\d+ [ :+-]*~Repartition(?: (\d+), (?:true|false)|ByExpression .*?(?:, (\d+))?)$", re.MULTILINE
)
_DIGITS: Final = re.compile(r"\d+")


def label_before(vertex_id: str) -> str:
    return f"before {vertex_id}"


def label_behind(vertex_id: str) -> str:
    return f"behind {vertex_id}"


@dataclass(frozen=True, slots=True)
class GraphValve:
    """``edge``: what the valve in front of a vertex lets in; None: it is behind the vertex. ``gathers``: behind it,
    where several streams come together, whose tasks add up."""

    vertex_id: str
    edge: VertexInput | None = None
    gathers: bool = False

    @property
    def label(self) -> str:
        return label_behind(self.vertex_id) if self.edge is None else label_before(self.vertex_id)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which rows go to tasks; with them they always move."""
        return self.edge.keys if self.edge is not None and self.edge.partitioner is Partitioner.HASH else ()

    def shuffles(self, parallelism: Mapping[str, int]) -> bool:
        """Whether rows move here. FORWARD ones do only if they must."""
        edge = self.edge
        if edge is None:
            return self.gathers
        if self.keys or edge.partitioner is Partitioner.REBALANCE:
            return True
        return parallelism[edge.vertex_id] != parallelism[self.vertex_id]

    def over(self, frame: DataFrame, parallelism: Mapping[str, int]) -> DataFrame:
        """``frame`` with this valve in it."""
        jvm: Any = frame.sparkSession._jvm
        number = parallelism[self.vertex_id]
        if self.keys:
            frame = frame.repartition(number, *self.keys)
            node = frame._jdf.queryExecution().analyzed()
        else:
            make = jvm.org.apache.spark.sql.catalyst.plans.logical.Repartition
            plan = frame._jdf.queryExecution().analyzed()
            node = make(number, self.shuffles(parallelism), plan)
        node.setTagValue(_tag(jvm), self.label)
        return frame_of(frame, node)


def behind_state(
    query: Query, valves: Mapping[str, GraphValve], parallelism: Mapping[str, int]
) -> dict[str, list[str]]:
    """By the id of each stateful vertex: the labels of the valves in the stage that begins with it, inputs first."""
    stages = {vertex.id: [label_behind(vertex.id)] for vertex in query.stateful}
    start = {vertex.id: vertex.id for vertex in query.stateful}
    for vertex in query.flow:
        front = valves.get(label_before(vertex.id))
        if front is None or front.edge is None or front.shuffles(parallelism):
            continue
        if begun := start.get(front.edge.vertex_id):
            start[vertex.id] = begun
            stages[begun] += [front.label] if vertex.is_sink else [front.label, label_behind(vertex.id)]
    return stages


def _tag(jvm: Any) -> Any:
    return jvm.org.apache.spark.sql.catalyst.trees.TreeNodeTag(_TAG)


def label_of(jvm: Any, node: Any) -> str:
    """The label of the valve that ``node`` is; empty if it is none."""
    tag = node.getTagValue(_tag(jvm))
    return str(tag.get()) if tag.isDefined() else ""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a valve is in the plan of a batch: ``operator`` of the physical plan, and an RDD of so many partitions."""

    operator: Any
    rdd: Any
    rdd_id: int
    partitions: int


class RunningValves:
    """The valves of a query that runs. Setting them and reading what a batch had may be done by different threads."""

    def __init__(self, query: StreamingQuery, jvm: Any, valves: Mapping[str, GraphValve]) -> None:
        """``valves``: those of its plan, by their labels."""
        self._execution = execution_of(query)
        self._jvm = jvm
        self._valves = valves
        self._lock = threading.Lock()
        self._wanted: Mapping[str, int] | None = None
        # Each `Repartition` of the streaming plan in its order, with the valve that it is.
        self._nodes: list[tuple[GraphValve | None, Any]] = []
        # The latest form of physical plans, and the positions of valves in it.
        self._form: tuple[str, dict[str, int]] = ("", {})

    def set(self, parallelism: Mapping[str, int]) -> None:
        """The next batch to be planned runs at this, by vertex id; while Spark prepares the query, one after `settle`.

        A batch that is being planned in this moment may get a part of it: `in_force` tells.
        """
        with self._lock:
            self._wanted = parallelism
        self.settle()

    def settle(self) -> None:
        """Set what could not be set before."""
        with self._lock:
            if self._wanted is None or not self._found():
                return
            for valve, node in self._nodes:
                if valve is not None:
                    self._set(valve, node, self._wanted)
            self._wanted = None

    def planned(self) -> Any:
        """The plan of the latest batch, an ``IncrementalExecution``: for the thread of a batch, that of the batch."""
        return self._execution.lastExecution()

    def in_force(self, planned: Any) -> dict[str, int]:
        """What a batch was planned with, by vertex id; 0 where two valves of a vertex differ, which no plan says."""
        with self._lock:
            nodes = self._found()
        texts = _NUMBERS.findall(planned.logical().numberedTreeString())
        answer: dict[str, int] = {}
        for (valve, _), numbers in zip(nodes, texts, strict=True):
            if valve is not None:
                number = int(numbers[0] or numbers[1])
                same = answer.get(valve.vertex_id, number) == number
                answer[valve.vertex_id] = number if same else 0
        return answer

    def rows(self, planned: Any) -> dict[str, Rows]:
        """What became of each valve in a batch, by label. Spark leaves out those without data."""
        plan = planned.executedPlan()
        text = _DIGITS.sub("", plan.treeString())
        form = self._form
        if form[0] != text:
            form = self._form = (text, self._look_up(plan))
        answer = {}
        for label, position in form[1].items():
            operator = plan.p(position)
            rdd = operator.execute()  # that of the batch: Spark keeps it
            answer[label] = Rows(operator, rdd, int(rdd.id()), int(rdd.getNumPartitions()))
        return answer

    # -- inside

    def _set(self, valve: GraphValve, node: Any, parallelism: Mapping[str, int]) -> None:
        number = parallelism[valve.vertex_id]
        if valve.keys:
            java_field(node, "optNumPartitions").set(node, scala_option(self._jvm, number))
        else:
            # First where rows go, then how many tasks: a batch in between has the number of before.
            java_field(node, "shuffle").setBoolean(node, valve.shuffles(parallelism))
            java_field(node, "numPartitions").setInt(node, number)

    def _found(self) -> list[tuple[GraphValve | None, Any]]:
        if not self._nodes:
            latch = java_field(self._execution, "initializationLatch").get(self._execution)
            # Only the query's own thread may make its plan.
            if not int(latch.getCount()):
                self._nodes = self._streaming(self._execution.logicalPlan())
        return self._nodes

    def _streaming(self, node: Any) -> list[tuple[GraphValve | None, Any]]:
        if not node.isStreaming():
            return []
        found: list[tuple[GraphValve | None, Any]] = []
        if kind_of(node) in KINDS:
            found.append((self._valves.get(label_of(self._jvm, node)), node))
        for child in plan_children(node):
            found += self._streaming(child)
        return found

    def _look_up(self, plan: Any) -> dict[str, int]:
        """Where valves stand in a physical plan, as ``TreeNode.p`` counts."""
        found: dict[str, int] = {}
        count = 0
        waiting = [plan]
        while waiting:
            node = waiting.pop()
            if kind_of(node) in _PHYSICAL_KINDS and (link := node.logicalLink()).isDefined():
                label = label_of(self._jvm, link.get())
                if label:
                    found.setdefault(label, count)
            count += 1
            inner = node.innerChildren()
            below = [inner.apply(at) for at in range(inner.size())] + plan_children(node)
            waiting.extend(reversed(below))
        return found
