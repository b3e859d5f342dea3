"""Jobs as the autoscaler sees them, for tests."""

from __future__ import annotations

from typing import Any

from app.autoscaler.seen import Load, Snapshot, Vertex

NOW_MS = 1_795_000_000_000
LOAD = Load(60_000, 100.0, 0.0, 0.0, 600.0, 0.1, 1_000.0)


def vertex(name: str = "slow", parallelism: int = 2, **changes: Any) -> Vertex:
    given = {
        "id": name,
        "name": name,
        "group": "default",
        "parallelism": parallelism,
        "lower": 1,
        "upper": parallelism,
        "most": 64,
        "busy_ms": 500.0,
    }
    return Vertex(**{**given, **changes})


def snapshot(*vertices: Vertex, **changes: Any) -> Snapshot:
    """A job that has run at its parallelism for ten minutes."""
    found = vertices or (vertex(),)
    given = {
        "now_ms": NOW_MS,
        "status": "RUNNING",
        "scheduler_state": "Executing",
        "since_ms": NOW_MS - 600_000,
        "vertices": found,
        "queries": (tuple(each.id for each in found),),
        "load": LOAD,
    }
    return Snapshot(**{**given, **changes})
