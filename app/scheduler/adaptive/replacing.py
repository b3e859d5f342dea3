"""A new version of the job comes, by a request or because what it is to run in was built, in each phase; and the end of
its trial."""

from __future__ import annotations

from app.scheduler.adaptive import rollback, versions
from app.scheduler.adaptive.draft import Draft
from app.scheduler.adaptive.effects import StopMode
from app.scheduler.adaptive.ending import record_failure
from app.scheduler.adaptive.failure_state import Failure
from app.scheduler.adaptive.restarting import begin_stop, take_version_back
from app.scheduler.adaptive.starting import BACKOFF_TIMER, enter_waiting, review_waiting
from app.scheduler.adaptive.state import Restarting
from app.scheduler.adaptive.versions import Coming


def running_requested(draft: Draft, event: Coming) -> None:
    """The attempt ends at a batch boundary, and its process too: the new version gets a process of its own."""
    if not versions.take_up(draft, event):
        return
    rollback.prove(draft)
    draft.enter(Restarting(backoff_ms=0, drain=True))
    begin_stop(draft, StopMode.DRAIN)


def creating_requested(draft: Draft, event: Coming) -> None:
    """Nothing runs yet: the attempt that is being started is killed."""
    if not versions.take_up(draft, event):
        return
    enter_waiting(draft, exception="Another version of the job was asked for while the driver was started.")


def waiting_requested(draft: Draft, event: Coming) -> None:
    if not versions.take_up(draft, event):
        return
    review_waiting(draft)


def retrying_requested(draft: Draft, event: Coming) -> None:
    """The version that could not be started is not waited for any longer."""
    if not versions.take_up(draft, event):
        return
    enter_waiting(draft)


def restarting_requested(draft: Draft, event: Coming) -> None:
    if not versions.take_up(draft, event):
        return
    phase = draft.phase_as(Restarting)
    if phase.stopped:
        draft.disarm(BACKOFF_TIMER)
        enter_waiting(draft)
    else:
        draft.set_phase(backoff_ms=0, target=None, drain=phase.target is not None)


def trial_is_over(draft: Draft) -> None:
    """A version that has nothing to do stays; one that has committed nothing in all its time does not."""
    draft.disarm(versions.TRIAL_TIMER)
    one = draft.state.versions.replacement
    if one is None:
        return
    if one.applied:
        versions.prove(draft)
        return
    limit_ms = draft.state.options.version_trial_ms
    error = (
        f"It has not committed a batch of each query within {limit_ms} ms (slotwise.version.trial-period)."
    )
    failure = Failure(error, draft.now_ms, draft.state.attempt)
    take_version_back(draft, record_failure(draft, failure))
