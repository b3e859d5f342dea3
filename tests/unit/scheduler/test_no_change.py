"""Why a job is left as it is: counted for each reason, and told once. `validate` checks that it is always known."""

from __future__ import annotations

import re
from typing import Any

from app.model.job_state.no_change import NoChangeReason
from app.model.public_event import PublicEventType
from app.model.slot_share import SlotShare
from app.model.value import evolve
from app.scheduler.adaptive.events import AttemptFailed, CancelRequested, SlotsChanged, SlotShareUpdated
from app.scheduler.explain import explain
from tests.unit.scheduler.driving import Job, restarting_job, slots
from tests.unit.scheduler.test_rollback import tried_4
from tests.unit.scheduler.test_scaling_policy import set_policy


def told(job: Job) -> list[dict[str, Any]]:
    return [dict(one.fields) for one in job.told if one.type is PublicEventType.NO_CHANGE]


def counts(job: Job) -> list[tuple[str, int, bool]]:
    return [(one["reason"], one["count"], one["over"]) for one in told(job)]


def reasons(job: Job) -> dict[str, int]:
    return {one.reason.value: one.count for one in job.state.no_change}


def test_a_job_that_has_what_it_wants_says_nothing() -> None:
    job = Job(upper=2).run(held=2)
    job.hold(3).hold(2)
    assert (job.state.no_change, told(job)) == ((), [])


def test_missing_slots_are_told_when_nothing_follows_from_bounds() -> None:
    job = Job(upper=2).run(held=2)
    job.put(1, 4)
    (one,) = told(job)
    assert one == {
        "reason": "slots-missing",
        "message": "The upper bounds need 4 slots, and 2 can be used.",
        "requirementsVersion": 2,
        "count": 1,
        "firstTimestampInMillis": job.now_ms,
        "lastTimestampInMillis": job.now_ms,
        "over": False,
    }


def test_lower_bounds_out_of_reach_are_told_apart() -> None:
    job = Job(upper=2).run(held=2)
    job.put(4, 4)
    assert told(job)[-1]["message"].startswith("The lower bounds need 4 slots, and 2 can be used.")


def test_a_repeated_reason_is_counted_and_not_told_again_until_ten() -> None:
    job = Job(upper=4).run(held=2)
    first_ms = told(job)[-1]["firstTimestampInMillis"]
    before = len(job.told)
    for number in range(8):
        job.now_ms += 1_000
        job.do(SlotsChanged(slots(2), reason=f"look {number}"))
        job.do(SlotsChanged(slots(2), allowed=2, reason=f"look {number}"))
    seen = reasons(job)["slots-missing"]
    assert seen == 16
    ten = [one.fields for one in job.told[before:]]
    assert [(one["count"], one["firstTimestampInMillis"]) for one in ten] == [(10, first_ms)]
    for _ in range(1_000 - seen):
        job.do(SlotsChanged(slots(2)))
        job.do(SlotsChanged(slots(2), allowed=2))
    assert [one["count"] for one in told(job)][-4:] == [1, 10, 100, 1_000]


def test_the_count_ends_with_the_next_plan_and_is_told_then() -> None:
    job = Job(upper=4).run(held=2)
    job.do(SlotsChanged(slots(2), allowed=2))
    seen = reasons(job)["slots-missing"]
    job.hold(4)
    assert job.kind == "Rescaling"
    assert job.state.no_change == ()
    assert counts(job)[-1] == ("slots-missing", seen, True)
    job.applied()
    assert job.state.no_change == ()


def test_other_bounds_begin_a_count_of_their_own() -> None:
    job = Job(upper=2).run(held=2)
    job.put(1, 4).put(1, 5)
    assert [(one["requirementsVersion"], one["count"]) for one in told(job)] == [(2, 1), (3, 1)]


def test_so_do_other_limits_of_the_policy() -> None:
    job = Job(upper=4).run(held=2).do(SlotsChanged(slots(2), allowed=2))
    assert reasons(job) == {"slots-missing": 2}
    set_policy(job, ceiling=3)
    assert reasons(job) == {"slots-missing": 1}
    assert sorted(counts(job)[-2:]) == [("slots-missing", 1, False), ("slots-missing", 2, True)]


def test_bounds_that_ask_for_nothing_else_are_told() -> None:
    job = Job(lower=1, upper=2).run(held=2)
    job.put(2, 2)
    assert counts(job) == [("bounds-met", 1, False)]


def test_a_restart_waits_for_the_cooldown_and_then_for_stable_slots() -> None:
    job = restarting_job().hold(3)
    assert counts(job)[-1] == ("cooldown", 1, False)
    job.wait(31_000)
    assert counts(job)[-1] == ("stabilization", 1, False)
    assert "query-restart" in told(job)[-1]["message"]


def test_an_unreachable_cluster_is_the_reason_for_what_needs_a_restart() -> None:
    job = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s")
    job.do(SlotsChanged(slots(2), cluster_unreachable=True)).put(1, 1)
    assert counts(job)[-1] == ("cluster-unreachable", 1, False)


def test_a_cap_is_named() -> None:
    job = Job(upper=4).run(held=2)
    job.do(SlotShareUpdated(SlotShare(2, cap=2))).do(SlotsChanged(slots(2), allowed=2))
    assert told(job)[-1]["message"] == "The upper bounds need 4 slots, and the cap is 2."


def test_a_cap_that_changes_while_no_slot_is_free_is_looked_at() -> None:
    job = Job(upper=2).run(held=2)
    job.do(SlotShareUpdated(SlotShare(2, cap=2))).put(1, 4)
    assert "the cap is 2" in explain(job.state, job.now_ms)[0][-1]
    job.do(SlotShareUpdated(SlotShare(3)))
    assert explain(job.state, job.now_ms)[0][-1] == "The upper bounds need 4 slots, and 2 can be used."
    job.do(SlotShareUpdated(SlotShare(4, cap=2)))
    assert "the cap is 2" in explain(job.state, job.now_ms)[0][-1]


def test_what_was_taken_back_is_the_reason() -> None:
    job = tried_4()
    number = job.open.number if job.state.timeline.open else job.records[-1].number
    job.do(AttemptFailed(job.state.attempt, "boom", stopped=True)).starts().commit()
    assert (job.kind, counts(job)[-1][0]) == ("Executing", "taken-back")
    assert told(job)[-1]["message"].startswith(f"Rescale {number} was taken back")


def test_a_job_that_waits_for_its_first_slots_says_so_when_some_come() -> None:
    job = Job(lower=3, upper=4).submit(held=2)
    assert job.kind == "WaitingForResources"
    assert reasons(job)["slots-missing"] >= 1
    assert told(job)[-1]["message"].startswith("1 more slot(s) are needed")


def test_batches_cost_nothing_and_the_end_of_the_job_clears_it() -> None:
    job = Job(upper=4).run(held=2)
    before = job.state
    job.commit().commit()
    assert job.state is before
    job.do(SlotsChanged(slots(2), allowed=2))
    job.do(CancelRequested()).stops()
    assert (job.kind, job.state.no_change) == ("Finished", ())
    assert told(job)[-1]["over"]


def test_no_more_reasons_are_kept_than_there_are() -> None:
    job = Job(upper=4).run(held=2)
    for number in range(50):
        job.do(SlotsChanged(slots(2), reason=f"{number}"))
        job.do(SlotsChanged(slots(2), allowed=2, cluster_unreachable=number % 2 == 0))
    assert len(job.state.no_change) <= len(NoChangeReason)


def test_the_explanation_has_the_same_words_and_a_time_where_time_alone_helps() -> None:
    job = Job(upper=2).run(held=2).put(1, 4)
    assert "The upper bounds need 4 slots, and 2 can be used." in explain(job.state, job.now_ms)[0]
    waits = restarting_job().hold(3)
    (sentence,) = [one for one in explain(waits.state, waits.now_ms)[0] if "cooldown" in one]
    assert sentence.startswith(told(waits)[-1]["message"])
    assert re.search(r" Its next step is due in [0-9.]+ s or with a batch[.]$", sentence)


def test_what_was_decided_at_other_bounds_is_not_repeated() -> None:
    job = Job(upper=4).run(held=2)
    old = evolve(job.state, requirements=evolve(job.state.requirements, version=9))
    assert not any("can be used" in one for one in explain(old, job.now_ms)[0])
