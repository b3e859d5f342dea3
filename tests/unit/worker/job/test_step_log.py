"""The server's log says what becomes of the regions of a batch job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app.worker.job.step_log import log_regions
from tests.unit.batch.driving import BatchJob, chain


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append((event, *fields["vertices"], fields["run"], fields["state"]))

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields["error"]))


def lines(job: BatchJob, act: Callable[[], object]) -> list[tuple[Any, ...]]:
    before, log = job.state, Log()
    act()
    log_regions(log, before, job.state)
    return log.lines


def test_regions_are_named_when_they_start_fail_and_finish() -> None:
    job = BatchJob(chain())
    assert lines(job, job.run) == [("region", "customers", 1, "RUNNING"), ("region", "orders", 1, "RUNNING")]
    assert lines(job, lambda: job.fail("orders")) == [
        ("a region failed", "boom"),
        ("region", "orders", 1, "CREATED"),
    ]
    assert lines(job, job.wait) == [("region", "orders", 2, "RUNNING")]
    assert lines(job, lambda: job.finish("orders")) == [("region", "orders", 2, "FINISHED")]
    assert lines(job, lambda: job.finish("customers")) == [
        ("region", "customers", 1, "FINISHED"),
        ("region", "joined", 1, "RUNNING"),
    ]
    assert lines(job, lambda: job.put(total=(1, 2))) == []
