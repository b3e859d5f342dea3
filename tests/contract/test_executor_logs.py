"""Logs of executors over the API. The cluster is a fake one."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httpx
import pytest

from app.cluster.ports import ExecutorLog, ExecutorLogAway, ExecutorLogElsewhere, NoApplication, NoExecutorLog
from app.worker.requests import executor_logs
from tests.contract.live import listening
from tests.contract.test_attempts import CONFIG, PASSWORD, read, refused
from tests.contract.world import GRAPH, World, eventually


class Executors:
    """Plays a cluster on which executor 0 has written ``log`` to stderr."""

    def __init__(self) -> None:
        self.log = b""
        self.fault: Exception | None = None
        self.attempts = range(0)
        self.hangs = self.was_left = False

    async def executor_log(
        self, job_id: str, attempts: range, executor: int, output: str, begin: int, size: int
    ) -> ExecutorLog:
        self.attempts = attempts
        if self.hangs:
            try:
                await asyncio.Event().wait()
            finally:
                self.was_left = True
        if self.fault is not None:
            raise self.fault
        if (executor, output) != (0, "stderr"):
            raise NoExecutorLog(f"There is no {output} of executor {executor}.")
        begin = min(begin, len(self.log))
        text = self.log[begin : begin + size]
        return ExecutorLog(text.decode(errors="replace"), begin, begin + len(text), len(self.log))


async def test_the_log_of_an_executor_is_read_in_parts_and_without_secrets(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control_plane.executor_logs._cluster = cluster = cast(Any, Executors())
    job_id = await world.running({**GRAPH, "config": CONFIG})
    cluster.log = f"one\nkey {PASSWORD}\n\xfc\n".encode() + b"\xff\nthree"
    # The last line may go on.
    answer = await read(world, job_id, executor=0)
    assert answer.text == "one\nkey ******\n\xfc\n\ufffd\n"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-slotwise-next"] == str(len(cluster.log) - len("three"))
    monkeypatch.setattr(executor_logs, "LINE_PATIENCE_S", 0.0)
    answer = await read(world, job_id, executor=0)
    assert answer.text == "one\nkey ******\n\xfc\n\ufffd\nthree"
    assert answer.headers["x-slotwise-next"] == str(len(cluster.log))
    assert answer.headers["x-slotwise-complete"] == "false"
    assert answer.headers["x-slotwise-size"] == str(len(cluster.log))
    assert (await read(world, job_id, executor=0, limit=7)).text == "one\n"
    answer = await read(world, job_id, executor=0, limit=12)
    assert (answer.text, answer.headers["x-slotwise-next"]) == ("one\n", "4")
    # In the middle of the password.
    assert PASSWORD[4:] not in (await read(world, job_id, executor=0, **{"from": 12})).text
    base = f"/jobs/{job_id}/attempts"
    assert "There is no stdout of executor 0" in await refused(
        world, 410, f"{base}/1/logs?executor=0&output=stdout"
    )
    assert "at most" in await refused(world, 416, f"{base}/1/logs?executor=0&from=999")
    assert "has no attempt 2" in await refused(world, 404, f"{base}/2/logs?executor=0")
    world.driver().fail("Broken")
    await world.completed(job_id, 2)
    gone = await refused(world, 410, f"{base}/1/logs?executor=0")
    assert "of the newest attempt only, which is 2, found 1" in gone
    await world.http.post(f"/jobs/{job_id}/stop")
    await world.status(job_id, "FINISHED")
    assert (await read(world, job_id, 2, executor=0)).headers["x-slotwise-complete"] == "true"


async def test_what_may_come_back_is_503_and_takes_no_seat_for_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.control_plane.executor_logs._cluster = cluster = cast(Any, Executors())
    job_id = await world.running()
    path = f"/jobs/{job_id}/attempts/1/logs?executor=0"
    cluster.fault = ExecutorLogAway("The Spark master is away.")
    assert "master is away" in await refused(world, 503, path)
    cluster.fault = NoApplication("No application.")
    assert "No application" in await refused(world, 503, path)
    cluster.hangs = True
    monkeypatch.setattr(executor_logs, "_WITHIN_S", 3600)
    async with listening(world) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/v1") as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get(path, timeout=0.2)

        async def was_left() -> bool:
            return bool(cluster.was_left)

        await eventually(was_left, "nobody reads any more")
    monkeypatch.setattr(executor_logs, "_WITHIN_S", 0.05)
    for _ in range(executor_logs._READERS_MAX + 1):
        assert "did not give the log of executor 0 within" in await refused(world, 503, path)
    cluster.hangs = False
    await world.http.post(f"/jobs/{job_id}/stop")
    await world.status(job_id, "FINISHED")
    assert "No application" in await refused(world, 410, path)


async def test_only_attempts_of_the_newest_driver_are_asked_for(world: World) -> None:
    world.control_plane.executor_logs._cluster = cluster = cast(Any, Executors())
    job_id = await world.running({**GRAPH, "config": CONFIG})
    await read(world, job_id, executor=0)
    assert cluster.attempts == range(1, 2)
    world.driver().fail("Broken")
    await world.completed(job_id, 2)
    await read(world, job_id, 2, executor=0)
    assert cluster.attempts == range(2, 3)


async def test_a_job_that_runs_in_its_driver_has_no_executors(world: World) -> None:
    job_id = await world.running()
    path = f"/jobs/{job_id}/attempts/1/logs?executor=0"
    sentence = await refused(world, 409, path)
    assert sentence.startswith("Jobs of this server have no executors: their tasks run in the driver")
    # Nor where they never can be had: who follows need not wait.
    world.control_plane.executor_logs._cluster = cluster = cast(Any, Executors())
    cluster.fault = ExecutorLogElsewhere("See kubectl logs.")
    assert await refused(world, 409, path) == "See kubectl logs."
