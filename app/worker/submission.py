"""A submitted job becomes durable."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping

import structlog

from app.durablefiles import is_within
from app.model.clusterconf import refused_on_cluster
from app.model.jobgraph import JobGraph
from app.model.localpaths import local_paths, refusal_of
from app.store.errors import JobExists, OutcomeUnknown, StoreError
from app.store.store import Store
from app.store.writes import FIRST_EPOCH, UnitOfWork
from app.worker.job import JobPlaces
from app.worker.job_files import touch, write_artifacts
from app.worker.recovery import JobKeeper
from app.worker.views import InDoubt, Unavailable

log = structlog.get_logger()

_DOUBT_RETRY_S = 0.5


def refused_by_places(graph: JobGraph, places: JobPlaces) -> list[str]:
    """What is wrong with the job's settings for the cluster that it is to run on, and with paths of it that lie among
    the server's own files: its database, its jobs."""
    refused = [refusal_of(name, path) for name, path in local_paths(graph) if is_within(path, places.private)]
    if places.cluster is None:
        return refused
    refusal = refused_on_cluster([key for key, _ in graph.config], places.cluster.master)
    return refused if refusal is None else [*refused, f"config: {refusal}"]


async def make_durable(
    store: Store, keeper: JobKeeper, places: JobPlaces, unit: UnitOfWork, artifacts: Mapping[str, bytes]
) -> bool:
    """Files first: what is in the database is a job, and would be run. Whether the job is as it was submitted, to be
    added to ``keeper`` at once. If not, whoever has taken it up has written to it, and ``keeper`` will see who.

    Raises:
        Unavailable: nothing was stored.
        InDoubt: nobody knows whether it was.
    """
    directory = places.artifacts_dir(unit.job_id)
    in_doubt = False
    keeper.submitting.add(unit.job_id)
    try:
        if artifacts:
            await asyncio.to_thread(write_artifacts, directory, artifacts)
        await keeper.tell_address(unit.job_id, FIRST_EPOCH)
        while True:
            try:
                await store.commit(unit)
                return True
            except OutcomeUnknown as error:
                in_doubt = True
                log.error("it is not known whether a job was stored", job=unit.job_id, error=str(error))
                # It is in flight, whatever others think of its age.
                await asyncio.to_thread(touch, places.job_dir(unit.job_id))
                await asyncio.sleep(_DOUBT_RETRY_S)
            except JobExists:
                # Nobody else makes this id: it was stored, and whoever has taken the job up since has written to it.
                if not in_doubt:
                    raise
                keeper.load_later(unit.job_id, None)
                return False
    except (OSError, StoreError) as error:
        if in_doubt:
            # A job that is stored is run, and needs its files: it is taken up when the database can be asked.
            keeper.load_later(unit.job_id, None)
            raise InDoubt(
                f"{error} It is not known whether job {unit.job_id} was submitted: read it later to see whether it was."
            ) from error
        directory_of_job = places.job_dir(unit.job_id)
        await asyncio.to_thread(shutil.rmtree, directory_of_job, ignore_errors=True)
        sentence = str(error) if isinstance(error, StoreError) else f"{error.strerror}: {directory}."
        raise Unavailable(f"{sentence} The job was not submitted; try again.") from error
    finally:
        keeper.submitting.discard(unit.job_id)
