"""Failures lose their secrets before anything is made of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.model.masking import HIDDEN
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStartFailed,
    AttemptStopped,
    Event,
    GlobalFailure,
    QueryFailed,
    RegionFailed,
)
from app.worker.job.drivers import redacted
from tests.unit.worker.fakes import graph, rig_on

PASSWORD = "hunter2-of-the-job"
KEY = "spark.hadoop.fs.s3a.secret.key"
SAID = f"no role for {PASSWORD}"
SHOWN = f"no role for {HIDDEN}"


@pytest.mark.parametrize(
    "event",
    [
        AttemptFailed(1, SAID, stopped=True, stack=SAID, why=SAID, user_error=SAID),
        QueryFailed(1, "q", 1, SAID, stack=SAID, why=SAID, user_error=SAID),
        RegionFailed(1, 0, 1, SAID, stack=SAID, why=SAID, user_error=SAID),
        AttemptStartFailed(1, SAID),
        AttemptStopped(1, error=SAID, location="/jobs/1"),
        GlobalFailure(SAID),
    ],
)
def test_every_text_of_a_failure_is_without_secrets(event: Event) -> None:
    made = redacted(event, graph(**{KEY: PASSWORD}))
    assert PASSWORD not in repr(made)
    assert repr(made) == repr(event).replace(SAID, SHOWN)
    assert redacted(made, graph(**{KEY: PASSWORD})) == made


def test_what_has_no_text_is_as_it_was() -> None:
    for event in (AttemptFinished(1), AttemptStopped(1), AttemptFailed(1, "", stopped=True)):
        assert redacted(event, graph(**{KEY: PASSWORD})) is event


def test_of_a_very_long_trace_both_ends_are_searched() -> None:
    long = f"{SAID}{'x' * 1_000_000}{SAID}"
    made = redacted(AttemptStartFailed(1, long), graph(**{KEY: PASSWORD}))
    assert isinstance(made, AttemptStartFailed)
    assert made.error.startswith(SHOWN) and made.error.endswith(SHOWN) and len(made.error) < 250_000


async def test_a_failure_with_a_secret_that_was_reported_before_is_not_told_twice(
    sqlite_url: str, tmp_path: Path
) -> None:
    words = {"type": "failed", "error": SAID, "stack": SAID, "vertex": "counts", "recoverable": True}
    async with rig_on(sqlite_url, tmp_path) as rig:
        job = await rig.run(**{KEY: PASSWORD})
        rig.driver.hold_kill = asyncio.Event()
        await rig.report(job, kind="failed", **{k: v for k, v in words.items() if k != "type"})
        await rig.until_kind(job, "Restarting")
        kept = {"seq": 0, "at_ms": 1, **words}
        (rig.places.attempt_dir(job, 1) / "outcome.json").write_text(json.dumps(kept))
    rig.driver.die(4)
    async with rig_on(sqlite_url, tmp_path, host=rig.host) as again:
        await again.bring_up(job, 2)
        state = again.plane.job(job).state
        ((failure,),) = state.recovery.failures
        assert (failure.error, failure.stack, state.recovery.num_restarts) == (SHOWN, SHOWN, 1)
