"""What Spark refuses when a query is started, asked when it is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.driver.valves.spark import WriterFacts, analysed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MODES = {"append": "Append", "update": "Update", "complete": "Complete"}
_OWN_SINKS = frozenset({"memory", "console", "noop"})


def check_with_spark(frame: DataFrame, facts: WriterFacts) -> None:
    """
    Raises:
        AnalysisException: Spark would not start the query: an output mode or an operator that cannot be, or a sink for
            which there is no library.
    """
    from pyspark.errors import AnalysisException

    jvm: Any = frame.sparkSession._jvm
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, _MODES[facts.output_mode])()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(analysed(frame), mode)
    if facts.format is None or facts.table is not None or facts.format in _OWN_SINKS:
        return
    source: Any = jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        source.lookupDataSource(facts.format, frame._jdf.sparkSession().sessionState().conf())
    except AnalysisException as error:
        # Of a data source that is written in Python nothing is found here.
        if not _is_python(frame, facts.format):
            raise error from None


def _is_python(frame: DataFrame, form: str) -> bool:
    manager: Any = frame._jdf.sparkSession().sessionState().dataSourceManager()
    return bool(manager.dataSourceExists(form))
