"""What is kept of an attempt: what its driver says of itself, and how it ended."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.model.protocol import Registration
from app.scheduler.adaptive.events import PlanApplied
from app.store.writes import Attempt, PutAttempt, UnitOfWork
from app.worker.job.attempt_record import REPORT, described
from app.worker.job.drivers import event_of
from app.worker.job.pace import PaceMeter
from tests.unit.worker.fakes import rig_on

ATTEMPT = Attempt(1, 1, "driver-1", "hash", 1)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("http://127.0.0.1:4040", "http://127.0.0.1:4040"),
        ("", None),
        ("http://127.0.0.1:4040/?x=1", None),
        ("http://127.0.0.1:4040\n", None),
        ("http://127.0.0.1:4040@example.com", None),
        ("https://example.com", None),
        ("javascript:alert(1)", None),
    ],
)
def test_a_link_is_one_to_the_page_of_spark(told: str, kept: str | None) -> None:
    registration = Registration(4711, 1.0, "build", "4.3.0", "app-1", ui_url=told)
    assert described(ATTEMPT, registration).ui_url == kept


def test_texts_have_a_largest_size() -> None:
    told = described(ATTEMPT, Registration(4711, 1.0, "h" * 9_999, "4" * 9_999, "app-1"))
    assert (told.host, told.spark_version) == ("h" * 255, "4" * 64)


@pytest.mark.parametrize("told", ["", "Vertex map runs as 4 task(s) instead of 2, which its valve says."])
def test_a_report_of_a_build_whose_not_followed_is_a_text_is_read(told: str) -> None:
    applied = {"seq": 7, "at_ms": 1_000, "type": "plan-applied", "plan_version": 3, "not_followed": told}
    report = REPORT.validate_json(json.dumps(applied), strict=True)
    event = event_of(report, 1, PaceMeter())
    assert isinstance(event, PlanApplied)
    assert (event.plan_version, event.not_followed) == (3, ())


def test_what_was_interrupted_for_a_plan_is_told_with_it() -> None:
    applied = {
        "seq": 7,
        "at_ms": 1_000,
        "type": "plan-applied",
        "plan_version": 3,
        "reprocessed_records": 600,
    }
    report = REPORT.validate_json(json.dumps({**applied, "interrupted": "A batch of a."}), strict=True)
    event = event_of(report, 1, PaceMeter())
    assert isinstance(event, PlanApplied)
    assert (event.interrupted, event.measured.reprocessed_records) == ("A batch of a.", 600)


async def test_a_start_that_is_given_up_has_not_failed_by_the_failure_before(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run()
        durable, is_written = rig.store.commit, asyncio.Event()

        async def commit(unit: UnitOfWork) -> None:
            await durable(unit)
            if any(isinstance(write, PutAttempt) and write.attempt.attempt == 2 for write in unit.writes):
                is_written.set()
                await asyncio.Event().wait()

        rig.store.commit = commit  # type: ignore[method-assign]
        await rig.report(job, "failed", error="It broke.")
        rig.driver.die(1)
        async with asyncio.timeout(60):
            await is_written.wait()
        rig.store.commit = durable  # type: ignore[method-assign]
        await rig.plane.cancel(job)
        await rig.until_kind(job, "Finished")
        first, second = await rig.store.attempts(job)
        assert (first.ending, first.ended_why) == ("FAILED", "It broke.")
        assert (second.ending, second.ended_why) == ("STOPPED", None)
