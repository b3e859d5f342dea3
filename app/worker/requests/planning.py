"""Planning of programs before they are accepted: a driver runs the program up to the start of its queries. For
other jobs, the environment is checked, and built if necessary.

Each planning has a directory beside those of the jobs, which this process locks during its life. The driver is
always killed and the directory removed; after a kill of the server, the housekeeping of any server removes them
(`Planner.drop_strays`).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import structlog

from app import filelocks
from app.cluster.ports import DriverHandle, DriverHost, DriverLaunchError, DriverRef
from app.durablefiles import read_regular, remove_tree
from app.model.environment import Looked, Runtime
from app.model.fromjson import from_json
from app.model.graphdoc_program import ProgramDocument
from app.model.javaoptions import jvm_options
from app.model.planned import Planned
from app.model.protocol import WORKING_DIR, PlanningSpec
from app.model.secret_texts import secrets_of_program, without_secrets
from app.worker.job.attempt_record import write_json
from app.worker.job.drivers import ended_in_words, kill_surely, once_there_are_descriptors
from app.worker.job.files import make_working_dir, untouched_s, write_artifacts
from app.worker.job.places import JobPlaces
from app.worker.refusals import InvalidRequest, Unavailable

log = structlog.get_logger()

AT_ONCE: Final = 2
WAITING: Final = 8
"""Beyond so many that wait for their turn, a client is told to try again: each holds its files in memory."""

PLANNING_TIMEOUT_S: Final = 300.0
# Not the id of a job.
_PREFIX = ".planning-"
_MASTER, _SLOTS = "local[2]", 2
_ANSWER_MOST_BYTES = 4 << 20
_LOG_TAIL_BYTES = 64 << 10
_MOST_CHARS = 2_000
_CLOSE_S = 10.0
_STOPPING = "This control plane is stopping. The job was not submitted; try again."
# Between the making of a lock file and its being locked there is no time to speak of.
_LOCKED_WITHIN_S = 10.0

T = TypeVar("T")


class _Place:
    """The files of a planning. As those of an attempt lie in the directory of its job: see `DriverUser.open_job`.

    ``driver_file``: which process plans here, for the server that finds it when this one is gone.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lock_file, self.driver_file = directory / "lock", directory / "driver.json"
        self.work_dir, self.artifacts_dir = directory / "attempt", directory / "artifacts"
        self.working_dir = directory / WORKING_DIR
        self.answer_file = self.work_dir / "planned.json"
        self.handle: DriverHandle | None = None

    def lay_out(self, artifacts: Mapping[str, bytes]) -> int:
        """Make it, with the files of the program; the descriptor of its lock.

        Raises:
            OSError: it cannot be made.
        """
        self.directory.mkdir(mode=0o700, parents=True)
        fd = filelocks.lock(self.lock_file, wait=True)
        assert fd is not None
        try:
            self.work_dir.mkdir()
            self.working_dir.mkdir()
            write_artifacts(self.artifacts_dir, artifacts)
        except BaseException:
            os.close(fd)
            raise
        return fd


class Planner:
    """Plans programs and looks at environments, a few at once. ``limit_s``: for how long a planning may take."""

    def __init__(self, host: DriverHost, places: JobPlaces, *, limit_s: float = PLANNING_TIMEOUT_S) -> None:
        self._host, self._places = host, places
        self._limit_s = limit_s
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._wanted = 0
        self._running: set[asyncio.Task[Any]] = set()
        self._tidying: set[asyncio.Task[None]] = set()
        self._closing = False

    async def plan(
        self, program: ProgramDocument, artifacts: Mapping[str, bytes], version_of: str | None = None
    ) -> Planned:
        """What the program turned out to be. Whoever gives up waiting (is cancelled) ends the planning. ``version_of``:
        the id of a job, if it is a new version of that.

        Raises:
            Unavailable: it could not be found out now.
        """
        return await self._in_turn(lambda: self._plan(program, artifacts, version_of))

    async def look(self, runtime: Runtime, artifacts: Mapping[str, bytes]) -> Looked:
        """What a job would run in.

        Raises:
            InvalidRequest: it cannot be had.
            Unavailable: it could not be found out now.
        """
        return await self._in_turn(lambda: self._look(runtime, artifacts))

    async def _in_turn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._wanted >= AT_ONCE + WAITING:
            raise Unavailable(
                f"{self._wanted} jobs are being planned or wait for their turn: try again in a moment."
            )
        self._wanted += 1
        try:
            async with self._turns:
                if self._closing:
                    raise Unavailable(_STOPPING)
                task = asyncio.create_task(work())
                self._running.add(task)
                try:
                    return await task
                except asyncio.CancelledError:
                    if not self._closing:
                        raise
                    raise Unavailable(_STOPPING) from None
                finally:
                    self._running.discard(task)
        finally:
            self._wanted -= 1

    async def close(self) -> None:
        """End what is being planned; returns when nothing of it lives, or cannot be ended soon."""
        self._closing = True
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_CLOSE_S)
        if self._tidying:
            await asyncio.wait(self._tidying, timeout=_CLOSE_S)

    @contextlib.asynccontextmanager
    async def _laid_out(self, artifacts: Mapping[str, bytes]) -> AsyncIterator[_Place]:
        """A place with these files. Nothing of it is left afterwards, nor of the driver that was started there."""
        place = _Place(self._places.jobs_dir / f"{_PREFIX}{secrets.token_hex(16)}")
        laying = asyncio.create_task(asyncio.to_thread(place.lay_out, artifacts))
        try:
            await asyncio.shield(laying)
            yield place
        finally:
            await asyncio.shield(self._spawn(_tidy(place, laying)))

    async def _look(self, runtime: Runtime, artifacts: Mapping[str, bytes]) -> Looked:
        archive = None if runtime.environment is None else runtime.environment.archive
        sent = {name: content for name, content in artifacts.items() if name == archive}
        try:
            async with self._laid_out(sent) as place:
                return await self._host.look(
                    dataclasses.replace(runtime, artifacts_dir=str(place.artifacts_dir))
                )
        except DriverLaunchError as error:
            if not error.recoverable:
                raise InvalidRequest(" ".join(str(error).split())) from error
            raise Unavailable(f"{error} The job was not submitted.") from error
        except OSError as error:
            raise Unavailable(
                f"The environment could not be looked at: {error.strerror or error}. Try again."
            ) from error

    async def _plan(
        self, program: ProgramDocument, artifacts: Mapping[str, bytes], version_of: str | None
    ) -> Planned:
        options = jvm_options(program.config)
        try:
            async with self._laid_out(artifacts) as place:
                runtime = program.runtime.with_artifacts(str(place.artifacts_dir))
                if version_of is not None:
                    # There are the checkpoints that its queries name by relative paths.
                    place.working_dir = self._places.working_dir(version_of)
                    await asyncio.to_thread(make_working_dir, place.working_dir)
                place.handle = await once_there_are_descriptors(
                    lambda: self._host.acquire(options, runtime, place.working_dir)
                )
                return _told(await self._answer(place.handle, place, program, version_of), program)
        except TimeoutError:
            return Planned(
                error=f"The program was not planned within {self._limit_s:g} s (planning_timeout_seconds): it has not "
                "come to where it waits for its queries."
            )
        except DriverLaunchError as error:
            if not error.recoverable:
                # It asks for an environment that cannot be had.
                return _told(Planned(error=str(error)), program)
            raise Unavailable(f"{error} The program was not submitted.") from error
        except OSError as error:
            raise Unavailable(
                f"The program could not be planned: {error.strerror or error}. Try again."
            ) from error

    async def _answer(
        self, handle: DriverHandle, place: _Place, program: ProgramDocument, version_of: str | None
    ) -> Planned:
        ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        handle.on_exit(lambda status: None if ended.done() else ended.set_result(status))
        spec = PlanningSpec(
            answer_file=str(place.answer_file),
            job_name=program.name,
            graph=program.to_document(),
            master=_MASTER,
            slots=_SLOTS,
            work_dir=str(place.work_dir),
            artifacts_dir=str(place.artifacts_dir),
            checkpoint_dir="" if version_of is None else str(self._places.checkpoint_dir(version_of)),
            spark_conf={key: value for key, value in program.config if key.startswith("spark.")},
            private=tuple(map(str, self._places.private)),
            working_dir=str(place.working_dir),
        )
        spec_file = place.work_dir / "planning.json"
        await asyncio.to_thread(write_json, place.driver_file, dataclasses.asdict(handle.ref))
        await asyncio.to_thread(write_json, spec_file, dataclasses.asdict(spec))
        log.info("a program is being planned", name=program.name, pid=handle.ref.pid)
        async with asyncio.timeout(self._limit_s):
            await handle.assign(spec_file)
            status = await ended
        try:
            content = await asyncio.to_thread(read_regular, place.answer_file, _ANSWER_MOST_BYTES)
            return from_json(Planned, json.loads(content))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            last = await asyncio.to_thread(_last_line, handle.ref)
            how = ended_in_words(handle.ref.pid, status).rstrip(".")
            told = f" The last line of its log: {last}" if last else ""
            return Planned(error=f"The program could not be planned. {how} without a plan.{told}")

    # -- housekeeping

    async def drop_strays(self) -> int:
        """Remove what plannings left whose servers are gone, and end their drivers. Returns their number."""
        dropped = 0
        for directory in await asyncio.to_thread(lambda: sorted(self._places.jobs_dir.glob(f"{_PREFIX}*"))):
            place = _Place(directory)
            if not await asyncio.to_thread(_is_stray, place):
                continue
            ref = await asyncio.to_thread(_read_ref, place)
            place.handle = self._host.adopt(ref) if ref is not None else None
            await _tidy(place, None)
            log.info("what a planning left that was cut off was removed", directory=directory.name)
            dropped += 1
        return dropped

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tidying.add(task)
        task.add_done_callback(self._tidying.discard)
        return task


async def _tidy(place: _Place, laying: asyncio.Task[int] | None) -> None:
    """When this returns nothing of the driver lives, and nothing is left of the files."""
    if place.handle is not None:
        await kill_surely(place.handle)
    if laying is not None:
        # A thread cannot be called back.
        await asyncio.wait([laying])
    await asyncio.to_thread(remove_tree, place.directory)
    if laying is not None and not laying.cancelled() and laying.exception() is None:
        os.close(laying.result())


def _told(planned: Planned, program: ProgramDocument) -> Planned:
    """An error as it may be told: one line, without secrets."""
    if planned.error is None:
        return planned
    known = secrets_of_program(program.program, (*program.config, *program.runtime.variables))
    sentence = without_secrets(" ".join(planned.error.split()), known)
    if len(sentence) > _MOST_CHARS:
        sentence = f"{sentence[: _MOST_CHARS // 2]} ... {sentence[-_MOST_CHARS // 2 :]}"
    stack = without_secrets(planned.stack, known)
    log.info("a program could not be planned", name=program.name, error=sentence, stack=stack)
    return replace(planned, error=sentence or "The program could not be planned.", stack=stack)


def _last_line(ref: DriverRef) -> str:
    """What a driver that is gone said last."""
    try:
        with Path(ref.lock_file).with_suffix(".log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _is_stray(place: _Place) -> bool:
    try:
        return untouched_s(place.directory) > _LOCKED_WITHIN_S and not filelocks.is_held(place.lock_file)
    except OSError:
        return False


def _read_ref(place: _Place) -> DriverRef | None:
    try:
        return DriverRef(**json.loads(place.driver_file.read_text()))
    except (OSError, ValueError, TypeError):
        return None
