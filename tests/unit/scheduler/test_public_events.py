"""What a step is told as. That records and statuses agree with it, `Job` checks in every test of this directory."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.model.public_event import PublicEvent, PublicEventType
from app.model.rescale import Measured
from app.model.scaling_policy import FloorCeiling, ScalingPolicy
from app.model.slot_share import SlotShare
from app.scheduler.adaptive.events import (
    AttemptFailed,
    AttemptFinished,
    AttemptStartFailed,
    QueryFailed,
    QueryStarted,
    ScalingPolicyUpdated,
    SlotsChanged,
    SlotShareUpdated,
    StopRequested,
)
from app.scheduler.adaptive.local_failover import LOCAL_TIMER
from app.worker.job.public_events import ERROR_MAX_CHARS, submission_events
from tests.unit.scheduler.driving import Job, restarting_job, slots, two_sinks, vertex
from tests.unit.scheduler.test_rollback import tried_4

PAGE = Path(__file__).parents[3] / "docs" / "events.md"
AT_ONCE: dict[str, object] = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "9",
    "restart-strategy.fixed-delay.delay": "5 s",
}


def kinds(told: list[PublicEvent]) -> list[str]:
    return [one.type.value for one in told]


def news(job: Job, since: int) -> list[PublicEvent]:
    return job.told[since:]


def of(told: list[PublicEvent], kind: PublicEventType) -> list[dict[str, Any]]:
    return [dict(one.fields) for one in told if one.type is kind]


def named(job: Job, count: int | None) -> dict[str, int | None]:
    return {vertex.id: count for vertex in job.graph.vertices}


def test_a_submitted_job_is_told_with_its_bounds() -> None:
    job = Job()
    status, requirements = submission_events(job.state, job.now_ms)
    assert (status.type, status.at_ms) == (PublicEventType.STATUS, job.now_ms)
    assert status.fields == {"status": "INITIALIZING", "previousStatus": None}
    assert requirements.fields["version"] == 1
    assert requirements.fields["bounds"][job.graph.vertices[0].id] == {"lowerBound": 1, "upperBound": 2}


def test_the_life_of_a_job_from_its_start_to_its_first_batch() -> None:
    job = Job().run(held=2)
    assert kinds(job.told) == [
        "rescale-begun",
        "status",
        "rescale-step",
        "attempt-begun",
        "rescale-step",
        "status",
        "rescale-ended",
    ]
    (attempt,) = of(job.told, PublicEventType.ATTEMPT_BEGUN)
    assert attempt == {"attempt": 1, "parallelism": named(job, 2)}
    (ended,) = of(job.told, PublicEventType.RESCALE_ENDED)
    assert (ended["terminalState"], ended["postRescaleParallelism"]) == ("COMPLETED", named(job, 2))


def test_a_put_is_told_as_bounds_and_a_rescale_with_what_was_decided_at_once() -> None:
    job = Job(upper=4).run(held=4)
    since = len(job.told)
    job.put(1, 2, requested_by="ann", reason="night")
    assert kinds(news(job, since)) == ["requirements", "rescale-begun"]
    (bounds,) = of(news(job, since), PublicEventType.REQUIREMENTS)
    assert (bounds["version"], bounds["requestedBy"], bounds["reason"]) == (2, "ann", "night")
    (begun,) = of(news(job, since), PublicEventType.RESCALE_BEGUN)
    assert begun["triggerCause"] == "UPDATE_REQUIREMENT"
    assert (begun["requestedBy"], begun["schedulerState"], begun["rung"]) == ("ann", "Rescaling", "in-place")
    assert (begun["preRescaleParallelism"], begun["postRescaleParallelism"]) == (named(job, 4), named(job, 2))
    since = len(job.told)
    job.now_ms += 700
    job.applied(measured=Measured(output_gap_ms=12))
    (ended,) = of(news(job, since), PublicEventType.RESCALE_ENDED)
    assert (ended["durationInMillis"], ended["outputGapInMillis"]) == (700, 12)
    assert (ended["number"], ended["rescaleUuid"]) == (begun["number"], begun["rescaleUuid"])


def test_each_milestone_of_a_rescale_by_a_restart_is_a_step() -> None:
    job = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s")
    since = len(job.told)
    job.put(1, 8).hold(4).wait(1)
    assert job.kind == "Restarting"
    job.stops(driver_alive=True).starts().commit()
    told = news(job, since)
    states = [one["schedulerState"] for one in of(told, PublicEventType.RESCALE_STEP)]
    assert states == ["Restarting", "CreatingExecutionGraph", "Executing"]
    assert of(told, PublicEventType.ATTEMPT_ENDED) == [{"attempt": 1, "outcome": "stopped"}]
    assert [one["attempt"] for one in of(told, PublicEventType.ATTEMPT_BEGUN)] == [2]
    assert kinds(told)[-1] == "rescale-ended"


def test_a_plan_that_is_made_while_another_is_on_its_way_is_a_step_too() -> None:
    job = tried_4().put(6, 8).hold(8)
    since = len(job.told)
    job.do(SlotsChanged(slots(8)[1:]))
    assert job.kind == "Rescaling", "a slot of the plan on its way is gone"
    (step,) = of(news(job, since), PublicEventType.RESCALE_STEP)
    assert step["rung"] == "in-place" and set(step["postRescaleParallelism"].values()) == {7}


def test_a_failure_ends_the_attempt_and_restarts_the_job_after_its_backoff() -> None:
    job = Job(options=AT_ONCE).run()
    since = len(job.told)
    job.do(AttemptFailed(1, "x" * 10_000, stopped=True, vertex="agg"))
    told = news(job, since)
    assert kinds(told) == ["failure", "attempt-ended", "rescale-begun", "restart", "status"]
    (failure,) = of(told, PublicEventType.FAILURE)
    assert (failure["vertex"], failure["attempt"]) == ("agg", 1)
    assert len(failure["error"]) == ERROR_MAX_CHARS + len(" ...")
    assert of(told, PublicEventType.ATTEMPT_ENDED) == [{"attempt": 1, "outcome": "failed"}]
    assert of(told, PublicEventType.RESTART) == [
        {"scope": "job", "query": None, "number": 1, "backoffInMillis": 5_000}
    ]
    (status,) = of(told, PublicEventType.STATUS)
    assert status == {"status": "RESTARTING", "previousStatus": "RUNNING"}


def test_a_second_failure_of_the_same_attempt_is_told_and_the_first_not_again() -> None:
    job = Job(options=AT_ONCE).run()
    job.do(AttemptFailed(1, "first", stopped=False))
    since = len(job.told)
    job.do(AttemptFailed(1, "second", stopped=True))
    assert [one["error"] for one in of(news(job, since), PublicEventType.FAILURE)] == ["second"]


def test_a_start_that_fails_is_told_as_the_end_of_its_attempt() -> None:
    job = Job(options=AT_ONCE).submit()
    job.do(AttemptStartFailed(1, "no driver"))
    assert of(job.told, PublicEventType.ATTEMPT_ENDED) == [{"attempt": 1, "outcome": "start-failed"}]


def test_a_rescale_that_is_taken_back_names_the_one_before() -> None:
    job = tried_4()
    tried = of(job.told, PublicEventType.RESCALE_BEGUN)[-1]
    since = len(job.told)
    job.do(AttemptFailed(job.state.attempt, "boom", stopped=True))
    (back,) = of(news(job, since), PublicEventType.RESCALE_BEGUN)
    assert back["rollbackOf"] == tried["number"]
    (ended,) = of(news(job, since), PublicEventType.RESCALE_ENDED)
    assert (ended["number"], ended["terminalState"]) == (tried["number"], "FAILED")


def test_a_query_that_restarts_alone_is_a_restart_of_that_query() -> None:
    job = Job(two_sinks(), options=AT_ONCE).run()
    sink = job.graph.vertices[-1].id
    since = len(job.told)
    job.do(QueryFailed(1, sink, 1, "lost a connection"))
    (restart,) = of(news(job, since), PublicEventType.RESTART)
    assert (restart["scope"], restart["query"], restart["number"]) == ("query", sink, 1)
    assert kinds(news(job, since)) == ["failure", "restart"]


def test_a_query_is_not_told_to_restart_when_another_has_had_the_whole_job_restarted() -> None:
    job = Job(two_sinks(), options=AT_ONCE | {"restart-strategy.fixed-delay.delay": "0 s"}).run()
    first, second = [vertex.id for vertex in job.graph.vertices if vertex.is_sink]
    job.do(QueryFailed(1, first, 1, "lost a connection"))
    since = len(job.told)
    # Its time is over, and the timer has not fired yet.
    job.now_ms += job.timer_in_ms(LOCAL_TIMER)
    job.do(QueryFailed(1, second, 1, "lost another one"))
    assert job.kind == "Restarting"
    assert [one["scope"] for one in of(news(job, since), PublicEventType.RESTART)] == ["job"]


def test_a_change_of_the_slot_share_says_who_made_it() -> None:
    job = Job().run()
    since = len(job.told)
    job.do(SlotShareUpdated(SlotShare(2, 3, 1, 4, requested_by="bob", reason="peak")))
    assert of(news(job, since), PublicEventType.SLOT_SHARE) == [
        {"version": 2, "requestedBy": "bob", "reason": "peak", "weight": 3, "priority": 1, "cap": 4}
    ]


def test_a_scaling_policy_says_who_set_it_and_why() -> None:
    job = Job().run()
    since, agg = len(job.told), job.graph.vertices[1].id
    limits = ((agg, FloorCeiling(2)),)
    job.do(ScalingPolicyUpdated(ScalingPolicy(2, FloorCeiling(None, 8), limits, "olga", "peak")))
    assert of(news(job, since), PublicEventType.SCALING_POLICY) == [
        {
            "version": 2,
            "requestedBy": "olga",
            "reason": "peak",
            "allVertices": {"floor": None, "ceiling": 8},
            "vertices": {agg: {"floor": 2, "ceiling": None}},
        }
    ]


def test_an_end_has_its_cause_and_how_the_attempt_ended() -> None:
    job = Job().run()
    job.do(StopRequested("t"))
    since = len(job.told)
    job.do(AttemptFinished(1))
    told = news(job, since)
    assert of(told, PublicEventType.ATTEMPT_ENDED) == [{"attempt": 1, "outcome": "finished"}]
    assert of(told, PublicEventType.STATUS)[-1]["status"] == "FINISHED"
    failed = Job(options={"restart-strategy.type": "none"}).run()
    failed.do(AttemptFailed(1, "out of paper", stopped=True, recoverable=False))
    end = of(failed.told, PublicEventType.STATUS)[-1]
    assert end["status"] == "FAILED" and "out of paper" in end["cause"]


def test_a_batch_of_a_job_that_has_nothing_to_do_is_no_event() -> None:
    job = Job().run()
    since = len(job.told)
    job.commit().commit().commit()
    assert news(job, since) == []


def documented() -> dict[str, set[str]]:
    """The fields of each type, by the table of the page."""
    rows = re.findall(r"^\| `([a-z-]+)` \| [^|]* \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)
    return {kind: set(re.findall(r"`(\w+)`", fields)) for kind, fields in rows}


def test_the_page_has_every_type_with_its_fields() -> None:
    page = documented()
    assert set(page) == {kind.value for kind in PublicEventType}
    failing = Job(options=AT_ONCE).run()
    failing.put(1, 3).do(AttemptFailed(1, "boom", stopped=True))
    sharing = Job().run().do(SlotShareUpdated(SlotShare(2, 3)))
    sharing.do(ScalingPolicyUpdated(ScalingPolicy(2, FloorCeiling(1))))
    ending = Job(options={"restart-strategy.type": "none"}).run()
    ending.do(AttemptFailed(1, "boom", stopped=True))
    stepping = restarting_job(cooldown="0 s", stabilization="0 s", max_delay="0 s").put(1, 8).hold(4).wait(1)
    assert PublicEventType.NO_CHANGE in {one.type for one in stepping.told}
    growing = Job().run()
    graph = growing.state.graph
    other = replace(graph, vertices=(*graph.vertices, vertex("other"), vertex("sink-other", ["other"])))
    growing.do(QueryStarted(1, other.vertices[-1].id, other, ()))
    told = [*failing.told, *sharing.told, *ending.told, *stepping.told, *growing.told]
    seen = {one.type.value for one in told}
    # Nothing of these is decided by the core.
    assert seen == set(page) - {"job-forgotten", "member-joined", "member-left", "batches"}
    for event in told:
        optional = {"cause"} if event.type is PublicEventType.STATUS else set()
        assert set(event.fields) | optional == page[event.type.value], event.type
        assert json.loads(json.dumps(event.fields)) == event.fields
