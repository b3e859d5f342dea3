"""The edges of the transition table with their comments: the diagram and the pages per state are made from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.scheduler.adaptive.table import _TABLE, STAY


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge of the table. ``target`` equals ``source`` where the phase is not left."""

    source: str
    event: str
    target: str
    when: str


def describe_edges() -> Iterator[Edge]:
    """Every edge with its comment, in table order."""
    for (source, event), targets in _TABLE.items():
        for target, when in targets.items():
            yield Edge(source, event, source if target == STAY else target, when)
