"""A broker of slots that control planes share, and jobs whose worker is the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

from app.cluster.ports import Offer
from app.model.plan import Slot
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.state import JobState
from app.scheduler.slot_ledger import Entry
from app.store.slot_table import SlotTable
from app.store.store import Store
from app.worker.slots.shared_broker import SharedBroker
from tests.parts import with_part
from tests.unit.store.samples import job_id, state

HOME = "here"
FIRST, SECOND = job_id(1), job_id(2)


class FakeJob:
    """A job whose worker is the test: it takes what it is granted when it is let."""

    def __init__(self, number: int, desired: int = 2) -> None:
        self.job_id = job_id(number)
        self.writer = self
        self.worker = self
        self.epoch = 1
        self.told = 0
        self.may_settle = asyncio.Event()
        asks = with_part(state(self.job_id), "supply", declared=desired, minimal=1)
        self.state: JobState = replace(asks, slots=(), share=SlotShare())

    def slots_changed(self) -> None:
        self.told += 1

    async def settle(self) -> None:
        await self.may_settle.wait()


class Bells:
    def __init__(self) -> None:
        self.breaks: Exception | None = None
        self.rung: list[int] = []

    def listen(self, rung: Callable[[], None]) -> None:
        if self.breaks is not None:
            raise self.breaks

    def ring(self, seats: Iterable[int]) -> None:
        self.rung.extend(seats)

    def close(self) -> None:
        pass


class Rig:
    """A broker, the jobs that it serves, and what it has told them."""

    def __init__(self, store: Store, slots: int = 4, holding_ms: int = 0) -> None:
        self.jobs: dict[str, Any] = {}
        self.told: list[set[str]] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.bells = Bells()
        self.table = SlotTable(store, HOME)
        self.broker = SharedBroker(
            self.table,
            self.jobs,
            self.told.append,
            self._spawn,
            bells=self.bells,
            offer=Offer((("host", slots),)),
            holding_ms=holding_ms,
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def declare(self, job: FakeJob) -> FakeJob:
        self.jobs[job.job_id] = job
        self.broker.declare(job.state)
        return job

    def take(self, job: FakeJob) -> None:
        """The job's durable state has what it is granted."""
        job.state = replace(job.state, slots=self.broker.granted(job.job_id).slots)

    async def cycle(self, times: int = 1) -> None:
        for _ in range(times):
            await self.broker._cycle()

    async def entry(self, job: str) -> Entry:
        entry = (await SlotTable(self.table.store, HOME).entries_of([job]))[job]
        assert entry is not None
        return entry


def names(slots: Iterable[Slot]) -> list[str]:
    return [slot.id for slot in slots]
