"""Bounds that were declared with a deadline wait in a queue of patches, beside the requirements, which hold (ADR 57).

* A patch is applied, as any change of bounds is, when its slots have come (`queued_slots`); the oldest is looked at
  first. It leaves the queue when its plan is in force. If its slots go before, it waits again.
* At its deadline it is applied as far as the slots allow (COMMIT), or dropped (ROLLBACK). The deadline limits the wait:
  what is on its way by then goes on.
* Later bounds of a vertex drop it from the patches, unless they are those that hold or those that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from app.model.job_state.changes import Change, Patch
from app.model.job_state.versions import BoundsOfVertices
from app.model.jobgraph import JobGraph
from app.model.requirements import OnTimeout, Requirements
from app.model.rescale import TerminatedReason, TriggerCause
from app.model.value import evolve
from app.scheduler.adaptive import queue_words, timeline
from app.scheduler.adaptive.blame import last_taken_back
from app.scheduler.adaptive.bounds_declared import (
    before_begun,
    changed_by,
    holds_already,
    merged_with,
    next_version,
    only_of,
    patch_of,
    restricted_to,
    undoing,
)
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.events import Event, RequirementsUpdated
from app.scheduler.adaptive.goal import needed_beyond_cap
from app.scheduler.adaptive.queued_slots import QueuedSlots, before_change, is_on_its_way, with_patches
from app.scheduler.adaptive.state import Canceling, Created, Failing, Finished, JobState

DEADLINE_TIMER: Final = "deadline"
_ENDS: Final = (Failing, Canceling, Finished)

Update = Callable[[RequirementsUpdated], None]
"""Takes other bounds over, in whatever phase the job is."""


def sort_declared_bounds(draft: Draft, event: RequirementsUpdated) -> RequirementsUpdated | None:
    """What of ``event`` is to be applied now; None if all of it waits, or is dropped. What waits may take the place of
    what was applied and was not in force: then that is put back."""
    state, undone, wanted = draft.state, event.undoes, event.requirements
    if isinstance(undone, Patch):
        _drop(draft, undone, event)
        return None
    if undone is not None:
        vertices = {vertex for vertex, _ in undone.former}
        _keep(draft, [one for one in state.queued if one.begun is None or not one.vertices <= vertices])
        return event
    if not state.queued and (event.deadline is None or isinstance(state.phase, _ENDS)):
        return event
    changed = changed_by(state, wanted)
    if event.deadline is None or not changed:
        told = _leave_out(draft, changed)
        return _with_what_it_frees(draft, merged_with(draft.state, wanted, changed), told)
    held, told = before_begun(state, wanted, changed), _leave_out(draft, changed)
    timeline.leave_record_in_force(draft)
    now, is_back = draft.state.timeline, held.bounds != draft.state.requirements.bounds
    is_next = now.records > 0 and not (is_back and now.open)
    patch = patch_of(wanted, event.deadline, changed, now.records + 1 if is_next else 0)
    if is_back:
        _keep(draft, (*draft.state.queued, patch))
        return RequirementsUpdated(held, why=told, patch=patch)
    return _queue(draft, patch, held, told)


def _with_what_it_frees(draft: Draft, wanted: Requirements, told: str) -> RequirementsUpdated:
    """``wanted`` is about to be applied, and with it what has its slots then: or two plans would be made in a step."""
    state = draft.state
    then = QueuedSlots.of(evolve(state, requirements=wanted))
    come = [one for one in then.with_their_slots() if one.begun is None] if state.queued else []
    if not come or state.cluster_unreachable or isinstance(state.phase, (Created, *_ENDS)):
        return RequirementsUpdated(wanted, why=told)
    _begin(draft, come)
    for one in come:
        # Its record is told behind that of ``wanted``.
        _replace(draft, one, record=0)
    return RequirementsUpdated(with_patches(wanted, come), why=told)


def _queue(draft: Draft, patch: Patch, held: Requirements, told: str) -> RequirementsUpdated | None:
    """``patch`` waits, and ``held`` holds, as the version of ``patch``. The update that applies it, if its slots are
    there."""
    _take_version(draft, held, (*draft.state.queued, patch))
    if isinstance(draft.state.phase, Created):
        return None
    if not draft.state.cluster_unreachable and patch in QueuedSlots.of(draft.state).with_their_slots():
        _begin(draft, [patch])
        return RequirementsUpdated(with_patches(held, [patch]), why=told)
    _open_record(draft, patch, told)
    return None


def _leave_out(draft: Draft, changed: frozenset[str]) -> str:
    """Other bounds of the vertices ``changed`` are declared. Sentences about what becomes of deadlines."""
    state, queued, kept, told = draft.state, draft.state.queued, [], []
    for one in queued:
        left = restricted_to(one, one.vertices - changed)
        gone = [vertex for vertex, _ in one.bounds if vertex in changed]
        if left is not None:
            kept.append(left)
        # Not of a deadline that has passed: what was asked for then is done next.
        if left is not None and one.begun is None and one.deadline.at_ms > draft.now_ms:
            told.append(queue_words.waits_on(state, left, draft.now_ms))
        if gone:
            told.append(queue_words.counts_no_more(state, gone, one, draft.now_ms))
    _keep(draft, kept)
    open_, numbers = draft.state.timeline.open, [one.record for one in kept]
    if open_ is not None and any(one.record == open_.number not in numbers for one in queued):
        timeline.overtake_record(draft)
    return " ".join(told)


# ---- what the queue does


def apply_what_has_slots(draft: Draft, before: JobState, _: Event) -> None:
    """At the end of a step: apply what has its slots, forget what is over, and bring the timer in line with what is
    left. ``before``: at the beginning of the step."""
    if isinstance(draft.state.phase, _ENDS):
        _keep(draft, ())
    elif not isinstance(draft.state.phase, Created):
        for one in draft.state.queued:
            _give_record(draft, one)
        _forget_what_is_over(draft)
        if _move(draft, before.requirements.version, draft.hand_on):
            _forget_what_is_over(draft)
    draft.keep(DEADLINE_TIMER, due_ms(draft.state))


def _give_record(draft: Draft, one: Patch) -> None:
    change = draft.state.timeline.change
    if one.begun is not None and change is not None and change.version == one.version:
        # It was applied as it was declared.
        _replace(draft, one, begun=evolve(one.begun, taken_back=change.taken_back))
    elif one.begun is not None and not one.record:
        # It was applied by bounds that others have declared, whose record is open.
        message = queue_words.why_applied(draft.state, [one])
        timeline.add_closed_record(draft, TriggerCause.UPDATE_REQUIREMENT, message, asked=one)
        _replace(draft, one, record=draft.state.timeline.records)
    elif not one.record:
        timeline.leave_record_in_force(draft)
        # It was declared before the job was scheduled, or took the place of what was applied.
        number = draft.state.timeline.records + 1
        _replace(draft, one, record=number, first_record=one.first_record or number)
        _open_record(draft, one, "")


def take_slots(draft: Draft, update: Update) -> None:
    """Other slots are held: what has its own now is applied before anything is decided, or the job would be restarted
    for a part of them, and at once again for all."""
    if draft.state.queued and not isinstance(draft.state.phase, (Created, *_ENDS)):
        _move(draft, draft.state.requirements.version, update)


def end_deadline(draft: Draft) -> None:
    """Do what was asked for in case of a timeout, of one patch in a step, as each step stores one version of the
    requirements. The timer of another one that is due stays due."""
    state = draft.state
    overdue = [one for one in state.queued if one.deadline.at_ms <= draft.now_ms]
    one = next((one for one in overdue if _counts(state, one)), None)
    if one is None:
        return
    draft.is_handled = True
    why = queue_words.why_not_begun(state, one)
    back = undoing(state, one, one.requested_by, why, f"The deadline of version {one.version} passed.")
    needed = needed_beyond_cap(state, back.requirements)
    if one.deadline.on_timeout is OnTimeout.COMMIT:
        then = "count from now on" if one.begun is None else "stay"
        _commit(draft, one, f"{why} The bounds of version {one.version} {then}.")
    elif needed is not None:
        # A lower cap was set while they waited.
        kept = f"their lower bounds need {needed} slots, and the cap is {state.share.cap}"
        _commit(draft, one, f"The former bounds do not come back: {kept}. {why}")
    elif (event := sort_declared_bounds(draft, back)) is not None:
        draft.hand_on(event)


def due_ms(state: JobState) -> int | None:
    """The next deadline of what is not on its way; None if no timer is needed."""
    if isinstance(state.phase, (Created, *_ENDS)):
        return None
    return min([one.deadline.at_ms for one in state.queued if _counts(state, one)], default=None)


def _counts(state: JobState, one: Patch) -> bool:
    """Whether the deadline of ``one`` does: not while a rescale for it is on its way."""
    return one.begun is None or not is_on_its_way(state, one)


def _move(draft: Draft, stored_version: int, update: Update) -> bool:
    """Apply the patches whose slots have come; those whose slots went before their plan was in force wait again.
    Whether there were any. ``stored_version``: that of the requirements before the step."""
    state = draft.state
    if not state.queued or state.cluster_unreachable:
        return False
    versions = {one.version for one in QueuedSlots.of(state).with_their_slots()}
    gone = [one for one in state.queued if one.begun is not None and one.version not in versions]
    for one in gone:
        _wait_again(draft, one, stored_version, update)
    come = [one for one in draft.state.queued if one.begun is None and one.version in versions]
    if come:
        _apply(draft, come, queue_words.why_applied(draft.state, come), stored_version, update)
    return bool(gone or come)


def _apply(draft: Draft, patches: list[Patch], message: str, stored_version: int, update: Update) -> None:
    """The bounds of ``patches`` hold from now on. The record of one of them goes on if it is open, or any other that
    is: then each has one that ends as it begins."""
    state = draft.state
    wanted, open_ = with_patches(state.requirements, patches), state.timeline.open
    own = [one for one in patches if open_ is not None and open_.number == one.record]
    first = (own or patches)[0]
    if state.requirements.version == stored_version:
        wanted = next_version(state, wanted, first.requested_by, first.reason)
    _begin(draft, patches)
    records, taken = state.timeline.records, last_taken_back(state)
    update(RequirementsUpdated(wanted, why=message, patch=first))
    is_new = draft.state.timeline.records > records
    for one in patches:
        if one is first and is_new:
            _replace(draft, one, record=records + 1)
        elif one not in own:
            timeline.add_closed_record(draft, TriggerCause.UPDATE_REQUIREMENT, message, asked=one)
            _replace(draft, one, record=draft.state.timeline.records)
    if taken is not None and last_taken_back(draft.state) is None:
        # It is tried again by these bounds, and comes back if they are put back.
        versions = [one.version for one in patches]
        for one in draft.state.queued:
            if one.begun is not None and one.version in versions:
                _replace(draft, one, begun=evolve(one.begun, taken_back=taken))


def _begin(draft: Draft, patches: list[Patch]) -> None:
    """``patches`` are about to be applied."""
    held = draft.state.requirements
    for one in patches:
        former, numbers = only_of(held.bounds, one.vertices), only_of(held.state_partitions, one.vertices)
        _replace(draft, one, begun=Change(one.version, one.record, former, numbers))


def _wait_again(draft: Draft, one: Patch, stored_version: int, update: Update) -> None:
    """The slots of ``one``, which was applied, went before its plan was in force."""
    state, change = draft.state, one.begun
    assert change is not None
    why, back = queue_words.why_waits_again(state, one), before_change(state.requirements, change)
    if state.requirements.version == stored_version:
        back = next_version(state, back, one.requested_by, why)
    _replace(draft, one, begun=None)
    update(RequirementsUpdated(back, undoes=change, why=why, patch=one))


def _commit(draft: Draft, one: Patch, why: str) -> None:
    """The bounds count from now on, whatever the slots."""
    if one.begun is None:
        _apply(draft, [one], why, draft.state.requirements.version, draft.hand_on)
    else:
        _tell_of_commit(draft, one, why)
    _keep(draft, [other for other in draft.state.queued if other.version != one.version])


def _tell_of_commit(draft: Draft, one: Patch, why: str) -> None:
    """In the record of ``one``, or in one that ends as it begins."""
    record = draft.state.timeline.open
    if record is not None and record.number == one.record:
        timeline.note(draft, why)
    else:
        timeline.add_closed_record(draft, TriggerCause.UPDATE_REQUIREMENT, why, asked=one)


def _drop(draft: Draft, one: Patch, event: RequirementsUpdated) -> None:
    """What waits is taken back, by ``event``: what holds stays."""
    left = tuple(other for other in draft.state.queued if other.version != one.version)
    _take_version(draft, event.requirements, left)
    record = draft.state.timeline.open
    if record is not None and record.number == one.record:
        message = f"{event.why} The former bounds stay."
        timeline.close_record(draft, TerminatedReason.RESOURCE_REQUIREMENTS_UPDATED, message=message)
    message = f"Takes back the bounds of version {one.version}: {event.why}"
    if draft.state.timeline.records:
        timeline.add_closed_record(
            draft, TriggerCause.UPDATE_REQUIREMENT, message, rollback_of=one.record or None
        )


def _forget_what_is_over(draft: Draft) -> None:
    """What was applied leaves the queue when its plan is in force, or when it was tried and taken back; what waits if
    it holds already, as a change of the same vertices was taken back."""
    state = draft.state
    over = [one for one in state.queued if _is_over(state, one)]
    if not over:
        return
    record = state.timeline.open
    if state.open_waits and record is not None and any(one.record == record.number for one in over):
        timeline.leave_wait(draft)
    _keep(draft, [one for one in draft.state.queued if one not in over])


def _is_over(state: JobState, one: Patch) -> bool:
    if one.begun is None:
        return holds_already(state, one)
    slots, back = QueuedSlots.of(state), state.trial.taken_back
    if back is not None and slots.is_met(one, dict(back.tried)):
        return True
    return state.plan is not None and slots.is_met(one, dict(state.plan.parallelism))


def _open_record(draft: Draft, one: Patch, told: str) -> None:
    """Begin the record of ``one``, which has the next number: by that it can be canceled."""
    if draft.state.timeline.open is None:
        timeline.open_record(draft, TriggerCause.UPDATE_REQUIREMENT, message=told or None)
        return
    names = queue_words.named(draft.state, one.vertices)
    message = f"The bounds of {names} of version {one.version} wait for their deadline. {told}"
    timeline.add_closed_record(draft, TriggerCause.UPDATE_REQUIREMENT, message.rstrip())


# ---- another graph


def carry_over(draft: Draft, graph: JobGraph, carried: BoundsOfVertices) -> list[tuple[Patch, str]]:
    """Another version of the job comes into force, with ``graph`` and the bounds ``carried``. The patches of which it
    ends the deadline for some vertices, each with a sentence."""
    state, kept, now, ended = draft.state, [], dict(carried), []
    for one in state.queued:
        bounds = []
        for vertex, own in one.bounds:
            if vertex not in graph.by_id or now[vertex] != state.requirements[vertex]:
                continue
            cut = own.within(graph.by_id[vertex].max_parallelism)
            if cut != now[vertex] or one.begun is not None:
                bounds.append((vertex, cut))
        left = restricted_to(one, {vertex for vertex, _ in bounds})
        if left is not None:
            kept.append(evolve(left, bounds=tuple(bounds), partitions=(), begun=_within(left.begun, graph)))
        if gone := [vertex for vertex, _ in one.bounds if vertex not in dict(bounds)]:
            ended.append((one, queue_words.counts_no_more(state, gone, one, draft.now_ms)))
    _keep(draft, kept)
    if state.timeline.change is not None:
        draft.set_timeline(change=None)
    return ended


def _within(begun: Change | None, graph: JobGraph) -> Change | None:
    if begun is None:
        return None
    former = tuple((vertex, own.within(graph.by_id[vertex].max_parallelism)) for vertex, own in begun.former)
    return evolve(begun, former=former, former_partitions=(), taken_back=None)


# ---- inside


def _keep(draft: Draft, queued: Iterable[Patch]) -> None:
    kept = tuple(queued)
    if kept != draft.state.queued:
        draft.set(queued=kept)


def _replace(draft: Draft, one: Patch, **changes: Any) -> None:
    _keep(
        draft,
        [evolve(own, **changes) if own.version == one.version else own for own in draft.state.queued],
    )


def _take_version(draft: Draft, requirements: Requirements, queued: tuple[Patch, ...]) -> None:
    """Another version of the requirements, with the bounds that hold: what was given up under them stays so."""
    refused = draft.state.partitions.refused
    if refused is not None and draft.state.is_repartition_given_up:
        draft.set_part("partitions", refused=evolve(refused, requirements_uuid=requirements.uuid))
    draft.set_requirements(requirements, queued=queued)
    if draft.state.timeline.open is not None:
        timeline.keep_open(draft)
