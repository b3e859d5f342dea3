"""Ways through a graph: what can be reached, an order in which nothing comes before what it needs, and cycles."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

Node = TypeVar("Node")


def reached(starts: Iterable[Node], following: Callable[[Node], Iterable[Node]]) -> set[Node]:
    """``starts``, and all that follows from them."""
    found: set[Node] = set()
    waiting = list(starts)
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            waiting.extend(following(current))
    return found


def in_order(needed: Mapping[int, Iterable[int]]) -> list[int] | None:
    """The keys of ``needed``, each behind those that it needs, else the smallest first; None if there is a cycle."""
    sorter = TopologicalSorter(needed)
    try:
        sorter.prepare()
    except CycleError:
        return None
    order: list[int] = []
    ready = list(sorter.get_ready())
    heapq.heapify(ready)
    while ready:
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
        for node in sorter.get_ready():
            heapq.heappush(ready, node)
    return order


def cycles(needed: Mapping[int, set[int]]) -> list[list[int]]:
    """One cycle of each group of keys that reach each other, each key before what needs it."""
    found: list[list[int]] = []
    while True:
        try:
            TopologicalSorter(needed).prepare()
            return found
        except CycleError as error:
            cycle: list[int] = error.args[1][1:]
        found.append(cycle)
        group = {
            one
            for one in reached(cycle, needed.__getitem__)
            if cycle[0] in reached([one], needed.__getitem__)
        }
        needed = {key: others - group for key, others in needed.items() if key not in group}
