"""The transition table of a job's scheduler (FLIP-160 with production Flink's additions, and `Rescaling`).

Rule 1: a pair (phase, event) that is not in the table is refused by `InvalidTransition`, and nothing is changed.
Rule 2: a phase is left only along an edge of the table. A phase that lists itself may stay.
Rule 3: `ENTRY` stands for what a phase does at once when it is entered: one event may lead along several edges.

Not in the table, because they hold everywhere: an event of an earlier attempt and a timer that the state does not
hold any more are dropped; a requirements update with equal bounds changes nothing.

`app.scheduler.table` has it by pair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from app.scheduler.adaptive import (
    ending,
    executing,
    local_failover,
    repartition,
    replacing,
    rescaling,
    resources,
    restarting,
    slot_declaration,
    starting,
    stopping,
)
from app.scheduler.adaptive import events as e
from app.scheduler.adaptive.draft import ENTRY, Draft
from app.scheduler.batch import executing as batch

CREATED: Final = "Created"
WAITING: Final = "WaitingForResources"
CREATING: Final = "CreatingExecutionGraph"
RETRYING: Final = "RetryingExecutionGraphCreation"
EXECUTING: Final = "Executing"
RESCALING: Final = "Rescaling"
STOPPING: Final = "StopWithSavepoint"
RESTARTING: Final = "Restarting"
FAILING: Final = "Failing"
CANCELING: Final = "Canceling"
FINISHED: Final = "Finished"

_BEFORE_RUN: Final = (WAITING, CREATING, RETRYING)
_RUN: Final = (EXECUTING, RESCALING)
_END: Final = (FAILING, CANCELING)
PHASES: Final = (CREATED, *_BEFORE_RUN, *_RUN, STOPPING, RESTARTING, *_END, FINISHED)

# Other bounds count.
_BOUNDS: Final = (e.RequirementsUpdated, e.ScalingPolicyUpdated)

# What an attempt reports while it is alive, and at its end.
_OF_REGIONS: Final = (e.RegionFinished, e.RegionFailed)
_REPORTS: Final = (
    e.AttemptRunning,
    e.StateRepartitioned,
    e.BatchCompleted,
    e.BatchAborted,
    e.PlanApplied,
    *_OF_REGIONS,
)
_GONE: Final = (e.AttemptStartFailed, e.AttemptFailed, e.AttemptStopped, e.AttemptFinished)

STAY: Final = "stay"

Handler = Callable[[Draft, Any], None]
Handlers = Handler | tuple[Handler | None, Handler] | None
"""What an event does: in a job of either type, or (in a STREAMING job, in a BATCH job). None: nothing."""

# (phase or phases, event or events, handlers) -> {phase that can follow: when it does}. STAY: the phase is not left.
TRANSITIONS: Final[dict[tuple[str | tuple[str, ...], Any, Handlers], dict[str, str]]] = {
    # ---- Created: durable, not scheduled yet
    (CREATED, e.StartScheduling, starting.created_start): {WAITING: "scheduled: its slots are declared"},
    (CREATED, _BOUNDS, resources.created_bounds): {STAY: "the bounds count when scheduling starts"},
    (CREATED, e.SlotsChanged, resources.replace_slots): {STAY: "the slots are noted"},
    (CREATED, e.CancelRequested, ending.cancel_unstarted): {FINISHED: "canceled before it ever ran"},
    (CREATED, e.GlobalFailure, ending.fail_unstarted): {FINISHED: "failed before it ever ran"},
    # ---- WaitingForResources: slots are declared, nothing runs
    (WAITING, ENTRY, None): {CREATING: "the desired slots are there already"},
    (WAITING, _BOUNDS, starting.waiting_bounds): {
        STAY: "too few slots for the new bounds, or enough but not yet stable",
        CREATING: "all slots that the new bounds desire are there",
    },
    (WAITING, e.SlotsChanged, starting.waiting_slots): {
        STAY: "too few slots, or enough but not yet stable; none is counted on while the cluster is unreachable",
        CREATING: "all desired slots are there",
    },
    (WAITING, (e.AttemptStartFailed, e.AttemptStopped, e.AttemptFailed), starting.waiting_attempt_gone): {
        STAY: "the attempt that was given up is dead or failed; too few slots for another",
        CREATING: "the attempt that was given up is dead, and the desired slots are there",
    },
    (WAITING, e.AttemptFinished, starting.waiting_finished): {
        STAY: "told again",
        FINISHED: "the attempt that was given up had processed everything",
    },
    (WAITING, e.TimerFired, starting.waiting_timer): {
        STAY: "enough slots, but waiting for more; or an attempt is still being killed",
        CREATING: "enough slots, and stable or waited for long enough",
        RETRYING: "too few slots at the wait timeout, and the creation-retry strategy allows another wait",
        FINISHED: "too few slots at the wait timeout, and the creation-retry strategy allows no other wait",
    },
    (WAITING, e.CancelRequested, ending.cancel_unstarted): {
        FINISHED: "canceled while nothing runs",
        CANCELING: "canceled while an attempt or its process may live",
    },
    (WAITING, e.VersionRequested, replacing.waiting_requested): {
        STAY: "the new version waits for an attempt that is being killed, or for slots",
        CREATING: "nothing is alive, and the slots that the new version desires are there",
    },
    (WAITING, e.GlobalFailure, ending.fail_unstarted): {
        FINISHED: "failed while nothing runs; no restart strategy is asked",
        FAILING: "failed while an attempt or its process may live",
    },
    # ---- CreatingExecutionGraph: slots are assigned, the driver is being started
    (CREATING, _BOUNDS, resources.replace_bounds): {STAY: "they count once the attempt runs"},
    (CREATING, e.SlotsChanged, starting.creating_slots): {
        STAY: "every planned slot is still held",
        WAITING: "a planned slot is gone: the attempt is killed",
    },
    (CREATING, e.AttemptRunning, (executing.creating_running, batch.begin)): {
        EXECUTING: "the driver registered and its queries run",
        STAY: "too late: the attempt is being killed",
    },
    (CREATING, e.StateRepartitioned, starting.creating_repartitioned): {
        STAY: "the state has the partitions that were asked for",
        WAITING: "the state was found with fewer partitions than the plan needs: another plan is made",
    },
    (CREATING, e.AttemptStartFailed, starting.creating_failed): {
        RETRYING: "it did not start: the creation-retry strategy allows another, or the cluster was unreachable",
        FINISHED: "the driver did not start, and the failure is final or the retries are used up",
    },
    (CREATING, (e.BatchCompleted, e.BatchAborted, e.PlanApplied, *_OF_REGIONS), None): {
        STAY: "reported before the start was; the start follows"
    },
    (CREATING, e.AttemptFailed, starting.creating_failed): {
        STAY: "the attempt failed while starting; what is left of it is killed",
        RETRYING: "it died: another is allowed, the cluster failed it or was unreachable, or a rescale is taken back",
        FINISHED: "the attempt died while starting, and the failure is final or the retries are used up",
    },
    (CREATING, e.AttemptMisplaced, starting.creating_misplaced): {
        STAY: "nothing of the attempt is alive, or it ends where it is",
        WAITING: "it is killed, and started anew where jobs run now",
    },
    (CREATING, e.AttemptStopped, starting.creating_stopped): {
        RETRYING: "it did not start, is dead, and another is allowed, or the cluster failed it or was unreachable",
        FINISHED: "the attempt that did not start is dead, and the failure is final or the retries are used up",
    },
    (CREATING, e.AttemptFinished, ending.attempt_finished): {
        FINISHED: "it ended before its start was reported"
    },
    (CREATING, e.TimerFired, starting.creating_timer): {
        STAY: "the start takes too long and is killed, or is killed again"
    },
    (CREATING, e.CancelRequested, ending.cancel): {CANCELING: "canceled; the driver that may live is killed"},
    (CREATING, e.VersionRequested, replacing.creating_requested): {WAITING: "the attempt before is killed"},
    (CREATING, e.GlobalFailure, starting.creating_global_failure): {
        STAY: "recoverable: the attempt is killed and counts as one that did not start",
        FAILING: "not recoverable: the driver that may live is killed",
    },
    # ---- RetryingExecutionGraphCreation: a backoff between two starts
    (RETRYING, ENTRY, None): {WAITING: "no backoff, or none because the cluster was unreachable"},
    (RETRYING, e.TimerFired, starting.retrying_timer): {WAITING: "the backoff is over"},
    (RETRYING, e.CancelRequested, ending.cancel_unstarted): {
        FINISHED: "canceled while nothing runs",
        CANCELING: "canceled while the process of the last attempt waits",
    },
    (RETRYING, e.VersionRequested, replacing.retrying_requested): {
        WAITING: "the new version is tried at once"
    },
    (RETRYING, e.GlobalFailure, ending.fail_unstarted): {
        FINISHED: "failed while nothing runs; no restart strategy is asked",
        FAILING: "failed while the process of the last attempt waits",
    },
    # ---- Executing: the job runs at the plan in force
    (EXECUTING, ENTRY, None): {
        RESCALING: "bounds or slots changed while the attempt was started, and the change can be made in place",
        RESTARTING: "the same, but the change needs a restart of the query, and nothing has to be waited for",
    },
    (EXECUTING, _BOUNDS, (executing.executing_bounds, batch.batch_bounds)): {
        STAY: "no other parallelism is attainable, or the change needs a restart and waits for its time",
        RESCALING: "another parallelism is attainable in place",
        RESTARTING: "another parallelism is attainable by a restart of the query, and its time has come",
    },
    (EXECUTING, e.SlotsChanged, (executing.executing_slots, resources.replace_slots)): {
        STAY: "no other parallelism is attainable, or it needs a restart, which waits for its time, or for the cluster",
        RESCALING: "more slots, or slots in use were lost or are for other jobs: the change can be made in place",
        RESTARTING: "another parallelism is attainable by a restart of the query, and its time has come",
    },
    (EXECUTING, e.StateRepartitioned, executing.executing_repartitioned): {
        STAY: "that of a query that started late",
        RESCALING: "bounds had waited for it",
        RESTARTING: "bounds had waited for it",
    },
    (EXECUTING, e.BatchCompleted, executing.executing_batch): {
        STAY: "no rescale waits for a batch",
        RESCALING: "a rescale in place was waiting for a committed batch, or one on trial is taken back in place",
        RESTARTING: "a rescale by restart was waiting for a committed batch, or one on trial is taken back so",
    },
    (EXECUTING, e.BatchAborted, executing.executing_batch_aborted): {
        STAY: "no rescale waits, or too few batches were given up yet",
        RESCALING: "a rescale in place was waiting, and so many batches were given up that it waits no longer",
        RESTARTING: "a rescale by restart was waiting, and so many batches were given up that it waits no longer",
    },
    (EXECUTING, e.PlanApplied, executing.executing_plan_applied): {STAY: "that rescale is complete"},
    (EXECUTING, e.RegionFinished, (None, batch.region_finished)): {
        STAY: "its results count; what waited for them starts"
    },
    (EXECUTING, e.RegionFailed, (None, batch.region_failed)): {
        STAY: "it runs again, with the producers of lost results, after the backoff",
        FAILING: "the failure is final, or the restart strategy allows no other run",
    },
    (EXECUTING, e.TimerFired, (executing.executing_timer, batch.batch_timer)): {
        STAY: "the rescale manager moves on, surplus slots go, a record closes, or bounds come back at their deadline",
        RESCALING: "the rescale in place has waited long enough, or a deadline changed what the job goes for",
        RESTARTING: "the rescale by restart has waited long enough, a deadline came, or a local failover took too long",
        FAILING: "a local failover took too long, and the restart strategy allows no restart",
    },
    # ---- Rescaling: a plan was sent to the running driver; the job keeps running
    (RESCALING, _BOUNDS, rescaling.rescaling_bounds): {
        STAY: "the target is replaced if the new bounds ask for another"
    },
    (RESCALING, e.SlotsChanged, rescaling.rescaling_slots): {
        STAY: "the target is replaced if a slot of it is lost"
    },
    (RESCALING, e.StateRepartitioned, repartition.found_late): {STAY: "a query that started late"},
    (RESCALING, e.BatchCompleted, rescaling.rescaling_batch): {
        STAY: "one query committed a batch; PlanApplied speaks for all"
    },
    (RESCALING, e.BatchAborted, None): {STAY: "a batch was given up; the plan is still being applied"},
    (RESCALING, e.PlanApplied, rescaling.rescaling_plan_applied): {
        EXECUTING: "every query commits its batches at the target, or is idle",
        RESTARTING: "batches are committed at the target, and Spark does not run a vertex at it",
        STAY: "an older plan was confirmed",
    },
    (RESCALING, e.TimerFired, rescaling.rescaling_timer): {
        STAY: "the plan is sent again, or surplus slots are given back",
        RESTARTING: "sent again, the driver commits batches at an older plan; or a local failover took too long",
        FAILING: "a local failover took too long, and the restart strategy allows no restart",
    },
    # ---- Executing and Rescaling, some of it in StopWithSavepoint as well: an attempt runs
    ((*_RUN, STOPPING), e.AttemptStartFailed, restarting.running_failed_as_a_whole): {
        RESTARTING: "nothing of the attempt is alive, and the restart strategy allows a restart",
        FAILING: "nothing of the attempt is alive, and the restart strategy allows no restart",
    },
    (_RUN, e.AttemptFailed, restarting.running_failed): {
        RESTARTING: "a failure: the restart strategy allows a restart, or a rescale on trial is taken back",
        FAILING: "a failure that is final, or the restart strategy allows no restart",
    },
    (_RUN, e.QueryFailed, local_failover.query_failed): {
        STAY: "the query alone is restarted, after the backoff (local failover); the others run on",
        RESTARTING: "that cannot be, and the restart strategy allows a restart; or a rescale is taken back",
        FAILING: "a failure that is final, or came too often, or the restart strategy allows no restart",
    },
    (_RUN, e.QueryRecovered, local_failover.query_recovered): {
        STAY: "a query that was restarted alone has committed a batch"
    },
    (_RUN, e.DriverContact, local_failover.driver_contact): {
        STAY: "the time of what was ordered begins when the driver is heard"
    },
    (_RUN, e.AttemptMisplaced, restarting.running_misplaced): {
        RESTARTING: "it is stopped, and started anew where jobs run now"
    },
    (_RUN, e.AttemptStopped, restarting.running_stopped): {
        RESTARTING: "the attempt stopped unasked, and the restart strategy allows a restart",
        FAILING: "the attempt stopped unasked, and the restart strategy allows no restart",
    },
    (_RUN, e.AttemptFinished, ending.attempt_finished): {
        FINISHED: "every source is exhausted and every batch committed"
    },
    ((*_RUN, STOPPING, RESTARTING, FAILING), e.CancelRequested, ending.cancel): {
        CANCELING: "a client canceled the job"
    },
    (_RUN, e.StopRequested, stopping.stop_requested): {STOPPING: "a client asked to stop the job"},
    (_RUN, e.VersionRequested, replacing.running_requested): {
        RESTARTING: "the attempt is stopped at a batch boundary; then the new version is started"
    },
    ((*_RUN, STOPPING), e.SuspendRequested, ending.suspend): {
        FINISHED: "given up by this control plane; the driver runs on"
    },
    ((*_RUN, STOPPING), e.GlobalFailure, restarting.running_failed_as_a_whole): {
        RESTARTING: "a failure of the whole job, and the restart strategy allows a restart",
        FAILING: "a failure that is final, or the restart strategy allows no restart",
    },
    # ---- StopWithSavepoint: the driver drains; then the job is finished
    (STOPPING, _BOUNDS, resources.replace_bounds): {STAY: "no effect unless the stop fails"},
    (STOPPING, e.SlotsChanged, resources.replace_slots): {STAY: "no effect unless the stop fails"},
    (STOPPING, e.BatchCompleted, stopping.stopping_batch): {STAY: "a batch was committed while draining"},
    (STOPPING, e.BatchAborted, None): {STAY: "a batch was given up while draining"},
    (STOPPING, e.PlanApplied, stopping.stopping_plan_applied): {STAY: "a plan sent before came into force"},
    (STOPPING, e.AttemptFailed, restarting.running_failed): {
        RESTARTING: "a failure while draining, and the restart strategy allows a restart",
        FAILING: "a failure while draining that is final, or no restart is allowed",
    },
    (STOPPING, e.QueryFailed, local_failover.stopping_query_failed): {
        RESTARTING: "a query that failed cannot be drained, and the restart strategy allows a restart",
        FAILING: "a failure that is final, or came too often, or the restart strategy allows no restart",
    },
    (STOPPING, e.AttemptStopped, stopping.stopping_stopped): {
        FINISHED: "drained: the checkpoint is complete",
        EXECUTING: "the drain failed and the attempt runs on",
        RESCALING: "the drain failed, the attempt runs on, and a plan sent before is not confirmed",
        RESTARTING: "the attempt died instead of draining, and the restart strategy allows a restart",
        FAILING: "the attempt died instead of draining, and the restart strategy allows no restart",
    },
    (STOPPING, e.AttemptFinished, ending.attempt_finished): {
        FINISHED: "every source was exhausted while draining"
    },
    (STOPPING, e.TimerFired, stopping.stopping_timer): {
        STAY: "told to drain again, or surplus slots are given back"
    },
    (STOPPING, e.StopRequested, stopping.stopping_requested): {STAY: "the same stop, asked again"},
    # ---- Restarting: the attempt is stopped, then a backoff runs
    (RESTARTING, ENTRY, None): {
        WAITING: "the attempt is dead already and there is no backoff",
        CREATING: "the attempt is dead already and the target is still attainable",
    },
    (RESTARTING, (e.AttemptStartFailed, e.AttemptFailed), restarting.restarting_failed): {
        STAY: "the backoff starts once nothing of the attempt is alive",
        CREATING: "no backoff, and the parallelism restarted for is still attainable",
        WAITING: "no backoff, and no target or not attainable any more",
    },
    (RESTARTING, (e.BatchCompleted, e.PlanApplied), restarting.restarting_batch): {
        STAY: "the last batch before the stop"
    },
    (RESTARTING, e.BatchAborted, None): {STAY: "the batch in flight was given up"},
    (RESTARTING, e.AttemptStopped, restarting.restarting_stopped): {
        STAY: "nothing of the attempt writes any more; the backoff starts",
        CREATING: "no backoff, and the parallelism restarted for is still attainable",
        WAITING: "no backoff, and no target or not attainable any more",
    },
    (RESTARTING, e.AttemptFinished, restarting.restarting_finished): {
        STAY: "told again",
        FINISHED: "the attempt had processed everything when it was stopped",
    },
    (RESTARTING, e.TimerFired, restarting.restarting_timer): {
        STAY: "the stop takes too long: the attempt is killed",
        CREATING: "the backoff is over, and the parallelism restarted for is still attainable",
        WAITING: "the backoff is over, and no target or not attainable any more",
    },
    (RESTARTING, e.VersionRequested, replacing.restarting_requested): {
        STAY: "the new version is started when nothing of the attempt is alive",
        WAITING: "nothing is alive: the new version is not kept waiting by the backoff",
    },
    (RESTARTING, e.GlobalFailure, restarting.restarting_global_failure): {STAY: "recorded"},
    # ---- Failing and Canceling: the attempt is killed, then the job is FAILED or CANCELED
    (_END, ENTRY, None): {FINISHED: "nothing is alive any more"},
    (_END, _BOUNDS, ending.ended_bounds): {STAY: "no effect: the job ends"},
    (_END, e.SlotsChanged, resources.replace_slots): {STAY: "no effect: the job ends"},
    (_END, (e.AttemptStartFailed, e.AttemptStopped, e.AttemptFinished), ending.ended_attempt_gone): {
        FINISHED: "nothing is alive any more"
    },
    (_END, e.AttemptFailed, ending.ended_attempt_gone): {
        STAY: "recorded",
        FINISHED: "nothing is alive any more",
    },
    (_END, e.TimerFired, ending.ended_timer): {STAY: "the attempt is killed again"},
    (_END, e.GlobalFailure, ending.note_failure): {STAY: "recorded"},
    (CANCELING, e.CancelRequested, None): {STAY: "asked again"},
    # ---- Finished: nothing changes any more
    (FINISHED, (e.SlotsChanged, e.CancelRequested, e.SuspendRequested, e.GlobalFailure), None): {
        STAY: "the job is over"
    },
    # ---- Several phases
    (PHASES[:-1], e.SlotShareUpdated, slot_declaration.take_share): {STAY: "the cluster is told"},
    ((CREATED, FINISHED), e.TimerFired, None): {STAY: "no timer is held"},
    ((CREATED, *_BEFORE_RUN, RESTARTING, *_END), e.SuspendRequested, ending.suspend): {
        FINISHED: "given up by this control plane"
    },
    ((WAITING, RETRYING, STOPPING, RESTARTING, *_END, FINISHED), e.AttemptMisplaced, None): {
        STAY: "nothing of the attempt is alive, or it ends where it is"
    },
    ((RETRYING, RESTARTING), _BOUNDS, resources.replace_bounds): {STAY: "they count after the backoff"},
    ((RETRYING, RESTARTING), e.SlotsChanged, resources.replace_slots): {STAY: "they count after the backoff"},
    ((RESTARTING, *_END), e.QueryFailed, ending.note_failure): {STAY: "recorded"},
    # ---- Reports that come late or twice
    ((WAITING, RETRYING, *_END, FINISHED), _REPORTS, None): {STAY: "late report of an attempt that is over"},
    (RESTARTING, (e.AttemptRunning, e.StateRepartitioned, *_OF_REGIONS), None): {STAY: "late report"},
    ((RETRYING, FINISHED), _GONE, None): {STAY: "late report of an attempt that is over"},
    ((*_RUN, STOPPING), e.AttemptRunning, None): {STAY: "told again"},
    (STOPPING, e.StateRepartitioned, None): {STAY: "told again"},
    ((*_BEFORE_RUN, FINISHED), e.QueryFailed, None): {STAY: "late report"},
    ((*_BEFORE_RUN, STOPPING, RESTARTING, *_END, FINISHED), (e.QueryRecovered, e.DriverContact), None): {
        STAY: "late report"
    },
}
