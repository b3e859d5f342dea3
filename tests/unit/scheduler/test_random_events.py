"""Random lives of a job: whatever happens in whatever order, no invariant breaks, and no job is stuck.

The machine below knows what the core asked for (the effects) and answers it late, twice, wrongly or not at all; it
takes and gives slots, changes bounds, fires timers early, late and stale, and sets the clock back. At the end of each
life the world is kind again: it answers every effect and fires every timer. A job that then neither runs at the
parallelism that its slots allow nor is over is stuck, and a record that is still open has no end.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from app.model.job_state.changes import Patch
from app.model.plan import Slot
from app.model.requirements import Bounds, Deadline, OnTimeout, Requirements
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.model.slot_share import SlotShare
from app.model.value import evolve
from app.scheduler.adaptive import bounds_declared
from app.scheduler.adaptive.bounds_declared import cancelable_of
from app.scheduler.adaptive.draft import InvalidTransition
from app.scheduler.adaptive.effects import (
    Effect,
    ReleaseSlots,
    StartAttempt,
    StopAttempt,
    StopMode,
)
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptMisplaced,
    AttemptRunning,
    AttemptStartFailed,
    AttemptStopped,
    BatchCompleted,
    CancelRequested,
    DriverContact,
    DriverReady,
    Event,
    GlobalFailure,
    PlanApplied,
    QueryFailed,
    QueryRecovered,
    RequirementsUpdated,
    ScalingPolicyUpdated,
    SlotsChanged,
    SlotShareUpdated,
    StartScheduling,
    StopRequested,
    TimerFired,
)
from app.scheduler.adaptive.queued_slots import before_patches, with_patches
from app.scheduler.adaptive.resources import stabilization_ms
from app.scheduler.adaptive.state import Timer
from app.scheduler.slots import Demand
from tests.parts import with_part
from tests.unit.scheduler.driving import Job, bounds
from tests.unit.scheduler.lives import (
    ALL_SLOTS,
    ENOUGH_SLOTS,
    GRAPHS,
    OPTIONS,
    deaf,
    has_wish,
    obeyed,
    tells_death,
)

RUNNING = ("Executing", "Rescaling", "StopWithSavepoint")
sometimes = st.sampled_from([False] * 3 + [True])
rarely = st.sampled_from([False] * 19 + [True])
"""So that lives are long."""
attempts_back = st.sampled_from([0, 0, 0, 0, 1, 2])
few = st.integers(1, 4)
deadlines = st.sampled_from([None, None, (5_000, OnTimeout.COMMIT), (60_000, OnTimeout.ROLLBACK)])


class Life(RuleBasedStateMachine):
    """One job, and a world that keeps no promise until the end."""

    @initialize(
        graph=st.sampled_from(sorted(GRAPHS)),
        options=st.sampled_from(sorted(OPTIONS)),
        lower=few,
        more=few,
        held=st.sampled_from([0, 2, 3, 4, 9]),
    )
    def submitted(self, graph: str, options: str, lower: int, more: int, held: int) -> None:
        self.job = Job(GRAPHS[graph], lower=min(lower, 2), upper=lower + more, options=OPTIONS[options])
        self.asked: list[Effect] = []
        self.old_timers: list[Timer] = []
        self.trigger = 0
        self.failures_of_queries = 0
        if held:
            self.tell(StartScheduling())
            self.tell(SlotsChanged(ALL_SLOTS[:held]))
            if self.job.kind == "WaitingForResources":
                self.job.wait(stabilization_ms(self.job.state))
            if self.job.kind == "CreatingExecutionGraph":
                self.tell(AttemptRunning(1))

    # -- the core, with what must hold after every step

    def tell(self, event: Event) -> bool:
        """Whether the core took the event; it must change nothing if it does not."""
        job, before = self.job, self.job.state
        count = len(job.records)
        try:
            job.do(event)
        except InvalidTransition as error:
            assert job.state is before, "a refused event changed the state"
            assert error.reason and error.event == type(event).__name__
            return False
        if getattr(event, "attempt", before.attempt) < before.attempt:
            assert job.state is before and not job.effects, "a report of an earlier attempt did something"
        self.asked.extend(job.effects)
        self.old_timers.extend(timer for timer in before.timers if timer not in job.state.timers)
        del self.old_timers[:-20]
        for effect in job.effects:
            if isinstance(effect, StartAttempt):
                assert not before.driver.alive or tells_death(event), "a second attempt while one may live"
                assert effect.reuse_driver or not job.state.cluster_unreachable, "its slots may be gone"
            if isinstance(effect, ReleaseSlots):
                # The plan before is in force no more once another one is, or nothing runs.
                over = isinstance(event, PlanApplied) or tells_death(event)
                plan = job.state.plan if over else before.plan
                used = {slot for _, own in plan.group_slots for slot in own} if plan else set()
                assert not used & set(effect.slot_ids), "a slot in use was given back"
                assert not {slot.id for slot in job.state.slots} & set(effect.slot_ids)
        # What is only told while a record is open ends before that one.
        told = [record.number for record in job.records if not record.spans]
        numbers = [record.number for record in job.records if record.spans]
        assert numbers == sorted(numbers), "records ended out of order"
        assert len({*told, *numbers}) == len(job.records), "a record ended twice"
        assert len(job.records) + (job.state.timeline.open is not None) == job.state.timeline.records
        assert all(record.reason is not None for record in job.records[count:])
        if not job.state.slots and job.state.phase.kind == "Finished":
            assert job.state.timeline.open is None
        return True

    def attempt(self, back: int) -> int:
        return max(1, self.job.state.attempt - back)

    # -- what may happen at any time

    @rule()
    def start(self) -> None:
        self.tell(StartScheduling())

    @rule(picked=st.sets(st.sampled_from(ALL_SLOTS)))
    def slots(self, picked: set[Slot]) -> None:
        self.tell(SlotsChanged(tuple(slot for slot in ALL_SLOTS if slot in picked)))

    @rule(known=st.booleans())
    def cluster_becomes_unreachable(self, known: bool) -> None:
        state = self.job.state
        self.tell(SlotsChanged(state.slots if known else (), state.supply.allowed, cluster_unreachable=True))
        assert self.job.state is state or not (state.cluster_unreachable and known), "told again"

    @rule(kept=st.integers(0, 9))
    def other_jobs_are_to_have_some(self, kept: int) -> None:
        """What the job gives back is gone, and what it may use is never less than it cannot do without."""
        state = self.job.state
        minimal = Demand.of(state.graph, state.bounds).minimal
        allowed = max(kept, min(minimal, len(state.slots))) if state.driver.alive else kept
        self.tell(SlotsChanged(state.slots, allowed))

    @precondition(lambda self: self.job.kind == "Executing" and self.job.state.slots == ALL_SLOTS)
    @rule(kept=st.integers(1, 8))
    def gives_back_and_gets_again(self, kept: int) -> None:
        """What there is most of: it gives slots back in place, at once."""
        self.job.now_ms += 1
        minimal = Demand.of(self.job.graph, self.job.state.bounds).minimal
        self.tell(SlotsChanged(ALL_SLOTS, max(kept, minimal)))
        if self.job.kind == "Rescaling":
            self.applied(0, 0)
            if self.job.kind == "Executing":
                assert len(self.job.state.slots) <= max(kept, minimal), "it keeps what others are to have"

    @rule(lower=few, more=st.integers(0, 4), deadline=deadlines)
    def put(self, lower: int, more: int, deadline: tuple[int, OnTimeout] | None = None) -> None:
        job = self.job
        version = job.version = max(job.version, job.state.requirements.version) + 1
        self._declare(bounds(job.graph, lower, lower + more, version), deadline)

    @rule(index=st.integers(0, 9), lower=few, more=st.integers(0, 4), deadline=deadlines)
    def put_one(self, index: int, lower: int, more: int, deadline: tuple[int, OnTimeout] | None) -> None:
        """The bounds of one vertex: the deadlines of others run on."""
        before = self.job.state
        vertices = self.job.graph.vertices
        vertex = vertices[index % len(vertices)].id
        changed = {**before.requirements.as_dict(), vertex: Bounds(lower, lower + more)}
        version = self.job.version = max(self.job.version, before.requirements.version) + 1
        wanted = bounds(self.job.graph, 1, 1, version)
        self._declare(evolve(wanted, bounds=tuple(changed.items())), deadline)
        kept = {one.version: one.deadline for one in self.job.state.queued if one.version != version}
        for one in before.queued:
            if vertex not in one.vertices and one.version not in kept:
                declared = self.job.state.requirements.as_dict()
                assert self.job.kind == "Finished" or all(
                    declared[vertex] == own for vertex, own in one.bounds
                ), "its deadline was lost"

    def _declare(self, wanted: Requirements, deadline: tuple[int, OnTimeout] | None) -> None:
        limit = None if deadline is None else Deadline(self.job.now_ms + deadline[0], deadline[1])
        new = bounds_declared.changed_by(self.job.state, wanted)
        taken = self.tell(RequirementsUpdated(wanted, limit))
        assert taken == (self.job.kind != "Finished"), "a PUT was lost"
        if not taken or not new:
            return
        state, asked = self.job.state, wanted.as_dict()
        assert state.requirements.version == wanted.version, "a PUT was lost"
        queued = {vertex: own for one in state.queued for vertex, own in one.bounds}
        for vertex, own in state.requirements:
            if vertex in new:
                assert asked[vertex] in (own, queued.get(vertex)), "a PUT was lost"
                assert limit is not None or asked[vertex] == own, "it waits for nothing"

    @rule(floor=st.sampled_from([None, 1, 2]), ceiling=st.sampled_from([None, 2, 3, 4]))
    def another_policy(self, floor: int | None, ceiling: int | None) -> None:
        policy = ScalingPolicy(self.job.state.policy.version + 1, FloorCeiling(floor, ceiling))
        taken = self.tell(ScalingPolicyUpdated(policy))
        assert taken == (self.job.kind != "Finished"), "a PUT was lost"
        if taken:
            assert self.job.state.policy.same_as(policy), "a PUT was lost"

    @precondition(lambda self: bool(cancelable_of(self.job.state)))
    @rule(index=st.integers(0, 3))
    def undo(self, index: int) -> None:
        """What comes back is what was before, and nothing else changes."""
        state = self.job.state
        one = cancelable_of(state)[index % len(cancelable_of(state))]
        self.tell(bounds_declared.undoing(state, one, "bob", "Canceled."))
        change = one.begun if isinstance(one, Patch) else one
        back = {**state.requirements.as_dict(), **({} if change is None else dict(change.former))}
        # What is left of the queue may have its slots now.
        queued = {vertex: own for other in state.queued if other is not one for vertex, own in other.bounds}
        assert all(own in (back[vertex], queued.get(vertex)) for vertex, own in self.job.state.requirements)
        assert one.version not in {other.version for other in cancelable_of(self.job.state)}

    @rule(cap=st.sampled_from([None, None, 1, 2, 3, 8]), weight=few)
    def another_share(self, cap: int | None, weight: int) -> None:
        state = self.job.state
        if cap is not None:
            cap = max(cap, Demand.of(state.graph, state.bounds).minimal)
        share = SlotShare(state.share.version + 1, weight, cap=cap)
        taken = self.tell(SlotShareUpdated(share))
        assert taken == (self.job.kind != "Finished"), "a PUT was lost"
        # Bounds that wait for their slots may wait for fewer by it.
        if taken and not state.queued:
            now = self.job.state
            known = with_part(
                evolve(state, share=share, no_change=now.no_change), "supply", cap_raise=now.supply.cap_raise
            )
            assert known == now, "it changes nothing else by itself"

    @rule(back=attempts_back, behind=st.integers(0, 2), query=st.sampled_from(["q1", "q2"]))
    def batch(self, back: int, behind: int, query: str) -> None:
        self.job.batch += 1
        version = max(1, self.job.state.plan_version - behind)
        self.tell(BatchCompleted(self.attempt(back), query, self.job.batch, version))

    @rule(back=attempts_back, behind=st.integers(-1, 1), ignored=rarely)
    def applied(self, back: int, behind: int, ignored: bool = False) -> None:
        version = self.job.state.plan_version - behind
        self.tell(PlanApplied(self.attempt(back), version, not_followed=deaf(self.job) * ignored))

    @rule(back=attempts_back)
    def ready(self, back: int) -> None:
        self.tell(DriverReady(self.attempt(back)))

    @rule(back=attempts_back)
    def running(self, back: int) -> None:
        self.tell(AttemptRunning(self.attempt(back)))

    @rule(back=attempts_back, stopped=st.booleans(), fatal=rarely, now=sometimes)
    def failed(self, back: int, stopped: bool, fatal: bool, now: bool) -> None:
        if now or self.job.kind not in RUNNING:
            self.tell(AttemptFailed(self.attempt(back), "boom", stopped=stopped, recoverable=not fatal))

    @precondition(lambda self: self.job.kind in RUNNING)
    @rule(
        back=attempts_back,
        which=st.integers(0, 1),
        repeated=sometimes,
        fatal=rarely,
        outside=sometimes,
        of_user=sometimes,
    )
    def query_failed(
        self, back: int, which: int, repeated: bool, fatal: bool, outside: bool, of_user: bool
    ) -> None:
        """Some of them are told twice."""
        sinks = [vertex.id for vertex in self.job.graph.vertices if vertex.is_sink] or ["no sink"]
        query = sinks[which % len(sinks)]
        self.failures_of_queries += not repeated
        self.tell(
            QueryFailed(
                self.attempt(back),
                query,
                self.failures_of_queries,
                "boom",
                recoverable=not fatal,
                outside=outside,
                user_error="ValueError at code.py:1" if of_user else None,
                query_id=query,
                batch_id=self.job.batch,
            )
        )

    @precondition(lambda self: bool(self.job.state.recovery.local))
    @rule(back=attempts_back, which=st.integers(0, 1), behind=st.integers(0, 1))
    def query_recovered(self, back: int, which: int, behind: int) -> None:
        local = self.job.state.recovery.local
        one = local[which % len(local)]
        self.tell(QueryRecovered(self.attempt(back), one.query, one.number - behind))

    @precondition(lambda self: bool(self.job.state.recovery.local))
    @rule(back=attempts_back, heard=st.booleans())
    def driver_contact(self, back: int, heard: bool) -> None:
        self.tell(DriverContact(self.attempt(back), heard))

    @rule(back=attempts_back, now=sometimes, kind=st.sampled_from([AttemptStartFailed, AttemptMisplaced]))
    def start_failed_or_misplaced(self, back: int, now: bool, kind: type[Any]) -> None:
        if now:
            self.tell(kind(self.attempt(back), "no java"))

    @rule(
        back=attempts_back, drained=st.booleans(), alive=st.booleans(), error=st.sampled_from([None, "full"])
    )
    def stopped(self, back: int, drained: bool, alive: bool, error: str | None) -> None:
        if back or self.job.kind not in RUNNING or not drained:
            self.tell(AttemptStopped(self.attempt(back), drained=drained, driver_alive=alive, error=error))

    @rule(fatal=rarely, now=sometimes)
    def global_failure(self, fatal: bool, now: bool) -> None:
        if fatal or (now and self.job.state.plan is not None):
            self.tell(GlobalFailure("the scheduler stumbled", recoverable=not fatal))

    @rule()
    def stop(self) -> None:
        self.trigger += 1
        self.tell(StopRequested(f"t{self.trigger}"))

    @rule(what=st.sampled_from([CancelRequested("ann"), "finished"]), now=rarely)
    def the_end(self, what: Event | str, now: bool) -> None:
        if now:
            self.tell(AttemptFinished(self.attempt(0)) if isinstance(what, str) else what)

    @precondition(lambda self: bool(self.job.state.timers))
    @rule(early_ms=st.sampled_from([0, 0, 0, 1, 5_000]), index=st.integers(0, 5))
    def timer(self, early_ms: int, index: int) -> None:
        timers = self.job.state.timers
        timer = timers[index % len(timers)]
        self.job.now_ms = max(self.job.now_ms, timer.at_ms - early_ms)
        before = self.job.state
        self.tell(TimerFired(timer.name, timer.version))
        if self.job.now_ms < timer.at_ms:
            assert self.job.state is before, "a timer that is not due did something"

    @precondition(lambda self: bool(self.old_timers))
    @rule(index=st.integers(0, 20))
    def stale_timer(self, index: int) -> None:
        timer = self.old_timers[index % len(self.old_timers)]
        if timer.version == self.job.state.phase_version:
            return  # replaced or put off within its phase: not stale by version
        before = self.job.state
        self.tell(TimerFired(timer.name, timer.version))
        assert self.job.state is before, "a stale timer did something"

    @rule(jump_ms=st.sampled_from([1, 500, 5_000, 70_000, 400_000, -1, -3_000, -3_600_000]))
    def time(self, jump_ms: int) -> None:
        self.job.now_ms += jump_ms

    @precondition(lambda self: bool(self.asked))
    @rule(index=st.integers(0, 50), again=st.booleans(), drains=rarely)
    def answer(self, index: int, again: bool, drains: bool) -> None:
        """Any of the effects, late and out of order, and perhaps once more later. A drain fails more often than not."""
        effect = self.asked[index % len(self.asked)]
        if not again:
            self.asked.remove(effect)
        if isinstance(effect, StopAttempt) and effect.mode is StopMode.DRAIN and not drains:
            self.tell(AttemptStopped(effect.attempt, driver_alive=True, error="the disk is full"))
        else:
            self.obey(effect)

    @precondition(lambda self: bool(self.asked))
    @rule()
    def answer_latest(self) -> None:
        self.answer(len(self.asked) - 1, again=False, drains=False)

    @precondition(lambda self: self.job.kind == "Executing")
    @rule(upper=st.integers(1, 5))
    def rescale(self, upper: int) -> None:
        """What there is most of: slots in plenty, other bounds, and all of it confirmed."""
        self.tell(SlotsChanged(ALL_SLOTS))
        self.put(1, upper - 1)
        if self.job.kind == "Rescaling":
            self.applied(0, 0)

    # -- the kind world

    def obey(self, effect: Effect) -> None:
        if (done := obeyed(effect)) is not None:
            self.tell(done)

    def give_what_is_declared(self) -> None:
        """A deadline may put back bounds that need slots which the job has given back meanwhile."""
        state = self.job.state
        if self.job.kind == "WaitingForResources" and state.usable_slots < state.supply.minimal:
            self.tell(SlotsChanged(ENOUGH_SLOTS))

    def teardown(self) -> None:
        if (job := getattr(self, "job", None)) is None:
            return
        if job.kind == "Created":
            self.tell(StartScheduling())
        # Those that wait may hold by then, or those before.
        bounds = (
            job.state.bounds,
            with_patches(job.state.bounds, job.state.queued),
            before_patches(job.state),
        )
        few = any(job.state.usable_slots < Demand.of(job.graph, each).minimal for each in bounds)
        if self.trigger % 2 or few or job.state.cluster_unreachable:
            self.tell(SlotsChanged(ENOUGH_SLOTS))
        if job.batch % 2:
            self.asked.clear()  # lost: timers must make up for it
        visits: Counter[str] = Counter()
        self.tell(DriverContact(job.state.attempt, heard=True))
        for _ in range(400):
            if job.kind == "Finished":
                break
            while self.asked:
                self.obey(self.asked.pop(0))
            self.give_what_is_declared()
            if job.kind == "Executing":
                job.now_ms += 1_000
                job.batch += 1
                self.tell(BatchCompleted(job.state.attempt, "q1", job.batch, job.state.plan_version))
                at_rest = job.state.timeline.open is None and not has_wish(job)
                if at_rest and all(one.over for one in job.state.recovery.local) and visits["settled"] > 3:
                    break
                visits["settled"] += not has_wish(job)
            timers = sorted(job.state.timers, key=lambda one: one.at_ms)
            if timers and not self.asked:
                job.now_ms = max(job.now_ms, timers[0].at_ms)
                self.tell(TimerFired(timers[0].name, timers[0].version))
                visits[timers[0].name] += 1
        assert job.kind in ("Finished", "Executing"), f"stuck in {job.kind} with {job.state.timers}: {visits}"
        if job.kind == "Executing":
            assert not has_wish(job), f"never rescaled: {job.state.phase} {job.state.timers}"
            assert all(one.over for one in job.state.recovery.local), (
                f"a query stays down: {job.state.recovery.local}"
            )
            assert job.state.timeline.open is None, f"a record without end: {job.state.timeline.open}"


TestLife = Life.TestCase
TestLife.pytestmark = pytest.mark.timeout(600)
TestLife.settings = settings(
    max_examples=150,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
