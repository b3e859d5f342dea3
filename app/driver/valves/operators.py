"""The physical plan of a batch as a tree of plain values, and how many rows each operator gave.

Spark counts rows at some operators only. The others give as many as they get, or nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from app.driver.valves.query_valves import Rows

METRICS: Final = (
    "numOutputRows", "pythonNumRowsReceived", "shuffleRecordsWritten", "recordsRead", "pythonProcessingTime",
    "pythonTotalTime", "allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs",
)  # fmt: skip
"""Those of Spark's metrics of an operator that are read."""

_ROWS: Final = ("numOutputRows", "pythonNumRowsReceived", "shuffleRecordsWritten")
_ROWS_BY_TASK: Final = ("numOutputRows", "pythonNumRowsReceived", "recordsRead")
"""Of an exchange those of the tasks that read what it has written."""
_PYTHON_TIMES: Final = ("pythonProcessingTime", "pythonTotalTime")
_TIMES: Final = ("allUpdatesTimeMs", "allRemovalsTimeMs", "commitTimeMs")
_AS_MANY: Final = frozenset(
    {
        "AppendColumns", "AppendColumnsWithObject", "ArrowEvalPython", "ArrowWindowPython", "BatchEvalPython",
        "Coalesce", "CollectMetrics", "DeserializeToObject", "EventTimeWatermark", "InputAdapter",
        "MapElements", "Project", "ReusedExchange", "RowToColumnar", "SerializeFromObject", "ShuffleExchange",
        "Sort", "WholeStageCodegen", "Window", "WindowInPandas",
    }
)  # fmt: skip
"""Operators that give a row for each that they get."""

_FRAMES: Final = frozenset({"Coalesce", "InputAdapter", "Union", "WholeStageCodegen"})
"""They do nothing with a row."""

_EXCHANGES: Final = frozenset({"BroadcastExchange", "ShuffleExchange"})

_PYTHON_NODE: Final = re.compile(r"Python|Pandas|Arrow")
_RESULT: Final = re.compile(r"\)#\d")
_NAME: Final = re.compile(r"[\w.<>]+")


@dataclass(eq=False, slots=True)
class Operator:
    """``valve``: which one it is. ``keeps_state``: Spark tells of the state of each such operator, in the order of
    `operators_of`. ``figures``: those of `METRICS` that it has; ``by_task``: what each task added to them, by its
    number, without tasks at the end that added nothing."""

    kind: str
    keeps_state: bool
    figures: Mapping[str, int]
    valve: Rows | None = None
    children: list[Operator] = field(default_factory=list)
    parent: Operator | None = None
    by_task: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def begins_stage(self) -> bool:
        """Whether what is below it runs in other stages."""
        return self.kind in _EXCHANGES

    @property
    def works(self) -> bool:
        return self.kind not in _FRAMES

    @property
    def timed_ms(self) -> int:
        """How long it took by a metric of its own; 0 without one."""
        return sum(self.figures[name] for name in self._times)

    @property
    def timed_ms_by_task(self) -> list[int]:
        return added([self.by_task.get(name, ()) for name in self._times])

    @property
    def _times(self) -> list[str]:
        python = [name for name in _PYTHON_TIMES if self.figures.get(name)][:1]
        return [*python, *(name for name in _TIMES if name in self.figures)]

    @property
    def rows(self) -> int | None:
        """How many rows it produced; None if Spark has not counted them."""
        for name in _ROWS:
            if name in self.figures:
                return self.figures[name]
        if self.kind == "Union":
            return total(child.rows for child in self.children)
        if self.kind in _AS_MANY and len(self.children) == 1:
            return self.children[0].rows
        return None

    @property
    def rows_by_task(self) -> Sequence[int]:
        """Those that each task of its stage produced; where `rows` is None it says nothing."""
        for name in _ROWS_BY_TASK:
            if name in self.figures:
                return self.by_task.get(name, ())
        return added([child.rows_by_task for child in self.children])

    @property
    def vertex_id(self) -> str:
        """That of what ends a part of the plan next above: where a vertex keeps state, its own."""
        valves = (node.valve for node in self.above if node.valve is not None and not node.valve.is_front)
        return next((valve.vertex_id for valve in valves), "")

    @property
    def above(self) -> Iterator[Operator]:
        """Those that its rows go to, the nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent


def total(numbers: Iterator[int | None]) -> int | None:
    """Their sum; None if one of them is not known, or there are none."""
    found = list(numbers)
    known = [each for each in found if each is not None]
    return sum(known) if found and len(known) == len(found) else None


def added(columns: Iterable[Sequence[int]]) -> list[int]:
    """Their sums, task by task; the shorter ones have 0 at their end."""
    return [sum(each) for each in zip_longest(*columns, fillvalue=0)]


def tree_of(listed: Iterable[Sequence[Any]], rows: Mapping[int, Rows]) -> list[Operator]:
    """The operators of a plan, each before those that it gets rows from.

    ``listed``: as `Load.operators` of `load.java` answers: kind, number of children, RDD, whether it keeps state,
    figures, and figures by task. ``rows``: the valves of the plan, by the id of their RDD.
    """
    found: list[Operator] = []
    waiting: list[Operator | None] = [None]
    for kind, children, rdd_id, keeps_state, figures, by_task in listed:
        parent = waiting.pop()
        made = Operator(
            kind.removesuffix("Exec"), keeps_state, figures, rows.get(rdd_id), [], parent, by_task
        )
        found.append(made)
        if parent is not None:
            parent.children.append(made)
        waiting += [made] * children
    return found


def below(node: Operator) -> Iterator[Operator]:
    """``node`` and all that it gets rows from."""
    yield node
    for child in node.children:
        yield from below(child)


def python_functions(plan: str) -> tuple[str, ...]:
    """The names of the Python functions in the text of a plan: those of calls with a result of their own,
    ``name(...)#12``, in nodes that run Python."""
    found: dict[str, None] = {}
    for line in plan.splitlines():
        if not _PYTHON_NODE.search(line):
            continue
        for end in _RESULT.finditer(line):
            depth, start = 1, end.start()
            while depth and start:
                start -= 1
                depth += {")": 1, "(": -1}.get(line[start], 0)
            # From its end: a search for what ends here would try each place of the line.
            if name := _NAME.match(line[:start][::-1]):
                found[name[0][::-1]] = None
    return tuple(found)
