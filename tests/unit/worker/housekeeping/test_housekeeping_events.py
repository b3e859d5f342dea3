"""Events that cannot be removed hold nothing else up."""

from __future__ import annotations

from typing import Any

import pytest

from app.store.errors import StoreUnavailable
from tests.unit.worker.housekeeping.test_housekeeping import JOB, fill, keeper_on


async def test_events_that_cannot_be_removed_keep_nothing_else_from_being_removed(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = 0

    async def drop_strays() -> int:
        nonlocal dropped
        dropped += 1
        return 0

    async def away(**_: Any) -> int:
        raise StoreUnavailable("The database is away.")

    async with keeper_on(sqlite_url, {JOB: 1}, drop_strays=drop_strays) as (store, _, keeper):
        await fill(store, 1, 3)
        monkeypatch.setattr(store, "prune_events", away)
        removed, failed = await keeper.tidy()
        assert removed > 0 and failed == 1
        assert dropped == 1, "what comes after it is done"
