"""`validate` finds each kind of bad state, and `explain` names each bound that does not hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from app.model.plan import Plan
from app.model.requirements import Bounds
from app.model.value import evolve
from app.scheduler.adaptive.draft import Draft, InvalidTransition
from app.scheduler.adaptive.effects import DeclareResources, ReleaseSlots
from app.scheduler.adaptive.events import (
    AttemptFailed,
    CancelRequested,
    SlotsChanged,
    StartScheduling,
    StopRequested,
    TimerFired,
)
from app.scheduler.adaptive.state import Created, Executing, JobState, Manager, Rescaling, Stop, Timer
from app.scheduler.explain import explain
from app.scheduler.step import TABLE
from tests.invariants import InvariantViolation, validate
from tests.parts import with_part
from tests.unit.scheduler.driving import Job, slots
from tests.unit.scheduler.phases import in_phase


def running() -> JobState:
    return Job(upper=4).run(held=2).put(1, 3).state


def _plan(state: JobState, **changes: object) -> Plan:
    assert state.plan is not None
    return replace(state.plan, **changes)  # type: ignore[arg-type]


def _with_plan(state: JobState, **changes: object) -> JobState:
    plan = _plan(state, **changes)
    return replace(state, plan=plan, last_plan=plan)


BROKEN: dict[str, tuple[str, Callable[[JobState], JobState]]] = {
    "no plan": ("plan_in_force_while_an_attempt_runs", lambda s: replace(s, plan=None)),
    "nothing alive": ("plan_in_force_while_an_attempt_runs", lambda s: with_part(s, "driver", alive=False)),
    "another last plan": ("plan_in_force_while_an_attempt_runs", lambda s: replace(s, last_plan=None)),
    "two processes": ("at_most_one_attempt", lambda s: with_part(s, "driver", waits=True)),
    "before the first attempt": ("at_most_one_attempt", lambda s: replace(s, attempt=0)),
    "a slot twice": ("plans_fit_graph_and_slots", lambda s: replace(s, slots=(*s.slots, s.slots[0]))),
    "a plan of the future": ("plans_fit_graph_and_slots", lambda s: _with_plan(s, version=99)),
    "a vertex missing": ("plans_fit_graph_and_slots", lambda s: _with_plan(s, parallelism=())),
    "a group missing": ("plans_fit_graph_and_slots", lambda s: _with_plan(s, group_slots=())),
    "a slot used twice": (
        "plans_fit_graph_and_slots",
        lambda s: _with_plan(s, group_slots=(("default", ("tm-0", "tm-0")),)),
    ),
    "more tasks than slots": (
        "plans_fit_graph_and_slots",
        lambda s: _with_plan(s, parallelism=tuple((one.id, 3) for one in s.graph.vertices)),
    ),
    "a timer twice": (
        "timers_of_this_phase",
        lambda s: replace(s, timers=(Timer("x", s.phase_version, 1), Timer("x", s.phase_version, 2))),
    ),
    "a timer of before": ("timers_of_this_phase", lambda s: replace(s, timers=(Timer("x", 0, 1),))),
    "a record lost": (
        "record_is_consistent",
        lambda s: replace(s, timeline=replace(s.timeline, open=None)),
    ),
    "a record of other bounds": (
        "record_is_consistent",
        lambda s: replace(s, requirements=replace(s.requirements, uuid="0" * 32)),
    ),
    "a gap in the spans": (
        "record_is_consistent",
        lambda s: replace(s, timeline=replace(s.timeline, open=replace(s.timeline.open, start_ms=0))),  # type: ignore[type-var]
    ),
    "no time of the status": ("status_times", lambda s: replace(s, status_since_ms=())),
    "a slot in use is surplus": (
        "surplus_is_not_used",
        lambda s: with_part(s, "supply", idle_since_ms=(("tm-0", 1),)),
    ),
    "a slot not held is surplus": (
        "surplus_is_not_used",
        lambda s: with_part(s, "supply", idle_since_ms=(("gone", 1),)),
    ),
    "a stop without stopping": ("stop_operation", lambda s: replace(s, stop=Stop("t", "IN_PROGRESS"))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_state_that_breaks_an_invariant_is_found(name: str) -> None:
    invariant, breaking = BROKEN[name]
    state = running()
    validate(state)
    with pytest.raises(InvariantViolation) as found:
        validate(breaking(state))
    assert found.value.name == invariant


def test_a_terminated_job_that_holds_something_is_found() -> None:
    state = in_phase("Finished").state
    with pytest.raises(InvariantViolation, match="holds slots"):
        validate(replace(state, slots=slots(1)))


def test_an_attempt_that_starts_with_slots_that_are_not_held_is_found() -> None:
    state = in_phase("CreatingExecutionGraph").state
    with pytest.raises(InvariantViolation, match="slots that are not held"):
        validate(replace(state, slots=()))


# -- explain


def test_a_bound_that_does_not_hold_is_named_with_the_reason() -> None:
    job = Job(upper=2).run(held=2).put(4, 6)
    sentences, violations = explain(job.state, job.now_ms)
    assert sentences[0] == "The bounds want 6 slot(s) and need at least 4; the job holds 2 and uses 2."
    assert len(violations) == 3
    assert violations[0] == (
        "source runs at 2, below its lower bound 4: the lower bounds need 4 slots, and 2 can be used. If the job has "
        "to be started again, it starts with what there is."
    )


def test_slots_that_were_lost_while_nothing_can_be_done_are_named() -> None:
    job = Job(lower=2, upper=2).run(held=2).hold(1)
    assert job.kind == "Executing"
    _, violations = explain(job.state, job.now_ms)
    assert any(one.startswith("1 slot(s) of the plan in force are not held any more") for one in violations)


def test_a_driver_that_takes_no_plan_is_named() -> None:
    job = Job(upper=4).run().hold(4)
    phase = job.state.phase
    assert isinstance(phase, Rescaling)
    sentences, _ = explain(replace(job.state, phase=replace(phase, sent=2, ignored=True)), job.now_ms)
    assert sentences[-2:] == (
        "The plan was sent 2 times.",
        "The driver commits batches at an older plan; its queries are restarted if it goes on so.",
    )


# -- slots that are given back


def test_no_slot_is_given_back_twice_or_before_its_time_and_none_that_a_plan_uses() -> None:
    job = Job(upper=4).run(held=4).put(1, 2).applied()
    assert dict(job.state.supply.idle_since_ms) == {"tm-2": job.now_ms, "tm-3": job.now_ms}
    job.wait(20_000).put(1, 3)
    assert job.kind == "Rescaling"
    assert len(job.state.supply.idle_since_ms) == 1, "one of them is needed again"
    job.applied().wait(29_999)
    assert len(job.state.slots) == 4
    job.wait(1)
    assert len(job.state.slots) == 3
    assert sum(isinstance(one, ReleaseSlots) for one in job.history) == 1


def test_a_slot_that_was_given_back_and_is_still_granted_is_given_back_again() -> None:
    """The cluster may have spoken before it heard."""
    job = Job(upper=4).run(held=4).put(1, 3).applied().wait(50_000)
    assert job.effect(ReleaseSlots).slot_ids == ("tm-3",)
    job.do(SlotsChanged(slots(4))).wait(50_000)
    assert job.effect(ReleaseSlots).slot_ids == ("tm-3",)


def test_surplus_slots_are_given_back_in_every_phase_that_lasts() -> None:
    for kind in ("Executing", "Rescaling", "StopWithSavepoint", "Restarting", "Failing", "Canceling"):
        job = in_phase(kind).hold(9)
        assert len(job.state.slots) == 9
        job.wait(50_000)
        assert len(job.state.slots) == job.state.supply.declared <= 4, kind


def test_what_is_wanted_is_declared_once() -> None:
    job = Job(upper=3).do(StartScheduling())
    assert job.effect(DeclareResources) == DeclareResources(3, 1)
    job.hold(3)
    assert not job.has_effect(DeclareResources)


# -- the work sheet


def test_a_clock_that_is_set_back_makes_no_span_negative_and_no_timer_fires_early() -> None:
    job = Job(upper=4).run(held=2)
    job.now_ms -= 3_600_000
    job.hold(4).applied()
    assert job.parallelism == [4, 4, 4]
    timer = Timer("slot-idle", job.state.phase_version, job.now_ms + 1)
    before = job.state
    job.do(TimerFired(timer.name, timer.version))
    assert job.state is before
    job.do(CancelRequested()).stops()
    assert all(record.end_ms is not None and record.end_ms >= record.start_ms for record in job.records)


def test_a_phase_is_left_along_an_edge_of_the_table_only() -> None:
    state = running()
    draft = Draft(state, StopRequested("t1"), state.phase_since_ms, TABLE)
    with pytest.raises(InvalidTransition, match="no edge from Executing to Rescaling under StopRequested"):
        draft.enter(Rescaling(_plan(state)))
    assert draft.state is state


def test_the_state_that_was_handed_in_is_never_changed_by_what_the_sheet_does_in_place() -> None:
    state = running()
    was = repr(state)
    draft = Draft(state, StopRequested("t1"), state.phase_since_ms, TABLE)
    draft.set_part("recovery", num_restarts=7)
    draft.set(num_rescales=8)
    draft.set_timeline(records=9)
    draft.set_timeline(attempt_id=10)
    assert (draft.state.recovery.num_restarts, draft.state.num_rescales) == (7, 8)
    assert (draft.state.timeline.records, draft.state.timeline.attempt_id) == (9, 10)
    assert repr(state) == was


@dataclass(kw_only=True)
class ByName:
    one: int
    two: int


def test_evolve_does_what_replace_does() -> None:
    state = running()
    assert evolve(state, attempt=5, stop=None) == replace(state, attempt=5, stop=None)
    assert evolve(Bounds(1, 2), upper=3) == Bounds(1, 3)
    assert evolve(Manager("Idling", 1)) == Manager("Idling", 1)
    assert evolve(Executing(Manager("Idling", 1)), first_batch=True).first_batch
    with pytest.raises(KeyError):
        evolve(Bounds(1, 2), middle=3)
    with pytest.raises(TypeError, match="Created has too few fields to evolve"):
        evolve(Created(), kind="Created")
    with pytest.raises(TypeError, match="some that are not given by position"):
        evolve(ByName(one=1, two=2), two=3)


def test_texts_of_a_failure_are_kept_at_both_ends_and_not_without_end() -> None:
    stack = "first cause " + "x" * 100_000 + " last cause"
    job = Job().run().do(AttemptFailed(1, "e" * 10_000, stopped=True, stack=stack))
    failure = job.state.recovery.failures[-1][0]
    assert len(failure.error) < 5_000
    assert failure.stack is not None and len(failure.stack) < 50_000
    assert failure.stack.startswith("first cause") and failure.stack.endswith("last cause")
