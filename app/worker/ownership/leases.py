"""Leases of jobs: renews those of this process, takes over jobs without an owner, and balances the number of
jobs.

A process that is alone on its data directory takes all jobs. Several processes (`app.store.members`) each take
their share of the free jobs, and hand over jobs, one at a time, to processes that have far fewer.
`app.store.merged_units.lost_leases` ensures that a process without a lease writes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import structlog

from app.store.errors import StoreError
from app.store.leases import Lease
from app.store.members import Member, Members, MemberState, Spread
from app.worker.job.job import Job
from app.worker.job.stored_jobs import quiet
from app.worker.ownership.recovery import JOBS_PER_READ, JobKeeper

log = structlog.get_logger()

LOOK_EVERY_S = 0.5
"""How often a member looks whether another one has died, or has handed it a job."""

IMBALANCE = 2
"""The least difference of jobs for a hand-over: with a smaller one the job would be handed back."""

_LEASES_PER_CLAIM = 1000


class Ownership:
    """``member``: this process among those that share its jobs; None if it does not share them.

    ``is_dead`` tells whether the process of a member has certainly ended, without waiting for its leases to expire.
    """

    def __init__(
        self,
        keeper: JobKeeper,
        *,
        member: Member | None = None,
        is_dead: Callable[[Member], bool] = lambda _: False,
    ) -> None:
        self.members = Members(keeper.store)
        self.member = member
        self.spread = Spread((), 0)
        self._keeper, self._store = keeper, keeper.store
        self._is_dead = is_dead
        self._handed_over = 0
        self._free_before = False
        self._wanted = asyncio.Event()

    async def start(self, *, renew_every_s: float | None) -> None:
        """Get the leases of all jobs that are this process's to serve, have them taken up, and keep them.

        ``renew_every_s``: None where leases cannot expire (one process, SQLite).

        Raises:
            StoreError: the database is away.
        """
        await self._claim()
        await self._keeper.start()
        if renew_every_s is not None:
            # Taking jobs up may have taken long.
            await self._renew_leases()
            self._keeper.spawn(self._run(renew_every_s))

    def look_soon(self) -> None:
        """Another member reports that this process owns a job that it does not serve yet."""
        self._wanted.set()

    # -- the loop

    async def _run(self, renew_every_s: float) -> None:
        loop = asyncio.get_running_loop()
        look_every_s = min(LOOK_EVERY_S, renew_every_s) if self.member is not None else renew_every_s
        due_s = loop.time() + renew_every_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(look_every_s):
                    await self._wanted.wait()
            try:
                due = loop.time() >= due_s or self._wanted.is_set() or not self._keeper.is_sure()
                self._wanted.clear()
                if await self._is_news() or due:
                    gave = await self._renew()
                    due_s = loop.time() + (look_every_s if gave else renew_every_s)
            except StoreError as error:
                log.error("leases could not be renewed, or jobs not be taken over", error=str(error))
            except Exception:
                # Whatever it is, the leases of all the other jobs must be renewed.
                log.exception("keeping leases met a defect")

    async def _is_news(self) -> bool:
        """Whether a member has died, or has handed a job to this one."""
        if self.member is None:
            return False
        others = [state.member for state in self.spread.alive if state.member != self.member]
        dead = [one for one in others if await asyncio.to_thread(self._is_dead, one)]
        if dead:
            log.warning("another control plane has died", members=[one.member_id for one in dead])
            await self.members.bury([one.member_id for one in dead])
            # One of them may have decided about slots.
            self._keeper.broker.review_soon()
            return True
        handed_over = await self.members.handed_over(self.member.member_id)
        before, self._handed_over = self._handed_over, handed_over
        return handed_over != before

    async def _renew(self) -> bool:
        """Whether a job was handed over, and there may be more to hand over."""
        held = await self._renew_leases()
        await self._take_over(held)
        return self.member is not None and await self._even_out()

    async def _renew_leases(self) -> dict[str, Lease]:
        """All leases of this process; jobs that are not among them are let go of."""
        keeper = self._keeper
        asked_ms = keeper.lease_certainty.now_ms()
        served = set(keeper.jobs)
        held = await self._store.renew_leases()
        for job_id in served & set(keeper.jobs):
            lease = held.get(job_id)
            if lease is None or lease.epoch != keeper.jobs[job_id].writer.epoch:
                log.warning("a job is another control plane's now", job=job_id)
                keeper.lose(job_id)
        keeper.lease_certainty.renewed(asked_ms, self._store.lease_ttl_ms)
        if self.member is not None:
            await self.members.beat(self.member)
        return held

    async def _take_over(self, held: Mapping[str, Lease]) -> None:
        """Take up the jobs whose owner has gone, on this data directory: their leases have expired.

        What is missing is read off the leases that we hold, not off the answer to a claim, which may have been lost;
        nor is a submission's commit always answered, which may even be made after the database was asked about it.
        """
        ours = dict(held)
        ours.update(await self._claim())
        missing = self._keeper.unknown(ours)
        for first in range(0, len(missing), JOBS_PER_READ):
            await self._keeper.take_up_all(
                await self._store.load_jobs(missing[first : first + JOBS_PER_READ])
            )

    async def _claim(self) -> dict[str, Lease]:
        """Claim leases of free jobs: all, or as many as this member's share."""
        left = _ALL
        if self.member is not None:
            self.spread = spread = await self.members.spread(self.member.home)
            self._keeper.peers = [one.member for one in spread.alive if one.member != self.member]
            left = share(spread, self.member)
            if self._free_before:
                # Those whose share they are have had their time.
                left = max(left, spread.free)
            self._free_before = spread.free > left
        claimed: dict[str, Lease] = {}
        while left > 0:
            # What a newer version has written is for others.
            but = self._keeper.unreadable.left_alone()
            leases = await self._store.claim_leases(min(left, _LEASES_PER_CLAIM), passing_over=but)
            if not leases:
                break
            claimed.update((lease.job_id, lease) for lease in leases)
            left -= len(leases)
        return claimed

    # -- giving

    async def _even_out(self) -> bool:
        """Hand one job over to a member that has far fewer; whether one was."""
        assert self.member is not None
        candidates = [job for job in self._keeper.jobs.values() if job.is_quiet]
        to = receiver(self.spread, self.member)
        return to is not None and bool(candidates) and await self._hand_over(candidates[-1], to)

    async def _hand_over(self, job: Job, to: Member) -> bool:
        """The job is dropped first, so that for a moment no server serves it; its driver is not affected."""
        keeper, job_id = self._keeper, job.job_id
        keeper.lose(job_id)
        await quiet(job)
        try:
            if await self.members.hand_over(job_id, job.writer.epoch, to.member_id):
                log.info("job handed over", job=job_id, to=to.url)
                return True
        except StoreError as error:
            log.error("a job could not be handed over", job=job_id, error=str(error))
        keeper.load_later(job_id, job)
        return False


_ALL = 1_000_000


def share(spread: Spread, member: Member) -> int:
    """How many of the free jobs are ``member``'s to take, so that all have about the same number afterwards.

    The shares of all that are alive are at least as many as there are free jobs.
    """
    others = sum(1 for state in spread.alive if state.member.member_id != member.member_id)
    fair = -(-spread.total // (others + 1))
    own = next((state.jobs for state in spread.members if state.member.member_id == member.member_id), 0)
    return min(spread.free, max(0, fair - own))


def receiver(spread: Spread, member: Member) -> Member | None:
    """The member to which ``member`` hands a job over, if it has the most jobs and the other one far fewer.

    Only one gives at a time, and only to one that has fewer afterwards as well or as many: nothing goes to and fro.
    """
    alive = spread.alive
    if not alive:
        return None
    most = max(alive, key=lambda state: (state.jobs, -state.member.seat))
    least: MemberState = min(alive, key=lambda state: (state.jobs, state.member.seat))
    if most.member.member_id != member.member_id or most.jobs - least.jobs < IMBALANCE:
        return None
    return least.member
