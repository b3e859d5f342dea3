"""A new version of a running job: what can be said without running it is checked, and then it is stored. Whether the
queries of a program go on from their checkpoints, the driver sees when it starts each of them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Mapping
from weakref import WeakValueDictionary

import structlog

from app.durablefiles import remove_tree
from app.model.compatibility import incompatibilities, kind_mismatch
from app.model.graphdoc import read_graph, to_document
from app.model.graphdoc_program import ProgramDocument
from app.model.job_state.versions import JobVersion
from app.model.jobgraph import JobGraph, JobType
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.events import VersionRequested
from app.scheduler.adaptive.state import Canceling, Created, Failing, JobState, StopWithSavepoint
from app.scheduler.adaptive.versions import may_come
from app.store.writes import AddArtifact, AddVersion
from app.worker.job.files import artifacts_name, write_artifacts
from app.worker.job.mailbox import IdempotencyKey, RequestDecision, first_answer
from app.worker.ownership.recovery import JobKeeper
from app.worker.refusals import InvalidRequest, NotServed, StateConflict, Unavailable
from app.worker.requests.submission import Submission
from app.worker.retrying import reading
from app.worker.views import RequirementsResult

log = structlog.get_logger()


class Replacing:
    """How new versions of jobs come in, one at a time for each job."""

    def __init__(self, keeper: JobKeeper, submission: Submission) -> None:
        self._keeper, self._submission, self._places = keeper, submission, keeper.places
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def once(
        self, job_id: str, key: IdempotencyKey | None, replace: Callable[[], Awaitable[int]]
    ) -> int:
        """The number of the version that ``replace`` stores with ``key``, or that was stored with it before: then
        ``replace`` is not called. Whoever comes meanwhile waits.

        Raises:
            StateConflict: the key was used for another request of the job.
        """
        if key is None:
            return await replace()
        async with self._turns.setdefault(f"{job_id} {key.key}", asyncio.Lock()):
            stored = await reading(self._keeper.store.answer(job_id, key.key))
            if stored is None:
                return await replace()
            request_hash, version, changed = stored
            return first_answer(key, (request_hash, RequirementsResult(version, changed))).version

    async def graph_of(
        self, job_id: str, submitted: JobGraph | ProgramDocument, artifacts: Mapping[str, bytes]
    ) -> JobGraph:
        """The graph of the new version, which fits the checkpoints as far as can be told. Nothing is stored. To be
        cancelled as `Submission.graph_of`.

        It keeps the name of the job, on which the ids of the vertices depend.
        """
        state = self._state(job_id)
        refuse(state)
        before, name = state.graph, state.graph.name
        if submitted.origin is not None:
            raise InvalidRequest(
                "from: a new version goes on from the checkpoints of its job: leave it out, or submit a job of its own."
            )
        if isinstance(submitted, ProgramDocument):
            if (why := kind_mismatch(before, submitted.type, is_program=True)) is not None:
                raise InvalidRequest(why)
            program = dataclasses.replace(submitted, name=name)
            graph = await self._submission.graph_of(program, artifacts, before=before)
        else:
            named = read_graph({**to_document(submitted), "name": name})
            _refuse_incompatible(state, named)
            graph = await self._submission.graph_of(named, artifacts, before=before)
        # Its first attempt may not have begun; queries of a program may come later.
        is_open = graph.program is not None or state.last_plan is None
        graph = dataclasses.replace(graph, origin=before.origin if is_open else None)
        _refuse_incompatible(self._state(job_id), graph)
        await self._submission.checked(job_id, graph, artifacts, None)
        return graph

    async def replace(
        self,
        job_id: str,
        graph: JobGraph,
        artifacts: Mapping[str, bytes],
        requested_by: str | None = None,
        key: IdempotencyKey | None = None,
    ) -> int:
        """The number of the new version, which is durable and on its way into force."""
        options, _ = await self._submission.checked(job_id, graph, artifacts, requested_by)
        turn = self._turns.setdefault(job_id, asyncio.Lock())
        async with turn:
            job = self._keeper.jobs.get(job_id)
            if job is None:
                raise NotServed(job_id)
            refuse(job.state)
            number = job.state.versions.newest + 1
            directory = self._places.artifacts_dir(job_id, number)
            try:
                # Files of a replacement that was never stored do no harm.
                await asyncio.to_thread(remove_tree, directory)
                if artifacts:
                    await asyncio.to_thread(write_artifacts, directory, artifacts)
            except OSError as error:
                raise Unavailable(
                    f"{error.strerror}: {directory}. The job was not replaced; try again."
                ) from error
            await job.worker.ask(
                lambda state: _decide(state, JobVersion(number, graph, options), artifacts, requested_by), key
            )
            own = job.state.versions
            kept = {artifacts_name(each) for each in (own.current, own.spare or 0, number)}
            await asyncio.to_thread(self._drop_others, job_id, kept)
        log.info("a job is replaced", job=job_id, version=number, by=requested_by)
        return number

    def _drop_others(self, job_id: str, kept: set[str]) -> None:
        """Remove the files of versions that are not kept."""
        for directory in self._places.job_dir(job_id).glob("artifacts*"):
            if directory.name not in kept:
                remove_tree(directory)

    def _state(self, job_id: str) -> JobState:
        return self._keeper.find(job_id).state


def refuse(state: JobState) -> None:
    """Raises InvalidRequest, StateConflict: the job cannot be replaced, now or ever."""
    if state.graph.type is JobType.BATCH:
        raise InvalidRequest(
            f"Job {state.job_id} is a BATCH job, which has no checkpoint to go on from: cancel it, and submit the new "
            "version as a job of its own."
        )
    status = status_of(state)
    if status.is_globally_terminal:
        raise StateConflict(
            f"Job {state.job_id} has reached the terminal state {status.value}: it cannot be replaced. Submit the new "
            "version as a job of its own."
        )
    versions = state.versions
    one = versions.replacement
    if one is not None and one.stage != "Builds":
        how = {
            "Waits": f"Version {one.number} is being started",
            "Trial": f"Version {one.number} is on trial: it has not committed a batch of each query yet",
            "Back": f"Version {one.number} is being taken back",
        }[one.stage]
        raise StateConflict(
            f"Job {state.job_id} is being replaced already. {how}. Replace the job when that is over."
        )
    if may_come(state):
        return
    if isinstance(state.phase, Created | StopWithSavepoint | Failing | Canceling):
        raise StateConflict(
            f"Job {state.job_id} cannot be replaced now: it is {status.value} ({state.phase.kind})."
        )
    raise StateConflict(
        f"The state of job {state.job_id} is being redistributed: replace the job when that is done."
    )


def _refuse_incompatible(state: JobState, graph: JobGraph) -> None:
    errors = incompatibilities(state.graph, graph, redistributed=bool(state.partitions.numbers))
    if errors:
        raise InvalidRequest(*errors)


def _decide(
    state: JobState, version: JobVersion, artifacts: Mapping[str, bytes], requested_by: str | None
) -> RequestDecision:
    """What a PUT of a graph does, seeing the state that is current when its turn comes."""
    refuse(state)
    _refuse_incompatible(state, version.graph)
    if version.number != state.versions.newest + 1:
        raise StateConflict(f"Job {state.job_id} has got version {state.versions.newest} meanwhile.")
    document = json.dumps(to_document(version.graph), separators=(",", ":"))
    return RequestDecision(
        VersionRequested(version, requested_by),
        RequirementsResult(version.number, changed=True),
        rows=(
            AddVersion(version.number, state.versions.current, document, version.options),
            *(AddArtifact(name, content, version.number) for name, content in artifacts.items()),
        ),
    )
