"""FastAPI's `dependency_overrides`, by which who embeds the application or tests a part of it replaces dependencies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, get_args

import pytest
from fastapi import APIRouter, Depends

from app.api.app import SlotwiseApi
from app.api.dependencies import Now
from app.api.routes import Operation
from tests.contract.world import World


async def _one() -> int:
    return 1


async def _two() -> int:
    return 2


async def _later(seconds: Annotated[int, Depends(_one)]) -> int:
    return seconds * 1000


async def test_a_dependency_can_be_replaced_for_one_application(world: World) -> None:
    job_id = await world.running()
    assert isinstance(world.app, SlotwiseApi)
    now = get_args(Now)[1].dependency
    usual = await world.http.get(f"/jobs/{job_id}", params={"hours": "2"})
    assert usual.status_code == 400

    async def hours(hours: int = 1) -> int:
        return hours * 3_600_000

    world.app.dependency_overrides[now] = hours
    assert (await world.get(f"/jobs/{job_id}"))["now"] == 3_600_000
    assert (await world.get(f"/jobs/{job_id}", hours="2"))["now"] == 7_200_000, "its parameters are known"
    refused = await world.http.get(f"/jobs/{job_id}", params={"hours": "x"})
    assert refused.status_code == 400 and "query parameter hours" in refused.json()["errors"][0]

    world.app.dependency_overrides.clear()
    assert (await world.get(f"/jobs/{job_id}"))["now"] > 7_200_000


async def test_what_a_replacement_depends_on_is_called_and_replaced_too(world: World) -> None:
    job_id = await world.running()
    assert isinstance(world.app, SlotwiseApi)

    world.app.dependency_overrides = {get_args(Now)[1].dependency: _later, _one: _two}
    assert (await world.get(f"/jobs/{job_id}"))["now"] == 2000


async def _with_something_left() -> AsyncIterator[int]:
    yield 1


def test_a_dependency_that_would_leave_something_behind_is_refused_at_once() -> None:
    """Nothing looks after it: a request has none of FastAPI's stacks."""
    router = APIRouter(route_class=Operation)

    async def endpoint(left: Annotated[int, Depends(_with_something_left)]) -> None:
        """Never called"""

    with pytest.raises(AssertionError, match="should be async"):
        router.get("/left")(endpoint)
