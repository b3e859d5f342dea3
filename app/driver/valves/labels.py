"""The label of a valve, with its purpose. It is part of the valve, so the running plan contains it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from app.driver.valves.shape import VERTEX, Node, Part

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

    def setting(self, parallelism: Mapping[str, int]) -> tuple[int, bool]:
        """The number of the valve, and whether it shuffles. ``parallelism`` is by vertex id."""
        if not self.vertex_id:
            assert self.before is not None
            return tasks(self.before, parallelism), False
        number = parallelism[self.vertex_id]
        if self.spreads or self.before is None:
            return number, self.spreads
        before = tasks(self.before, parallelism)
        if number > before:
            return number, not self.is_capped
        return number, number < before and not self._joins(number, parallelism)

    def _joins(self, number: int, parallelism: Mapping[str, int]) -> bool:
        """Whether it is a union of stages of ``number`` tasks each: these go together without a shuffle."""
        if not isinstance(self.before, dict) or "sum" not in self.before:
            return False
        return all(tasks(each, parallelism) == number for each in self.before["sum"])
