"""What a graph document is to run in, which says what it needs there, is looked at before the document is accepted, and
built if necessary."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

from app.cluster.ports import DriverHost, DriverLaunchError
from app.durablefiles import remove_tree
from app.model.environment import Looked, Runtime
from app.worker.job.files import untouched_s, write_artifacts
from app.worker.job.places import JobPlaces
from app.worker.refusals import InvalidRequest, Unavailable

# Not the id of a job.
_PREFIX: Final = ".environment-"
_FORMER: Final = ".planning-"
"""Of servers of earlier builds."""
_STRAY_AFTER_S: Final = 86_400.0
_CLOSE_S: Final = 10.0


class Environments:
    """Looks at environments. A few are built at once, by ``host``."""

    def __init__(self, host: DriverHost, places: JobPlaces) -> None:
        self._host, self._places = host, places
        self._running: set[asyncio.Task[Looked]] = set()

    async def look(self, runtime: Runtime, artifacts: Mapping[str, bytes]) -> Looked:
        """What a job would run in. Whoever gives up waiting (is cancelled) ends it.

        Raises:
            InvalidRequest: it cannot be had.
            Unavailable: it could not be found out now.
        """
        task = asyncio.create_task(self._look(runtime, artifacts))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.cancelled():
            raise Unavailable("This control plane is stopping. The job was not submitted; try again.")
        return task.result()

    async def close(self) -> None:
        """End what is being looked at."""
        for task in self._running:
            # One that was given up already removes what was laid out for it.
            if not task.cancelling():
                task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=_CLOSE_S)

    async def drop_strays(self) -> int:
        """Remove what servers have left that were killed. Returns the number of directories."""
        jobs_dir = self._places.jobs_dir
        found = await asyncio.to_thread(
            lambda: [place for prefix in (_PREFIX, _FORMER) for place in jobs_dir.glob(f"{prefix}*")]
        )
        return sum([await asyncio.to_thread(_drop_if_stray, directory) for directory in found])

    async def _look(self, runtime: Runtime, artifacts: Mapping[str, bytes]) -> Looked:
        archive = None if runtime.environment is None else runtime.environment.archive
        sent = {name: content for name, content in artifacts.items() if name == archive}
        try:
            async with self._laid_out(sent) as directory:
                return await self._host.look(dataclasses.replace(runtime, artifacts_dir=str(directory)))
        except DriverLaunchError as error:
            if not error.recoverable:
                raise InvalidRequest(" ".join(str(error).split())) from error
            raise Unavailable(f"{error} The job was not submitted.") from error
        except OSError as error:
            raise Unavailable(
                f"The environment could not be looked at: {error.strerror or error}. Try again."
            ) from error

    @contextlib.asynccontextmanager
    async def _laid_out(self, artifacts: Mapping[str, bytes]) -> AsyncIterator[Path]:
        """A directory with these files, as long as it is needed."""
        self._places.jobs_dir.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._places.jobs_dir))
        # A thread cannot be called back.
        laying = asyncio.create_task(asyncio.to_thread(write_artifacts, directory / "artifacts", artifacts))
        try:
            await asyncio.shield(laying)
            yield directory / "artifacts"
        finally:
            await asyncio.shield(asyncio.create_task(_remove(directory, laying)))


async def _remove(directory: Path, laying: asyncio.Task[None]) -> None:
    await asyncio.wait([laying])
    await asyncio.to_thread(remove_tree, directory)


def _drop_if_stray(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        if untouched_s(directory) > _STRAY_AFTER_S:
            remove_tree(directory)
            return True
    return False
