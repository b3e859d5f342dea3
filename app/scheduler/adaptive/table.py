"""The transition table of the streaming scheduler (FLIP-160 with production Flink's additions, and `Rescaling`).

Rule 1: a pair (phase, event) that is not in the table is refused by `InvalidTransition`, and nothing is changed.
Rule 2: a phase is left only along an edge of the table. A phase that lists itself may stay.
Rule 3: `ENTRY` stands for what a phase does at once when it is entered: one event may lead along several edges.

Not in the table, because they hold everywhere: an event of an earlier attempt and a timer that the state does not
hold any more are dropped; a requirements update with equal bounds changes nothing.

`edges.describe_edges` gives the edges with their comments, from which the diagram and the pages per state are made.
"""

from __future__ import annotations

from typing import Final

from app.scheduler.adaptive.events import Event
from app.scheduler.adaptive.version_edges import VERSION_EDGES

ENTRY: Final = "Entry"
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

PHASES: Final = (
    CREATED,
    WAITING,
    CREATING,
    RETRYING,
    EXECUTING,
    RESCALING,
    STOPPING,
    RESTARTING,
    FAILING,
    CANCELING,
    FINISHED,
)

STAY: Final = "stay"

# (phase, event) -> {phase that can follow: when it does}. STAY: the phase is not left.
_TABLE: Final[dict[tuple[str, str], dict[str, str]]] = {
    # ---- Created: durable, not scheduled yet
    (CREATED, "StartScheduling"): {WAITING: "the job is scheduled: its slots are declared"},
    (CREATED, "RequirementsUpdated"): {STAY: "the bounds are replaced; they count when scheduling starts"},
    (CREATED, "SlotsChanged"): {STAY: "the slots are noted"},
    (CREATED, "TimerFired"): {STAY: "no timer is held"},
    (CREATED, "CancelRequested"): {FINISHED: "canceled before it ever ran"},
    (CREATED, "SuspendRequested"): {FINISHED: "this control plane gives the job up"},
    (CREATED, "GlobalFailure"): {FINISHED: "failed before it ever ran; no restart strategy is asked"},
    # ---- WaitingForResources: slots are declared, nothing runs
    (WAITING, ENTRY): {CREATING: "the desired slots are there already"},
    (WAITING, "SlotsChanged"): {
        STAY: "too few slots, or enough but not yet stable; none is counted on while the cluster is unreachable",
        CREATING: "all desired slots are there",
    },
    (WAITING, "RequirementsUpdated"): {
        STAY: "too few slots for the new bounds, or enough but not yet stable",
        CREATING: "all slots that the new bounds desire are there",
    },
    (WAITING, "TimerFired"): {
        STAY: "enough slots, but waiting for more; or an attempt is still being killed",
        CREATING: "enough slots, and stable or waited for long enough",
        RETRYING: "too few slots at the wait timeout, and the creation-retry strategy allows another wait",
        FINISHED: "too few slots at the wait timeout, and the creation-retry strategy allows no other wait",
    },
    (WAITING, "AttemptRunning"): {STAY: "late report of an attempt that was given up"},
    (WAITING, "AttemptStartFailed"): {
        STAY: "the attempt that was given up is dead; too few slots for another",
        CREATING: "the attempt that was given up is dead, and the desired slots are there",
    },
    (WAITING, "AttemptStopped"): {
        STAY: "the attempt that was given up is dead; too few slots for another",
        CREATING: "the attempt that was given up is dead, and the desired slots are there",
    },
    (WAITING, "AttemptFailed"): {
        STAY: "the attempt that was given up failed; too few slots for another",
        CREATING: "the attempt that was given up is dead, and the desired slots are there",
    },
    (WAITING, "AttemptFinished"): {
        STAY: "told again",
        FINISHED: "the attempt that was given up had processed everything",
    },
    (WAITING, "BatchCompleted"): {STAY: "late report of an attempt that was given up"},
    (WAITING, "BatchAborted"): {STAY: "late report of an attempt that was given up"},
    (WAITING, "PlanApplied"): {STAY: "late report of an attempt that was given up"},
    (WAITING, "CancelRequested"): {
        FINISHED: "canceled while nothing runs",
        CANCELING: "canceled while an attempt or its process may live",
    },
    (WAITING, "SuspendRequested"): {FINISHED: "this control plane gives the job up"},
    (WAITING, "GlobalFailure"): {
        FINISHED: "failed while nothing runs; no restart strategy is asked",
        FAILING: "failed while an attempt or its process may live",
    },
    # ---- CreatingExecutionGraph: slots are assigned, the driver is being started
    (CREATING, "AttemptRunning"): {
        EXECUTING: "the driver registered and its queries run",
        STAY: "too late: the attempt is being killed",
    },
    (CREATING, "StateRepartitioned"): {
        STAY: "the state has the partitions that were asked for",
        WAITING: "the state was found with fewer partitions than the plan needs: another plan is made",
    },
    (CREATING, "AttemptStartFailed"): {
        RETRYING: "it did not start: the creation-retry strategy allows another, or the cluster was unreachable",
        FINISHED: "the driver did not start, and the failure is final or the retries are used up",
    },
    (CREATING, "AttemptFailed"): {
        STAY: "the attempt failed while starting; what is left of it is killed",
        RETRYING: "it died: another is allowed, the cluster failed it or was unreachable, or a rescale is taken back",
        FINISHED: "the attempt died while starting, and the failure is final or the retries are used up",
    },
    (CREATING, "AttemptStopped"): {
        RETRYING: "it did not start, is dead, and another is allowed, or the cluster failed it or was unreachable",
        FINISHED: "the attempt that did not start is dead, and the failure is final or the retries are used up",
    },
    (CREATING, "AttemptFinished"): {FINISHED: "a bounded job ended before its start was reported"},
    (CREATING, "TimerFired"): {STAY: "the start takes too long and is killed, or is killed again"},
    (CREATING, "SlotsChanged"): {
        STAY: "every planned slot is still held",
        WAITING: "a planned slot is gone: the attempt is killed",
    },
    (CREATING, "RequirementsUpdated"): {STAY: "the new bounds count once the attempt runs"},
    (CREATING, "BatchCompleted"): {STAY: "reported before the start was; the start follows"},
    (CREATING, "BatchAborted"): {STAY: "reported before the start was; the start follows"},
    (CREATING, "PlanApplied"): {STAY: "reported before the start was; the start follows"},
    (CREATING, "CancelRequested"): {CANCELING: "canceled; the driver that may live is killed"},
    (CREATING, "SuspendRequested"): {FINISHED: "this control plane gives the job up"},
    (CREATING, "GlobalFailure"): {
        STAY: "recoverable: the attempt is killed and counts as one that did not start",
        FAILING: "not recoverable: the driver that may live is killed",
    },
    # ---- RetryingExecutionGraphCreation: a backoff between two starts
    (RETRYING, "TimerFired"): {WAITING: "the backoff is over"},
    (RETRYING, ENTRY): {WAITING: "the backoff is zero, or there is none as the cluster was unreachable"},
    (RETRYING, "SlotsChanged"): {STAY: "the slots are noted; they count after the backoff"},
    (RETRYING, "RequirementsUpdated"): {STAY: "the bounds are noted; they count after the backoff"},
    (RETRYING, "AttemptRunning"): {STAY: "late report of an attempt that is over"},
    (RETRYING, "AttemptStartFailed"): {STAY: "told again"},
    (RETRYING, "AttemptStopped"): {STAY: "told again"},
    (RETRYING, "AttemptFailed"): {STAY: "late report of an attempt that is over"},
    (RETRYING, "AttemptFinished"): {STAY: "late report of an attempt that is over"},
    (RETRYING, "BatchCompleted"): {STAY: "late report of an attempt that is over"},
    (RETRYING, "BatchAborted"): {STAY: "late report of an attempt that is over"},
    (RETRYING, "PlanApplied"): {STAY: "late report of an attempt that is over"},
    (RETRYING, "CancelRequested"): {
        FINISHED: "canceled while nothing runs",
        CANCELING: "canceled while the process of the last attempt waits",
    },
    (RETRYING, "SuspendRequested"): {FINISHED: "this control plane gives the job up"},
    (RETRYING, "GlobalFailure"): {
        FINISHED: "failed while nothing runs; no restart strategy is asked",
        FAILING: "failed while the process of the last attempt waits",
    },
    # ---- Executing: the job runs at the plan in force
    (EXECUTING, ENTRY): {
        RESCALING: "bounds or slots changed while the attempt was started, and the change can be made in place",
        RESTARTING: "the same, but the change needs a restart of the query, and nothing has to be waited for",
    },
    (EXECUTING, "RequirementsUpdated"): {
        STAY: "no other parallelism is attainable, or the change needs a restart and waits for its time",
        RESCALING: "another parallelism is attainable in place",
        RESTARTING: "another parallelism is attainable by a restart of the query, and its time has come",
    },
    (EXECUTING, "SlotsChanged"): {
        STAY: "no other parallelism is attainable, or it needs a restart, which waits for its time, or for the cluster",
        RESCALING: "more slots, or slots in use were lost or are for other jobs: the change can be made in place",
        RESTARTING: "another parallelism is attainable by a restart of the query, and its time has come",
    },
    (EXECUTING, "BatchCompleted"): {
        STAY: "no rescale waits for a batch",
        RESCALING: "a rescale in place was waiting for a committed batch, or one on trial is taken back in place",
        RESTARTING: "a rescale by restart was waiting for a committed batch, or one on trial is taken back so",
    },
    (EXECUTING, "BatchAborted"): {
        STAY: "no rescale waits, or too few batches were given up yet",
        RESCALING: "a rescale in place was waiting, and so many batches were given up that it waits no longer",
        RESTARTING: "a rescale by restart was waiting, and so many batches were given up that it waits no longer",
    },
    (EXECUTING, "PlanApplied"): {STAY: "the plan in force is confirmed: that rescale is complete"},
    (EXECUTING, "RegionFinished"): {STAY: "its results count (BATCH); what waited for them starts"},
    (EXECUTING, "RegionFailed"): {
        STAY: "it runs again (BATCH), with the producers of lost results, after the backoff",
        FAILING: "the failure is final, or the restart strategy allows no other run",
    },
    (EXECUTING, "TimerFired"): {
        STAY: "the rescale manager moves on, surplus slots are given back, or a record closes",
        RESCALING: "the rescale in place has waited long enough",
        RESTARTING: "the rescale by restart has waited long enough, or a local failover took too long",
        FAILING: "a local failover took too long, and the restart strategy allows no restart",
    },
    (EXECUTING, "AttemptRunning"): {STAY: "told again"},
    (EXECUTING, "AttemptFailed"): {
        RESTARTING: "a failure: the restart strategy allows a restart, or a rescale on trial is taken back",
        FAILING: "a failure that is final, or the restart strategy allows no restart",
    },
    (EXECUTING, "QueryFailed"): {
        STAY: "the query alone is restarted, after the backoff (local failover); the others run on",
        RESTARTING: "that cannot be, and the restart strategy allows a restart; or a rescale is taken back",
        FAILING: "a failure that is final, or came too often, or the restart strategy allows no restart",
    },
    (EXECUTING, "AttemptStartFailed"): {
        RESTARTING: "nothing of the attempt is alive, and the restart strategy allows a restart",
        FAILING: "nothing of the attempt is alive, and the restart strategy allows no restart",
    },
    (EXECUTING, "AttemptStopped"): {
        RESTARTING: "the attempt stopped unasked, and the restart strategy allows a restart",
        FAILING: "the attempt stopped unasked, and the restart strategy allows no restart",
    },
    (EXECUTING, "AttemptFinished"): {FINISHED: "every source is exhausted and every batch committed"},
    (EXECUTING, "StopRequested"): {STOPPING: "a client asked to stop at a batch boundary"},
    (EXECUTING, "CancelRequested"): {CANCELING: "a client canceled the job"},
    (EXECUTING, "SuspendRequested"): {FINISHED: "this control plane gives the job up; the driver runs on"},
    (EXECUTING, "GlobalFailure"): {
        RESTARTING: "a failure of the whole job, and the restart strategy allows a restart",
        FAILING: "a failure that is final, or the restart strategy allows no restart",
    },
    # ---- Rescaling: a plan was sent to the running driver; the job keeps running
    (RESCALING, "PlanApplied"): {
        EXECUTING: "every query commits its batches at the target, or is idle",
        RESTARTING: "batches are committed at the target, and Spark does not run a vertex at it",
        STAY: "an older plan was confirmed",
    },
    (RESCALING, "RequirementsUpdated"): {STAY: "the target is replaced if the new bounds ask for another"},
    (RESCALING, "SlotsChanged"): {STAY: "the target is replaced if it needs a slot that was lost"},
    (RESCALING, "TimerFired"): {
        STAY: "the plan is sent again, or surplus slots are given back",
        RESTARTING: "sent again, the driver commits batches at an older plan; or a local failover took too long",
        FAILING: "a local failover took too long, and the restart strategy allows no restart",
    },
    (RESCALING, "BatchCompleted"): {STAY: "one query committed a batch; PlanApplied speaks for all"},
    (RESCALING, "BatchAborted"): {STAY: "a batch was given up; the plan is still being applied"},
    (RESCALING, "AttemptRunning"): {STAY: "told again"},
    (RESCALING, "AttemptFailed"): {
        RESTARTING: "a failure: the restart strategy allows a restart, or a rescale on trial is taken back",
        FAILING: "a failure that is final, or the restart strategy allows no restart",
    },
    (RESCALING, "AttemptStartFailed"): {
        RESTARTING: "nothing of the attempt is alive, and the restart strategy allows a restart",
        FAILING: "nothing of the attempt is alive, and the restart strategy allows no restart",
    },
    (RESCALING, "AttemptStopped"): {
        RESTARTING: "the attempt stopped unasked, and the restart strategy allows a restart",
        FAILING: "the attempt stopped unasked, and the restart strategy allows no restart",
    },
    (RESCALING, "AttemptFinished"): {FINISHED: "every source is exhausted and every batch committed"},
    (RESCALING, "StopRequested"): {STOPPING: "a client asked to stop at a batch boundary"},
    (RESCALING, "CancelRequested"): {CANCELING: "a client canceled the job"},
    (RESCALING, "SuspendRequested"): {FINISHED: "this control plane gives the job up; the driver runs on"},
    # ---- StopWithSavepoint: the driver drains; then the job is finished
    (STOPPING, "AttemptStopped"): {
        FINISHED: "drained: the checkpoint is complete",
        EXECUTING: "the drain failed and the attempt runs on",
        RESCALING: "the drain failed, the attempt runs on, and a plan sent before is not confirmed",
        RESTARTING: "the attempt died instead of draining, and the restart strategy allows a restart",
        FAILING: "the attempt died instead of draining, and the restart strategy allows no restart",
    },
    (STOPPING, "AttemptFinished"): {FINISHED: "every source was exhausted while draining"},
    (STOPPING, "AttemptFailed"): {
        RESTARTING: "a failure while draining, and the restart strategy allows a restart",
        FAILING: "a failure while draining that is final, or no restart is allowed",
    },
    (STOPPING, "AttemptStartFailed"): {
        RESTARTING: "nothing of the attempt is alive, and the restart strategy allows a restart",
        FAILING: "nothing of the attempt is alive, and the restart strategy allows no restart",
    },
    (STOPPING, "RequirementsUpdated"): {STAY: "no effect unless the stop fails"},
    (STOPPING, "SlotsChanged"): {STAY: "no effect unless the stop fails"},
    (STOPPING, "TimerFired"): {STAY: "the driver is told to drain again, or surplus slots are given back"},
    (STOPPING, "BatchCompleted"): {STAY: "a batch was committed while draining"},
    (STOPPING, "BatchAborted"): {STAY: "a batch was given up while draining"},
    (STOPPING, "PlanApplied"): {STAY: "a plan sent before the stop came into force"},
    (STOPPING, "AttemptRunning"): {STAY: "told again"},
    (STOPPING, "StopRequested"): {STAY: "the same stop, asked again"},
    (STOPPING, "CancelRequested"): {CANCELING: "a client canceled the job"},
    (STOPPING, "SuspendRequested"): {FINISHED: "this control plane gives the job up; the driver runs on"},
    # ---- Restarting: the attempt is stopped, then a backoff runs
    (RESTARTING, ENTRY): {
        WAITING: "the attempt is dead already and there is no backoff",
        CREATING: "the attempt is dead already and the target is still attainable",
    },
    (RESTARTING, "AttemptStopped"): {
        STAY: "nothing of the attempt writes any more; the backoff starts",
        CREATING: "no backoff, and the parallelism restarted for is still attainable",
        WAITING: "no backoff, and no target or not attainable any more",
    },
    (RESTARTING, "AttemptStartFailed"): {
        STAY: "nothing of the attempt is alive; the backoff starts",
        CREATING: "no backoff, and the parallelism restarted for is still attainable",
        WAITING: "no backoff, and no target or not attainable any more",
    },
    (RESTARTING, "AttemptFailed"): {
        STAY: "recorded; if nothing of the attempt is alive the backoff starts",
        CREATING: "no backoff, and the parallelism restarted for is still attainable",
        WAITING: "no backoff, and no target or not attainable any more",
    },
    (RESTARTING, "TimerFired"): {
        STAY: "the stop takes too long: the attempt is killed",
        CREATING: "the backoff is over, and the parallelism restarted for is still attainable",
        WAITING: "the backoff is over, and no target or not attainable any more",
    },
    (RESTARTING, "AttemptFinished"): {
        STAY: "told again",
        FINISHED: "the attempt had processed everything when it was stopped",
    },
    (RESTARTING, "GlobalFailure"): {STAY: "recorded"},
    (RESTARTING, "SlotsChanged"): {STAY: "the slots are noted; they count after the backoff"},
    (RESTARTING, "RequirementsUpdated"): {STAY: "the bounds are noted; they count after the backoff"},
    (RESTARTING, "AttemptRunning"): {STAY: "late report"},
    (RESTARTING, "BatchCompleted"): {STAY: "the last batch before the stop"},
    (RESTARTING, "BatchAborted"): {STAY: "the batch in flight was given up"},
    (RESTARTING, "PlanApplied"): {STAY: "late report"},
    (RESTARTING, "CancelRequested"): {CANCELING: "a client canceled the job"},
    (RESTARTING, "SuspendRequested"): {FINISHED: "this control plane gives the job up"},
    # ---- Failing: the attempt is killed, then the job is FAILED
    (FAILING, ENTRY): {FINISHED: "nothing is alive any more"},
    (FAILING, "AttemptStopped"): {FINISHED: "nothing is alive any more"},
    (FAILING, "AttemptStartFailed"): {FINISHED: "nothing is alive any more"},
    (FAILING, "AttemptFailed"): {STAY: "recorded", FINISHED: "nothing is alive any more"},
    (FAILING, "AttemptFinished"): {FINISHED: "nothing is alive any more"},
    (FAILING, "TimerFired"): {STAY: "the attempt is killed again"},
    (FAILING, "GlobalFailure"): {STAY: "recorded"},
    (FAILING, "RequirementsUpdated"): {STAY: "no effect: the job ends"},
    (FAILING, "SlotsChanged"): {STAY: "no effect: the job ends"},
    (FAILING, "AttemptRunning"): {STAY: "late report"},
    (FAILING, "BatchCompleted"): {STAY: "late report"},
    (FAILING, "BatchAborted"): {STAY: "late report"},
    (FAILING, "PlanApplied"): {STAY: "late report"},
    (FAILING, "CancelRequested"): {CANCELING: "a client canceled the job"},
    (FAILING, "SuspendRequested"): {FINISHED: "this control plane gives the job up"},
    # ---- Canceling: the attempt is killed, then the job is CANCELED
    (CANCELING, ENTRY): {FINISHED: "nothing is alive any more"},
    (CANCELING, "AttemptStopped"): {FINISHED: "nothing is alive any more"},
    (CANCELING, "AttemptStartFailed"): {FINISHED: "nothing is alive any more"},
    (CANCELING, "AttemptFailed"): {STAY: "recorded", FINISHED: "nothing is alive any more"},
    (CANCELING, "AttemptFinished"): {FINISHED: "nothing is alive any more"},
    (CANCELING, "TimerFired"): {STAY: "the attempt is killed again"},
    (CANCELING, "GlobalFailure"): {STAY: "recorded"},
    (CANCELING, "RequirementsUpdated"): {STAY: "no effect: the job ends"},
    (CANCELING, "SlotsChanged"): {STAY: "no effect: the job ends"},
    (CANCELING, "AttemptRunning"): {STAY: "late report"},
    (CANCELING, "BatchCompleted"): {STAY: "late report"},
    (CANCELING, "BatchAborted"): {STAY: "late report"},
    (CANCELING, "PlanApplied"): {STAY: "late report"},
    (CANCELING, "CancelRequested"): {STAY: "asked again"},
    (CANCELING, "SuspendRequested"): {FINISHED: "this control plane gives the job up"},
    # ---- Finished: nothing changes any more
    (FINISHED, "TimerFired"): {STAY: "no timer is held"},
}

_TABLE.update({(_phase, "VersionRequested"): _targets for _phase, _targets in VERSION_EDGES.items()})
_ENDS = ("AttemptStartFailed", "AttemptFailed", "AttemptStopped", "AttemptFinished")
for _event in ("AttemptRunning", *_ENDS, "BatchCompleted", "BatchAborted", "PlanApplied"):
    _TABLE[FINISHED, _event] = {STAY: "late report"}
for _phase in (WAITING, CREATING, RETRYING, RESTARTING, FAILING, CANCELING, FINISHED):
    for _event in ("RegionFinished", "RegionFailed"):
        _TABLE[_phase, _event] = {STAY: _TABLE[_phase, "PlanApplied"][STAY]}
for _event in ("SlotsChanged", "CancelRequested", "SuspendRequested", "GlobalFailure"):
    _TABLE[FINISHED, _event] = {STAY: "the job is over"}
_TABLE[RESCALING, "QueryFailed"] = _TABLE[EXECUTING, "QueryFailed"]
_TABLE[STOPPING, "QueryFailed"] = {
    RESTARTING: "a query that failed cannot be drained, and the restart strategy allows a restart",
    FAILING: "a failure that is final, or came too often, or the restart strategy allows no restart",
}
_TABLE[RESCALING, "GlobalFailure"] = _TABLE[STOPPING, "GlobalFailure"] = _TABLE[EXECUTING, "GlobalFailure"]
for _phase in (WAITING, CREATING, RETRYING, FINISHED):
    _TABLE[_phase, "QueryFailed"] = {STAY: "late report"}
for _phase in (RESTARTING, FAILING, CANCELING):
    _TABLE[_phase, "QueryFailed"] = {STAY: "recorded"}
for _phase in PHASES[1:]:
    _TABLE[_phase, "QueryRecovered"] = _TABLE[_phase, "DriverContact"] = {STAY: "late report"}
    _TABLE[_phase, "AttemptMisplaced"] = {STAY: "nothing of the attempt is alive, or it ends where it is"}
_TABLE[CREATING, "AttemptMisplaced"][WAITING] = "it is killed, and started anew where jobs run now"
for _phase in (EXECUTING, RESCALING):
    _TABLE[_phase, "AttemptMisplaced"] = {RESTARTING: "it is stopped, and started anew where jobs run now"}
    _TABLE[_phase, "QueryRecovered"] = {STAY: "a query that was restarted alone has committed a batch"}
    _TABLE[_phase, "DriverContact"] = {STAY: "the time of what was ordered begins when the driver is heard"}
    _TABLE[_phase, "StateRepartitioned"] = {STAY: "that of a query that its program started late"}
for _phase in PHASES[:-1]:
    _TABLE[_phase, "SlotShareUpdated"] = {STAY: "the share of the slots is noted, and the cluster is told"}
_TABLE[EXECUTING, "StateRepartitioned"] |= dict.fromkeys((RESCALING, RESTARTING), "bounds had waited for it")
for _phase in (WAITING, RETRYING, STOPPING, RESTARTING, FAILING, CANCELING, FINISHED):
    _TABLE[_phase, "StateRepartitioned"] = {STAY: _TABLE[_phase, "AttemptRunning"][STAY]}

TRANSITIONS: Final[dict[tuple[str, str], frozenset[str]]] = {
    (phase, event): frozenset(phase if target == STAY else target for target in targets)
    for (phase, event), targets in _TABLE.items()
}
"""(phase kind, event kind or ENTRY) -> the phase kinds that can follow; the phase itself where it can stay."""

EVENTS: Final = tuple(kind.__name__ for kind in Event.__args__)
