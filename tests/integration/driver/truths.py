"""What the tests of load share: figures that are compared with a known truth, and what the server makes of reports."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from app.api.render.metrics import batch_figures, executor_metrics, vertex_metrics
from app.documents.graph import parse_document
from app.load.reported import Load
from app.model.status import JobStatus
from app.worker.job.attempt_record import REPORT
from app.worker.views import JobView
from tests.unit.scheduler.driving import Job


def by_name(graph: dict[str, Any], batch: dict[str, Any]) -> dict[str, dict[str, Any]]:
    names = {vertex.id: vertex.name for vertex in parse_document(graph).vertices}
    return {names[each["vertex_id"]]: each for each in batch["vertices"]}


def near(value: float, allowed: float = 0.0) -> Any:
    return pytest.approx(value, rel=0.1, abs=allowed)


def compare(name: str, told: float, true: float, allowed: float = 0.0) -> None:
    """Within a tenth, or within ``allowed`` if that is more; docs/metrics.md has what is printed."""
    print(f"TRUTH {name}: {told:g} told, {true:g} true, {100 * (told - true) / max(1, true):+.1f} %")
    assert told == near(true, allowed), name


def equal(name: str, told: float, true: float) -> None:
    """What docs/metrics.md calls exact."""
    print(f"TRUTH {name}: {told:g} told, {true:g} true, exact")
    assert told == true, name


class Shown:
    """The metrics of a job, as a server computes them at the moment ``now_ms`` from the reports of a driver."""

    def __init__(self, graph: dict[str, Any], reports: Iterable[dict[str, Any]], now_ms: int) -> None:
        self.graph = parse_document(graph)
        self.now_ms = now_ms
        state, load = Job(self.graph).run().state, Load()
        for report in reports:
            # A server gets a report a moment after it was made.
            load.note(
                REPORT.validate_json(json.dumps(report), strict=True),
                state.attempt,
                self.graph,
                report["at_ms"],
            )
        self._view = JobView(state, JobStatus.RUNNING, now_ms, None, None, 1, load=load)

    @property
    def job(self) -> dict[str, float]:
        return batch_figures(self._view, self.now_ms)

    @property
    def executors(self) -> dict[str, float]:
        return {name: each.sum for name, each in executor_metrics([self._view], self.now_ms).items()}

    def vertex(self, name: str, aggregation: str = "avg") -> dict[str, float]:
        vertex = next(each for each in self.graph.vertices if each.name == name)
        metrics = vertex_metrics(self._view, vertex, self.now_ms)
        return {key: getattr(value, aggregation) for key, value in metrics.items()}
