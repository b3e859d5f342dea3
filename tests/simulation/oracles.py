"""What must hold in every world, after every step and at the end: promises 1, 2, 4 and 5 of the README."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from app.model.graphdoc import read_graph
from app.model.jobgraph import JobType
from app.model.protocol import Report
from app.model.requirements import Requirements
from app.model.rescale import RescaleRecord
from app.scheduler.adaptive.state import Executing, Finished, JobState
from app.store.store import Store
from app.store.writes import AddRequirements, CreateJob, PutRescale, SaveState, UnitOfWork
from app.worker.views import RequirementsResult
from tests.simulation import assumptions, events_told, versions
from tests.simulation.batch_oracles import check_end, check_progress
from tests.simulation.deadlines import CANCELED, ROLLED_BACK, WAITS_AGAIN, Deadlines
from tests.simulation.fragile import Trials
from tests.simulation.goals import counting_slots, declared_least, goal_of
from tests.simulation.growth_oracles import REASON as CAME
from tests.simulation.growth_oracles import Growth
from tests.simulation.jobs import is_wide
from tests.simulation.partitions import check_redistribution, known_partitions
from tests.simulation.policies import PolicyOracles
from tests.simulation.queries import LocalFailovers
from tests.simulation.rules import (
    bounds_now,
    comes_back,
    groups_of,
    least_slots,
    most_slots,
    parallelism,
    partitions,
)
from tests.simulation.shares import ShareOracles
from tests.simulation.spoiled import SpoiledStarts
from tests.simulation.taking_up import TakingUp
from tests.simulation.told import Told
from tests.simulation.truth import JobTruth, Violation
from tests.simulation.words import Words
from tests.simulation.world import CURRENT, World
from tests.stored import requirements as stored_requirements

if TYPE_CHECKING:
    from tests.simulation.partitions import Checkpoint
    from tests.simulation.process import SimAttempt, SimProcess


_OVER = ("Canceling", "Failing", "Finished")


class Oracles:
    """See the module. The first violation is kept and ends the run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.jobs: dict[str, JobTruth] = {}
        self.violation: BaseException | None = None
        self.counts: dict[str, int] = {}
        self.shares = ShareOracles(self)
        self.policies = PolicyOracles(self)
        self.trials = Trials(self)
        self.local = LocalFailovers(self)
        self.told = Told(self)
        self.words = Words(self)
        self.taking_up = TakingUp(self)
        self.deadlines = Deadlines(self)
        self.spoiled = SpoiledStarts(self)
        self.growth = Growth(self)

    def broken(self, error: BaseException) -> None:
        if self.violation is None:
            self.violation = error
            self.world.tell(f"VIOLATION {error}")

    def check(self, condition: bool, promise: str, detail: str) -> None:
        if not condition:
            self.broken(Violation(promise, detail))

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def truth(self, job_id: str) -> JobTruth:
        return self.jobs.setdefault(job_id, JobTruth())

    def is_over(self, job_id: str) -> bool:
        state = self.truth(job_id).state
        return state is not None and isinstance(state.phase, Finished)

    # -- promise 1: a PUT that was answered is durable

    def put_answered(
        self,
        job_id: str,
        mark: str,
        result: RequirementsResult,
        *,
        if_match: int | None,
        key: tuple[str, object] | None,
        worker: object = None,
        remembered: bool = False,
    ) -> None:
        """``worker``: what decided for the job when the request arrived. ``remembered``: it had given an answer to the
        key by then."""
        truth = self.truth(job_id)
        bounds = truth.attempted[mark]
        self.count("PUT answered")
        if key is not None:
            request, first, _ = truth.answers.setdefault(key[0], (key[1], result, worker))
            # Not all of an answer is stored: one that is read again has neither the rescale nor the vertices that keep
            # the deadline that they had. Whoever gave an answer has all of it.
            of_all = [RequirementsResult(each.version, each.changed) for each in (first, result)]
            self.check(
                request == key[1]
                and of_all[0] == of_all[1]
                and (first in (result, of_all[0]) or (not remembered and result == of_all[0])),
                "promise 1",
                f"key {key[0]} was answered {first} and then {result}",
            )
            if first is not result:
                return
        version = result.version
        row = truth.stored.get(version)
        self.check(
            row is not None,
            "promise 1",
            f"job {job_id[-2:]}: version {version} was answered and is not durable ({sorted(truth.stored)})",
        )
        self.check(
            row is None or truth.is_as_asked(row, bounds, self.deadlines.queued(job_id, row)),
            "promise 1",
            f"job {job_id[-2:]}: version {version} was answered for other bounds than are stored",
        )
        self.check(
            row is None or not result.changed or row.reason == mark,
            "promise 1",
            f"job {job_id[-2:]}: version {version} was answered to {mark} and is of {row}",
        )
        if result.changed and if_match is not None:
            self.check(version == if_match + 1, "promise 1", f"If-Match {if_match} led to version {version}")
        truth.promised[version] = bounds
        truth.newest_promised = max(truth.newest_promised, version)

    def remembers(self, job_id: str, key: str | None, worker: object) -> bool:
        """Whether ``worker`` has given an answer to ``key``."""
        given = self.truth(job_id).answers.get(key or "")
        return given is not None and given[2] is not None and given[2] is worker

    # -- what becomes durable

    def committed(self, unit: UnitOfWork) -> None:
        self.count("commit")
        truth = self.truth(unit.job_id)
        before = truth.state
        rows = [write for write in unit.writes if isinstance(write, AddRequirements)]
        after = next((write.state for write in unit.writes if isinstance(write, SaveState)), None)
        for write in unit.writes:
            if isinstance(write, AddRequirements):
                wanted = write.requirements
                if wanted.version > 1 and wanted.version not in truth.stored:
                    assert after is not None
                    self._requirements(unit.job_id, truth, wanted, after, alone=len(rows) == 1)
                known = truth.stored.setdefault(wanted.version, wanted)
                self.check(known == wanted, "promise 1", f"version {wanted.version} was written twice")
                self.check(
                    wanted.version == len(truth.stored), "promise 1", f"version {wanted.version} skips one"
                )
            elif isinstance(write, PutRescale):
                self._record(unit.job_id, truth, write.record)
        for write in unit.writes:
            if isinstance(write, CreateJob) and before is None:
                self.told.became_durable(write.name, f"job {unit.job_id[-2:]}", once=False)
            if isinstance(write, SaveState | CreateJob):
                self.taking_up.decided(CURRENT.get(), unit.job_id, before)
                self._state(unit.job_id, truth, write.state)
        self.growth.committed(unit, before, truth.state)
        self.world.reachability.committed(CURRENT.get(), unit, before, truth.state)

    def _requirements(
        self, job_id: str, truth: JobTruth, wanted: Requirements, after: JobState, *, alone: bool
    ) -> None:
        """Other ones than at the submission: somebody has asked for them, or another version has come into force."""
        mark, what = wanted.reason or "", f"version {wanted.version} of job {job_id[-2:]}"
        if mark.startswith(CAME):
            self.growth.came(truth.state, truth.stored[wanted.version - 1], wanted)
        if mark.startswith((CAME, assumptions.REASON, versions.REASON)):
            self.deadlines.moved(job_id)
        is_first = self.deadlines.is_first(job_id, mark)
        if mark.startswith(assumptions.REASON):
            assumptions.lowered(self, truth, wanted)
            return
        self.deadlines.stored(job_id, truth, wanted, after, alone=alone)
        if mark.startswith((versions.REASON, ROLLED_BACK, WAITS_AGAIN, CAME)) or not is_first:
            return
        self.told.became_durable(mark, what)
        bounds = truth.attempted.get(mark)
        asked = mark.startswith(CANCELED) or (
            bounds is not None and truth.is_as_asked(wanted, bounds, self.deadlines.queued(job_id, wanted))
        )
        self.check(asked, "promise 1", f"{what} has other bounds than {mark} asked for")

    def _record(self, job_id: str, truth: JobTruth, record: RescaleRecord) -> None:
        known = truth.records.get(record.number)
        if known is not None and not known.is_open and known != record:
            self.check(False, "promise 4", f"record {record.number} of {job_id[-2:]} ended twice")
        if known is None:
            self.check(
                record.number == len(truth.records) + 1, "promise 4", f"record {record.number} skips one"
            )
        truth.records[record.number] = record
        if record.is_open:
            other = truth.open
            self.check(
                other in (None, record.number), "promise 4", f"records {other} and {record.number} are open"
            )
            truth.open = record.number
        else:
            self.count(f"record {record.reason}")
            if truth.open == record.number:
                truth.open = None

    def _state(self, job_id: str, truth: JobTruth, state: JobState) -> None:
        before = truth.state
        if state.graph.type is JobType.BATCH:
            check_progress(self.world, before, state)
        if state.stop is not None and (
            before is None or before.stop is None or before.stop.trigger_id != state.stop.trigger_id
        ):
            self.told.became_durable(state.stop.trigger_id, f"a stop of job {job_id[-2:]}")
        truth.state = state
        self.deadlines.saved(job_id, before, state)
        self.shares.committed(job_id, state)
        self.policies.committed(job_id, state)
        self.trials.saved(job_id, state)
        self.local.saved(job_id, state)
        self.spoiled.saved(job_id, state)
        self.growth.saved(job_id, before, state)
        self._slots_held_once()
        check_redistribution(self, job_id, before, state)
        assumptions.check_known(self, job_id, before, state)
        if state.timeline.records:
            opened = state.timeline.open.number if state.timeline.open else None
            detail = f"the state says that record {opened} is open, the history says {truth.open}"
            self.check(truth.open == opened, "promise 4", detail)
        self.check(
            state.requirements == truth.stored.get(state.requirements.version, state.requirements),
            "promise 1",
            "the requirements in force are not those that are stored",
        )
        declared, least = state.supply.minimal, declared_least(state)
        if comes_back(state, counting_slots(state)):
            self.count("comes back below its bounds")
            least = groups_of(state.graph)
        counts = state.graph.type is JobType.STREAMING and declared and state.phase.kind not in _OVER
        self.check(
            not counts or declared == least,
            "slots",
            f"job {job_id[-2:]} needs {least} slots and asks for {declared}",
        )
        self.words.saved(job_id, state)
        if (complaint := events_told.noted(truth, state)) is not None:
            self.check(False, "promise 5", f"job {job_id[-2:]}: {complaint}")

    def _slots_held_once(self) -> None:
        """By what is durable. Two control planes that serve at once would each have a host of its own."""
        if self.world.knobs.takeovers:
            return
        held: dict[str, str] = {}
        for job_id, truth in self.jobs.items():
            for slot in truth.state.slots if truth.state else ():
                other = held.setdefault(slot.id, job_id)
                self.check(other == job_id, "slots", f"{slot.id} is held by {other[-2:]} and {job_id[-2:]}")

    # -- promise 2: one writer

    def assigned(self, process: SimProcess, spec: dict[str, Any]) -> None:
        """An attempt gets its driver: nothing of another driver of the job may live."""
        self.count("attempt")
        self.world.reachability.assigned(process, spec["job_id"])
        for other in self.world.processes:
            if other is not process and spec["job_id"] in other.jobs and other.lock_held:
                self.check(
                    False,
                    "promise 2",
                    f"{process} gets attempt {spec['attempt']} of {spec['job_id'][-2:]} while {other} lives",
                )
        process.jobs[spec["job_id"]] = None
        state = self.truth(spec["job_id"]).state
        self.check(
            state is not None and state.attempt >= spec["attempt"],
            "effects after the commit",
            f"attempt {spec['attempt']} of {spec['job_id'][-2:]} was started and is not durable",
        )
        early = versions.comes_too_early(self.world, spec)
        self.check(not early, "versions", f"the environment of {spec['artifacts_dir']} was not built")

    def fence_was_needed(self, attempt: SimAttempt, other: SimProcess) -> None:
        self.check(False, "promise 2", f"{attempt} found the lock of {other} held")

    def writes(self, checkpoint: Checkpoint) -> None:
        self.check(
            len(checkpoint.writers) == 1,
            "promise 2",
            f"writers of {checkpoint.job_id}: {list(checkpoint.writers)}",
        )

    def batch(self, attempt: SimAttempt, checkpoint: Checkpoint) -> None:
        self.count("batch")
        self.check(
            list(checkpoint.writers) == [attempt.process],
            "promise 2",
            f"{attempt} commits; writers: {list(checkpoint.writers)}",
        )

    # -- drivers

    def fenced(self, attempt: SimAttempt) -> None:
        """Only an attempt that is over is told to exit."""
        state = self.truth(attempt.job_id).state
        over = state is None or state.attempt > attempt.number or not state.driver.alive
        self.check(over, "promise 3", f"{attempt} was told to exit while it is the live attempt")

    def acknowledged(self, attempt: SimAttempt, sent: Sequence[Report], number: int) -> None:
        """An acknowledged report is not sent again, so what follows from it is durable."""
        self.growth.acknowledged(attempt, number)
        state = self.truth(attempt.job_id).state
        assert state is not None
        for report in sent:
            if report.seq > number or state.attempt != attempt.number:
                continue
            if report.type == "begun":
                self.growth.begun(attempt, state)
            elif report.type == "repartitioned":
                attempt.checkpoint.untold.difference_update(report.state_partitions or ())
            elif report.type == "running":
                self.check(
                    state.phase.kind != "CreatingExecutionGraph"
                    or getattr(state.phase, "failure", None) is not None,
                    "acknowledgement",
                    f"{attempt} is running, that was acknowledged, and it is not durable",
                )

    # -- the end

    def least_slots(self) -> int:
        """With so many slots every job can run."""
        live = [truth.state for truth in self.jobs.values() if truth.state is not None]
        running = [state for state in live if not isinstance(state.phase, Finished)]
        bounds = [bounds_now(one.graph, one.requirements, None, one.policy) for one in running]
        return sum(least_slots(one.graph, own) for one, own in zip(running, bounds, strict=True))

    def enough_slots(self) -> int:
        """As many as all jobs can use."""
        known = [truth.state for truth in self.jobs.values() if truth.state is not None]
        return 12 * max(1, len(self.jobs)) + 128 * any(is_wide(state.graph) for state in known)

    def all_run(self) -> str | None:
        """Which job does not have what it cannot do without, although there is as much; None if each has."""
        for job_id, truth in self.jobs.items():
            state = truth.state
            if state is None or isinstance(state.phase, Finished) or state.graph.type is JobType.BATCH:
                continue
            if state.queued:
                return f"job {job_id[-2:]}: bounds wait for their deadline: {state.queued}"
            least = least_slots(state.graph, goal_of(state))
            if not isinstance(state.phase, Executing) or state.plan is None or state.plan.slot_count < least:
                return f"job {job_id[-2:]} is in {state.phase.kind} with {len(state.slots)} slots, and needs {least}"
        return None

    def settled(self) -> str | None:
        """Why the world is not at rest, None if it is."""
        for job_id, truth in self.jobs.items():
            state = truth.state
            if state is None or isinstance(state.phase, Finished):
                if truth.open is not None:
                    return f"job {job_id[-2:]} is over and its record {truth.open} is open"
                if state is not None and state.graph.type is JobType.BATCH:
                    check_end(self.world, state)
                continue
            if state.graph.type is JobType.BATCH:
                return f"batch job {job_id[-2:]} is in {state.phase.kind}: {state.batch}"
            if (complaint := self._unrest(job_id, truth, state)) is not None:
                return complaint
        return None

    def _unrest(self, job_id: str, truth: JobTruth, state: JobState) -> str | None:
        """Why a streaming job that is not over is not at rest."""
        if not isinstance(state.phase, Executing):
            return f"job {job_id[-2:]} is in {state.phase.kind}"
        if state.queued:
            return f"job {job_id[-2:]}: bounds wait for their deadline: {state.queued}"
        if truth.open is not None and not self.growth.awaits(state):
            return f"job {job_id[-2:]}: record {truth.open} is open: {truth.records[truth.open]}"
        assert state.plan is not None
        if why := self.trials.complaint(job_id, state) or self.policies.complaint(job_id, state):
            return why
        goal, cap = goal_of(state), state.share.cap
        most, least = most_slots(state.graph, goal), least_slots(state.graph, goal)
        wanted = parallelism(state.graph, goal, most if cap is None else min(most, cap))
        if (state.supply.declared, state.supply.minimal) != (most, least):
            return f"job {job_id[-2:]} has not declared that it needs {least} to {most} slots"
        if dict(state.plan.parallelism) != wanted:
            return f"job {job_id[-2:]} does not run at its upper bounds: {state.plan.parallelism}"
        found = known_partitions(self.world.checkpoints[job_id], state)
        if found != partitions(state.graph):
            return f"job {job_id[-2:]} thinks that its state has other partitions than {found}"
        driver = self._driver_of(job_id)
        if driver is None:
            return f"job {job_id[-2:]} has no driver that runs"
        if self.growth.in_force(driver, wanted) != wanted:
            return f"the driver of job {job_id[-2:]} runs at another plan than is in force"
        if (complaint := versions.complaint(job_id, state, driver)) is not None:
            return complaint
        return self.growth.complaint(job_id, state, driver) or self.local.complaint(job_id, driver)

    def _driver_of(self, job_id: str) -> SimAttempt | None:
        checkpoint = self.world.checkpoints.get(job_id)
        writers = list(checkpoint.writers) if checkpoint else []
        attempt = writers[0].attempt if writers else None
        return attempt if attempt is not None and attempt.running and writers[0].python else None

    async def check_database(self, store: Store) -> None:
        """What is really stored, read by somebody else."""
        await self.policies.check_database(store)
        for complaint in await events_told.complaints(store, self.jobs):
            self.check(False, "events", complaint)
        for job_id, truth in self.jobs.items():
            stored = await store.load_job(job_id)
            if stored is None:
                self.check(truth.state is None, "promise 1", f"job {job_id[-2:]} is not stored")
                continue
            assert truth.state is not None
            graph = stored.state(read_graph(json.loads(stored.document))).graph
            read = partitions(graph)
            self.check(
                read == partitions(truth.state.graph),
                "promise 1",
                f"job {job_id[-2:]}: whoever takes it over thinks that its state has {read}",
            )
            self.check(
                (list(graph.by_id), graph.ended) == (list(truth.state.graph.by_id), truth.state.graph.ended),
                "promise 1",
                f"job {job_id[-2:]}: whoever takes it over has {graph}, not {truth.state.graph}",
            )
            rows = {row.version: row for row in await stored_requirements(store, job_id)}
            self.check(
                rows == truth.stored, "promise 1", f"job {job_id[-2:]}: the rows are not those committed"
            )
            newest = rows[max(rows)]
            self.check(
                newest.version >= truth.newest_promised,
                "promise 1",
                f"job {job_id[-2:]}: version {truth.newest_promised} was answered, {newest.version} is stored",
            )
            for version, bounds in truth.promised.items():
                self.check(
                    truth.is_as_asked(rows[version], bounds, self.deadlines.queued(job_id, rows[version])),
                    "promise 1",
                    f"version {version} is another one",
                )
            records = {record.number: record for record in await store.rescales(job_id)}
            self.check(
                records == truth.records, "promise 4", f"job {job_id[-2:]}: the history is another one"
            )

    def check_slots(self) -> None:
        """No slot is held by two jobs, and none that does not exist."""
        held: dict[str, str] = {}
        exist = {f"{name}-{i}" for name, count in self.world.slots.items() for i in range(count)}
        for job_id, truth in self.jobs.items():
            for slot in truth.state.slots if truth.state else ():
                self.check(slot.id in exist, "slots", f"{slot.id} is held and does not exist")
                self.check(slot.id not in held, "slots", f"{slot.id} is held by two jobs")
                held[slot.id] = job_id
