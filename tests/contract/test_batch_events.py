"""Batches as events over HTTP: samples that sum up."""

from __future__ import annotations

from typing import Any

import pytest

from app.plugins import batch_samples
from tests.contract.test_events import stored
from tests.contract.world import World, eventually


async def test_batches_are_told_with_the_first_of_an_attempt_and_then_seldom(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await world.running()
    path = f"/jobs/{job_id}/events?types=batches"

    async def samples(count: int) -> Any:
        found = await stored(world, path)
        return found if len(found) >= count else None

    (first,) = await eventually(lambda: samples(1), "the first sample")
    assert (first["attempt"], first["batches"], first["records"], first["pendingRecords"]) == (1, 1, 10, 0)
    monkeypatch.setattr(batch_samples, "EVERY_MS", 0)
    monkeypatch.setattr(batch_samples, "EVERY_MS_OF_ALL", 0)
    _, second, *later = await eventually(lambda: samples(5), "more of them")
    assert second["records"] == 10 * second["batches"] and second["batches"] >= 1
    assert {(one["batches"], one["records"]) for one in later} == {(1, 10)}
    assert second["sinceTimestampInMillis"] == first["timestampInMillis"]
