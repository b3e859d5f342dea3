"""The checkpoints that programs choose for their queries: no two jobs have one in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.model.jobgraph import JobGraph, PlannedSpec
from app.model.locations import plain_location
from app.model.planned import PlannedVertex
from app.scheduler.adaptive.draft import status_of
from app.scheduler.adaptive.state import Finished, JobState

if TYPE_CHECKING:
    from app.worker.job.job import Job
    from app.worker.job.places import JobPlaces


def checkpoints_of(graph: JobGraph, working_dir: Path) -> dict[str, str]:
    """The checkpoints that a program has chosen, and the vertices of their sinks. Behind links, only drivers know which
    directory a checkpoint is. ``working_dir``: that of the job."""
    found: dict[str, str] = {}
    for vertex in graph.vertices:
        if isinstance(vertex.operation, PlannedSpec) and (own := vertex.operation.checkpoint):
            found[_place(own, working_dir)] = vertex.name
    return found


def refuse_checkpoint(
    state: JobState, planned: Sequence[PlannedVertex], jobs: Iterable[Job], places: JobPlaces
) -> str | None:
    """Why the job may not run the query with the vertices ``planned``, in sentences: another one that has not ended
    has its checkpoint. That one's driver, if it lives, has claimed it; it may also wait for slots."""
    working_dir = places.working_dir(state.job_id)
    chosen = {_place(each.checkpoint, working_dir): each.name for each in planned if each.checkpoint}
    for other in [job.state for job in jobs] if chosen else ():
        if other.job_id == state.job_id or isinstance(other.phase, Finished):
            continue
        if used := chosen.keys() & checkpoints_of(other.graph, places.working_dir(other.job_id)).keys():
            place = min(used)
            return (
                f"The checkpoint {place} of {chosen[place]} is that of job {other.graph.name} ({other.job_id}), which "
                f"is {status_of(other)}. End that job first, or give the query another checkpointLocation."
            )
    return None


def _place(checkpoint: str, working_dir: Path) -> str:
    found = plain_location(checkpoint) or plain_location(f"{working_dir}/{checkpoint.removeprefix('file:')}")
    return found or checkpoint
