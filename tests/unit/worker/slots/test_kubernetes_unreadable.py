"""The pods of jobs that cannot be read: they keep nobody from deleting those of jobs that are over."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection

from app.store import codec
from app.worker.slots.executor_clusters import beside_jobs
from tests.kubernetes.replay import PODS
from tests.unit.worker.fakes import graph
from tests.unit.worker.slots.test_kubernetes_jobs import OnKubernetes, on_kubernetes


def write_as_newer(job: str, connection: Connection) -> None:
    newer = f'{{"format":{codec.FORMAT + 1},"phase":"of tomorrow"}}'
    change = text("UPDATE job_states SET state = :newer WHERE job_id = :job")
    connection.execute(change, {"job": job, "newer": newer})


async def tidy(rig: OnKubernetes) -> None:
    """One round of deleting the pods of jobs that are over, as it goes on beside the jobs."""
    looking, tidying, asking = beside_jobs(rig.cluster, rig.plane)
    looking.close()
    asking.close()
    rounds: list[Any] = []

    async def go(_activity: str, once: Any, **_more: Any) -> None:
        rounds.append(once)

    rig.cluster.periodic.run = go  # type: ignore[assignment]
    with pytest.raises(StopIteration):
        tidying.send(None)
    await rounds[0]()


async def test_pods_of_jobs_that_are_over_are_deleted_beside_one_that_cannot_be_read(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with on_kubernetes(sqlite_url, tmp_path) as rig:
        running = await rig.run(2)
        over = []
        for _ in range(2):
            job = await rig.plane.submit(graph(2), {})
            await rig.plane.cancel(job)
            await rig.until_kind(job, "Finished")
            over.append(job)
        for job in (running, over[0]):
            await rig.store.write(partial(write_as_newer, job))
    async with on_kubernetes(sqlite_url, tmp_path) as rig:
        assert {job.job_id for job in rig.plane.unreadable_jobs()} == {running, over[0]}
        kept, *left = [rig.add_pod(job, number) for number, job in enumerate((running, *over))]
        await rig.look()
        await tidy(rig)
        deleted = [one.path for one in rig.api.sent("DELETE", f"{PODS}/.*")]
        assert deleted == [f"{PODS}/{name}" for name in left]
        assert kept in rig.api.pods
