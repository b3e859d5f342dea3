"""Parallelism in words, for people."""

from __future__ import annotations

from collections.abc import Iterable

from app.model.jobgraph import JobGraph
from app.scheduler.adaptive.rollback_state import Parallelism


def in_words(graph: JobGraph, parallelism: Iterable[tuple[str, int]]) -> str:
    """'source 2, sink 4'"""
    return ", ".join(f"{graph.by_id[vertex].name} {count}" for vertex, count in parallelism)


def change_in_words(graph: JobGraph, before: Parallelism, after: Parallelism) -> str:
    """'sink 2 to 4': the vertices that differ."""
    old = dict(before)
    return ", ".join(
        f"{graph.by_id[vertex].name} {old[vertex]} to {count}"
        for vertex, count in after
        if count != old[vertex]
    )
