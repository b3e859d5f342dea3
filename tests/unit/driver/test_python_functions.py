"""Which Python functions a batch ran, from the text of its plan."""

from __future__ import annotations

from app.driver.valves.operators import python_functions

PLAN = """
WriteToDataSourceV2 MicroBatchWrite[epoch: 3, writer: ConsoleWriter]
+- *(2) Project [pythonUDF0#14L AS v#3L, upper(name#4) AS name#5]
   +- ArrowEvalPython [leaves(upper(name#4), (value#1L + 1))#2L, <lambda>(same(value#1L)#7L)#9L], [pythonUDF0#14L], 101
      +- *(1) HashAggregate(keys=[key#2], functions=[count(1)#4L])
         +- FlatMapGroupsInPandas [key#2], pkg.grow(key#2, value#1L)#12, [k#10, n#11L]
"""


def test_calls_with_a_result_of_their_own_in_nodes_that_run_python() -> None:
    assert python_functions(PLAN) == ("leaves", "same", "<lambda>", "pkg.grow")


def test_none_where_none_is() -> None:
    assert python_functions("*(1) Project [upper(name#4)#5]") == ()
    assert python_functions("ArrowEvalPython )#1") == ()
