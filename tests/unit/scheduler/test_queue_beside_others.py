"""Bounds that wait beside records and bounds of others: whose record goes on, and who is told what."""

from __future__ import annotations

from dataclasses import replace

from app.model.job_state.changes import Change
from app.model.job_state.partitions import RepartitionRefused
from app.model.job_state.versions import JobVersion
from app.model.requirements import Bounds
from app.model.rescale import TerminalState, TerminatedReason, TriggerCause
from app.model.slot_share import SlotShare
from app.scheduler.adaptive import bounds_declared
from app.scheduler.adaptive.bounds_declared import cancelable_of
from app.scheduler.adaptive.effects import SendPlan
from app.scheduler.adaptive.events import AttemptFailed, RequirementsUpdated, SlotsChanged, VersionRequested
from app.scheduler.adaptive.queued_slots import QueuedSlots
from tests.parts import with_part
from tests.unit.scheduler.driving import COOLDOWN, Job, group_graph, slots
from tests.unit.scheduler.test_bounds_queue import COMMIT, ROLLBACK, sentences, undo, within
from tests.unit.scheduler.test_deadlines_side_by_side import declared, put, two, waits
from tests.unit.scheduler.test_rollback import back_to_work, fail, tried_4


def in_cooldown() -> Job:
    """a and b run at 2 and change by a restart only, for which the cooldown is long."""
    graph = group_graph(["a", "b"])
    graph = replace(graph, vertices=tuple(replace(one, in_place="query-restart") for one in graph.vertices))
    return Job(graph, lower=1, upper=2, options={COOLDOWN: "1 h"}).run(held=4)


def test_a_put_that_frees_the_slots_of_others_keeps_its_record() -> None:
    job = put(two(), within(two(), 600, ROLLBACK), who="carl", a=(1, 3), b=(1, 2))
    put(job, who="ann", a=(1, 2), b=(1, 1))
    assert len([one for one in job.effects if isinstance(one, SendPlan)]) == 1
    assert (job.open.requested_by, declared(job)) == ("ann", [(1, 3), (1, 1)])
    told = job.records[-1]
    assert (told.requested_by, told.terminal_state) == ("carl", TerminalState.IGNORED)
    assert "of a of version 2 wait no longer" in (told.message or "")
    job.applied()
    assert (job.records[-1].terminal_state, job.parallelism) == (TerminalState.COMPLETED, [3, 1])


def test_after_a_cancellation_what_is_applied_has_its_author() -> None:
    job = put(in_cooldown().hold(5), within(two(), 600, ROLLBACK), who="ann", a=(1, 3), b=(1, 2))
    put(job, within(job, 600, ROLLBACK), who="carl", a=(1, 3), b=(1, 3))
    job.do(bounds_declared.undoing(job.state, cancelable_of(job.state)[0], "bob", "Canceled."))
    assert declared(job) == [(1, 2), (1, 3)]
    (one,) = job.state.queued
    record = next(each for each in [*job.records, job.open] if each.number == one.record)
    assert (record.requested_by, record.request_reason) == ("carl", one.reason)


def test_two_patches_that_are_applied_at_once_have_a_record_each() -> None:
    job = put(in_cooldown(), within(two(), 600, ROLLBACK), who="ann", a=(1, 3), b=(1, 2))
    put(job, within(job, 9_000, ROLLBACK), who="carl", a=(1, 3), b=(1, 3)).hold(6)
    assert waits(job) == [] and len({one.record for one in job.state.queued}) == 2
    by = {one.record: one.requested_by for one in job.state.queued}
    records = {one.number: one.requested_by for one in [*job.records, job.open]}
    assert by == {number: records[number] for number in by}
    job.wait(601_000)
    assert declared(job) == [(1, 2), (1, 3)], "the deadline of one takes back nothing of the other"
    back = next(one for one in [*job.records, job.open] if one.rollback_of is not None)
    assert by[back.rollback_of or 0] == "ann" and "Takes back the bounds of version 2" in (back.message or "")


def test_later_bounds_with_a_deadline_bring_back_what_was_before_what_was_not_in_force() -> None:
    job = put(in_cooldown(), within(two(), 600, ROLLBACK), a=(4, 4), b=(1, 2)).hold(6)
    assert declared(job) == [(4, 4), (1, 2)]
    put(job, within(job, 60, ROLLBACK), a=(5, 9), b=(1, 2))
    assert (declared(job), waits(job)) == ([(1, 2), (1, 2)], [job.state.requirements.version])
    assert any("which does not count any more" in (one.message or "") for one in [*job.records, job.open])
    job.hold(4).wait(61_000)
    assert (declared(job), job.state.queued, job.state.supply.minimal) == ([(1, 2), (1, 2)], (), 2)


def test_commit_is_told_in_no_record_of_others() -> None:
    job = put(in_cooldown(), within(two(), 60, COMMIT), who="carl", a=(1, 3), b=(1, 2)).hold(5)
    put(job, who="ann", a=(1, 3), b=(1, 1)).wait(61_000)
    told = [one for one in [*job.records, job.open] if "The bounds of version 2 stay." in (one.message or "")]
    assert [one.requested_by for one in told] == ["carl"]


def test_a_record_that_later_bounds_end_says_that_its_own_wait_on() -> None:
    job = put(two(), within(two(), 600, ROLLBACK), who="carl", a=(1, 9), b=(1, 2))
    put(job, who="ann", a=(1, 9), b=(1, 1))
    assert "still wait for their deadline" in (job.records[-1].message or "")


def test_slots_that_come_end_no_record_of_a_version_or_a_failover() -> None:
    job = put(in_cooldown(), within(two(), 9_000, ROLLBACK), who="carl", a=(1, 3), b=(1, 2))
    job.do(VersionRequested(JobVersion(2, replace(job.graph, name="x"), job.state.options), "vera"))
    job.hold(5).stops().starts().commit()
    own = next(one for one in job.records if one.requested_by == "vera")
    assert (own.terminal_state, job.parallelism) == (TerminalState.COMPLETED, [3, 2])
    job = put(in_cooldown(), within(two(), 9_000, ROLLBACK), who="carl", a=(1, 3), b=(1, 2))
    job.do(AttemptFailed(1, "boom", stopped=False, outside=True)).hold(5).stops().wait(
        9_000
    ).starts().commit()
    own = next(one for one in job.records if one.cause is TriggerCause.RECOVERABLE_FAILOVER)
    assert own.reason is TerminatedReason.SUCCEEDED


def test_the_explanation_has_the_deadline_of_what_was_applied_and_has_not_begun() -> None:
    job = put(in_cooldown(), within(two(), 600, ROLLBACK), a=(1, 3), b=(1, 2)).hold(5)
    assert "If the rescale has not begun in 10 min, these bounds are dropped." in sentences(job)


def test_bounds_that_wait_again_are_the_wish_of_their_record() -> None:
    job = put(in_cooldown(), within(two(), 600, ROLLBACK), a=(1, 3), b=(1, 2))

    def wished() -> list[int]:
        return [one.desired for one in job.open.vertices]

    assert wished() == [3, 2]
    job.hold(5).hold(4)
    assert (wished(), declared(job), waits(job)) == ([3, 2], [(1, 2), (1, 2)], [2])
    assert job.state.requirements[job.graph.vertices[0].id] == Bounds(1, 2)


def test_what_ann_has_declared_is_canceled_without_what_it_freed() -> None:
    job = put(in_cooldown(), within(two(), 600, ROLLBACK), who="carl", a=(1, 3), b=(1, 2))
    put(job, who="ann", a=(1, 2), b=(1, 1))
    assert (declared(job), waits(job)) == ([(1, 3), (1, 1)], [])
    job.do(bounds_declared.undoing(job.state, cancelable_of(job.state)[-1], "bob", "Canceled."))
    assert (declared(job), waits(job)) == ([(1, 2), (1, 2)], [2]), "then its slots are not there any more"


def test_a_begun_patch_keeps_its_deadline_when_something_else_is_taken_back() -> None:
    job = put(two(), a=(1, 3), b=(1, 2)).hold(5).wait(100).applied()
    graph = replace(
        job.state.graph, vertices=tuple(replace(one, in_place="query-restart") for one in job.graph.vertices)
    )
    job.state = replace(job.state, graph=graph)
    job.hold(12)
    put(job, within(job, 60, ROLLBACK), a=(1, 3), b=(1, 9))
    assert waits(job) == [] and [one.version for one in job.state.queued] == [3]
    back_to_work(fail(job))
    assert job.state.trial.taken_back is not None
    job.wait(61_000)
    assert declared(job) == [(1, 3), (1, 2)]


def test_the_state_partitions_that_were_asked_for_before_come_back_with_the_bounds() -> None:
    job = in_cooldown()
    a, b = (one.id for one in job.graph.vertices)
    job.state = replace(
        job.state, requirements=replace(job.state.requirements, state_partitions=((a, 64), (b, 32)))
    )
    pairs = ((a, Bounds(1, 3)), (b, Bounds(1, 2)))
    wanted = job.state.requirements.following(
        "job", pairs, requested_by="ann", reason=None, state_partitions=((b, 32),)
    )
    job.do(RequirementsUpdated(wanted, within(job, 60, ROLLBACK))).hold(5)
    assert job.state.requirements.state_partitions == ((b, 32),)
    job.hold(4)
    assert dict(job.state.requirements.state_partitions) == {a: 64, b: 32}


def test_later_bounds_of_one_vertex_leave_alone_what_comes_back_of_another() -> None:
    job = put(in_cooldown(), within(two(), 600, ROLLBACK), a=(1, 3), b=(1, 3)).hold(6)
    put(job, a=(1, 3), b=(1, 1))
    (one,) = job.state.queued
    assert one.begun is not None and dict(one.begun.former) == {job.graph.vertices[0].id: Bounds(1, 2)}
    job.hold(3)
    assert (declared(job), waits(job)) == ([(1, 2), (1, 1)], [2])


def test_what_was_taken_back_comes_back_with_what_was_before_a_patch() -> None:
    job = back_to_work(fail(tried_4()))
    assert job.state.trial.taken_back is not None
    back = job.state.trial.taken_back
    put(job, within(job, 60, ROLLBACK), source=(1, 9), agg=(1, 4), sink=(1, 4)).hold(9)
    (one,) = job.state.queued
    assert job.state.trial.taken_back is None and one.begun is not None and one.begun.taken_back == back
    job.hold(4)
    assert (waits(job), job.state.trial.taken_back) == ([one.version], back)


def test_a_new_version_cuts_what_comes_back() -> None:
    job = put(in_cooldown(), a=(1, 8), b=(1, 2))
    put(job, within(job, 9_000, ROLLBACK), a=(1, 9), b=(1, 2)).hold(11)
    (one,) = job.state.queued
    assert one.begun is not None and dict(one.begun.former) == {job.graph.vertices[0].id: Bounds(1, 8)}
    first, second = job.graph.vertices
    new = replace(job.graph, vertices=(replace(first, max_parallelism=4), second))
    job.do(VersionRequested(JobVersion(2, new, job.state.options), "vera")).hold(1).stops()
    assert declared(job) == [(1, 4), (1, 2)]


def test_all_that_the_queue_and_the_job_want_is_declared() -> None:
    job = put(in_cooldown(), within(two(), 600, ROLLBACK), a=(3, 9), b=(2, 2))
    assert (job.state.supply.declared, job.state.supply.minimal) == (11, 2)
    job.hold(11)
    assert (job.state.supply.declared, job.state.supply.minimal) == (11, 2), "it can do with what was before"


def test_of_two_patches_the_one_whose_record_is_open_names_what_follows() -> None:
    job = put(in_cooldown(), who="ann", a=(1, 2), b=(1, 4))
    put(job, within(job, 600, ROLLBACK), who="carl", a=(1, 3), b=(1, 4))
    # The record of ann's bounds comes to nothing, so the next one that waits is open.
    job.wait(100_000)
    put(job, within(job, 600, ROLLBACK), who="dora", a=(1, 3), b=(1, 5))
    assert job.open.requested_by == "dora"
    job.hold(8)
    assert (waits(job), job.state.requirements.requested_by, job.open.requested_by) == ([], "dora", "dora")


def refused(error: str) -> Job:
    """A redistribution of state was given up under the bounds that hold."""
    job = in_cooldown()
    given_up = RepartitionRefused(job.state.requirements.uuid, error)
    job.state = with_part(job.state, "partitions", refused=given_up)
    return job


def test_what_was_given_up_under_the_bounds_that_hold_stays_so_while_others_wait() -> None:
    job = put(refused("no room"), within(two(), 600, ROLLBACK), a=(1, 3), b=(1, 2))
    kept = job.state.partitions.refused
    assert kept is not None and kept.requirements_uuid == job.state.requirements.uuid
    assert job.state.is_repartition_given_up


def test_below_a_cap_that_lower_bounds_need_a_patch_has_the_slots_of_those() -> None:
    job = put(two(held=6), a=(1, 2), b=(4, 4)).wait(100).applied()
    put(job, within(job, 600, ROLLBACK), a=(2, 9), b=(4, 4))
    slots = QueuedSlots.of(replace(job.state, share=SlotShare(2, cap=3)))
    assert slots.needed(job.state.queued[0]) == 6, "its lower bounds need them, whatever the cap"


def test_what_all_queued_bounds_lead_to_leaves_out_what_is_declared_anew() -> None:
    job = put(two(), within(two(), 600, ROLLBACK), a=(3, 9), b=(1, 2))
    a, b = (one.id for one in job.graph.vertices)
    pairs = ((a, Bounds(1, 5)), (b, Bounds(1, 2)))
    wanted = job.state.requirements.following("job", pairs, requested_by="bob", reason=None)
    assert bounds_declared.bounds_with_queue(job.state).as_dict() == {a: Bounds(3, 9), b: Bounds(1, 2)}
    assert bounds_declared.bounds_with_queue(job.state, wanted).as_dict() == dict(pairs)
    assert bounds_declared.bounds_to_count(job.state, wanted).as_dict() == dict(pairs)


def test_bounds_that_hold_again_as_a_change_was_canceled_wait_no_longer() -> None:
    job = put(put(in_cooldown().hold(5), a=(1, 2), b=(1, 4)), a=(1, 2), b=(1, 3))
    put(job, within(job, 600, ROLLBACK), a=(1, 2), b=(1, 4))
    assert waits(job) == [job.state.requirements.version]
    change = next(one for one in cancelable_of(job.state) if isinstance(one, Change))
    job.do(bounds_declared.undoing(job.state, change, "bob", "Canceled."))
    assert (declared(job), job.state.queued) == ([(1, 2), (1, 4)], ())


def test_what_a_driver_is_being_started_for_cannot_be_canceled() -> None:
    job = put(in_cooldown(), within(two(), 600, ROLLBACK), a=(4, 4), b=(1, 2))
    job.do(AttemptFailed(1, "boom", stopped=True, outside=True)).hold(6).wait(9_000)
    assert (job.kind, declared(job), cancelable_of(job.state)) == (
        "CreatingExecutionGraph",
        [(4, 4), (1, 2)],
        (),
    )


def test_a_cancellation_of_what_waits_for_its_first_slots_leaves_later_bounds_with_a_deadline_alone() -> None:
    job = Job(group_graph(["a", "b"]), lower=2, upper=2).submit(1)
    put(job, within(job, 600, ROLLBACK), a=(1, 1), b=(1, 1))
    put(job, within(job, 600, COMMIT), a=(1, 1), b=(1, 2))
    assert (declared(job), waits(job)) == ([(1, 1), (1, 2)], []), "less needs no slots"
    (one,) = cancelable_of(job.state)
    assert one.version == 2
    undo(job)
    assert (declared(job), [one.version for one in job.state.queued]) == ([(2, 2), (1, 2)], [3])


def test_so_does_that_of_a_change_without_one() -> None:
    job = put(in_cooldown().hold(5), a=(1, 3), b=(1, 1))
    put(job, within(job, 600, ROLLBACK), a=(1, 5), b=(1, 1)).hold(7)
    assert (declared(job), job.open.number) == ([(1, 5), (1, 1)], 2), "two changes are in one record"
    patch, change = cancelable_of(job.state)
    assert isinstance(change, Change) and (patch.version, change.version) == (3, 2)
    undo(job)
    assert (declared(job), [one.version for one in job.state.queued]) == ([(1, 5), (1, 2)], [3])


def test_a_number_of_partitions_that_is_there_is_no_wish() -> None:
    job = in_cooldown()
    a, b = (one.id for one in job.graph.vertices)
    most = job.graph.by_id[a].max_parallelism
    held = job.state.requirements
    job.state = replace(job.state, requirements=replace(held, state_partitions=((a, most),)))
    wanted = held.following(
        "job", held.bounds, requested_by="bob", reason=None, state_partitions=((b, most),)
    )
    assert bounds_declared.changed_by(job.state, wanted) == frozenset()


def test_of_a_deadline_that_has_passed_nobody_says_that_it_is_waited_for() -> None:
    job = put(two(), within(two(), 60, ROLLBACK), a=(1, 9), b=(1, 9))
    job.now_ms += 60_000
    put(job, a=(1, 9), b=(1, 1))
    assert not any("still wait for a deadline" in (one.message or "") for one in [*job.records, job.open])


def test_while_the_cluster_is_unreachable_nothing_is_applied() -> None:
    job = put(in_cooldown(), within(two(), 600, ROLLBACK), a=(1, 3), b=(1, 2))
    job.do(SlotsChanged(slots(5), cluster_unreachable=True))
    assert (waits(job), declared(job)) == ([2], [(1, 2), (1, 2)])
    job.hold(5)
    assert (waits(job), declared(job)) == ([], [(1, 3), (1, 2)])


def test_what_was_given_up_counts_for_the_bounds_that_hold_only() -> None:
    job = refused("no room")
    graph = job.state.graph
    stateful = replace(
        graph,
        vertices=tuple(replace(one, stateful=True, max_parallelism=4) for one in graph.vertices),
    )
    job.state = replace(job.state, graph=stateful)
    slots_of_queue = QueuedSlots.of(job.state)
    a, b = (one.id for one in graph.vertices)
    pairs = ((a, Bounds(1, 8)), (b, Bounds(1, 2)))
    wanted = job.state.requirements.following("job", pairs, requested_by=None, reason=None)
    patch = bounds_declared.patch_of(wanted, within(job, 60, ROLLBACK), {a})
    assert slots_of_queue.demand(()).graph is stateful
    assert slots_of_queue.demand([patch]).graph.by_id[a].max_parallelism == 8


def test_a_job_that_cannot_run_takes_only_those_bounds_that_it_needs() -> None:
    job = Job(group_graph(["a", "b"]), lower=2, upper=2).run(held=4)
    for who, wanted in (("ann", {"a": (1, 8), "b": (2, 2)}), ("carl", {"a": (1, 8), "b": (2, 8)})):
        put(job, within(job, 600, ROLLBACK), who=who, **wanted)
    first, second = job.state.queued
    job.hold(3)
    assert declared(job) == [(1, 8), (2, 2)], "those of ann let it run, and those of carl would not"
    assert (waits(job), first.version) == ([second.version], job.state.queued[0].version)


def test_of_bounds_that_would_do_the_oldest_are_taken() -> None:
    job = Job(group_graph(["a", "b"]), lower=2, upper=2).run(held=4)
    put(job, within(job, 600, ROLLBACK), a=(1, 8), b=(2, 2))
    put(job, within(job, 600, ROLLBACK), a=(1, 8), b=(1, 8))
    job.hold(3)
    assert declared(job) == [(1, 8), (2, 2)]
