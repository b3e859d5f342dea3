"""What drivers report of their failures has secrets in it: no answer shows them, and the store does not have them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.world import GRAPH, RESTART_AT_ONCE, World

PASSWORD = "hunter2-of-the-job"
URL_PASSWORD = "pw-nobody-told-us"
USER_INFO = "registry-user:Secr3t-0f-it"
CONFIG = {
    **RESTART_AT_ONCE,
    "spark.hadoop.fs.s3a.secret.key": PASSWORD,
    "spark.schema.registry.basic.auth.user.info": USER_INFO,
}
ERROR = f"OperationalError: no connection with postgresql://me:{URL_PASSWORD}@db:5432/jobs, key {PASSWORD}"
STACK = f"""Traceback (most recent call last):
  File "/opt/job.py", line 3, in connect
    connect(password={URL_PASSWORD})
{ERROR}
"""


async def everything(world: World, job_id: str) -> str:
    """All that is told of the job and its failures."""
    paths = (
        "",
        "/exceptions",
        "/explanation",
        "/rescales/history",
        "/rescales/overview",
        "/config",
        "/graph",
    )
    found = [str(await world.get(f"/jobs/{job_id}{path}")) for path in paths]
    return "\n".join(found)


async def test_a_failure_is_told_without_the_secrets_in_it(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": CONFIG})
    world.driver().fail(ERROR, stack=STACK, vertex="delays")
    await world.completed(job_id, 2)
    (entry,) = (await world.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"]
    assert entry["exceptionName"] == "OperationalError"
    assert entry["message"] == (
        "OperationalError: no connection with postgresql://me:******@db:5432/jobs, key ******"
    )
    expected: Any = STACK.replace(PASSWORD, "******").replace(f"{URL_PASSWORD})", "******")
    assert entry["stacktrace"] == expected.replace(URL_PASSWORD, "******")
    told = await everything(world, job_id)
    assert PASSWORD not in told and URL_PASSWORD not in told
    # The graph is stored as it was submitted, and has the one; nobody has the other.
    stored = b"".join(file.read_bytes() for file in world.directory.glob("slotwise.db*"))
    assert b"OperationalError" in stored and PASSWORD.encode() in stored
    assert URL_PASSWORD.encode() not in stored


async def test_the_user_of_a_schema_registry_is_nowhere(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    often = {**CONFIG, "restart-strategy.fixed-delay.attempts": "9"}
    job_id = await world.running({**GRAPH, "config": often})
    for error in (
        f"RestClientException: 401 for {USER_INFO} of basic.auth.user.info={USER_INFO}",
        "ConnectException: Secr3t-0f-it is wrong",
        "ValueError: with --user-info=other:Secr3t-0f-another",
    ):
        seen = len((await world.get(f"/jobs/{job_id}/exceptions"))["exceptionHistory"]["entries"])
        world.driver().fail(
            error, stack=f"Traceback\n  x.option('user.info', '{USER_INFO}')\n{error}", vertex="delays"
        )
        await world.completed(job_id, seen + 2)
    told = (
        await everything(world, job_id)
        + (await world.http.get("/events?follow=false")).text
        + str(await world.get("/jobs/overview"))
    )
    assert "RestClientException: 401 for ******" in told and "--user-info=******" in told
    printed = "".join(capsys.readouterr())
    stored = b"".join(file.read_bytes() for file in world.directory.glob("slotwise.db*"))
    for text in (told, printed, stored.decode(errors="replace")):
        assert "Secr3t-0f-another" not in text
    for text in (told, printed):
        assert "Secr3t-0f" not in text


async def test_refusals_have_none_either(world: World) -> None:
    for path in (
        f"s3a://me:{URL_PASSWORD}@bucket/in",
        f"user.info=me:{URL_PASSWORD}",
        f"jdbc:postgresql://h/x?password={URL_PASSWORD}",
    ):
        answer = await world.http.post("/jobs", json={**GRAPH, "config": path})
        assert answer.status_code == 400 and URL_PASSWORD not in answer.text and "******" in answer.text


async def test_nor_has_the_end_of_a_job_that_failed(world: World) -> None:
    job_id = await world.running({**GRAPH, "config": CONFIG})
    world.driver().fail(ERROR, stack=STACK, vertex="delays", recoverable=False)
    await world.status(job_id, "FAILED")
    told = await everything(world, job_id)
    assert "no connection with postgresql://me:******@db:5432/jobs" in told
    assert PASSWORD not in told and URL_PASSWORD not in told
