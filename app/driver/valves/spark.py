"""All accesses of valves to private parts of Spark, which may change: `self_test` checks that they exist.

A valve is Spark's logical operator `Repartition`, or `RepartitionByExpression` where rows go by keys. Spark plans each
micro-batch anew from the logical plan of the query, so what the fields of that operator say counts from the next batch
on. The fields are final in Scala; Java's reflection sets them all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal

from pyspark import SparkContext, __version__
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from app.driver.failures import DriverError
from app.driver.scala import java_array, plan_children, scala_option, scala_seq

TriggerKind = Literal["processing-time", "available-now", "once", "real-time", "continuous"]
Foreach = Literal["", "foreach", "foreachBatch"]

KINDS: Final = ("Repartition", "RepartitionByExpression")
_PHYSICAL_KINDS: Final = ("CoalesceExec", "ShuffleExchangeExec")
VALVE: Final = "slotwise.valve"
MARK: Final = "slotwise.mark"
"""What a repartition may be, beside the job's own: a valve, or the mark of a vertex (`app.driver.valves.marks`)."""
_TRIGGERS: Final[Mapping[str, TriggerKind]] = {
    "ProcessingTimeTrigger": "processing-time",
    "AvailableNowTrigger": "available-now",
    "OneTimeTrigger": "once",
    "RealTimeTrigger": "real-time",
    "ContinuousTrigger": "continuous",
}
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_PACKAGES: Final = ("runtime.", "checkpointing.", "")
"""Where in that package classes are, by version."""
_METHODS: Final = {
    "StreamExecution": ("logicalPlan", "lastExecution", "sparkSession"),
    "IncrementalExecution": ("currentBatchId", "logical", "executedPlan"),
}
_LOGICAL: Final = re.compile(
    r"^\d+ [ :+-]*~Repartition(?: (\d+), (?:true|false)|ByExpression .*?(?:, (\d+))?)$", re.MULTILINE
)
_DIGITS: Final = re.compile(r"\d+")


# ---- the plan of a frame


def analysed(frame: DataFrame) -> Any:
    """The logical plan that Spark made of ``frame``. What SQL names by WITH stands where it is used."""
    plan = frame._jdf.queryExecution().analyzed()
    if "WithCTE" not in plan.toString():
        return plan
    jvm: Any = frame.sparkSession._jvm
    rule = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.optimizer.InlineCTE")
    # Its first parameter says that it is for each use; how many more there are depends on the version.
    (maker,) = rule.getConstructors()
    more = [False] * (int(maker.getParameterCount()) - 1)
    return maker.newInstance(java_array(jvm, [True, *more])).apply(plan)


def frame_in(session: SparkSession, plan: Any) -> DataFrame:
    """A DataFrame of ``plan`` in ``session``."""
    jvm: Any = session._jvm
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def kind_of(node: Any) -> str:
    """The class of a Java object, without its package. That of an object of Scala ends in a $."""
    return str(node.getClass().getSimpleName()).rstrip("$")


def with_children(jvm: Any, node: Any, children: Iterable[Any]) -> Any:
    return node.withNewChildren(scala_seq(jvm, children).toIndexedSeq())


def new_valve(jvm: Any, child: Any, number: int, *, shuffle: bool, label: str) -> Any:
    """A valve over ``child``. ``label`` is found again as `Valve.label` in the plan of the query."""
    node = jvm.org.apache.spark.sql.catalyst.plans.logical.Repartition(number, shuffle, child)
    return set_label(jvm, node, label)


def with_number(jvm: Any, node: Any, child: Any, number: int) -> Any:
    """A repartition by the keys of ``node``, over ``child``."""
    logical = jvm.org.apache.spark.sql.catalyst.plans.logical
    keys, size = node.partitionExpressions(), node.optAdvisoryPartitionSize()
    return logical.RepartitionByExpression(keys, child, scala_option(jvm, number), size)


def set_label(jvm: Any, node: Any, label: str, what: str = VALVE) -> Any:
    """Make a repartition the valve, or the mark, with this label."""
    node.setTagValue(_tag(jvm, what), label)
    return node


def label_of(jvm: Any, node: Any, what: str = VALVE) -> str:
    """The label of the valve, or mark, that a logical operator is; empty if it is none."""
    found = node.getTagValue(_tag(jvm, what))
    return str(found.get()) if found.isDefined() else ""


@lru_cache(maxsize=2)
def _tag(jvm: Any, name: str) -> Any:
    # Kept, because each name on the way to a class is a question to the JVM.
    return jvm.org.apache.spark.sql.catalyst.trees.TreeNodeTag(name)


# ---- the writer of a query


@dataclass(frozen=True, slots=True)
class WriterFacts:
    """What a program asked of a `DataStreamWriter`. ``format`` is None with a ``foreach``; the names of ``options`` are
    in lower case."""

    format: str | None
    query_name: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    path: str | None = None
    table: str | None = None
    trigger: TriggerKind = "processing-time"
    output_mode: str = "append"
    foreach: Foreach = ""

    @property
    def ends_by_itself(self) -> bool:
        """Whether the query ends when there is nothing left."""
        return self.trigger in ("available-now", "once")


def lower_options(jvm: Any, options: Any) -> dict[str, str]:
    """A map of Scala, with its names in lower case."""
    pairs = jvm.scala.jdk.javaapi.CollectionConverters.asJava(options)
    return {str(entry.getKey()).lower(): str(entry.getValue()) for entry in pairs.entrySet()}


def writer_facts(writer: DataStreamWriter, table: str | None = None) -> WriterFacts:
    """``table``: that of ``toTable``. What ``start`` is given has to be set at the writer before."""
    jwriter: Any = writer._jwrite
    jvm: Any = writer_frame(writer).sparkSession._jvm
    options = lower_options(jvm, _get(jwriter, "extraOptions"))
    source = str(_get(jwriter, "source"))
    foreach: Foreach = (
        "foreachBatch" if source == "foreachBatch" else "foreach" if source == "foreach" else ""
    )
    return WriterFacts(
        format=None if foreach else source,
        query_name=options.get("queryname"),
        options=options,
        path=options.get("path"),
        table=table,
        trigger=_TRIGGERS[kind_of(_get(jwriter, "trigger"))],
        output_mode=str(_get(jwriter, "outputMode").toString()).lower(),
        foreach=foreach,
    )


def writer_frame(writer: DataStreamWriter) -> DataFrame:
    """The frame that ``writer`` writes."""
    return writer._df


def copy_of_writer(writer: DataStreamWriter) -> DataStreamWriter:
    """Another writer of the same frame, of which the same was asked."""
    made = writer_frame(writer).writeStream
    jwriter: Any = writer._jwrite
    for each in jwriter.getClass().getDeclaredFields():
        each.setAccessible(True)
        each.set(made._jwrite, each.get(jwriter))
    return made


def replace_frame(writer: DataStreamWriter, frame: DataFrame) -> None:
    """Let ``writer`` write ``frame``; whatever else it was asked stays."""
    jwriter: Any = writer._jwrite
    java_field(jwriter, "ds").set(jwriter, frame._jdf)
    writer._df = frame


# ---- a running query


@dataclass(frozen=True, slots=True)
class Valve:
    """A valve in the plan of a running query, or a repartition of the job's own: that has no ``label``.

    ``above``: which of `valves_of` gets its rows, through nothing but other operators; -1: the sink does.
    ``kinds``: the operators that stream between it and the next valves below.
    """

    label: str
    above: int
    kinds: set[str]
    _jvm: Any
    _node: Any
    _number: Any
    _shuffle: Any

    def set(self, number: int, shuffle: bool | None = None) -> None:
        """From the next batch that is planned. ``shuffle`` None: as it was; where rows go by keys, they always do."""
        if self._shuffle is None:
            self._number.set(self._node, scala_option(self._jvm, number))
            return
        # First where rows go, then how many tasks: a batch in between has the number of before.
        if shuffle is not None:
            self._shuffle.setBoolean(self._node, shuffle)
        self._number.setInt(self._node, number)


def valves_of(jvm: Any, plan: Any) -> list[Valve]:
    """Every repartition of the streaming part of ``plan``, those of the job too, from the top and from the left."""
    found: list[Valve] = []
    waiting = [(plan, -1)]
    while waiting:
        node, above = waiting.pop()
        if not node.isStreaming():
            continue
        kind = kind_of(node)
        if kind in KINDS:
            has_keys = kind == "RepartitionByExpression"
            number = java_field(node, "optNumPartitions" if has_keys else "numPartitions")
            shuffle = None if has_keys else java_field(node, "shuffle")
            found.append(Valve(label_of(jvm, node), above, set(), jvm, node, number, shuffle))
            above = len(found) - 1
        elif above >= 0:
            found[above].kinds.add(kind)
        waiting += [(child, above) for child in reversed(plan_children(node))]
    return found


def execution_of(query: StreamingQuery) -> Any:
    """The ``StreamExecution`` of ``query``."""
    wrapper: Any = query._jsq
    return _get(wrapper, "_streamingQuery") if kind_of(wrapper) == "StreamingQueryWrapper" else wrapper


def valves_in(execution: Any) -> list[Valve]:
    """`valves_of` its plan; empty as long as it is being prepared, or if that has failed."""
    if int(_get(execution, "initializationLatch").getCount()):
        return []
    try:
        plan = execution.logicalPlan()
    except Exception:
        # Only the query's own thread may make the plan, and it has ended without.
        return []
    return valves_of(SparkContext._jvm, plan)


def numbers_of(planned: Any) -> tuple[int, ...]:
    """What each repartition said, in the order of `valves_of`, when this batch was planned; 0: nothing."""
    found = _LOGICAL.findall(planned.logical().numberedTreeString())
    return tuple(int(one or other or 0) for one, other in found)


@dataclass(frozen=True, slots=True)
class Left:
    """What Spark made of a repartition in the physical plan of a batch. It may have lost the ``label``."""

    label: str
    number: int
    shuffles: bool
    _operator: Any

    @property
    def rdd(self) -> Any:
        """The RDD of the operator in the batch: Spark keeps it once the operator has run."""
        return self._operator.execute()


def left_in(jvm: Any, planned: Any, forms: dict[str, list[int]]) -> list[Left]:
    """Every repartition that is left in the physical plan of a batch, in the order of `valves_of`.

    ``forms``: where operators that may be one stood in the plan of before, which saves looking for them in a plan that
    reads alike. It is brought up to date.
    """
    plan = planned.executedPlan()
    text = _DIGITS.sub("", plan.treeString())
    if text not in forms:
        forms.clear()
        forms[text] = [place for place, node in enumerate(_walk(plan)) if kind_of(node) in _PHYSICAL_KINDS]
    found = []
    for operator in map(plan.p, forms[text]):
        link = operator.logicalLink()
        # Two plans may read alike and have different valves: one of two sources without data is left out, for example.
        if link.isDefined() and kind_of(node := link.get()) in KINDS and node.isStreaming():
            number = int(operator.outputPartitioning().numPartitions())
            shuffles = kind_of(operator) == "ShuffleExchangeExec"
            found.append(Left(label_of(jvm, node), number, shuffles, operator))
    return found


def _walk(node: Any) -> Iterator[Any]:
    """``node`` and all below it, in the order in which Spark numbers them."""
    yield node
    inner = node.innerChildren()
    for at in range(inner.size()):
        yield from _walk(inner.apply(at))
    for child in plan_children(node):
        yield from _walk(child)


# ---- reflection


def java_field(instance: Any, name: str) -> Any:
    """The field ``name`` of a Java object, made accessible.

    Raises:
        DriverError: there is none.
    """
    kind = instance.getClass()
    while kind is not None:
        for each in kind.getDeclaredFields():
            if each.getName() == name:
                each.setAccessible(True)
                return each
        kind = kind.getSuperclass()
    raise _missing(f"the field {name} of {kind_of(instance)}")


def _get(instance: Any, name: str) -> Any:
    return java_field(instance, name).get(instance)


def _missing(what: str) -> DriverError:
    return DriverError(
        f"This Spark, version {__version__}, cannot be rescaled: it lacks {what}. "
        "Use one of the versions of PySpark that the documentation names."
    )


def self_test(session: SparkSession) -> None:
    """Look whether this Spark has all that valves need, without running anything.

    Raises:
        DriverError: something is missing; it says what, and Spark's version.
    """
    jvm: Any = session._jvm
    what = "a streaming DataFrame whose plan can be rebuilt"
    try:
        frame = session.readStream.format("rate").load()
        plan = analysed(frame)
        by_key = set_label(jvm, analysed(frame.repartition(2, "value")), "by key")
        made = with_children(jvm, new_valve(jvm, plan, 2, shuffle=False, label="self-test"), [by_key])
        what = "operators Repartition and RepartitionByExpression whose numbers can be set"
        valves = valves_of(jvm, made)
        for number, valve in enumerate(valves, start=3):
            valve.set(number, True)
        _expect([valve.label for valve in valves] == ["self-test", "by key"], what)
        _expect(_LOGICAL.findall(made.numberedTreeString()) == [("3", ""), ("", "4")], what)
        what = "a DataStreamWriter whose frame can be replaced"
        writer = copy_of_writer(frame.writeStream.format("noop").queryName("self-test"))
        replace_frame(writer, frame_in(frame.sparkSession, made))
        facts = writer_facts(writer)
        _expect(
            (facts.format, facts.query_name, facts.trigger) == ("noop", "self-test", "processing-time"), what
        )
        what = "the plan of a running query"
        gateway: Any = session.sparkContext._gateway
        no_parameters = gateway.new_array(jvm.java.lang.Class, 0)
        for kind, methods in _METHODS.items():
            found = streaming_class(jvm, kind)
            for method in methods:
                what = f"the plan of a running query, {kind}.{method}"
                found.getMethod(method, no_parameters)
    except DriverError:
        raise
    except Exception as error:
        # Whatever Py4J and PySpark make of a class, a method or a field that is not there.
        raise _missing(what) from error


def _expect(true: bool, what: str) -> None:
    if not true:
        raise _missing(what)


def java_output_mode(jvm: Any, output_mode: str) -> Any:
    return getattr(jvm.org.apache.spark.sql.streaming.OutputMode, output_mode.capitalize())()


def streaming_class(jvm: Any, name: str) -> Any:
    """The class ``name`` of Spark's package for streaming."""
    for package in _PACKAGES:
        try:
            return jvm.java.lang.Class.forName(f"{_STREAMING}.{package}{name}")
        except Exception as error:
            last = error
    raise last
