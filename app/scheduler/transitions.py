"""The transition table of a job's scheduler (FLIP-160 with production Flink's additions, and `Rescaling`).

Rule 1: a pair (phase, event) that is not in the table is refused by `InvalidTransition`, and nothing is changed.
Rule 2: a phase is left only along an edge of the table. A phase that lists itself may stay.
Rule 3: `ENTRY` stands for what a phase does at once when it is entered: one event may lead along several edges.

Not in the table, because they hold everywhere: an event of an earlier attempt and a timer that the state does not
hold any more are dropped; a requirements update with equal bounds changes nothing.

`app.scheduler.step` has it by pair.
"""

from __future__ import annotations

from typing import Any, Final

from app.scheduler.adaptive import (
    assumptions,
    ending,
    executing,
    failover,
    failures,
    growth,
    local_failover,
    repartition,
    rescaling,
    resources,
    restarting,
    slot_declaration,
    starting,
    stopping,
)
from app.scheduler.adaptive import events as e
from app.scheduler.adaptive.draft import ENTRY, Handler
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

# The bounds in force change.
_BOUNDS: Final = (e.RequirementsUpdated, e.ScalingPolicyUpdated)

# Of a program.
_QUERIES: Final = (e.QueryStarted, e.QueryEnded)
_VERSION: Final = (e.VersionRequested, e.EnvironmentReady)
_BUILDS: Final = "what it is to run in is built first, or cannot be"

# What an attempt reports while it is alive, and at its end.
_OF_REGIONS: Final = (e.RegionFinished, e.RegionFailed)
_REPORTS: Final = (
    e.GraphAnalysed,
    e.AttemptRunning,
    e.StateRepartitioned,
    *_QUERIES,
    e.BatchCompleted,
    e.PlanApplied,
    *_OF_REGIONS,
)
_GONE: Final = (e.AttemptStartFailed, e.AttemptFailed, e.AttemptStopped, e.AttemptFinished)

STAY: Final = "stay"

Handlers = Handler | tuple[Handler | None, Handler] | None
"""What an event does: in a job of either type, or (in a STREAMING job, in a BATCH job). None: nothing."""

# (phase or phases, event or events, handlers) -> {phase that can follow: when it does}. STAY: the phase is not left.
TRANSITIONS: Final[dict[tuple[str | tuple[str, ...], Any, Handlers], dict[str, str]]] = {
    # ---- Created: durable, not scheduled yet
    (CREATED, e.StartScheduling, starting.created_start): {WAITING: "scheduled: its slots are declared"},
    (CREATED, _BOUNDS, resources.created_bounds): {STAY: "the bounds apply when scheduling starts"},
    (CREATED, e.SlotsChanged, resources.replace_slots): {STAY: "the slots are recorded"},
    (CREATED, e.CancelRequested, ending.cancel_unstarted): {FINISHED: "canceled before it ever ran"},
    (CREATED, e.GlobalFailure, ending.fail_unstarted): {FINISHED: "failed before it ever ran"},
    # ---- WaitingForResources: slots are declared, nothing runs
    (WAITING, ENTRY, starting.waiting_entered): {CREATING: "the desired slots are there already"},
    (WAITING, _BOUNDS, starting.waiting_bounds): {
        STAY: "too few slots for the new bounds, or enough but not yet stable",
        CREATING: "all slots that the new bounds desire are there",
    },
    (WAITING, e.SlotsChanged, starting.waiting_slots): {
        STAY: "too few slots, or enough but not yet stable, or the cluster is unreachable",
        CREATING: "all desired slots are there",
    },
    (WAITING, (e.AttemptStartFailed, e.AttemptStopped, e.AttemptFailed), starting.waiting_attempt_gone): {
        STAY: "the attempt that was given up is dead or failed; too few slots for another attempt",
        CREATING: "the attempt that was given up is dead, and the desired slots are there",
    },
    (WAITING, e.AttemptFinished, starting.waiting_finished): {
        STAY: "repeated report",
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
    (WAITING, _VERSION, starting.waiting_requested): {
        STAY: "the new version waits for an attempt that is being killed, for slots, or for what it is to run in",
        CREATING: "no process is alive, and the slots that the new version desires are there",
    },
    (WAITING, e.GlobalFailure, ending.fail_unstarted): {
        FINISHED: "failed while nothing runs; no restart strategy is asked",
        FAILING: "failed while an attempt or its process may live",
    },
    # ---- CreatingExecutionGraph: slots are assigned, the driver is being started
    (CREATING, _BOUNDS, resources.replace_bounds): {STAY: "the bounds apply once the attempt runs"},
    (CREATING, e.SlotsChanged, starting.creating_slots): {
        STAY: "every planned slot is still held; or one is gone, and the attempt is killed"
    },
    (CREATING, e.DriverReady, starting.creating_ready): {
        STAY: "the plan is made again, with the slots of now"
    },
    (CREATING, e.GraphAnalysed, assumptions.creating_analysed): {
        STAY: "the driver has reported which vertices keep state"
    },
    (CREATING, e.AttemptRunning, (executing.creating_running, batch.begin)): {
        EXECUTING: "the driver has registered and its queries run, or its program has begun",
        STAY: "too late: the attempt is being killed",
    },
    (CREATING, e.StateRepartitioned, starting.creating_repartitioned): {
        STAY: "the state has the partitions that were asked for",
        WAITING: "the state was found with fewer partitions than the plan needs: another plan is made",
    },
    (CREATING, e.AttemptStartFailed, starting.creating_failed): {
        RETRYING: "it did not start; the creation-retry strategy allows another attempt, or the cluster is to blame",
        FINISHED: "the driver did not start, and the failure is final or the retries are used up",
    },
    (CREATING, (e.BatchCompleted, e.PlanApplied, *_OF_REGIONS), None): {
        STAY: "came before the report of the start, which follows"
    },
    (CREATING, e.AttemptFailed, starting.creating_failed): {
        STAY: "the attempt failed while starting; its processes are killed",
        RETRYING: "it died; another attempt is allowed, the cluster is to blame, or a change is taken back",
        FINISHED: "the attempt died while starting, and the failure is final or the retries are used up",
    },
    (CREATING, e.AttemptMisplaced, starting.creating_misplaced): {
        STAY: "no process of the attempt is alive, or it ends on its cluster",
        WAITING: "the attempt is killed; the next one starts on the cluster of the settings",
    },
    (CREATING, e.AttemptStopped, starting.creating_stopped): {
        RETRYING: "the attempt did not start and is dead; another is allowed, or the cluster is to blame",
        FINISHED: "the attempt that did not start is dead, and the failure is final or the retries are used up",
    },
    (CREATING, e.AttemptFinished, ending.attempt_finished): {
        FINISHED: "the attempt ended before its start was reported"
    },
    (CREATING, e.TimerFired, starting.creating_timer): {
        STAY: "the start takes too long: the attempt is killed, or killed again"
    },
    (CREATING, e.CancelRequested, ending.cancel): {
        CANCELING: "canceled; the driver, if it is alive, is killed"
    },
    (CREATING, _VERSION, starting.creating_requested): {STAY: _BUILDS, WAITING: "the attempt is killed"},
    (CREATING, e.GlobalFailure, starting.creating_global_failure): {
        STAY: "recoverable: the attempt is killed and counts as one that did not start",
        FAILING: "not recoverable: the driver, if it is alive, is killed",
    },
    # ---- RetryingExecutionGraphCreation: a backoff between two starts
    (RETRYING, ENTRY, starting.retrying_entered): {WAITING: "there is no backoff"},
    (RETRYING, e.TimerFired, starting.retrying_timer): {WAITING: "the backoff is over"},
    (RETRYING, e.CancelRequested, ending.cancel_unstarted): {
        FINISHED: "canceled while nothing runs",
        CANCELING: "canceled while the process of the last attempt waits",
    },
    (RETRYING, _VERSION, starting.retrying_requested): {STAY: _BUILDS, WAITING: "it is tried at once"},
    (RETRYING, e.GlobalFailure, ending.fail_unstarted): {
        FINISHED: "failed while nothing runs; no restart strategy is asked",
        FAILING: "failed while the process of the last attempt waits",
    },
    # ---- Executing: the job runs at the plan in force
    (EXECUTING, ENTRY, executing.executing_entered): {
        RESCALING: "bounds or slots changed while the attempt was started, and the change can be made in place",
        RESTARTING: "bounds or slots changed while the attempt was started, and the change needs a restart",
    },
    (EXECUTING, _BOUNDS, (executing.executing_bounds, batch.batch_bounds)): {
        STAY: "no other parallelism is attainable, or it needs a restart, which has to wait",
        RESCALING: "another parallelism is attainable in place",
        RESTARTING: "another parallelism is attainable by a restart of the query, which is due",
    },
    (EXECUTING, e.SlotsChanged, (executing.executing_slots, resources.replace_slots)): {
        STAY: "no other parallelism is attainable, or it needs a restart, which has to wait",
        RESCALING: "slots were added, lost, or given to other jobs, and the change can be made in place",
        RESTARTING: "another parallelism is attainable by a restart of the query, which is due",
    },
    (EXECUTING, e.StateRepartitioned, executing.executing_repartitioned): {
        STAY: "a query of a program has reported its state partitions",
        RESCALING: "bounds waited for this number, and the change can be made in place",
        RESTARTING: "bounds waited for this number, and the change needs a restart",
    },
    (EXECUTING, _QUERIES, executing.executing_query): {
        STAY: "the program has started or ended a query; no other parallelism is attainable, or it needs a restart",
        RESCALING: "the job needs other slots now, and the change can be made in place",
        RESTARTING: "the job needs other slots now, and the change needs a restart, which is due",
    },
    (EXECUTING, e.BatchCompleted, executing.executing_batch): {
        STAY: "no rescale waits for a batch",
        RESCALING: "a rescale in place waited for a committed batch, or a rescale on trial is taken back in place",
        RESTARTING: "a rescale by restart waited for a committed batch, or a rescale on trial is taken back by restart",
    },
    (EXECUTING, e.PlanApplied, executing.executing_plan_applied): {STAY: "the rescale in place is complete"},
    (EXECUTING, e.RegionFinished, (None, batch.region_finished)): {
        STAY: "regions that waited for its results start"
    },
    (EXECUTING, e.RegionFailed, (None, batch.region_failed)): {
        STAY: "the region and the producers of lost results run again after the backoff",
        FAILING: "the failure is final, or the restart strategy allows no other run of the region",
    },
    (EXECUTING, e.TimerFired, (executing.executing_timer, batch.batch_timer)): {
        STAY: "the rescale manager enters a stage, surplus slots go back, a record ends, or a deadline restores bounds",
        RESCALING: "a rescale in place has waited long enough, or a deadline changed the bounds in force",
        RESTARTING: "a rescale by restart or a local failover has taken long enough, or a deadline changed the bounds",
        FAILING: "a local failover took too long, and the restart strategy allows no restart",
    },
    # ---- Rescaling: a plan was sent to the running driver; the job keeps running
    (RESCALING, _BOUNDS, rescaling.rescaling_bounds): {STAY: "the target is replaced if need be"},
    (RESCALING, e.SlotsChanged, rescaling.rescaling_slots): {STAY: "the target is replaced if need be"},
    ((RESCALING, STOPPING, RESTARTING), e.StateRepartitioned, repartition.take_partitions_found_late): {
        STAY: "a query of a program has reported its state partitions"
    },
    (RESCALING, _QUERIES, rescaling.rescaling_query): {STAY: "the target is replaced if need be"},
    (RESCALING, e.BatchCompleted, rescaling.rescaling_batch): {STAY: "of one query; `PlanApplied` is of all"},
    (RESCALING, e.PlanApplied, rescaling.rescaling_plan_applied): {
        EXECUTING: "every query has committed a batch at the target, or is idle",
        RESTARTING: "every query committed a batch, but Spark does not run a vertex at the target",
        STAY: "an older plan was confirmed",
    },
    (RESCALING, e.TimerFired, rescaling.rescaling_timer): {
        STAY: "the plan is sent again, or surplus slots are given back",
        RESTARTING: "batches still come at an older plan, or a local failover took too long",
        FAILING: "a local failover took too long, and the restart strategy allows no restart",
    },
    # ---- Executing and Rescaling, some of it in StopWithSavepoint as well: an attempt runs
    ((*_RUN, STOPPING), e.AttemptStartFailed, failover.running_failed_as_a_whole): {
        RESTARTING: "no process of the attempt is alive, and the restart strategy allows a restart",
        FAILING: "no process of the attempt is alive, and the restart strategy allows no restart",
    },
    (_RUN, e.AttemptFailed, failover.running_failed): {
        RESTARTING: "a failure: the restart strategy allows a restart, or a rescale on trial is taken back",
        FAILING: "a failure that is final, or the restart strategy allows no restart",
    },
    (_RUN, e.QueryFailed, local_failover.query_failed): {
        STAY: "the query alone is restarted, after the backoff (local failover); the others run on",
        RESTARTING: "it cannot be restarted alone, and the job may be restarted; or a rescale is taken back",
        FAILING: "a failure that is final, or came too often, or the restart strategy allows no restart",
    },
    (_RUN, e.QueryRecovered, local_failover.query_recovered): {
        STAY: "a query that was restarted alone has committed a batch"
    },
    (_RUN, e.DriverContact, local_failover.driver_contact): {
        STAY: "the timeout of a query's restart begins when its driver is in contact"
    },
    (_RUN, e.AttemptMisplaced, failover.running_misplaced): {
        RESTARTING: "the attempt is stopped; the next one starts on the cluster of the settings"
    },
    (_RUN, e.AttemptStopped, failover.running_stopped): {
        RESTARTING: "the attempt stopped without a request, and the restart strategy allows a restart",
        FAILING: "the attempt stopped without a request, and the restart strategy allows no restart",
    },
    (_RUN, e.AttemptFinished, ending.attempt_finished): {
        FINISHED: "every source is exhausted and every batch committed"
    },
    ((*_RUN, STOPPING, RESTARTING, FAILING), e.CancelRequested, ending.cancel): {CANCELING: "by a client"},
    (_RUN, e.StopRequested, stopping.stop_requested): {STOPPING: "a client asked to stop the job"},
    (_RUN, _VERSION, failover.running_requested): {
        STAY: _BUILDS,
        RESTARTING: "the attempt is stopped at a batch boundary; then the new version is started",
    },
    ((*_RUN, STOPPING), e.GlobalFailure, failover.running_failed_as_a_whole): {
        RESTARTING: "a failure of the whole job, and the restart strategy allows a restart",
        FAILING: "a failure that is final, or the restart strategy allows no restart",
    },
    # ---- StopWithSavepoint: the driver drains; then the job is finished
    (STOPPING, _BOUNDS, resources.replace_bounds): {STAY: "no effect unless the stop fails"},
    (STOPPING, e.SlotsChanged, resources.replace_slots): {STAY: "no effect unless the stop fails"},
    (STOPPING, e.BatchCompleted, stopping.stopping_batch): {STAY: "a batch was committed while draining"},
    (STOPPING, e.PlanApplied, stopping.stopping_plan_applied): {STAY: "a plan sent before came into force"},
    (STOPPING, e.AttemptFailed, failover.running_failed): {
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
        STAY: "the driver is told to drain again, or surplus slots are given back"
    },
    (STOPPING, e.StopRequested, stopping.stopping_requested): {STAY: "repeated request"},
    # ---- Restarting: the attempt is stopped, then a backoff runs
    (RESTARTING, ENTRY, restarting.restarting_entered): {
        WAITING: "the attempt is dead and there is no backoff",
        CREATING: "the attempt is dead, and the target is still attainable",
    },
    (RESTARTING, (e.AttemptStartFailed, e.AttemptFailed), restarting.restarting_failed): {
        STAY: "the backoff starts once no process of the attempt is alive",
        CREATING: "no backoff, and the target is still attainable",
        WAITING: "no backoff; there is no target, or it is not attainable any more",
    },
    (RESTARTING, (e.BatchCompleted, e.PlanApplied), restarting.restarting_batch): {
        STAY: "the last batch before the stop"
    },
    (RESTARTING, e.AttemptStopped, restarting.restarting_stopped): {
        STAY: "nothing of the attempt writes any more; the backoff starts",
        CREATING: "no backoff, and the target is still attainable",
        WAITING: "no backoff; there is no target, or it is not attainable any more",
    },
    (RESTARTING, e.AttemptFinished, restarting.restarting_finished): {
        STAY: "repeated report",
        FINISHED: "the attempt had processed everything when it was stopped",
    },
    (RESTARTING, e.TimerFired, restarting.restarting_timer): {
        STAY: "the stop takes too long: the attempt is killed",
        CREATING: "the backoff is over, and the target is still attainable",
        WAITING: "the backoff is over; there is no target, or it is not attainable any more",
    },
    (RESTARTING, _VERSION, restarting.restarting_requested): {
        STAY: "the new version is started when no process of the attempt is alive, and it has what it is to run in",
        WAITING: "no process is alive; the new version does not wait for the backoff",
    },
    (RESTARTING, e.GlobalFailure, restarting.restarting_global_failure): {STAY: "failure recorded"},
    # ---- Failing and Canceling: the attempt is killed, then the job is FAILED or CANCELED
    (_END, ENTRY, None): {FINISHED: "no process of the attempt is alive"},
    (_END, _BOUNDS, ending.ended_bounds): {STAY: "no effect: the job ends"},
    (_END, e.SlotsChanged, resources.replace_slots): {STAY: "no effect: the job ends"},
    (_END, (e.AttemptStartFailed, e.AttemptStopped, e.AttemptFinished), ending.ended_attempt_gone): {
        FINISHED: "no process of the attempt is alive"
    },
    (_END, e.AttemptFailed, ending.ended_attempt_gone): {
        STAY: "failure recorded",
        FINISHED: "no process of the attempt is alive",
    },
    (_END, e.TimerFired, ending.ended_timer): {STAY: "the attempt is killed again"},
    (_END, e.GlobalFailure, failures.note_failure): {STAY: "failure recorded"},
    (CANCELING, e.CancelRequested, None): {STAY: "repeated request"},
    # ---- Finished: nothing changes any more
    (FINISHED, (e.SlotsChanged, e.CancelRequested, e.GlobalFailure), None): {STAY: "the job is over"},
    # ---- Several phases
    (PHASES[:-1], e.SlotShareUpdated, slot_declaration.take_share): {STAY: "the slot broker is told"},
    ((CREATED, FINISHED), e.TimerFired, None): {STAY: "no timer is held"},
    ((WAITING, RETRYING, STOPPING, RESTARTING, *_END, FINISHED), e.AttemptMisplaced, None): {
        STAY: "no process of the attempt is alive, or it ends on its cluster"
    },
    ((RETRYING, RESTARTING), _BOUNDS, resources.replace_bounds): {STAY: "the bounds apply after the backoff"},
    ((RETRYING, RESTARTING), e.SlotsChanged, resources.replace_slots): {STAY: "used after the backoff"},
    ((RESTARTING, *_END), e.QueryFailed, failures.note_failure): {STAY: "failure recorded"},
    # ---- Reports that come late or twice
    ((WAITING, RETRYING, *_END, FINISHED), _REPORTS, None): {STAY: "late report of an attempt that is over"},
    (RESTARTING, (e.GraphAnalysed, e.AttemptRunning, *_OF_REGIONS), None): {STAY: "late report"},
    ((CREATING, STOPPING, RESTARTING), _QUERIES, growth.take_query_event): {
        STAY: "a query has started or ended"
    },
    ((RETRYING, FINISHED), _GONE, None): {STAY: "late report of an attempt that is over"},
    ((*_RUN, STOPPING), (e.GraphAnalysed, e.AttemptRunning), None): {STAY: "repeated report"},
    ((*_BEFORE_RUN, FINISHED), e.QueryFailed, None): {STAY: "late report"},
    ((*_BEFORE_RUN, STOPPING, RESTARTING, *_END, FINISHED), (e.QueryRecovered, e.DriverContact), None): {
        STAY: "late report"
    },
}
