"""A submitted job is checked, as far as that can be done without running it, and becomes durable."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import structlog

from app.durablefiles import is_within
from app.model.graphdoc import to_document
from app.model.graphdoc_program import ProgramDocument, graph_of, graph_of_version
from app.model.grapherrors import GraphErrors
from app.model.jobgraph import JobGraph
from app.model.localpaths import local_paths, refusal_of
from app.model.options import JobOptions
from app.model.ownsettings import refused_on_cluster
from app.model.requirements import Requirements
from app.model.sparkui import refused_ui
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.events import StartScheduling
from app.scheduler.adaptive.state import Finished
from app.scheduler.step import initial_state
from app.store.errors import JobExists, KeyUsed, OutcomeUnknown, StoreError
from app.store.writes import (
    FIRST_EPOCH,
    AddArtifact,
    AddEvents,
    AddRequirements,
    AddRow,
    AddSubmissionKey,
    CreateJob,
    UnitOfWork,
)
from app.worker.job.files import touch, write_artifacts
from app.worker.job.own_checkpoints import checkpoints_of
from app.worker.job.places import JobPlaces
from app.worker.job.public_events import submission_events
from app.worker.ownership.recovery import JobKeeper
from app.worker.refusals import InDoubt, InvalidRequest, StateConflict, Unavailable
from app.worker.requests.artifacts import refused_artifacts
from app.worker.requests.declared import refusal_at_submission
from app.worker.requests.requirements import initial_requirements
from app.worker.requests.submission_keys import SubmissionKeys
from app.worker.requests.syntax import SyntaxHelper

log = structlog.get_logger()

_DOUBT_RETRY_S = 0.5


class Submission:
    """How jobs come in."""

    def __init__(self, keeper: JobKeeper, new_id: Callable[[], str]) -> None:
        self._keeper, self._new_id = keeper, new_id
        self._places = keeper.places
        self.keys, self.syntax = SubmissionKeys(keeper.store), SyntaxHelper()

    async def graph_of(
        self,
        submitted: JobGraph | ProgramDocument,
        artifacts: Mapping[str, bytes],
        *,
        before: JobGraph | None = None,
    ) -> JobGraph:
        """The job graph of what was submitted, of which all was checked that can be without running it. Nothing is
        stored. ``before``: the graph of the job that it is a new version of. What it is to run in is built when its
        first attempt asks for it, and for a new version before its turn.

        Raises:
            InvalidRequest, StateConflict: it would be refused.
            Unavailable: it could not be found out now.
        """
        if submitted.origin is not None:
            self._check_origin(submitted.origin)
        if isinstance(submitted, JobGraph):
            return submitted
        return await self._graph_of(submitted, artifacts, before)

    async def _graph_of(
        self, program: ProgramDocument, artifacts: Mapping[str, bytes], before: JobGraph | None
    ) -> JobGraph:
        script = program.program.script
        errors = await asyncio.to_thread(refused_artifacts, program.artifacts, artifacts, program=True)
        errors += _refused_settings(program.config, self._places)
        if errors:
            raise InvalidRequest(*errors)
        if program.runtime.environment is None:
            # Another Python may take what this one does not.
            fault = await self.syntax.find_fault(script, artifacts[script])
            if fault is not None:
                raise InvalidRequest(fault)
        try:
            return graph_of(program) if before is None else graph_of_version(program, before)
        except GraphErrors as error:
            raise InvalidRequest(*error.errors) from None

    async def submit(
        self,
        graph: JobGraph,
        artifacts: Mapping[str, bytes],
        requested_by: str | None = None,
        *,
        rows: Sequence[AddRow] = (),
        key: AddSubmissionKey | None = None,
    ) -> str:
        """Make the job durable, start scheduling it, and return its id. ``rows`` are stored with it.

        Raises:
            KeyUsed: with ``key`` a job was submitted before.
        """
        job_id = self._new_id()
        options, requirements = await self.checked(job_id, graph, artifacts, requested_by)
        now_ms = self._keeper.clock.now_ms()
        state = initial_state(job_id, graph, options, requirements, now_ms)
        unit = UnitOfWork(job_id, FIRST_EPOCH).add(
            CreateJob(
                name=graph.name,
                type=graph.type.value,
                document=json.dumps(to_document(graph), separators=(",", ":")),
                options=options,
                submitted_ms=now_ms,
                submitted_by=requested_by,
                state=state,
                status=status_of(state),
            ),
            AddRequirements(requirements, now_ms),
            AddEvents(submission_events(state, now_ms)),
            *(AddArtifact(name, content) for name, content in artifacts.items()),
            *rows,
            *([] if key is None else [key]),
        )
        job = self._keeper.build_new(state, now_ms, requested_by)
        if await make_durable(self._keeper, unit, artifacts):
            self._keeper.add(job)
            job.deliver(StartScheduling())
        log.info("job submitted", job=job_id, name=graph.name, by=requested_by)
        return job_id

    def _check_origin(self, origin: str) -> None:
        """
        Raises:
            StateConflict: a job that has not ended writes the checkpoint that another is to go on from.
        """
        for job in self._keeper.jobs.values():
            state = job.state
            own = checkpoints_of(state.graph, self._places.working_dir(state.job_id))
            written = (str(self._places.checkpoint_dir(state.job_id)), *own)
            if not isinstance(state.phase, Finished) and any(
                is_within(one, [Path(other)])
                for path in written
                for one, other in ((path, origin), (origin, path))
            ):
                raise StateConflict(
                    f"from: the checkpoint {origin} is that of job {state.graph.name} ({state.job_id}), which is "
                    f"{status_of(state)}. End that job first, or replace it by a new version."
                )

    async def checked(
        self, job_id: str, graph: JobGraph, artifacts: Mapping[str, bytes], requested_by: str | None
    ) -> tuple[JobOptions, Requirements]:
        """The options and the first requirements of a graph that would be accepted.

        Raises:
            InvalidRequest: it would not be.
        """
        options, errors = JobOptions.from_config(graph.config)
        errors = [f"config: {error}" for error in errors]
        program = graph.program is not None
        errors += await asyncio.to_thread(refused_artifacts, graph.artifacts, artifacts, program=program)
        requirements = initial_requirements(job_id, graph, requested_by, reactive=options.is_reactive)
        errors += refusal_at_submission(graph, requirements, options)
        errors += await asyncio.to_thread(refused_by_places, graph, self._places)
        if errors:
            raise InvalidRequest(*errors)
        return options, requirements


def refused_by_places(graph: JobGraph, places: JobPlaces) -> list[str]:
    """What is wrong with the job's settings for the cluster that it is to run on, and with paths of it that lie among
    the server's own files: its database, its jobs."""
    refused = [refusal_of(name, path) for name, path in local_paths(graph) if is_within(path, places.private)]
    return [*refused, *_refused_settings(graph.config, places)]


def _refused_settings(config: Iterable[tuple[str, str]], places: JobPlaces) -> list[str]:
    config = tuple(config)
    refusals = [refused_ui(config, places.page_address)]
    if places.cluster is not None:
        refusals.append(refused_on_cluster([key for key, _ in config], places.cluster.master))
    return [f"config: {refusal}" for refusal in refusals if refusal is not None]


async def make_durable(keeper: JobKeeper, unit: UnitOfWork, artifacts: Mapping[str, bytes]) -> bool:
    """Files first: what is in the database is a job, and would be run. Whether the job is as it was submitted, to be
    added to ``keeper`` at once. If not, whoever has taken it up has written to it, and ``keeper`` will see who.

    Raises:
        Unavailable, KeyUsed: nothing was stored.
        InDoubt: it is not known whether it was.
    """
    places, directory = keeper.places, keeper.places.artifacts_dir(unit.job_id)
    in_doubt = False
    keeper.submitting.add(unit.job_id)
    try:
        if artifacts:
            await asyncio.to_thread(write_artifacts, directory, artifacts)
        await keeper.tell_address(unit.job_id, FIRST_EPOCH)
        while True:
            try:
                await keeper.store.commit(unit)
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
        if in_doubt and not isinstance(error, KeyUsed):
            # A job that is stored is run, and needs its files: it is taken up when the database can be asked.
            keeper.load_later(unit.job_id, None)
            raise InDoubt(
                f"{error} It is not known whether job {unit.job_id} was submitted: read it later to see whether it was."
            ) from error
        directory_of_job = places.job_dir(unit.job_id)
        await asyncio.to_thread(shutil.rmtree, directory_of_job, ignore_errors=True)
        if isinstance(error, KeyUsed):
            raise
        sentence = str(error) if isinstance(error, StoreError) else f"{error.strerror}: {directory}."
        raise Unavailable(f"{sentence} The job was not submitted; try again.") from error
    finally:
        keeper.submitting.discard(unit.job_id)
