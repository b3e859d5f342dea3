"""What of Spark has no Python side: the Scala context, and collections for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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


def scala_seq(jvm: Any, values: Iterable[Any]) -> Any:
    """A ``scala.collection.immutable.Seq`` of ``values``."""
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(java_list(jvm, values)).toSeq()


def scala_option(jvm: Any, value: Any) -> Any:
    """A ``scala.Option`` of ``value``, which is None for none."""
    return jvm.scala.Option.apply(value)
