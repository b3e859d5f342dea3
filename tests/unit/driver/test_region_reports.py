"""The end of a region is told in a report that the control plane takes."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

from app.driver.batch.attempt import BatchAttempt
from app.driver.batch.region import RegionDone
from app.model.batch import RegionOrder, Result
from app.model.jobgraph import MAX_PARALLELISM_LIMIT

ORDER = RegionOrder(3, 1, {}, 1)


class Attempt(BatchAttempt):
    """An attempt without Spark, whose region has just ended."""

    def __init__(self) -> None:
        self._inbox = queue.SimpleQueue()
        self._runs: dict[int, Any] = {3: SimpleNamespace(result_paths={"/r"})}
        self._wanted = {(3, 1): ORDER}
        self._done: dict[tuple[int, int], set[str]] = {}
        context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
        self._session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context))
        self.told: list[dict[str, Any]] = []
        self._client: Any = SimpleNamespace(report=lambda **fields: self.told.append(fields))


def told_of(results: int) -> dict[str, Any]:
    attempt = Attempt()
    sizes = (10**9,) * MAX_PARALLELISM_LIMIT
    made = tuple(Result(f"d{n}", 1, f"/r/{n}", "0" * 64, sizes, sizes) for n in range(results))
    assert attempt._on_done(RegionDone(ORDER, made)) is None
    (report,) = attempt.told
    return report


def test_results_of_very_many_subpartitions_are_reported() -> None:
    report = told_of(5)
    assert (report["type"], len(report["results"])) == ("region-finished", 5)


def test_results_that_no_report_can_hold_fail_the_job_with_a_sentence() -> None:
    report = told_of(7)
    assert (report["type"], report["recoverable"]) == ("region-failed", False)
    assert "Region 3 has left results of 229376 subpartitions" in report["error"]
    assert "upperBound or maxParallelism" in report["error"]
