"""Driver processes of the simulated world: a Python process with its JVM, and what it does with an attempt.

Modelled after `app.driver` and `app.cluster.processes`: the lock is held as long as either lives; a process without a
job ends with the control plane that started it; a batch looks in `owner.json` for a newer attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cluster.ports import DriverRef
from app.model.protocol import OUTCOME_FILE, Orders, Registration, Report, outcome_document
from app.worker.refusals import ControlPlaneError, Fenced
from tests.simulation.batch import Exit, RegionsOf
from tests.simulation.fragile import breaks
from tests.simulation.growing import Program, begin_queries, not_followed
from tests.simulation.partitions import Checkpoint, give_first, give_late, give_partitions
from tests.simulation.queries import SideQuery, are_known, noted, taken, without_refused
from tests.simulation.world import Away, World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.simulation.plane import Incarnation

_PREDECESSOR_WAIT_S = 3.0
_LONG_POLL_MS = 25_000
_LAST_WORD_S = 10.0


class SimProcess:
    """One driver process. ``python`` and ``jvm``: which of the two lives."""

    def __init__(self, world: World, rope: Incarnation) -> None:
        self.world = world
        self.number = len(world.processes) + 1
        pid, lock = 1000 + self.number, f"/run/{self.number}"
        self.ref = DriverRef(f"driver-{self.number}", pid, float(self.number), lock)
        self.rope: Incarnation | None = rope
        self.python = self.jvm = True
        self.status: int | None = None
        self.ready = asyncio.Event()
        self.exited = asyncio.Event()
        self.free = asyncio.Event()
        self.jobs: dict[str, None] = {}
        self.attempt: SimAttempt | None = None
        self._assignments: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._killed = self.was_parked = False
        self._listeners: list[Callable[[int | None], None]] = []
        self._main = world.spawn(self._run())
        world.processes.append(self)

    def __repr__(self) -> str:
        return f"process {self.number}"

    @property
    def lock_held(self) -> bool:
        return self.python or self.jvm

    # -- what others do to it

    def assign(self, spec_file: Path) -> None:
        spec = json.loads(spec_file.read_text())
        self.world.oracles.assigned(self, spec)
        self._assignments.put_nowait(spec)

    def end_of_input(self) -> None:
        """The control plane that held the rope is gone."""
        self.rope = None
        self._assignments.put_nowait(None)

    def on_exit(self, listener: Callable[[int | None], None]) -> None:
        if self.exited.is_set():
            listener(self.status)
        else:
            self._listeners.append(listener)

    def kill_python(self) -> None:
        """kill -9 of the main process: its JVM notices a little later, and may still write until then."""
        if self.python:
            self.world.tell(f"{self}: killed with -9; its JVM lives on for a moment")
            self._python_ends(-9)
            self.world.later(self.world.rng.uniform(0.05, 2.5), self._jvm_ends_later)

    def kill_group(self) -> None:
        """SIGKILL to both; the kernel takes its time."""
        if self._killed or not self.lock_held:
            return
        self._killed = True
        rng = self.world.rng
        delay_s = rng.uniform(0.01, 0.1) if self.world.quiet or rng.random() < 0.9 else rng.uniform(0.1, 6)
        self.world.tell(f"{self}: SIGKILL, takes {delay_s:.2f} s")
        self.world.later(delay_s, self._group_ends)

    async def _group_ends(self) -> None:
        self._python_ends(-9)
        self._jvm_ends()

    async def _jvm_ends_later(self) -> None:
        self._jvm_ends()

    def _python_ends(self, status: int) -> None:
        if not self.python:
            return
        self.python, self.status = False, status
        self.world.tell(f"{self}: ended with {status}")
        self._main.cancel()
        if self.attempt is not None:
            self.attempt.cut()
        self.exited.set()
        for listener in self._listeners:
            listener(status)
        if not self.jvm:
            self.free.set()

    def _jvm_ends(self) -> None:
        if self.jvm:
            self.jvm = False
            for checkpoint in self.world.checkpoints.values():
                checkpoint.writers.pop(self, None)
            if not self.python:
                self.free.set()

    # -- its life

    async def _run(self) -> None:
        rng = self.world.rng
        try:
            await asyncio.sleep(rng.uniform(0.2, 2.0))
            self.ready.set()
            while True:
                spec = await self._assignments.get()
                if spec is None:
                    raise Exit(0)
                self.attempt = SimAttempt(self, spec)
                try:
                    parked = await self.attempt.run()
                finally:
                    self.attempt.cut()
                if not parked:
                    raise Exit(0)
                self.attempt, self.was_parked = None, True
        except Exit as end:
            self._jvm_ends()
            self._python_ends(end.status)


class SimAttempt:
    """What a driver does with an assignment. Reports are numbered, kept until acknowledged, and sent in order."""

    def __init__(self, process: SimProcess, spec: dict[str, Any]) -> None:
        self.process = process
        self.world = process.world
        self.spec = spec
        self.job_id: str = spec["job_id"]
        self.number: int = spec["attempt"]
        self.epoch: int = spec["epoch"]
        self.plan = Orders(spec["plan_version"], spec["parallelism"], "none", self.epoch)
        self.applied = 0
        self.running = False
        self.stop: str | None = None
        self.fenced = False
        self.reports: list[Report] = []
        self.seq = 0
        self.idle = False
        self.changed = asyncio.Event()
        self.sent = asyncio.Event()
        self._new_report = asyncio.Event()
        self.outcome: str | None = None
        self.side: SideQuery | Program | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    def __repr__(self) -> str:
        return f"attempt {self.number} of {self.job_id[-2:]} in {self.process}"

    @property
    def checkpoint(self) -> Checkpoint:
        return self.world.checkpoints.setdefault(self.job_id, Checkpoint(self.job_id))

    def cut(self) -> None:
        """Its Python process ended."""
        for task in self._tasks:
            task.cancel()

    async def run(self) -> bool:
        """Whether the process waits for another assignment afterwards. Raises Exit otherwise."""
        world, rng = self.world, self.world.rng
        await self._claim()
        if world.chance(world.knobs.start_hangs):
            world.tell(f"{self}: hangs while it starts")
            await asyncio.sleep(400)
        await asyncio.sleep(rng.uniform(0.1, 2.5))
        self._tasks = [world.spawn(self._deliver_reports()), world.spawn(self._fetch_orders())]
        if self.spec["graph"]["type"] == "STREAMING" and (failed := await give_partitions(self)):
            return await self._fail(failed, repartition_failed=True)
        if why := await world.reachability.no_executors(self.process, self.job_id):
            return await self._fail(why, outside=True, by_cluster=True)
        if world.chance(world.knobs.start_fails):
            return await self._fail("A query could not be started.")
        if (ended := await begin_queries(self, self._tasks, give_first)) is not None:
            return ended
        return await (RegionsOf(self).run() if self.spec["graph"]["type"] == "BATCH" else self._run_batches())

    async def _claim(self) -> None:
        """owner.json: an older attempt is refused, and the last writer must be gone."""
        world, checkpoint = self.world, self.checkpoint
        self.process.jobs[self.job_id] = None
        if world.knobs.fence and checkpoint.owner is not None:
            epoch, attempt, process = checkpoint.owner
            if (epoch, attempt) > (self.epoch, self.number):
                raise Exit(4)
            if process is not self.process and process.lock_held:
                world.oracles.fence_was_needed(self, process)
                try:
                    async with asyncio.timeout(_PREDECESSOR_WAIT_S):
                        await process.free.wait()
                except TimeoutError:
                    raise Exit(4) from None
        checkpoint.owner = (self.epoch, self.number, self.process)
        checkpoint.writers[self.process] = None
        world.oracles.writes(checkpoint)

    async def _run_batches(self) -> bool:
        world, rng, checkpoint = self.world, self.world.rng, self.checkpoint
        left = rng.randint(3, 60) if self.spec["graph"]["name"].endswith("bounded") else None
        while True:
            if self.fenced:
                raise Exit(3)
            if self.stop is not None:
                ended = await self._carry_out_stop()
                if ended is not None:
                    return ended
            if world.chance(world.knobs.batch_fails):
                return await self._fail("A function raised ValueError.")
            broken, refused = breaks(self), await give_late(self)
            if broken or refused:
                return await self._fail(broken or refused or "", repartition_failed=not broken)
            if left is not None and left <= 0 and not (self.side and self.side.is_down):
                return await self._last_word("finished")
            plan = self.plan
            if rng.random() < 0.15:  # nothing to process for a while
                self._say_applied(plan, idle=True)
                self.changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(rng.uniform(0.5, 10)):
                        await self.changed.wait()
                continue
            await asyncio.sleep(world.batch_takes_s())
            if self.fenced or (world.knobs.fence and not self._is_owner()):
                raise Exit(3)
            world.oracles.batch(self, checkpoint)
            checkpoint.batches += 1
            left = None if left is None else left - 1
            self._say_applied(plan, idle=False)
            self.report("batch", plan_version=plan.plan_version, query_id="q", batch_id=checkpoint.batches)

    def _is_owner(self) -> bool:
        return (self.checkpoint.owner or (0, 0, None))[1:] == (self.number, self.process)

    def _say_applied(self, plan: Orders, *, idle: bool) -> None:
        if plan.plan_version > self.applied and not (self.side and self.side.is_behind(plan)):
            self.applied = plan.plan_version
            more = {"idle": idle, "not_followed": dict.fromkeys(not_followed(self, plan), "It does not.")}
            self.report("plan-applied", plan_version=self.applied, output_gap_ms=5, **more)

    async def _carry_out_stop(self) -> bool | None:
        order, self.stop = self.stop, None
        if order == "drain" and self.side and self.side.is_down:
            return await self._fail("A query that is down cannot be drained.")
        if order == "drain" and self.world.chance(0.1):
            self.report("stopped", driver_alive=True, error="The drain could not be carried out.")
            return None
        # A program that has started no query is run anew by the next driver.
        ends = order == "drain" or (isinstance(self.side, Program) and self.side.awaits)
        self.side = self.side and self.side.end()
        self.checkpoint.writers.pop(self.process, None)
        if ends:
            return await self._last_word("stopped", drained=order == "drain", location="checkpoint")
        self.report("stopped", driver_alive=True)
        if await self._flush():
            self.world.tell(f"{self}: parked")
            return True
        return False

    async def _fail(self, error: str, **more: bool) -> bool:
        fields: dict[str, Any] = {"plan_version": self.plan.plan_version, "error": error}
        fields |= {"recoverable": not self.world.chance(0.02), **more}
        if not more and not fields["recoverable"]:
            self.world.oracles.truth(self.job_id).may_end_otherwise = True
        if not self.world.chance(0.05):  # otherwise the disk is full
            self._leave("failed", **fields)
        self.report("failed", **fields)
        await self._flush()
        raise Exit(4)

    def _leave(self, kind: str, **fields: Any) -> None:
        outcome = outcome_document(Report(seq=0, at_ms=self.world.wall_ms, type=kind, **fields))  # type: ignore[arg-type]
        (Path(self.spec["work_dir"]) / OUTCOME_FILE).write_text(json.dumps(outcome))

    async def _last_word(self, kind: str, **fields: Any) -> bool:
        self.outcome = kind
        self._leave(kind, **fields)
        self.report(kind, **fields)
        await self._flush()
        raise Exit(0)

    async def _flush(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_S):
                while self.reports:
                    self.sent.clear()
                    await self.sent.wait()
        return not self.reports

    # -- its client
    def report(self, kind: str, **fields: Any) -> None:
        self.seq += 1
        self.world.tell(f"{self}: reports {self.seq} {kind} {fields}")
        told = {"input_rows": 1, **fields}
        self.reports.append(Report(self.seq, self.world.wall_ms, kind, **told))  # type: ignore[arg-type]
        self.changed.set()
        self._new_report.set()

    async def _deliver_reports(self) -> None:
        me = Registration(self.process.ref.pid, 1.0, "sim", "4", "app")
        orders = await self._call(
            lambda plane: plane.plane.driver_register(
                self.job_id, self.number, self.spec["secret"], self.epoch, me
            )
        )
        self._take(orders)
        while not self.fenced:
            if not self.reports:
                self._new_report.clear()
                await self._new_report.wait()
            sending = tuple(self.reports)
            answer = await self._call(
                lambda plane, sending=sending: plane.plane.driver_reports(
                    self.job_id, self.number, self.spec["secret"], self.epoch, sending
                )
            )
            if answer is not None and answer.epoch >= self.epoch:
                self.epoch, number = answer.epoch, answer.acknowledged
                self.world.oracles.acknowledged(self, sending, number)
                self.plan = without_refused(self.plan, sending, number)
                self.reports = [report for report in self.reports if report.seq > number]
                self.sent.set()

    async def _fetch_orders(self) -> None:
        while not self.fenced:
            plan = self.plan
            orders = await self._call(
                lambda plane, plan=plan: plane.plane.driver_orders(
                    self.job_id,
                    self.number,
                    self.spec["secret"],
                    self.epoch,
                    plan=plan.plan_version,
                    stop=plan.stop,
                    restarts=plan.restarts,
                    wait_ms=_LONG_POLL_MS,
                )
            )
            self._take(orders)

    def _take(self, orders: Orders | None) -> None:
        if orders is None or orders.epoch < self.epoch:
            return
        self.epoch = orders.epoch
        before = self.plan
        if are_known(before, orders):
            return
        self.world.tell(f"{self}: orders plan {orders.plan_version} stop {orders.stop}")
        self.plan = taken(before, orders)
        if orders.stop == "kill":
            self.process._jvm_ends()
            self.process._python_ends(0)
        elif orders.stop != "none" and orders.stop != before.stop:
            self.stop = orders.stop
        self.changed.set()

    async def _call(self, work: Callable[[Incarnation], Coroutine[Any, Any, Any]]) -> Any:
        """Repeated until it is answered; None when fenced."""
        retry_s = 0.05
        while not self.fenced:
            try:
                return await self.world.network.call("driver", noted(self, work), self.spec)
            except Fenced:
                self.world.tell(f"{self}: fenced")
                self.world.oracles.fenced(self)
                self.fenced = True
                self.changed.set()
            except (Away, ControlPlaneError):
                await asyncio.sleep(retry_s * self.world.rng.uniform(0.75, 1.25))
                retry_s = min(retry_s * 2, 2.0)
        return None
