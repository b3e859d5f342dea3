"""Access to parts of Spark without a Python API: the Scala context, and its collections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyspark import SparkContext


def scala_context(context: SparkContext) -> Any:
    """The ``org.apache.spark.SparkContext`` behind ``context``."""
    return context._jsc.sc()


def java_list(jvm: Any, values: Iterable[Any]) -> Any:
    """A ``java.util.List`` of ``values``."""
    found = jvm.java.util.ArrayList()
    for value in values:
        found.add(value)
    return found


def java_array(jvm: Any, values: Iterable[Any]) -> Any:
    """An ``Object[]`` of ``values``."""
    return java_list(jvm, values).toArray()


def scala_seq(jvm: Any, values: Iterable[Any]) -> Any:
    """A ``scala.collection.immutable.Seq`` of ``values``."""
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(java_list(jvm, values)).toSeq()


def scala_option(jvm: Any, value: Any) -> Any:
    """A ``scala.Option`` of ``value``, which is None for none."""
    return jvm.scala.Option.apply(value)


def plan_children(node: Any) -> list[Any]:
    """The nodes of a plan that give their rows to ``node``, a LogicalPlan."""
    children = node.children()
    return [children.apply(at) for at in range(children.size())]


def executor_ids(context: SparkContext) -> list[str]:
    """The executors that have registered and are not gone, those that are being given up too."""
    jvm: Any = context._jvm
    ids = scala_context(context).schedulerBackend().getExecutorIds()
    return list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(ids))


def executor_hosts(context: SparkContext) -> dict[int, str]:
    """The hosts of the executors that are there, by number; one that has only just come may not have said yet."""
    summaries = scala_context(context).statusStore().executorList(True)
    found = [summaries.apply(position) for position in range(summaries.size())]
    return {
        int(one.id()): str(one.hostPort()).rpartition(":")[0] for one in found if str(one.id()) != "driver"
    }


def executor_place(executor: int) -> str:
    """How Spark names an executor as the place of a partition. Its host, which would be a second choice, is none."""
    return f"executor_any_{executor}"


def rdd_at(context: SparkContext, values: Mapping[int, Any], java_class: str) -> Any:
    """A JavaRDD of ``values``, each in a partition of its own whose place is the executor with that number."""
    jvm: Any = context._jvm
    placed = [
        jvm.scala.Tuple2(value, scala_seq(jvm, [executor_place(number)])) for number, value in values.items()
    ]
    tag = jvm.scala.reflect.ClassManifestFactory.fromClass(jvm.java.lang.Class.forName(java_class))
    return scala_context(context).makeRDD(scala_seq(jvm, placed), tag).toJavaRDD()


def shell_at(context: SparkContext, executors: Iterable[int], script: str, *arguments: object) -> Any:
    """A JavaRDD of the lines that ``script`` says when a shell runs it on each of these executors, with ``arguments``
    from $0 on. It can read the number of its executor; Spark may run it on another one all the same."""
    command = java_list(context._jvm, ["sh", "-c", script, *map(str, arguments)])
    numbers = {number: str(number) for number in executors}
    return rdd_at(context, numbers, "java.lang.String").pipe(command)


# ---- Java of ours


def compiled(jvm: Any, source: str, loader: Any) -> Any:
    """Janino's ``SimpleCompiler``, with which Spark compiles its own code, after it has compiled the file ``source`` of
    this package. It sees what the class loader ``loader`` has."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    # Without it calls of static methods of interfaces are refused.
    compiler.setTargetVersion(8)
    compiler.cook(Path(__file__).with_name(source).read_text(encoding="ascii"))
    return compiler


@lru_cache
def class_loader(jvm: Any, source: str, beside: str) -> Any:
    """The class loader of what the file ``source`` has, compiled once for the JVM. Its classes see what the Java class
    ``beside`` sees."""
    loader = jvm.java.lang.Class.forName(beside).getClassLoader()
    return compiled(jvm, source, loader).getClassLoader()


def made(jvm: Any, kind: Any, *arguments: Any) -> Any:
    """An object of a class of Java that has one constructor."""
    (maker,) = kind.getConstructors()
    return maker.newInstance(java_array(jvm, arguments))


def jvm_runs() -> bool:
    """Whether the JVM answers, and is not ending."""
    gateway: Any = SparkContext._gateway
    try:
        return not gateway.jvm.org.apache.spark.util.ShutdownHookManager.inShutdown()
    except Exception:
        return False
