"""The control planes that share jobs, as the API of one of them sees them: who owns a job, and what others' jobs are
like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from app.store.members import JobMark, Member
from app.store.queries import StoredJob
from app.worker.job.stored_jobs import read_view
from app.worker.ownership.leases import Ownership
from app.worker.ownership.recovery import JOBS_PER_READ, JobKeeper

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class MemberView:
    """One control plane. ``jobs``: those that it owns and that have not ended. ``is_self``: it is who is asked.
    ``is_arbiter``: it decides about the slots of all."""

    member: Member
    joined_ms: int
    is_alive: bool
    jobs: int
    is_self: bool
    is_arbiter: bool = True


class ControlPlanes:
    """The view of one control plane on those that share its jobs; it may be alone (``is_shared`` false)."""

    def __init__(self, keeper: JobKeeper, ownership: Ownership) -> None:
        self._keeper, self._store = keeper, keeper.store
        self._ownership = ownership
        # Of the jobs in `glimpses`, and of ended ones.
        self._marks: dict[str, JobMark] = {}

    @property
    def is_shared(self) -> bool:
        return self._ownership.member is not None

    def serves(self, job_id: str) -> bool:
        """Whether this process owns the job, for certain, or knows how it ended."""
        keeper = self._keeper
        return job_id in keeper.jobs and keeper.is_sure()

    def knows(self, job_id: str) -> bool:
        """Whether the job is known here, as it is now or as it was."""
        return self._keeper.exists(job_id)

    async def owner_of(self, job_id: str) -> Member | None:
        """The other control plane to ask about a job; None if there is none now, or it is this one.

        Raises:
            StoreError: the database is away.
        """
        owner = await self._ownership.members.owner_of(job_id)
        if owner is None:
            return None
        if owner == self._ownership.member:
            # It was handed over, or its owner has just died: it is served in a moment.
            if job_id not in self._keeper.jobs:
                self._ownership.look_soon()
            return None
        return owner

    async def look_up(self, job_id: str | None = None) -> None:
        """Read how the job, or each job, is that another control plane owns, so that it can be shown here.

        Raises:
            StoreError: the database is away.
        """
        keeper = self._keeper
        if job_id is None:
            if not keeper.peers and not keeper.glimpses:
                return
            await keeper.broker.refresh()
        found = await self._ownership.members.marks(None if job_id is None else [job_id])
        marks = {mark.job_id: mark for mark in found}
        for gone in self._gone(marks, job_id):
            self._marks.pop(gone, None)
            keeper.glimpses.pop(gone, None)
            keeper.ended.pop(gone, None)
            keeper.unreadable.drop(gone)
        wanted = [
            mark.job_id
            for mark in found
            if not (mark.job_id in keeper.ended or self.serves(mark.job_id))
            and (self._marks.get(mark.job_id) != mark or mark.job_id not in keeper.glimpses)
        ]
        for first in range(0, len(wanted), JOBS_PER_READ):
            for stored in await self._store.load_jobs(wanted[first : first + JOBS_PER_READ]):
                if stored.job_id in keeper.jobs:
                    continue
                if stored.summary.status.is_globally_terminal:
                    keeper.show_ended(stored)
                else:
                    self._glimpse(stored, marks[stored.job_id])

    def _glimpse(self, stored: StoredJob, mark: JobMark) -> None:
        keeper = self._keeper
        try:
            keeper.glimpses[stored.job_id] = read_view(stored)
        except Exception as error:
            keeper.glimpses.pop(stored.job_id, None)
            keeper.unreadable.note(stored, error)
            return
        self._marks[stored.job_id] = mark
        if mark.owner != self._store.owner:
            keeper.unreadable.drop(stored.job_id)

    def _gone(self, marks: dict[str, JobMark], job_id: str | None) -> list[str]:
        """Drop jobs that another control plane has deleted."""
        keeper = self._keeper
        unreadable = [one.job_id for one in keeper.unreadable.all()]
        known = [*keeper.ended, *keeper.glimpses, *unreadable] if job_id is None else [job_id]
        return [one for one in known if one not in marks]

    async def members(self) -> Sequence[MemberView]:
        """All members by seat, those that are dead and not replaced included.

        Raises:
            StoreError: the database is away.
        """
        me = self._ownership.member
        if me is None:
            return ()
        spread = await self._ownership.members.spread(me.home)
        broker = self._keeper.broker
        await broker.refresh()
        return [
            MemberView(
                state.member,
                state.joined_ms,
                state.is_alive,
                state.jobs,
                state.member.member_id == me.member_id,
                state.member.member_id == broker.arbiter,
            )
            for state in spread.members
        ]
