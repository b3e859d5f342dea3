"""PUT /jobs/:jobid/graph of a version with an environment of its own, of a program or of a document: it is built while
the version before runs on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from app.cluster.ports import DriverLaunchError
from app.model.environment import Runtime
from app.worker.job import building
from tests.contract import test_program_versions
from tests.contract.test_versions import graph, names, outcome, replace
from tests.contract.world import World, bounds, eventually

ENVIRONMENT = {"requirements": ["pyspark==4.2.0", "numpy==0"]}


@dataclass(frozen=True)
class Kind:
    """How a job of this kind is started, and replaced by a version with a change of its document."""

    running: Callable[[World], Awaitable[str]]
    put: Callable[..., Awaitable[httpx.Response]]


KINDS = {
    "program": Kind(test_program_versions.running, test_program_versions.put),
    "document": Kind(
        lambda world: world.running(graph()),
        lambda world, job_id, **change: replace(world, job_id, graph(**change)),
    ),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


async def is_built(world: World, times: int) -> bool:
    return len(world.host.builds) >= times


async def newest_record(world: World, job_id: str) -> dict[str, Any]:
    return dict((await world.get(f"/jobs/{job_id}/rescales/history"))[0])


async def test_its_environment_is_built_while_the_version_before_runs_on(
    any_world: World, kind: Kind
) -> None:
    world = any_world
    job_id = await kind.running(world)
    before, record = world.driver(), await newest_record(world, job_id)
    world.host.built.clear()
    missing = {"environment": {"archive": "env.zip"}, "artifacts": ["env.zip"]}
    answer = await kind.put(world, job_id, **missing)
    assert answer.status_code == 400 and "env.zip" in answer.text
    assert (await kind.put(world, job_id, environment=ENVIRONMENT)).status_code == 202
    await eventually(lambda: is_built(world, 1), "the environment is being built")
    told = " ".join((await world.get(f"/jobs/{job_id}/explanation"))["sentences"])
    assert "What version 2 is to run in is being built. Version 1 stays in force until then." in told
    # The one before is not disturbed, and takes requests.
    two = bounds(**dict.fromkeys(await names(world, job_id), (1, 2)))
    assert (await world.put(job_id, two)).status_code == 200
    assert world.driver() is before and before.alive
    assert (await world.get(f"/jobs/{job_id}/versions"))["current"] == 1
    world.host.built.set()
    await outcome(world, job_id, 2, "IN_FORCE")
    assert world.driver() is not before and not before.alive
    declared = await world.get(f"/jobs/{job_id}/resource-requirements")
    assert {each["parallelism"]["upperBound"] for each in declared.values()} == {2}
    assert record != await newest_record(world, job_id)


async def test_one_whose_environment_cannot_be_built_is_never_started(any_world: World, kind: Kind) -> None:
    world = any_world
    job_id = await kind.running(world)
    before = world.driver()
    world.host.cannot_build = why = "environment.requirements: numpy==0 was not found."
    assert (await kind.put(world, job_id, environment=ENVIRONMENT)).status_code == 202
    taken = await outcome(world, job_id, 2, "TAKEN_BACK")
    assert taken["why"] == why
    assert world.driver() is before and before.alive
    told = await newest_record(world, job_id)
    assert told["message"] == f"Version 2 of the job was not started: {why}"
    assert (await kind.put(world, job_id)).status_code == 202
    await outcome(world, job_id, 3, "IN_FORCE")
    world.host.cannot_build, before = None, world.driver()
    other = {"environment": ENVIRONMENT, "packages": ["a.b:c_2.13:1.0"]}
    assert (await kind.put(world, job_id, **other)).status_code == 202
    await outcome(world, job_id, 4, "IN_FORCE")
    # A driver that waits has the environment of the version before.
    assert world.driver() is not before
    shown = await world.get(f"/jobs/{job_id}/graph")
    assert {key: shown[key] for key in other} == other


async def test_an_environment_is_not_built_for_a_job_that_has_ended(world: World, kind: Kind) -> None:
    job_id = await kind.running(world)
    world.host.built.clear()
    assert (await kind.put(world, job_id, environment=ENVIRONMENT)).status_code == 202
    await eventually(lambda: is_built(world, 1), "the environment is being built")
    assert (await world.http.patch(f"/jobs/{job_id}", params={"mode": "cancel"})).is_success
    await world.status(job_id, "CANCELED")
    world.host.built.set()
    assert (await outcome(world, job_id, 2, "DROPPED"))["why"] == "The job ended first."
    assert len(world.host.drivers) == 1


async def test_another_version_may_be_asked_for_while_an_environment_is_built(
    world: World, kind: Kind
) -> None:
    job_id = await kind.running(world)
    world.host.built.clear()
    assert (await kind.put(world, job_id, environment=ENVIRONMENT)).status_code == 202
    await eventually(lambda: is_built(world, 1), "the environment is being built")
    assert (await kind.put(world, job_id)).status_code == 202
    await outcome(world, job_id, 3, "IN_FORCE")
    assert (await outcome(world, job_id, 2, "DROPPED"))["why"] == "Version 3 was asked for first."


async def test_a_registry_that_is_away_is_asked_again(
    world: World, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "_PAUSE_S", 0.01)
    job_id = await kind.running(world)
    away = iter([DriverLaunchError("uv was ended by signal 9."), OSError("No space left on device")])

    async def build(runtime: Runtime) -> None:
        for error in away:
            raise error

    monkeypatch.setattr(world.host, "build", build)
    assert (await kind.put(world, job_id, environment=ENVIRONMENT)).status_code == 202
    await outcome(world, job_id, 2, "IN_FORCE")
